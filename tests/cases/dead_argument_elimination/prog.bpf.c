// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

SEC("fentry/siteseer_dead_argument_elimination:dock")
int BPF_PROG(docked, short ship, const void *berth, long crew)
{
	return SUITE_SEND(ship);
}

SEC("fentry/siteseer_dead_argument_elimination:dock")
int BPF_PROG(berthed, short ship, const void *berth, long crew)
{
	return SUITE_SEND(ship, (__u64)berth);
}

SEC("fexit/siteseer_dead_argument_elimination:dock")
int BPF_PROG(docked_with, short ship, const void *berth, long crew, long ret)
{
	return SUITE_SEND(ret);
}

SEC("fentry/siteseer_dead_argument_elimination:sail")
int BPF_PROG(sailed, const void *berth, short ship, long crew)
{
	return SUITE_SEND(ship, crew);
}

SEC("kprobe_maybe_inline/siteseer_dead_argument_elimination:sail")
int BPF_PROG(maybe_sailed, const void *berth, short ship, long crew)
{
	return SUITE_SEND(ship, crew);
}

SEC("kprobe_maybe_inline/siteseer_dead_argument_elimination:sail")
int BPF_PROG(left, const void *berth, short ship, long crew)
{
	return SUITE_SEND((__u64)berth, ship, crew);
}

SEC("kprobe_maybe_inline/siteseer_dead_argument_elimination:sail")
int BPF_PROG(asks, const void *berth, short ship, long crew)
{
	struct suite_record *record = SUITE_BEGIN();
	__u64 value;

	if (record) {
		if (siteseer_arg(ctx, 0, &value))
			suite_absent(record, 0);
		else
			suite_put(record, 0, value);
		suite_put(record, 1, ship);
		suite_put(record, 2, crew);
		suite_submit(record);
	}
	return 0;
}

SEC("fexit/siteseer_dead_argument_elimination:sail")
int BPF_PROG(sailed_with, const void *berth, short ship, long crew, long ret)
{
	return SUITE_SEND(ret);
}
