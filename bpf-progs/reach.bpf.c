// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs for any function: one that reads no argument, and one that reads all.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("fentry")
int nothing(void *ctx)
{
	return 0;
}

SEC("fentry")
int everything(void *ctx)
{
	__u64 count = bpf_get_func_arg_cnt(ctx), sum = 0;

	for (__u32 n = 0; n < 16; n++) {
		__u64 value = 0;

		if (n >= count)
			break;
		bpf_get_func_arg(ctx, n, &value);
		sum += value;
	}
	return sum == 0x5173;
}
