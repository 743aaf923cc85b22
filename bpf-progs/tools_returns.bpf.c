// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Tools that look at what functions return, and how long they take.
 */
#include "tools.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	SEMCTL_LATENCY,
	SEMCTL_RESULT,
	SHMCTL_RESULT,
	MSGCTL_ERRORS,
	ALTSTACK_RESULT,
	UMOUNT_RESULT,
	ACCESS_ERRORS,
	ACCESS_LATENCY,
};

/* funclatency: entry and return in two programs, matched by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} histogram SEC(".maps");

static __always_inline void begin(void)
{
	__u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

	bpf_map_update_elem(&starts, &thread, &now, BPF_ANY);
}

static __always_inline void end(__u32 tool)
{
	__u64 thread = bpf_get_current_pid_tgid(), *start, elapsed, *entry;
	__u32 slot = 0;

	start = bpf_map_lookup_elem(&starts, &thread);
	if (!start)
		return;
	elapsed = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&starts, &thread);
	for (int bit = 0; bit < 40; bit++) {
		if (!(elapsed >> bit))
			break;
		slot = bit;
	}
	entry = bpf_map_lookup_elem(&histogram, &slot);
	if (entry)
		*entry += 1;
	count(tool, 0);
}

SEC("fentry/ksys_semctl")
int BPF_PROG(semctl_begin)
{
	if (watched())
		begin();
	return 0;
}

SEC("fexit/ksys_semctl")
int BPF_PROG(semctl_latency)
{
	if (watched())
		end(SEMCTL_LATENCY);
	return 0;
}

/* Return value and entry arguments together. */
SEC("fexit/ksys_semctl")
int BPF_PROG(semctl_result, int semid, int semnum, int cmd, unsigned long arg, int version, long ret)
{
	if (watched())
		count(SEMCTL_RESULT, ret + ((__u64)semnum << 16) + ((__u64)cmd << 32));
	return 0;
}

SEC("fexit/ksys_shmctl")
int BPF_PROG(shmctl_result, int shmid, int cmd, void *buf, int version, long ret)
{
	if (watched())
		count(SHMCTL_RESULT, ret);
	return 0;
}

SEC("fexit/ksys_msgctl")
int BPF_PROG(msgctl_errors, int msqid, int cmd, void *buf, int version, long ret)
{
	if (watched() && ret < 0)
		count(MSGCTL_ERRORS, -ret + ((__u64)cmd << 32));
	return 0;
}

SEC("fexit/do_sigaltstack")
int BPF_PROG(altstack_result, const void *ss, void *oss, unsigned long sp, unsigned long min_ss_size, int ret)
{
	if (watched())
		count(ALTSTACK_RESULT, -ret + (min_ss_size << 32));
	return 0;
}

SEC("fexit/path_umount")
int BPF_PROG(umount_result, const struct path *path, int flags, int ret)
{
	if (watched())
		count(UMOUNT_RESULT, ((__u64)flags << 32) - ret);
	return 0;
}

SEC("fentry/do_faccessat")
int BPF_PROG(access_begin)
{
	if (watched())
		begin();
	return 0;
}

SEC("fexit/do_faccessat")
int BPF_PROG(access_latency)
{
	if (watched())
		end(ACCESS_LATENCY);
	return 0;
}

SEC("fexit/do_faccessat")
int BPF_PROG(access_errors, int dfd, const char *filename, int mode, int flags, int ret)
{
	if (watched() && ret < 0)
		count(ACCESS_ERRORS, -ret + ((__u64)mode << 32));
	return 0;
}
