// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_variadic:add_up")
int BPF_PROG(add_up, int count, long first)
{
	return SUITE_SEND(count, first);
}

SEC("kprobe_maybe_inline/siteseer_variadic:add_up")
int BPF_PROG(add_up_maybe, int count, long first)
{
	return SUITE_SEND(count, first);
}

/* What follows the named parameters has no slot. */
SEC("fentry/siteseer_variadic:add_up")
int BPF_PROG(third, int count, long first, long second)
{
	return SUITE_SEND(count, first, second);
}

SEC("fexit/siteseer_variadic:add_up")
int add_up_leave(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 2));
}

SEC("fexit/siteseer_variadic:add_up")
int BPF_PROG(add_up_both, int count, long first, long ret)
{
	return SUITE_SEND(count, first, ret);
}
