// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs that cannot be attached, one for each reason: tests look for the error.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[4]);
} values SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

/* Reads beyond a map's value: the verifier rejects it. */
SEC("kprobe_maybe_inline/ns_capable")
int BPF_PROG(unverifiable, struct user_namespace *ns, int cap)
{
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(&values, &zero);

	return value ? value[cap] : 0;
}

/* Reads a third argument of a function that has two. */
SEC("kprobe_maybe_inline/ns_capable")
int BPF_PROG(too_many, struct user_namespace *ns, int cap, int third)
{
	return third;
}

SEC("kprobe_maybe_inline/ns_capable")
int tail_call(void *ctx)
{
	bpf_tail_call(ctx, &programs, 0);
	return 0;
}

SEC("kprobe_maybe_inline/ns_capable")
int override_return(void *ctx)
{
	bpf_override_return(ctx, 0);
	return 0;
}

SEC("kprobe_maybe_inline/ns_capable")
int writes_context(__u64 *ctx)
{
	*(volatile __u64 *)&ctx[1] = 0;
	return 0;
}

SEC("kprobe_maybe_inline/no_such_function_anywhere")
int no_such_function(void *ctx)
{
	return 0;
}

SEC("kprobe_maybe_inline/some_module:some_function")
int in_module(void *ctx)
{
	return 0;
}

SEC("kprobe_maybe_inline")
int no_function(void *ctx)
{
	return 0;
}
