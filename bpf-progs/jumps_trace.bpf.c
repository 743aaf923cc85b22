// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs on the functions of jumps.bpf.c. Each counts its hits and keeps what it saw last, in an element of its own.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sk_buff {
	unsigned int len;
} __attribute__((preserve_access_index));

struct seen {
	__u64 count;
	__u64 values[3];
};

/* By number of the program, in the order of this file. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

static __always_inline void saw(__u32 program, __u64 first, __u64 second, __u64 third)
{
	struct seen *element = bpf_map_lookup_elem(&seen, &program);

	if (element) {
		element->count++;
		element->values[0] = first;
		element->values[1] = second;
		element->values[2] = third;
	}
}

SEC("fentry/jumps_main")
int BPF_PROG(enter_main, struct sk_buff *skb)
{
	saw(0, skb->len, 0, 0);
	return 0;
}

SEC("fexit/jumps_main")
int BPF_PROG(leave_main, struct sk_buff *skb, int ret)
{
	saw(1, skb->len, 0, (__u32)ret);
	return 0;
}

SEC("fentry/jumps_global")
int BPF_PROG(enter_global, int a, int b)
{
	saw(2, (__u32)a, (__u32)b, 0);
	return 0;
}

SEC("fexit/jumps_global")
int BPF_PROG(leave_global, int a, int b, int ret)
{
	saw(3, (__u32)a, (__u32)b, (__u32)ret);
	return 0;
}

SEC("fentry/jumps_static")
int BPF_PROG(enter_static, int a, long b)
{
	saw(4, (__u32)a, b, 0);
	return 0;
}

SEC("fexit/jumps_static")
int BPF_PROG(leave_static, int a, long b, int ret)
{
	saw(5, (__u32)a, b, (__u32)ret);
	return 0;
}

SEC("fentry/jumps_extension")
int BPF_PROG(enter_extension, int a, int b)
{
	saw(6, (__u32)a, (__u32)b, 0);
	return 0;
}

SEC("fexit/jumps_extension")
int BPF_PROG(leave_extension, int a, int b, int ret)
{
	saw(7, (__u32)a, (__u32)b, (__u32)ret);
	return 0;
}
