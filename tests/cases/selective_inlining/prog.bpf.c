// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

struct account {
	long total;
	unsigned int entries;
};

SEC("fentry/siteseer_selective_inlining:book")
int BPF_PROG(entry, struct account *account, short amount)
{
	long total = 0;

	bpf_probe_read_kernel(&total, sizeof(total), &account->total);
	return SUITE_SEND(total, amount);
}

SEC("kprobe_maybe_inline/siteseer_selective_inlining:book")
int BPF_PROG(maybe, struct account *account, short amount)
{
	long total = 0;

	bpf_probe_read_kernel(&total, sizeof(total), &account->total);
	return SUITE_SEND(total, amount);
}

SEC("kprobe_maybe_inline/siteseer_selective_inlining:book")
int kinds(void *ctx)
{
	const struct siteseer_site *site = siteseer_site(ctx);

	return SUITE_SEND(site ? site->kind : ~0ull);
}

SEC("fexit/siteseer_selective_inlining:book")
int BPF_PROG(leave, struct account *account, short amount, long ret)
{
	return SUITE_SEND(amount, ret);
}
