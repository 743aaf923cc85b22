/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * What capsnoop.bpf.c needs of the kernel's types. vmlinux.h would serve as well; this is all that it would be read for, and
 * libbpf relocates the access to the running kernel's layout (CO-RE).
 */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

/* enum bpf_map_type, include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_RINGBUF 27

struct user_namespace {
	int level;
} __attribute__((preserve_access_index));

#endif
