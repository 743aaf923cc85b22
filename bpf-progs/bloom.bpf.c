// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Pushes values into Bloom filters, which hash them by jhash(). From user space the same would be done with BPF tracing
 * switched off (bpf_disable_instrumentation() in kernel/bpf/syscall.c), so that no program could see it.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BPF_MAP_TYPE_BLOOM_FILTER 30
/* The hashes start from 0, so that they can be known. */
#define BPF_F_ZERO_SEED (1U << 6)

#define FILTER(size, hashes)                                            \
	struct {                                                        \
		__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);                \
		__uint(max_entries, 64);                                \
		__uint(value_size, size);                               \
		__uint(map_extra, hashes);                              \
		__uint(map_flags, BPF_F_ZERO_SEED);                     \
	} filter##size SEC(".maps");                                    \
									\
	SEC("socket")                                                   \
	int push##size(void *ctx)                                       \
	{                                                               \
		char value[size];                                       \
									\
		__builtin_memset(value, 0x40 + size, size);             \
		return bpf_map_push_elem(&filter##size, value, 0);      \
	}

/*
 * Pushes a value where a kprobe is being handled, so that a kprobe on jhash() is missed. Only for the process that
 * asks for it.
 */
const volatile __u32 only_tgid = 0;
__u64 pushed;

FILTER(5, 2)
FILTER(7, 3)
FILTER(13, 4)

SEC("kprobe")
int nested(void *ctx)
{
	char value[7];

	if (bpf_get_current_pid_tgid() >> 32 != only_tgid)
		return 0;
	__builtin_memset(value, 0x51, sizeof(value));
	if (!bpf_map_push_elem(&filter7, value, 0))
		pushed++;
	return 0;
}
