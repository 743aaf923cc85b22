/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * The kernel types that the programs here touch, and nothing else of them: libbpf relocates every
 * access to the running kernel's own layout (CO-RE), so that members may be left out and come in any order.
 */
#ifndef SITESEER_KERNEL_H
#define SITESEER_KERNEL_H

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
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0

/* enum bpf_map_type and flags, include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PROG_ARRAY 3
#define BPF_MAP_TYPE_PERCPU_HASH 5
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_STACK_TRACE 7
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_NO_PREALLOC 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	u32 val;
} kuid_t;

struct ucounts;

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
	struct ucounts *ucounts;
};

struct ucounts {
	struct user_namespace *ns;
	kuid_t uid;
};

#pragma clang attribute pop

/* Passed by value, so its layout is part of the programs' own: include/linux/bpfptr.h, sockptr.h. */
typedef struct {
	union {
		void *kernel;
		void *user;
	};
	bool is_kernel : 1;
} bpfptr_t;

#endif
