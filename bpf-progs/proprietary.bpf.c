// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A program of a licence that the kernel does not let call some helpers: typed pointers take one of them.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Proprietary";

SEC("kprobe_maybe_inline/ns_capable")
int BPF_PROG(follows, struct user_namespace *ns, int cap)
{
	return ns->level;
}
