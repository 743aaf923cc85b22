// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * siteseer.bpf.h by itself: beside a vmlinux.h (its integer types stand here) and libbpf's helpers, for clang and for
 * gcc's BPF backend.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
#define BPF_MAP_TYPE_ARRAY 2

#include <bpf/bpf_helpers.h>
#include "siteseer.bpf.h"
/* Twice does no harm. */
#include "siteseer.bpf.h"

struct file;
struct pair {
	__u64 first, second;
};

char LICENSE[] SEC("license") = "GPL";
__u64 seen[8];

SITESEER_PROTO(stated, long, struct file *file, struct pair pair, int number);
SEC("fentry/stated") int stated(__u64 *ctx)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	__u64 value = 0;

	if (!siteseer_arg(ctx, 2, &value))
		seen[0] += value;
	if (!siteseer_arg_slot(ctx, 1, 1, &value))
		seen[1] += value;
	if (!site)
		return 0;
	seen[2] = site->id;
	seen[3] = site->address - site->symbol - site->offset;
	if (site->kind == SITESEER_KIND_BODY || site->kind == SITESEER_KIND_CLONE || site->kind == SITESEER_KIND_INLINE)
		seen[4]++;
	seen[5] = site->reserved;
	return 0;
}

SITESEER_PROTO(bare, void, void);
SITESEER_POLICY(bare, complete);
SEC("fexit/bare") int bare(__u64 *ctx)
{
	return ctx == 0;
}
