// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

SEC("fentry/siteseer_site_identity:note")
int BPF_PROG(note, int value)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	unsigned long ip = bpf_get_func_ip(ctx);

	if (!site)
		return 0;
	/* What the compiler chose, the offset in the caller, is sent as whether it adds up. */
	return SUITE_SEND(value, bpf_get_attach_cookie(ctx), site->id, site->kind, site->symbol,
			  site->address - site->symbol - site->offset, ip == site->address, site->offset != 0);
}

SEC("kprobe_maybe_inline/siteseer_site_identity:note")
int BPF_PROG(note_maybe, int value)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	unsigned long ip = bpf_get_func_ip(ctx);

	if (!site)
		return 0;
	/* What the compiler chose, the offset in the caller, is sent as whether it adds up. */
	return SUITE_SEND(value, bpf_get_attach_cookie(ctx), site->id, site->kind, site->symbol,
			  site->address - site->symbol - site->offset, ip == site->address, site->offset != 0);
}

/* At the body the kernel's own answer: the function. */
SEC("kprobe_maybe_inline/siteseer_site_identity:note")
int BPF_PROG(ips, int value)
{
	const struct siteseer_site *site = siteseer_site(ctx);

	return SUITE_SEND(value, site && site->kind == SITESEER_KIND_BODY ? bpf_get_func_ip(ctx) : 0);
}

SEC("kprobe_maybe_inline/siteseer_site_identity:tally")
int BPF_PROG(tally, int value)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	unsigned long ip = bpf_get_func_ip(ctx);

	if (!site)
		return 0;
	/* What the compiler chose, the offset in the caller, is sent as whether it adds up. */
	return SUITE_SEND(value, bpf_get_attach_cookie(ctx), site->id, site->kind, site->symbol,
			  site->address - site->symbol - site->offset, ip == site->address, site->offset != 0);
}
