// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * All that an object can have: maps, variables, constants, CO-RE, static and global functions, a callback, and a program in a section of
 * libbpf's. It counts calls of ns_capable() by a process, for the capability CAP_SYS_CHROOT and in a namespace with a known level.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <siteseer.bpf.h>

#define CAP_SYS_CHROOT 18

char LICENSE[] SEC("license") = "GPL";
const volatile __u32 only_pid = 0;
__u64 total;
struct {
	__uint(type, 2 /* BPF_MAP_TYPE_ARRAY */);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* Sees the context, and is changed. */
static __attribute__((noinline)) int level(void *ctx)
{
	__u64 space;

	if (siteseer_arg(ctx, 0, &space))
		return -1;
	return BPF_CORE_READ((struct user_namespace *)space, level);
}

/* A global function, and a callback: neither sees the context. */
__attribute__((noinline)) int thrice(int number)
{
	return only_pid ? 3 * number : 0;
}

static long step(__u32 index, void *data)
{
	__sync_fetch_and_add(&total, index);
	return 0;
}

SEC("fentry/ns_capable")
int BPF_PROG(asked, struct user_namespace *ns, int cap)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (pid != only_pid)
		return 0;
	/* Adds 0 and 1. */
	bpf_loop(2, step, 0, 0);
	if (count && thrice(cap) == 3 * CAP_SYS_CHROOT && level(ctx) >= 0)
		__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("kprobe/do_nanosleep")
int carried(void *ctx)
{
	bpf_loop(3, step, 0, 0);
	return thrice(0);
}
