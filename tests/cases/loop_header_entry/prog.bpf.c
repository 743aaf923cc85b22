// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct stop {
	struct stop *next;
	long fare;
};

static __always_inline long fare(struct stop *stop)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &stop->fare);
	return value;
}

SEC("fentry/siteseer_loop_header_entry:visit")
int BPF_PROG(entry, struct stop *stop, long by)
{
	return SUITE_SEND(fare(stop), by);
}

SEC("kprobe_maybe_inline/siteseer_loop_header_entry:visit")
int BPF_PROG(maybe, struct stop *stop, long by)
{
	return SUITE_SEND(fare(stop), by);
}

SEC("kprobe_maybe_inline/siteseer_loop_header_entry:visit")
int turns(void *ctx)
{
	return SUITE_SEND(1);
}

SEC("fentry/siteseer_loop_header_entry:ride")
int BPF_PROG(rides, struct stop *stop, long sum)
{
	return SUITE_SEND(fare(stop), sum);
}

SEC("kprobe_maybe_inline/siteseer_loop_header_entry:ride")
int BPF_PROG(maybe_rides, struct stop *stop, long sum)
{
	return SUITE_SEND(fare(stop), sum);
}
