// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_indirect_clone:fold")
int BPF_PROG(fold, long value, int factor)
{
	return SUITE_SEND(value, factor);
}

SEC("kprobe_maybe_inline/siteseer_indirect_clone:fold")
int BPF_PROG(fold_maybe, long value, int factor)
{
	return SUITE_SEND(value, factor);
}

SEC("fexit/siteseer_indirect_clone:fold")
int returned(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 2));
}
