// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_@NAME@:target")
int BPF_PROG(entry, long a, int b)
{
	return SUITE_SEND(a, b);
}

SEC("kprobe_maybe_inline/siteseer_@NAME@:target")
int BPF_PROG(maybe, long a, int b)
{
	return SUITE_SEND(a, b);
}
