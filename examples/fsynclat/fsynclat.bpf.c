// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * How long vfs_fsync_range() takes, a function that is called in some places and inlined in others.
 *
 * The entry program runs at all of them. The exit program runs where there is a return: at the function's own symbol. An inlined
 * copy has none, so a call that comes by one is counted, and its time is not known.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <siteseer.bpf.h>
#include "fsynclat.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The process that is watched; 0 for all. */
const volatile __u32 only_pid = 0;

/* When the task's call began. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, __u64);
} begun SEC(".maps");

__u64 histogram[SLOTS];
/* All calls; those among them that came by an inlined copy; those that asked for the data alone. */
__u64 calls, inlined, datasyncs;

static __always_inline bool watched(__u64 id)
{
	return !only_pid || id >> 32 == only_pid;
}

SEC("fentry/vfs_fsync_range")
int BPF_PROG(entered, struct file *file, loff_t start, loff_t end, int datasync)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	__u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	__u32 task = id;

	if (!watched(id) || !site)
		return 0;
	__sync_fetch_and_add(&calls, 1);
	if (datasync)
		__sync_fetch_and_add(&datasyncs, 1);
	if (site->kind == SITESEER_KIND_INLINE) {
		__sync_fetch_and_add(&inlined, 1);
		return 0;
	}
	bpf_map_update_elem(&begun, &task, &now, BPF_ANY);
	return 0;
}

SEC("fexit/vfs_fsync_range")
int BPF_PROG(returned)
{
	__u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), microseconds;
	__u32 task = id, slot = 0;
	__u64 *then;

	if (!watched(id))
		return 0;
	then = bpf_map_lookup_elem(&begun, &task);
	if (!then)
		return 0;
	microseconds = (now - *then) / 1000;
	bpf_map_delete_elem(&begun, &task);
	for (slot = 0; slot < SLOTS - 1 && microseconds > 1; slot++)
		microseconds >>= 1;
	if (slot < SLOTS)
		__sync_fetch_and_add(&histogram[slot], 1);
	return 0;
}
