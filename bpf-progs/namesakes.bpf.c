// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs for a name that two functions have: free_copy() in ipc/msg.c and in kernel/module/main.c, both inlined into
 * their callers.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct msg_msgseg;
struct load_info;

struct msg_msg {
	struct msg_msgseg *next;
} __attribute__((preserve_access_index));

/* Calls, and those with a message that has no second segment. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]);
} counts SEC(".maps");

static __always_inline int count(struct msg_msg *copy)
{
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(&counts, &zero);

	if (!value)
		return 0;
	value[0]++;
	if (copy && !copy->next)
		value[1]++;
	return 0;
}

SITESEER_PROTO(of_messages, void, struct msg_msg *copy);
SEC("kprobe_maybe_inline/free_copy")
int BPF_PROG(of_messages, struct msg_msg *copy)
{
	return count(copy);
}

SITESEER_PROTO(of_modules, void, struct load_info *info, int flags);
SEC("kprobe_maybe_inline/free_copy")
int BPF_PROG(of_modules, struct load_info *info)
{
	return info != 0;
}

/* What there is takes no message that it must not change. */
SITESEER_PROTO(of_neither, void, const struct msg_msg *copy);
SEC("kprobe_maybe_inline/free_copy")
int BPF_PROG(of_neither, struct msg_msg *copy)
{
	return count(copy);
}

SEC("kprobe_maybe_inline/free_copy")
int BPF_PROG(unstated, struct msg_msg *copy)
{
	return count(copy);
}
