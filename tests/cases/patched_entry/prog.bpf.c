// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct lamp {
	long watts;
	long hours;
};

static __always_inline long watts(struct lamp *lamp)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &lamp->watts);
	return value;
}

SEC("fentry/siteseer_patched_entry:shine")
int BPF_PROG(shines, struct lamp *lamp)
{
	return SUITE_SEND(watts(lamp));
}

SEC("fentry/siteseer_patched_entry:shine")
int BPF_PROG(shines_by, struct lamp *lamp, long by)
{
	return SUITE_SEND(watts(lamp), by);
}

SEC("kprobe_maybe_inline/siteseer_patched_entry:shine")
int BPF_PROG(maybe_shines_by, struct lamp *lamp, long by)
{
	return SUITE_SEND(watts(lamp), by);
}

SEC("fentry/siteseer_patched_entry:turn")
int BPF_PROG(turns, struct lamp *lamp, long by)
{
	return SUITE_SEND(watts(lamp), by);
}
