// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs of one link for the addresses of many instructions (kernels/patches/kprobe-multi-addresses.patch), and siteseer's, which
 * counts the same hits beside it.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "siteseer.bpf.h"

#define RAW_SITES 8192

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Hits by cookie, which are the indices of `addresses`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAW_SITES);
	__type(key, __u32);
	__type(value, __u64);
} by_cookie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAW_SITES);
	__type(key, __u32);
	__type(value, __u64);
} addresses SEC(".maps");

/* Hits by the number of siteseer's site. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RAW_SITES);
	__type(key, __u32);
	__type(value, __u64);
} by_site SEC(".maps");

/* [0]: the process that hits are counted of; 0 is nobody. [1]: hits for which bpf_get_func_ip() is not the cookie's address. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} control SEC(".maps");

static __always_inline int is_counted(void)
{
	__u32 zero = 0;
	__u64 *process = bpf_map_lookup_elem(&control, &zero);

	return process && *process && *process == bpf_get_current_pid_tgid() >> 32;
}

static __always_inline void add(__u64 *count)
{
	if (count)
		__sync_fetch_and_add(count, 1);
}

SEC("kprobe.multi")
int raw(void *ctx)
{
	__u32 cookie = bpf_get_attach_cookie(ctx), one = 1;
	__u64 *address;

	if (!is_counted())
		return 0;
	address = bpf_map_lookup_elem(&addresses, &cookie);
	if (!address || *address != bpf_get_func_ip(ctx))
		add(bpf_map_lookup_elem(&control, &one));
	add(bpf_map_lookup_elem(&by_cookie, &cookie));
	return 0;
}

SEC("kprobe.multi")
int raw_nothing(void *ctx)
{
	return 0;
}

SEC("kprobe_maybe_inline")
int sites(void *ctx)
{
	const struct siteseer_site *site;
	__u32 id;

	if (!is_counted())
		return 0;
	site = siteseer_site(ctx);
	if (!site)
		return 0;
	id = site->id;
	add(bpf_map_lookup_elem(&by_site, &id));
	return 0;
}
