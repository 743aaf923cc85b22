// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A BPF program to be traced: a main function with a global and a static subprogram, one that enters it by tail call, and an
 * extension for the global one. All values follow from the packet's length.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} jumps SEC(".maps");

/* The first member of include/uapi/linux/bpf.h's. */
struct __sk_buff {
	__u32 len;
};

__noinline int jumps_global(int a, int b)
{
	return a * 10 + b;
}

static __noinline int jumps_static(int a, long b)
{
	/* Keeps the compiler from making something else of it. */
	asm volatile("" : "+r"(a), "+r"(b));
	return a * 3 + (int)b;
}

SEC("tc")
int jumps_main(struct __sk_buff *skb)
{
	int len = skb->len;

	return jumps_global(len, len + 1) + jumps_static(len - 1, len + 2);
}

SEC("tc")
int jumps_caller(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &jumps, 2);
	return 12345;
}

SEC("freplace/jumps_global")
int jumps_extension(int a, int b)
{
	return a * 100 + b;
}
