// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct span {
	unsigned long start;
	unsigned int length;
	short owner;
};

SEC("fentry/siteseer_struct_pieces:last_of")
int BPF_PROG2(last_of, struct span, span, int, step)
{
	return SUITE_SEND(span.start, span.length, span.owner, step);
}

SEC("kprobe_maybe_inline/siteseer_struct_pieces:last_of")
int BPF_PROG2(last_of_maybe, struct span, span, int, step)
{
	return SUITE_SEND(span.start, span.length, span.owner, step);
}

/* A box is 24 bytes. */
SEC("fentry/siteseer_struct_pieces:volume")
int volume(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), (int)SUITE_SLOT(ctx, 3));
}

SEC("kprobe_maybe_inline/siteseer_struct_pieces:volume")
int volume_maybe(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), (int)SUITE_SLOT(ctx, 3));
}
