// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_hoisted_copies:note")
int calls(void *ctx)
{
	return SUITE_SEND(1);
}

SEC("fentry/siteseer_hoisted_copies:note")
int BPF_PROG(entry, void *account, int code, long amount)
{
	return SUITE_SEND(code, amount);
}
