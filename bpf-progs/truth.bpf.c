// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs that write down what they see, for tests that know what was called.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"
#include "truth.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} truth SEC(".maps");

/* Calls that found no room in the ring buffer: a test that counts must see 0 here. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Only this process; 0 for all. */
const volatile __u32 only_tgid = 0;

static __always_inline struct truth_record *begin(void *ctx, __u32 program)
{
	const struct siteseer_site *site;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	struct truth_record *record;

	if (only_tgid && tgid != only_tgid)
		return 0;
	record = bpf_ringbuf_reserve(&truth, sizeof(*record), 0);
	if (!record) {
		__u64 *count = bpf_map_lookup_elem(&lost, &zero);

		if (count)
			*count += 1;
		return 0;
	}
	site = siteseer_site(ctx);
	record->program = program;
	record->kind = site ? site->kind : ~0u;
	record->site = site ? site->id : ~0u;
	record->tgid = tgid;
	record->cookie = bpf_get_attach_cookie(ctx);
	record->address = site ? site->address : 0;
	record->present = 0;
#pragma unroll
	for (int i = 0; i < TRUTH_VALUES; i++)
		record->values[i] = 0;
	return record;
}

static __always_inline void put(struct truth_record *record, int n, __u64 value)
{
	record->values[n] = value;
	record->present |= 1ull << n;
}

SEC("kprobe_maybe_inline/__bpf_copy_key")
int BPF_PROG(copy_key, const void *ukey, u64 key_size)
{
	struct truth_record *record = begin(ctx, TRUTH_COPY_KEY);

	if (!record)
		return 0;
	put(record, 0, (__u64)ukey);
	put(record, 1, key_size);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* A structure by value: two slots. */
SEC("kprobe_maybe_inline/___bpf_copy_key")
int BPF_PROG2(copy_key_struct, bpfptr_t, ukey, u64, key_size)
{
	struct truth_record *record = begin(ctx, TRUTH_COPY_KEY_STRUCT);

	if (!record)
		return 0;
	put(record, 0, (__u64)ukey.kernel);
	put(record, 1, ukey.is_kernel);
	put(record, 2, key_size);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* The same by slots. */
SEC("kprobe_maybe_inline/___bpf_copy_key")
int BPF_PROG(copy_key_slots, u64 pointer, u64 is_kernel, u64 key_size)
{
	struct truth_record *record = begin(ctx, TRUTH_COPY_KEY_SLOTS);

	if (!record)
		return 0;
	put(record, 0, pointer);
	put(record, 1, is_kernel & 1);
	put(record, 2, key_size);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Typed pointers, followed one and two levels. */
SEC("kprobe_maybe_inline/ns_capable")
int BPF_PROG(ns_capable, struct user_namespace *ns, int cap)
{
	struct truth_record *record = begin(ctx, TRUTH_NS_CAPABLE);

	if (!record)
		return 0;
	put(record, 0, (__u64)ns);
	put(record, 1, (__s64)cap);
	put(record, 2, (__s64)ns->level);
	put(record, 3, ns->owner.val);
	/* The user namespace's own accounting refers back to a namespace. */
	put(record, 4, (__u64)ns->ucounts->ns);
	put(record, 5, ns->ucounts->uid.val);
	put(record, 6, (__s64)ns->ucounts->ns->level);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

SEC("kprobe_maybe_inline/ksys_shmget")
int BPF_PROG(shmget, int key, __u64 size, int flags)
{
	struct truth_record *record = begin(ctx, TRUTH_ANY);

	if (!record)
		return 0;
	put(record, 0, (__s64)key);
	put(record, 1, size);
	put(record, 2, (__s64)flags);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

SEC("kprobe_maybe_inline/jhash")
int BPF_PROG(jhash, const void *key, u32 length, u32 initval)
{
	struct truth_record *record = begin(ctx, TRUTH_JHASH);

	if (!record)
		return 0;
	put(record, 0, (__u64)key);
	put(record, 1, length);
	put(record, 2, initval);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Any function: the first parameters' first slots, each if the site has it. */
SEC("kprobe_maybe_inline")
int any(void *ctx)
{
	struct truth_record *record = begin(ctx, TRUTH_ANY);

	if (!record)
		return 0;
#pragma unroll
	for (int n = 0; n < TRUTH_VALUES; n++) {
		__u64 value = 0;

		if (siteseer_arg(ctx, n, &value) == 0)
			put(record, n, value);
	}
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Any function: nothing but that it was called. */
SEC("kprobe_maybe_inline")
int count(void *ctx)
{
	struct truth_record *record = begin(ctx, TRUTH_COUNT);

	if (record)
		bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Helpers that take the context. */
SEC("kprobe_maybe_inline")
int context(void *ctx)
{
	struct truth_record *record = begin(ctx, TRUTH_CONTEXT);
	__u64 stack[2] = {};
	long bytes;

	if (!record)
		return 0;
	put(record, 0, bpf_get_func_ip(ctx));
	bytes = bpf_get_stack(ctx, stack, sizeof(stack), 0);
	put(record, 1, bytes);
	put(record, 2, stack[0]);
	put(record, 3, stack[1]);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* A subprogram gets the context and follows a typed pointer out of it. */
static __noinline int level_of(unsigned long long *ctx)
{
	struct user_namespace *ns = (void *)ctx[0];

	return ns->level;
}

SEC("kprobe_maybe_inline/ns_capable")
int subprogram(unsigned long long *ctx)
{
	int level = level_of(ctx);
	struct truth_record *record = begin(ctx, TRUTH_SUBPROGRAM);

	if (!record)
		return 0;
	put(record, 0, (__s64)level);
	put(record, 1, ctx[1]);
	bpf_ringbuf_submit(record, 0);
	return 0;
}
