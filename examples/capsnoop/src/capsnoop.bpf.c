// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Which capabilities the kernel asks for, and in which user namespace.
 *
 * ns_capable() is inlined into capable(), where `ns` is always the first namespace and the compiler keeps no copy of it. A program
 * that read `ns` as its parameter would not be attached there. This one asks for it, and does without if there is none.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <siteseer.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The process that is watched; 0 for all. */
const volatile __u32 only_pid = 0;

struct asked {
	__u32 pid;
	__u32 site;
	__s32 cap;
	/* Of the user namespace; -1 if this site does not have it. */
	__s32 level;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} asked SEC(".maps");

/* Calls that the buffer had no room for. */
__u64 lost;

SEC("fentry/ns_capable")
int BPF_PROG(capable, struct user_namespace *ns, int cap)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct asked *event;
	__u64 space;

	if ((only_pid && pid != only_pid) || !site)
		return 0;
	event = bpf_ringbuf_reserve(&asked, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	event->pid = pid;
	event->site = site->id;
	event->cap = cap;
	event->level = -1;
	if (!siteseer_arg(ctx, 0, &space))
		event->level = BPF_CORE_READ((struct user_namespace *)space, level);
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}
