// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct account {
	long balance;
	long trail;
};

static __always_inline long balance(struct account *account)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &account->balance);
	return value;
}

SEC("fentry/siteseer_hot_cold_split:note")
int BPF_PROG(entry, struct account *account, int code, long amount)
{
	return SUITE_SEND(balance(account), code, amount);
}

SEC("kprobe_maybe_inline/siteseer_hot_cold_split:note")
int BPF_PROG(maybe, struct account *account, int code, long amount)
{
	return SUITE_SEND(balance(account), code, amount);
}

SEC("fentry/siteseer_hot_cold_split:withdraw")
int BPF_PROG(whole, struct account *account, long amount)
{
	return SUITE_SEND(balance(account), amount);
}

SEC("fexit/siteseer_hot_cold_split:withdraw")
int BPF_PROG(leave, struct account *account, long amount, long ret)
{
	return SUITE_SEND(amount, ret);
}

SEC("kprobe_maybe_inline/siteseer_hot_cold_split:withdraw.cold")
int cold(void *ctx)
{
	return SUITE_SEND(7);
}
