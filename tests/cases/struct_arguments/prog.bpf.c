// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct eight_bytes {
	int first;
	unsigned int second;
};

struct sixteen_bytes {
	long first;
	short second;
	unsigned int third;
};

SEC("fentry/siteseer_struct_arguments:by8")
int BPF_PROG2(by8, int, before, struct eight_bytes, it, long, after)
{
	return SUITE_SEND(before, it.first, it.second, after);
}

SEC("kprobe_maybe_inline/siteseer_struct_arguments:by8")
int BPF_PROG2(by8_maybe, int, before, struct eight_bytes, it, long, after)
{
	return SUITE_SEND(before, it.first, it.second, after);
}

SEC("fentry/siteseer_struct_arguments:by16")
int BPF_PROG2(by16, int, before, struct sixteen_bytes, it, long, after)
{
	return SUITE_SEND(before, it.first, it.second, it.third, after);
}

SEC("kprobe_maybe_inline/siteseer_struct_arguments:by16")
int BPF_PROG2(by16_maybe, int, before, struct sixteen_bytes, it, long, after)
{
	return SUITE_SEND(before, it.first, it.second, it.third, after);
}

/* BPF_PROG2 takes structures of up to 16 bytes: slot by slot. */
SEC("fentry/siteseer_struct_arguments:by24")
int by24(void *ctx)
{
	return SUITE_SEND((int)SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), SUITE_SLOT(ctx, 3),
			  SUITE_SLOT(ctx, 4));
}

SEC("kprobe_maybe_inline/siteseer_struct_arguments:by24")
int by24_maybe(void *ctx)
{
	return SUITE_SEND((int)SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), SUITE_SLOT(ctx, 3),
			  SUITE_SLOT(ctx, 4));
}

SEC("fentry/siteseer_struct_arguments:late16")
int BPF_PROG2(late16, long, a, long, b, long, c, long, d, long, e, struct sixteen_bytes, it, long, after)
{
	return SUITE_SEND(a, b, c, d, e, it.first, it.second, it.third, after);
}

SEC("kprobe_maybe_inline/siteseer_struct_arguments:late16")
int BPF_PROG2(late16_maybe, long, a, long, b, long, c, long, d, long, e, struct sixteen_bytes, it, long, after)
{
	return SUITE_SEND(a, b, c, d, e, it.first, it.second, it.third, after);
}
