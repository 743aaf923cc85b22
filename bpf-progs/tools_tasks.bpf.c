// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Tools that watch processes: signals, capabilities, limits, priorities, memory, System V objects.
 */
#include "tools.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	PIDFDSNOOP,
	WAITSNOOP,
	RLIMITSNOOP,
	NICESNOOP,
	SCHEDSNOOP,
	KILLSNOOP,
	SIGSNOOP,
	MASKSNOOP,
	CAPABLE,
	SYSINFOSNOOP,
	ALTSTACKSNOOP,
	MLOCKSNOOP,
	SLEEPSNOOP,
	MMSNOOP,
	EXECSNOOP,
	SHMSNOOP,
	SEMSNOOP,
	SEMOPSNOOP,
	SHMRMSNOOP,
	MEMFDSNOOP,
	VMASPLIT,
	MSGSNOOP,
	PGIDSNOOP,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kern_ipc_perm {
	int key;
	int id;
};
struct sched_attr {
	__s32 sched_nice;
};
struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
};
typedef struct {
	unsigned long sig[1];
} sigset_t;
#pragma clang attribute pop

/* pidfdsnoop: every number that is looked up. */
SEC("fentry/find_vpid")
int BPF_PROG(pidfdsnoop, int nr)
{
	if (watched())
		count(PIDFDSNOOP, nr);
	return 0;
}

SEC("fentry/find_get_pid")
int BPF_PROG(waitsnoop, int nr)
{
	if (watched())
		count(WAITSNOOP, nr);
	return 0;
}

/* rlimitsnoop: the task that the limits belong to, by a pointer chased twice. */
SEC("fentry/do_prlimit")
int BPF_PROG(rlimitsnoop, struct task_struct *task, unsigned int resource)
{
	if (watched())
		count(RLIMITSNOOP, ((__u64)resource << 32) + task->group_leader->tgid);
	return 0;
}

SEC("fentry/can_nice")
int BPF_PROG(nicesnoop, const struct task_struct *task, const int nice)
{
	if (watched())
		count(NICESNOOP, (__s64)nice + task->tgid);
	return 0;
}

SEC("fentry/sched_setattr")
int BPF_PROG(schedsnoop, struct task_struct *task, const struct sched_attr *attr)
{
	if (watched())
		count(SCHEDSNOOP, (__s64)attr->sched_nice + task->tgid);
	return 0;
}

/* killsnoop: through a perf buffer, with the context. */
struct killed {
	__s32 signal;
	__s32 pid;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} kills SEC(".maps");

SEC("fentry/kill_something_info")
int BPF_PROG(killsnoop, int signal, void *info, int pid)
{
	struct killed event = { .signal = signal, .pid = pid };

	if (!watched())
		return 0;
	bpf_get_current_comm(event.comm, sizeof(event.comm));
	bpf_perf_event_output(ctx, &kills, BPF_F_CURRENT_CPU, &event, sizeof(event));
	count(KILLSNOOP, ((__u64)signal << 32) + pid);
	return 0;
}

SEC("fentry/group_send_sig_info")
int BPF_PROG(sigsnoop, int signal, void *info, struct task_struct *task)
{
	if (watched())
		count(SIGSNOOP, ((__u64)signal << 32) + BPF_CORE_READ(task, group_leader, tgid));
	return 0;
}

SEC("fentry/set_current_blocked")
int BPF_PROG(masksnoop, sigset_t *mask)
{
	if (watched())
		count(MASKSNOOP, mask->sig[0]);
	return 0;
}

