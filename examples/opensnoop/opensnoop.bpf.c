// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * An ordinary fentry program: nothing in it knows of siteseer.
 *
 * do_sys_open() is what open(2), openat(2) and creat(2) come through. The compiler inlines it into each of them, so that its
 * symbol is hardly ever called.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "opensnoop.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The process that is watched; 0 for all. */
const volatile __u32 only_pid = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} opens SEC(".maps");

/* Calls that the buffer had no room for. */
__u64 lost;

SEC("fentry/do_sys_open")
int BPF_PROG(opened, int dfd, const char *filename, int flags)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct opened *event;

	if (only_pid && pid != only_pid)
		return 0;
	event = bpf_ringbuf_reserve(&opens, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	event->pid = pid;
	event->flags = flags;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	if (bpf_probe_read_user_str(event->path, sizeof(event->path), filename) < 0)
		event->path[0] = 0;
	bpf_ringbuf_submit(event, 0);
	return 0;
}
