// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A program that runs for a third of a second, so that somebody can detach it meanwhile.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "siteseer.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NANOSECONDS 300000000ull
/* A bound for the verifier, which looks at every turn. */
#define TURNS 8000
/* Copying takes most of the time. */
#define HALF (1 << 19)

__u64 begun;
__u64 ended;

struct bytes {
	char halves[2][HALF];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bytes);
} copied SEC(".maps");

SEC("kprobe_maybe_inline/ksys_semget")
int slow(void *ctx)
{
	__u64 start = bpf_ktime_get_ns();
	struct bytes *bytes;
	__u32 key = 0;

	bytes = bpf_map_lookup_elem(&copied, &key);
	if (!bytes)
		return 0;
	begun++;
	for (int turn = 0; turn < TURNS; turn++) {
		bpf_probe_read_kernel(bytes->halves[0], HALF, bytes->halves[1]);
		if (bpf_ktime_get_ns() - start > NANOSECONDS)
			break;
	}
	ended++;
	return 0;
}