/* capable: with the stack that asked. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 256);
	__uint(key_size, 4);
	__uint(value_size, 32 * 8);
} stacks SEC(".maps");

struct asked {
	__u32 capability;
	__s32 stack;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct asked);
	__type(value, __u64);
} asked SEC(".maps");

SEC("fentry/ns_capable")
int BPF_PROG(capable, void *ns, int capability)
{
	struct asked key = { .capability = capability };
	__u64 one = 1, *known;

	if (!watched())
		return 0;
	key.stack = bpf_get_stackid(ctx, &stacks, 0);
	known = bpf_map_lookup_elem(&asked, &key);
	if (known)
		__sync_fetch_and_add(known, 1);
	else
		bpf_map_update_elem(&asked, &key, &one, BPF_NOEXIST);
	count(CAPABLE, capability);
	return 0;
}

SEC("fentry/do_sysinfo")
int BPF_PROG(sysinfosnoop)
{
	if (watched())
		count(SYSINFOSNOOP, 0);
	return 0;
}

SEC("fentry/do_sigaltstack")
int BPF_PROG(altstacksnoop, const void *ss, void *oss, unsigned long sp, unsigned long min_ss_size)
{
	if (watched())
		count(ALTSTACKSNOOP, min_ss_size + !ss);
	return 0;
}

SEC("fentry/apply_mlockall_flags")
int BPF_PROG(mlocksnoop, int flags)
{
	if (watched())
		count(MLOCKSNOOP, flags);
	return 0;
}

/* sleepsnoop: the user's own structure, read from user memory. */
SEC("fentry/get_timespec64")
int BPF_PROG(sleepsnoop, void *ts, const void *user)
{
	long long time[2] = {};

	if (!watched())
		return 0;
	bpf_probe_read_user(time, sizeof(time), user);
	count(SLEEPSNOOP, time[0] * 1000000000 + time[1]);
	return 0;
}

SEC("fentry/get_task_mm")
int BPF_PROG(mmsnoop, struct task_struct *task)
{
	if (watched())
		count(MMSNOOP, task->group_leader->tgid);
	return 0;
}

SEC("fentry/do_execveat_common")
int BPF_PROG(execsnoop, int fd)
{
	if (watched())
		count(EXECSNOOP, (__s64)fd);
	return 0;
}

SEC("fentry/ksys_shmget")
int BPF_PROG(shmsnoop, int key, unsigned long size, int flags)
{
	if (watched())
		count(SHMSNOOP, key + size + flags);
	return 0;
}

SEC("fentry/ksys_semget")
int BPF_PROG(semsnoop, int key, int nsems, int flags)
{
	if (watched())
		count(SEMSNOOP, (__s64)key + nsems + flags);
	return 0;
}

SEC("fentry/ksys_semtimedop")
int BPF_PROG(semopsnoop, int semid, void *sops, unsigned int nsops, const void *timeout)
{
	if (watched())
		count(SEMOPSNOOP, nsops + ((__u64)!timeout << 32));
	return 0;
}

SEC("fentry/do_shm_rmid")
int BPF_PROG(shmrmsnoop, void *ns, struct kern_ipc_perm *perm)
{
	if (watched())
		count(SHMRMSNOOP, (__s64)perm->key + perm->id);
	return 0;
}

SEC("fentry/memfd_get_seals")
int BPF_PROG(memfdsnoop, struct file *file)
{
	if (watched())
		count(MEMFDSNOOP, file->f_path.dentry->d_name.len);
	return 0;
}

/* vmasplit: a global function gets the numbers. */
__noinline __u64 pages_before(__u64 start, __u64 address)
{
	return address < start ? 0 : (address - start) >> 12;
}

SEC("fentry/split_vma")
int BPF_PROG(vmasplit, void *vmi, struct vm_area_struct *vma, unsigned long address, int new_below)
{
	if (watched())
		count(VMASPLIT, pages_before(vma->vm_start, address) + ((__u64)(vma->vm_end - vma->vm_start) << 12));
	return 0;
}

SEC("fentry/ksys_msgget")
int BPF_PROG(msgsnoop, int key, int flags)
{
	if (watched())
		count(MSGSNOOP, (__s64)key + flags);
	return 0;
}

SEC("fentry/do_getpgid")
int BPF_PROG(pgidsnoop, int pid)
{
	if (watched())
		count(PGIDSNOOP, pid);
	return 0;
}
