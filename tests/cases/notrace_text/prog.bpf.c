// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_notrace_text:mark")
int BPF_PROG(mark, long value)
{
	return SUITE_SEND(value);
}

SEC("kprobe_maybe_inline/siteseer_notrace_text:mark")
int BPF_PROG(mark_maybe, long value)
{
	return SUITE_SEND(value);
}
