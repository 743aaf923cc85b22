// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct account {
	long balance;
	int kind;
	int entries;
};

static __always_inline long balance(struct account *account)
{
	long value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &account->balance);
	return value;
}

SEC("fentry/siteseer_nested_one_address:enter")
int BPF_PROG(entered, struct account *account, long amount)
{
	return SUITE_SEND(balance(account), amount);
}

SEC("fentry/siteseer_nested_one_address:record")
int BPF_PROG(recorded, struct account *account, long amount, int kind)
{
	return SUITE_SEND(balance(account), amount, kind);
}

SEC("fentry/siteseer_nested_one_address:store")
int BPF_PROG(stored, struct account *account, long amount)
{
	return SUITE_SEND(balance(account), amount);
}

SEC("kprobe_maybe_inline/siteseer_nested_one_address:store")
int BPF_PROG(maybe_stored, struct account *account, long amount)
{
	return SUITE_SEND(balance(account), amount);
}
