// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Ten programs at the entries of functions that have one body and no other copy: siteseer has nothing to add to any of them.
 * How long a tool takes to start with them, beside plain libbpf, is measured.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Calls that each program saw. */
__u64 calls[10];

#define COUNTS(nth, function)                                   \
	SEC("fentry/" #function) int BPF_PROG(counts_##nth)     \
	{                                                       \
		__sync_fetch_and_add(&calls[nth], 1);           \
		return 0;                                       \
	}

COUNTS(0, iterate_dir)
COUNTS(1, vfs_rename)
COUNTS(2, vfs_symlink)
COUNTS(3, vfs_truncate)
COUNTS(4, vfs_fallocate)
COUNTS(5, notify_change)
COUNTS(6, path_mount)
COUNTS(7, vfs_setxattr)
COUNTS(8, vfs_listxattr)
COUNTS(9, vfs_getxattr)
