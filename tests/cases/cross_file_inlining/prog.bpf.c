// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_cross_file_inlining:convert")
int BPF_PROG(entry, void *account, int rate, long amount)
{
	return SUITE_SEND(rate, amount);
}

SEC("kprobe_maybe_inline/siteseer_cross_file_inlining:convert")
int BPF_PROG(maybe, void *account, int rate, long amount)
{
	return SUITE_SEND(rate, amount);
}

SEC("fexit/siteseer_cross_file_inlining:convert")
int BPF_PROG(leave, void *account, int rate, long amount)
{
	return SUITE_SEND(rate, amount);
}
