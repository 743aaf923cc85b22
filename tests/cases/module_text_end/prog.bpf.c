// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_module_text_end:mark")
int BPF_PROG(mark, long value)
{
	return SUITE_SEND(value);
}

SEC("kprobe_maybe_inline/siteseer_module_text_end:mark")
int BPF_PROG(mark_maybe, long value)
{
	return SUITE_SEND(value);
}

SEC("fentry/siteseer_module_text_end:at_the_end")
int BPF_PROG(end, long value)
{
	return SUITE_SEND(value);
}
