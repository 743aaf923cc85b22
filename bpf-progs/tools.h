/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * What the programs of tools_*.bpf.c have in common: which process they watch, and, beside the tool's own output, how
 * often each ran and the sum of what it saw. src/tools.rs reads the same layout.
 *
 * The programs are ordinary ones, of the kinds that tool collections have: nothing in them knows of siteseer.
 */
#ifndef SITESEER_TOOLS_H
#define SITESEER_TOOLS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/* enum bpf_map_type and flags, include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_PERF_EVENT_ARRAY 4
#define BPF_MAP_TYPE_PERCPU_HASH 5
#define BPF_MAP_TYPE_STACK_TRACE 7
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_NOEXIST 1
#define BPF_F_CURRENT_CPU 0xffffffffULL

/* As many as one object has. */
#define TOOLS_MAX 24

struct tool_count {
	__u64 calls;
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOOLS_MAX);
	__type(key, __u32);
	__type(value, struct tool_count);
} counts SEC(".maps");

/* The process that is watched; 0 for all. */
const volatile __u32 only_tgid = 0;

static __always_inline bool watched(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return !only_tgid || tgid == only_tgid;
}

static __always_inline void count(__u32 tool, __u64 value)
{
	struct tool_count *entry = bpf_map_lookup_elem(&counts, &tool);

	if (entry) {
		entry->calls += 1;
		entry->sum += value;
	}
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
	u32 len;
	const unsigned char *name;
};

struct super_block {
	unsigned long s_magic;
	char s_id[32];
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
	unsigned int f_flags;
	void *private_data;
};

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
};

struct sock_common {
	unsigned short skc_family;
	__be16 skc_dport;
	__u16 skc_num;
	__be32 skc_daddr;
};

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
};

struct socket {
	short type;
	struct sock *sk;
	struct file *file;
};

struct sk_buff {
	unsigned int len;
	struct sock *sk;
};

#pragma clang attribute pop

#endif
