// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct account {
	bool open;
	long balance;
};

static __always_inline long balance(struct account *account)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &account->balance);
	return value;
}

SEC("fentry/siteseer_partial_inlining:charge")
int BPF_PROG(charged, struct account *account, long amount)
{
	return SUITE_SEND(balance(account), amount);
}

SEC("kprobe_maybe_inline/siteseer_partial_inlining:charge")
int BPF_PROG(maybe_charged, struct account *account, long amount)
{
	return SUITE_SEND(balance(account), amount);
}

SEC("kprobe_maybe_inline/siteseer_partial_inlining:charge")
int charges(void *ctx)
{
	return SUITE_SEND(1);
}

SEC("fentry/siteseer_partial_inlining:refund")
int BPF_PROG(refunded, struct account *account, int share)
{
	return SUITE_SEND(balance(account), share);
}

SEC("kprobe_maybe_inline/siteseer_partial_inlining:refund")
int BPF_PROG(maybe_refunded, struct account *account, int share)
{
	return SUITE_SEND(balance(account), share);
}

SEC("kprobe_maybe_inline/siteseer_partial_inlining:refund.part.0")
int rest(void *ctx)
{
	return SUITE_SEND(2);
}

SEC("fexit/siteseer_partial_inlining:charge")
int BPF_PROG(leave, struct account *account, long amount, long ret)
{
	return SUITE_SEND(amount, ret);
}
