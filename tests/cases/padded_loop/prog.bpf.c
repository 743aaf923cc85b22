// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct cart {
	struct cart *next;
	long load;
};

static __always_inline long load(struct cart *cart)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &cart->load);
	return value;
}

SEC("fentry/siteseer_padded_loop:haul")
int BPF_PROG(entry, struct cart *cart, long by)
{
	return SUITE_SEND(load(cart), by);
}

SEC("kprobe_maybe_inline/siteseer_padded_loop:haul")
int BPF_PROG(maybe, struct cart *cart, long by)
{
	return SUITE_SEND(load(cart), by);
}
