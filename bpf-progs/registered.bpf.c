// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * What is attached by libbpf's own calls: programs of the three names beside one that is none of them, in one object.
 *
 * ksys_semget() and ksys_msgget() are inlined into the system calls of those names; __put_user_ns() and its like have many
 * copies; bpf_fentry_test1() has one body and no copy.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Only this process. */
const volatile __u32 only_tgid = 0;

/* Calls that each program saw, and the sum of what it read. */
__u64 calls[8];
__u64 sums[8];

static __always_inline int count(int which, __u64 value)
{
	if (bpf_get_current_pid_tgid() >> 32 == only_tgid) {
		__sync_fetch_and_add(&calls[which], 1);
		__sync_fetch_and_add(&sums[which], value);
	}
	return 0;
}

SEC("kprobe_maybe_inline/ksys_semget") int BPF_PROG(maybe, __u32 key, int nsems, int semflg)
{
	return count(0, nsems);
}

SEC("fentry/ksys_semget") int BPF_PROG(entry, __u32 key, int nsems, int semflg)
{
	return count(1, nsems);
}

SEC("fentry/bpf_fentry_test1") int BPF_PROG(plain, int a)
{
	return count(2, a);
}

/* One body, but it asks which site it is at. */
SEC("fentry/bpf_fentry_test1") int BPF_PROG(asks, int a)
{
	const struct siteseer_site *site = siteseer_site(ctx);

	return count(3, site ? site->kind + 1 : 0);
}

/* Has an inlined copy, which has no return. */
SEC("fexit/ksys_semget") int BPF_PROG(exits, __u32 key, int nsems, int semflg, long result)
{
	return count(4, nsems);
}

SEC("kprobe/vfs_read") int other(void *ctx)
{
	return count(5, 0);
}

/* Names no function. */
SEC("kprobe_maybe_inline") int BPF_PROG(bare)
{
	return count(6, 0);
}
