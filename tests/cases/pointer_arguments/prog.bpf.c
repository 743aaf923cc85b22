// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_pointer_arguments:apply")
int BPF_PROG(apply, long (*function)(long), const char *name, volatile long *place,
	     const volatile int *const flags)
{
	long at_place = 0;
	int at_flags = 0;
	char text[4] = {};

	bpf_probe_read_kernel(text, sizeof(text), name);
	bpf_probe_read_kernel(&at_place, sizeof(at_place), (void *)place);
	bpf_probe_read_kernel(&at_flags, sizeof(at_flags), (void *)flags);
	return SUITE_SEND((long)function, (long)name, text[0], text[3], (long)place, at_place, (long)flags, at_flags);
}

SEC("kprobe_maybe_inline/siteseer_pointer_arguments:apply")
int BPF_PROG(apply_maybe, long (*function)(long), const char *name, volatile long *place,
	     const volatile int *const flags)
{
	long at_place = 0;
	int at_flags = 0;
	char text[4] = {};

	bpf_probe_read_kernel(text, sizeof(text), name);
	bpf_probe_read_kernel(&at_place, sizeof(at_place), (void *)place);
	bpf_probe_read_kernel(&at_flags, sizeof(at_flags), (void *)flags);
	return SUITE_SEND((long)function, (long)name, text[0], text[3], (long)place, at_place, (long)flags, at_flags);
}

/* What is called by the pointer is seen as well, between the calls of what calls it. */
SEC("fentry/siteseer_pointer_arguments:square")
int BPF_PROG(called, long value)
{
	return SUITE_SEND(value);
}
