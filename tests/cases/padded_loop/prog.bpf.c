// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct cart;

/* What `cart` is at a later turn, GCC does not say. */
SEC("fentry/siteseer_padded_loop:haul")
int BPF_PROG(entry, struct cart *cart, long by)
{
	return SUITE_SEND(by);
}

SEC("kprobe_maybe_inline/siteseer_padded_loop:haul")
int BPF_PROG(maybe, struct cart *cart, long by)
{
	return SUITE_SEND(by);
}
