// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_constants_and_registers:add")
int BPF_PROG(add, long *counter, int amount)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), counter);
	return SUITE_SEND(value, amount);
}

SEC("kprobe_maybe_inline/siteseer_constants_and_registers:add")
int BPF_PROG(add_maybe, long *counter, int amount)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), counter);
	return SUITE_SEND(value, amount);
}

SEC("fentry/siteseer_constants_and_registers:add")
int BPF_PROG(address, long *counter, int amount)
{
	return SUITE_SEND((long)counter);
}

SEC("fentry/siteseer_constants_and_registers:add")
int BPF_PROG(amount_only, long *counter, int amount)
{
	return SUITE_SEND(amount);
}
