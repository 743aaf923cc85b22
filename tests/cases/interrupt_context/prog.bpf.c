// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_interrupt_context:note")
int BPF_PROG(note, long value)
{
	return SUITE_SEND(value);
}

SEC("kprobe_maybe_inline/siteseer_interrupt_context:note")
int BPF_PROG(note_maybe, long value)
{
	return SUITE_SEND(value);
}
