// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_assigned_parameter:charge")
int BPF_PROG(charges, void *account, long amount, long fee)
{
	return SUITE_SEND(amount, fee);
}

SEC("kprobe_maybe_inline/siteseer_assigned_parameter:charge")
int BPF_PROG(maybe_charges, void *account, long amount, long fee)
{
	return SUITE_SEND(amount, fee);
}

SEC("fentry/siteseer_assigned_parameter:refund")
int BPF_PROG(refunds, void *account, long amount, long fee)
{
	return SUITE_SEND(amount, fee);
}

SEC("fentry/siteseer_assigned_parameter:settle")
int BPF_PROG(settles, long amount, long fee)
{
	return SUITE_SEND(amount, fee);
}

SEC("kprobe_maybe_inline/siteseer_assigned_parameter:settle")
int BPF_PROG(maybe_settles, long amount, long fee)
{
	return SUITE_SEND(amount, fee);
}
