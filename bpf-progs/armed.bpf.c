// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Counts the hits of each place (`ci/armed`), whoever makes them.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* By the place's number, which is its cookie. How many there are is set before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("kprobe.multi")
int armed(void *ctx)
{
	__u32 place = bpf_get_attach_cookie(ctx);
	__u64 *count = bpf_map_lookup_elem(&hits, &place);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
