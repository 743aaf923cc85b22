// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_recursion:fold")
int BPF_PROG(folds, int depth, long seed)
{
	return SUITE_SEND(depth, seed);
}

SEC("kprobe_maybe_inline/siteseer_recursion:fold")
int BPF_PROG(maybe_folds, int depth, long seed)
{
	return SUITE_SEND(depth, seed);
}

SEC("fentry/siteseer_recursion:odd")
int BPF_PROG(odds, int depth, long seed)
{
	return SUITE_SEND(depth, seed);
}

SEC("fentry/siteseer_recursion:even")
int BPF_PROG(evens, int depth, long seed)
{
	return SUITE_SEND(depth, seed);
}
