// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fexit/siteseer_exit_of_inlined:note")
int BPF_PROG(leave, long value, int ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_exit_of_inlined:note")
int BPF_PROG(leave_only)
{
	return SUITE_SEND(1);
}
