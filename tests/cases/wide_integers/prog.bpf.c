// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

/* An __int128 takes two slots, low half first. */
SEC("fentry/siteseer_wide_integers:high")
int high(void *ctx)
{
	return SUITE_SEND((int)SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), SUITE_SLOT(ctx, 3));
}

SEC("kprobe_maybe_inline/siteseer_wide_integers:high")
int high_maybe(void *ctx)
{
	return SUITE_SEND((int)SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), SUITE_SLOT(ctx, 3));
}

SEC("fentry/siteseer_wide_integers:late")
int late(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 4), SUITE_SLOT(ctx, 5), SUITE_SLOT(ctx, 6),
			  SUITE_SLOT(ctx, 7));
}

SEC("kprobe_maybe_inline/siteseer_wide_integers:late")
int late_maybe(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 4), SUITE_SLOT(ctx, 5), SUITE_SLOT(ctx, 6),
			  SUITE_SLOT(ctx, 7));
}
