// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_narrow_arguments:narrow")
int BPF_PROG(narrow, signed char a, unsigned char b, short c, unsigned short d, bool e, int f)
{
	return SUITE_SEND(a, b, c, d, e, f);
}

SEC("kprobe_maybe_inline/siteseer_narrow_arguments:narrow")
int BPF_PROG(narrow_maybe, signed char a, unsigned char b, short c, unsigned short d, bool e, int f)
{
	return SUITE_SEND(a, b, c, d, e, f);
}

SEC("fentry/siteseer_narrow_arguments:half")
int BPF_PROG(half, int a, unsigned int b)
{
	return SUITE_SEND(a, b);
}

SEC("kprobe_maybe_inline/siteseer_narrow_arguments:half")
int BPF_PROG(half_maybe, int a, unsigned int b)
{
	return SUITE_SEND(a, b);
}

/* Slots as they come: extended to 64 bits, whatever the register held above. */
SEC("kprobe_maybe_inline/siteseer_narrow_arguments:narrow")
int narrow_slots(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), SUITE_SLOT(ctx, 3),
			  SUITE_SLOT(ctx, 4), SUITE_SLOT(ctx, 5));
}

SEC("kprobe_maybe_inline/siteseer_narrow_arguments:half")
int half_slots(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1));
}
