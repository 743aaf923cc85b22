// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A program whose section names no function: in an object of its own, as none of its programs can be explained.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Two colons: neither a module nor a function is named so. */
SEC("fentry/some:function:name")
int bad_section(void *ctx)
{
	return 0;
}
