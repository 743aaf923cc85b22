// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_nested_one_address:enter")
int BPF_PROG(entered, void *account, long amount)
{
	return SUITE_SEND(amount);
}

SEC("fentry/siteseer_nested_one_address:record")
int BPF_PROG(recorded, void *account, long amount, int kind)
{
	return SUITE_SEND(amount, kind);
}

SEC("fentry/siteseer_nested_one_address:store")
int BPF_PROG(stored, void *account, long amount)
{
	return SUITE_SEND(amount);
}

SEC("kprobe_maybe_inline/siteseer_nested_one_address:store")
int BPF_PROG(maybe_stored, void *account, long amount)
{
	return SUITE_SEND(amount);
}
