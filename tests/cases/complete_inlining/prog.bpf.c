// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_complete_inlining:scale")
int BPF_PROG(entry, int factor, long value)
{
	return SUITE_SEND(factor, value);
}

SEC("kprobe_maybe_inline/siteseer_complete_inlining:scale")
int BPF_PROG(maybe, int factor, long value)
{
	return SUITE_SEND(factor, value);
}

SEC("fexit/siteseer_complete_inlining:scale")
int BPF_PROG(leave, int factor, long value, long ret)
{
	return SUITE_SEND(factor, value, ret);
}
