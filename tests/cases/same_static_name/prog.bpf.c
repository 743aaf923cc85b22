// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_same_static_name:settle")
int BPF_PROG(entry, long amount, int rate)
{
	return SUITE_SEND(amount, rate);
}

SEC("kprobe_maybe_inline/siteseer_same_static_name:settle")
int BPF_PROG(maybe, long amount, int rate)
{
	return SUITE_SEND(amount, rate);
}

SEC("fexit/siteseer_same_static_name:settle")
int BPF_PROG(result, long amount, int rate, long ret)
{
	return SUITE_SEND(ret);
}
