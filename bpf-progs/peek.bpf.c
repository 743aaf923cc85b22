// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* Reads what is at an address of the kernel, before anything is attached there: user space calls it by BPF_PROG_TEST_RUN. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct peek {
	__u64 address;
	__u64 bytes;
};

/* 0 if it could be read. */
SEC("syscall")
int peek(struct peek *ctx)
{
	__u64 bytes = 0;

	if (bpf_probe_read_kernel(&bytes, sizeof(bytes), (const void *)ctx->address))
		return 1;
	ctx->bytes = bytes;
	return 0;
}
