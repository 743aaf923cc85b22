// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_init_text:mix")
int BPF_PROG(mix, long value)
{
	return SUITE_SEND(value);
}

SEC("kprobe_maybe_inline/siteseer_init_text:mix")
int BPF_PROG(mix_maybe, long value)
{
	return SUITE_SEND(value);
}

/* It has run, and its text is freed: nothing of it can ever be seen. */
SEC("fentry/siteseer_init_text:first_start")
int BPF_PROG(start)
{
	return SUITE_SEND(1);
}
