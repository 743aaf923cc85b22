// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fexit/siteseer_clone_returns:pick")
int BPF_PROG(both, int scale, long value, int unused, long ret)
{
	return SUITE_SEND(scale, value, ret);
}

/* What it returned, and nothing of the entry: slot 3 is after the three arguments. */
SEC("fexit/siteseer_clone_returns:pick")
int returned(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 3));
}

/* Neither. */
SEC("fexit/siteseer_clone_returns:pick")
int BPF_PROG(nothing)
{
	return SUITE_SEND(1);
}

SEC("fentry/siteseer_clone_returns:pick")
int BPF_PROG(entry, int scale, long value)
{
	return SUITE_SEND(scale, value);
}
