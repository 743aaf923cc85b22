// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct shelf {
	long books;
	long weight;
};

static __always_inline long weight(struct shelf *shelf)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &shelf->weight);
	return value;
}

static __always_inline long books(struct shelf *shelf)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &shelf->books);
	return value;
}

SEC("fentry/siteseer_unrolled_loop:stack")
int BPF_PROG(stacks, struct shelf *shelf, long number)
{
	return SUITE_SEND(weight(shelf), number);
}

SEC("kprobe_maybe_inline/siteseer_unrolled_loop:stack")
int BPF_PROG(maybe_stacks, struct shelf *shelf, long number)
{
	return SUITE_SEND(weight(shelf), number);
}

SEC("fentry/siteseer_unrolled_loop:lend")
int BPF_PROG(lends, struct shelf *shelf, long number)
{
	return SUITE_SEND(books(shelf), number);
}

/* Asks for no argument: each turn is a call. */
SEC("kprobe_maybe_inline/siteseer_unrolled_loop:lend")
int turns(void *ctx)
{
	return SUITE_SEND(1);
}
