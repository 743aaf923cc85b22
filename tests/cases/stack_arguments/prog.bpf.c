// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_stack_arguments:eight")
int BPF_PROG(eight, long a, long b, long c, long d, long e, long f, long g, long h)
{
	return SUITE_SEND(a, b, c, d, e, f, g, h);
}

SEC("kprobe_maybe_inline/siteseer_stack_arguments:eight")
int BPF_PROG(eight_maybe, long a, long b, long c, long d, long e, long f, long g, long h)
{
	return SUITE_SEND(a, b, c, d, e, f, g, h);
}

SEC("fentry/siteseer_stack_arguments:ten")
int BPF_PROG(ten, long a, long b, long c, long d, long e, long f, long g, unsigned int h, short i,
	     signed char j)
{
	return SUITE_SEND(a, b, c, d, e, f, g, h, i, j);
}

SEC("kprobe_maybe_inline/siteseer_stack_arguments:ten")
int BPF_PROG(ten_maybe, long a, long b, long c, long d, long e, long f, long g, unsigned int h, short i,
	     signed char j)
{
	return SUITE_SEND(a, b, c, d, e, f, g, h, i, j);
}

/* The last ones are on the stack, and it takes a probe of another kind to keep them until the function returns. */
SEC("fexit/siteseer_stack_arguments:ten")
int BPF_PROG(ten_leave, long a, long b, long c, long d, long e, long f, long g, unsigned int h, short i, signed char j,
	     long ret)
{
	return SUITE_SEND(a, j, ret);
}
