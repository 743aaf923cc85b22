// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_tail_call:forward")
int BPF_PROG(forward, int factor, long value)
{
	return SUITE_SEND(factor, value);
}

SEC("kprobe_maybe_inline/siteseer_tail_call:forward")
int BPF_PROG(forward_maybe, int factor, long value)
{
	return SUITE_SEND(factor, value);
}

SEC("fentry/siteseer_tail_call:last")
int BPF_PROG(last, long value, int factor)
{
	return SUITE_SEND(value, factor);
}

SEC("kprobe_maybe_inline/siteseer_tail_call:last")
int BPF_PROG(last_maybe, long value, int factor)
{
	return SUITE_SEND(value, factor);
}

SEC("fexit/siteseer_tail_call:last")
int BPF_PROG(last_leave, long value, int factor, long ret)
{
	return SUITE_SEND(value, factor, ret);
}

SEC("fexit/siteseer_tail_call:through")
int BPF_PROG(through_leave, long value, int factor, long ret)
{
	return SUITE_SEND(value, factor, ret);
}
