// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * fentry and fexit programs for functions that have more copies than one.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"
#include "truth.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct file {
	unsigned int f_flags;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} truth SEC(".maps");

struct bpf_spin_lock {
	__u32 val;
};

struct counted {
	struct bpf_spin_lock lock;
	__u64 count;
};

/* A map that no KPROBE program may refer to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counted);
} counts SEC(".maps");

/* Only this process; 0 for all. */
const volatile __u32 only_tgid = 0;

/* Writes down the first of `count` values. */
static __always_inline int record(void *ctx, const __u64 *values, int count)
{
	const struct siteseer_site *site;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct truth_record *record;

	if (only_tgid && tgid != only_tgid)
		return 0;
	record = bpf_ringbuf_reserve(&truth, sizeof(*record), 0);
	if (!record)
		return 0;
	site = siteseer_site(ctx);
	record->program = 0;
	record->kind = site ? site->kind : ~0u;
	record->site = site ? site->id : ~0u;
	record->tgid = tgid;
	record->cookie = bpf_get_attach_cookie(ctx);
	record->address = site ? site->address : 0;
	record->present = (1ull << count) - 1;
#pragma unroll
	for (int i = 0; i < TRUTH_VALUES; i++)
		record->values[i] = i < count ? values[i] : 0;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

#define RECORD(ctx, ...)                                                             \
	({                                                                           \
		__u64 values[] = { __VA_ARGS__ };                                    \
		record(ctx, values, sizeof(values) / sizeof(values[0]));             \
	})

SEC("fentry/do_getpgid")
int BPF_PROG(getpgid_entered, int pid)
{
	return RECORD(ctx, (__s64)pid);
}

SEC("fexit/do_getpgid")
int BPF_PROG(getpgid_returned, int pid, int ret)
{
	return RECORD(ctx, (__s64)pid, (__s64)ret);
}

/* A typed pointer among the arguments at the return. */
SEC("fexit/do_fcntl")
int BPF_PROG(fcntl_returned, int fd, unsigned int cmd, unsigned long arg, struct file *filp, long ret)
{
	return RECORD(ctx, (__s64)fd, cmd, arg, filp->f_flags, (__u64)ret);
}

/* Nothing that has a type is followed. */
SEC("fentry/do_fcntl")
int BPF_PROG(fcntl_entered, int fd, unsigned int cmd, unsigned long arg)
{
	return RECORD(ctx, (__s64)fd, cmd, arg);
}

SEC("fexit/do_fcntl")
int BPF_PROG(fcntl_answered, int fd, unsigned int cmd, unsigned long arg, void *filp, long ret)
{
	return RECORD(ctx, (__s64)fd, (__u64)ret);
}

/* One argument of two. */
SEC("fentry/ns_capable")
int BPF_PROG(capability_asked, void *ns, int cap)
{
	return RECORD(ctx, (__s64)cap);
}

/* A clone: the return value alone, and with arguments of the entry. */
SEC("fexit/kill_something_info")
int BPF_PROG(kill_returned, int sig, void *info, int pid, int ret)
{
	return RECORD(ctx, (__s64)ret);
}

SEC("fexit/kill_something_info")
int BPF_PROG(kill_done, int sig, void *info, int pid, int ret)
{
	return RECORD(ctx, (__s64)sig, (__s64)pid, (__s64)ret);
}

SEC("fexit/ksys_msgctl")
int BPF_PROG(msgctl_returned, int msqid, int cmd, void *buf, int version, int ret)
{
	return RECORD(ctx, (__s64)ret);
}

SEC("fexit/ksys_msgctl")
int BPF_PROG(msgctl_done, int msqid, int cmd, void *buf, int version, int ret)
{
	return RECORD(ctx, (__s64)cmd, (__s64)msqid, (__s64)ret);
}

/* Clones with a return value that nobody may use. */
SEC("fexit/uid_hash_find")
int BPF_PROG(uid_found, __u64 uid, void *hashent, void *ret)
{
	return RECORD(ctx, (__u64)ret);
}

SEC("fexit/apply_mlockall_flags")
int BPF_PROG(mlockall_returned, int flags, int ret)
{
	return RECORD(ctx, (__s64)ret);
}

/* Typed pointers, followed two levels, in any function that has these parameters. */
SEC("fentry")
int BPF_PROG(capability, struct user_namespace *ns, int cap)
{
	return RECORD(ctx, (__u64)ns, (__s64)cap, (__s64)ns->level, (__u64)ns->ucounts->ns, (__s64)ns->ucounts->ns->level);
}

SEC("fexit")
int BPF_PROG(capability_answered, struct user_namespace *ns, int cap, bool ret)
{
	return RECORD(ctx, (__u64)ns, (__s64)cap, (__s64)ns->level, (__u64)ns->ucounts->ns, ret);
}

/* Any function. */
SEC("fentry")
int entered(void *ctx)
{
	return RECORD(ctx, 0);
}

SEC("fentry.s")
int sleeps(void *ctx)
{
	return RECORD(ctx, 0);
}

/* Only calls with this argument: libraries in the process ask for the flags of files that they list or close. */
#define COUNTED 0x5173

SEC("fentry/do_fcntl")
int BPF_PROG(locks, int fd, unsigned int cmd, unsigned long arg)
{
	__u32 zero = 0;
	struct counted *counted = bpf_map_lookup_elem(&counts, &zero);

	if (!counted || arg != COUNTED || bpf_get_current_pid_tgid() >> 32 != only_tgid)
		return 0;
	bpf_spin_lock(&counted->lock);
	counted->count++;
	bpf_spin_unlock(&counted->lock);
	return 0;
}

/* Runs by BPF_PROG_TEST_RUN, for which the kernel calls its own functions for tests of fentry. */
SEC("?oracle/bpf_fentry_test1")
int tested(void *ctx)
{
	return 0;
}
