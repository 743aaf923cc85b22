// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * What plain libbpf programs see on the way to the functions that the tests trace: the same kernel pointers, as ordinary
 * arguments of functions that nothing was done to. The ground truth for pointers that user space cannot know.
 *
 * libbpf is to have them for fentry on the function after the slash. Their section is none that siteseer has taken over.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "oracle.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct file {
	void *private_data;
};
struct kiocb {
	struct file *ki_filp;
};
struct seq_file {
	long long index;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ORACLE_VALUES);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/* Only this process. */
const volatile __u32 only_tgid = 0;

static __always_inline void see(__u32 what, __u64 value)
{
	if (bpf_get_current_pid_tgid() >> 32 == only_tgid)
		bpf_map_update_elem(&seen, &what, &value, BPF_ANY);
}

SEC("oracle/do_fcntl")
int BPF_PROG(do_fcntl, int fd, unsigned int cmd, unsigned long arg, struct file *filp)
{
	see(ORACLE_FCNTL_FILE, (__u64)filp);
	return 0;
}

SEC("oracle/pipe_fcntl")
int BPF_PROG(pipe_fcntl, struct file *file)
{
	see(ORACLE_PIPE, (__u64)file->private_data);
	return 0;
}

SEC("oracle/seq_read_iter")
int BPF_PROG(seq_read_iter, struct kiocb *iocb)
{
	void *seq = iocb->ki_filp->private_data;

	see(ORACLE_SEQ_FILE, (__u64)seq);
	see(ORACLE_SEQ_INDEX, (__u64)seq + __builtin_preserve_field_info(((struct seq_file *)0)->index, 0 /* its offset */));
	return 0;
}

SEC("oracle/do_sys_poll")
int BPF_PROG(do_sys_poll, void *ufds, unsigned int nfds, void *end_time)
{
	see(ORACLE_POLL_END_TIME, (__u64)end_time);
	return 0;
}
