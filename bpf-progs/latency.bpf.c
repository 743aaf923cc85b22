// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * The programs of `siteseer trace --latency`: the times that calls take are counted in the kernel, so that none is lost for want of
 * room in a buffer.
 *
 * `begin` and `begin_wanted` are at the beginning of calls. The latter looks at the arguments, which are not known where all calls
 * return. `finish` is at the return.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "siteseer.bpf.h"
#include "filter.h"
#include "calls.h"
#include "log2.h"
#include "process.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* User space gives it room for each function. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct latencies);
} latencies SEC(".maps");

SEC("kprobe_maybe_inline")
int begin(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();

	if (is_process(id))
		begin_call(id, bpf_get_attach_cookie(ctx), true);
	return 0;
}

/* All calls, since all of them return. */
SEC("kprobe_maybe_inline")
int begin_wanted(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct arguments arguments;
	union comm comm = {};

	if (!is_process(id))
		return 0;
	read_arguments(ctx, &arguments);
	read_fields(&arguments, 0);
	bpf_get_current_comm(comm.text, sizeof(comm.text));
	begin_call(id, bpf_get_attach_cookie(ctx), is_wanted(&arguments, id, &comm, 0));
	return 0;
}

SEC("fexit")
int finish(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), duration;
	__u32 function = bpf_get_attach_cookie(ctx), bucket;
	struct latencies *of;

	if (!is_process(id))
		return 0;
	duration = end_call(id, function);
	if (duration == NO_TIME || !(duration & 1))
		return 0;
	duration >>= 1;
	of = bpf_map_lookup_elem(&latencies, &function);
	if (!of)
		return 0;
	/* 0 stands by itself. */
	bucket = duration ? log2(duration) + 1 : 0;
	if (bucket < LATENCY_BUCKETS) {
		__sync_fetch_and_add(&of->counts[bucket], 1);
		__sync_fetch_and_add(&of->sum, duration);
	}
	return 0;
}
