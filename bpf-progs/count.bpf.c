// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * The programs of `siteseer trace --count` and `--hist`: calls are counted in the kernel, so that none is lost for want of room in a
 * buffer, and a busy function costs little.
 *
 * `count` looks at no argument. `count_arguments` looks at them, to count by one or to leave calls out. `count_stacks` does, too, and
 * counts by the stack. It is in section fentry, so that bodies are reached by the kernel's own trampolines, from which all callers
 * are found.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "siteseer.bpf.h"
#include "filter.h"
#include "log2.h"
#include "process.h"
#include "count.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct count_key);
	__type(value, __u64);
} counts SEC(".maps");

/*
 * Calls by function alone. A busy function costs less than with `counts`, since the kernel looks up an array's element without a call.
 * User space sets the number of functions. Their cookies are the indices.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} functions SEC(".maps");

/* Calls that found no room for their key. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64[COUNT_FRAMES]);
} stacks SEC(".maps");

/* What calls are counted by. */
const volatile __u32 count_by = 0;
/* Which parameter that is, how many of its bits count, and whether it is signed. */
const volatile __u32 count_parameter = 0;
const volatile __u32 count_bits = 64;
const volatile __u32 count_signed = 0;

/* Another program may come between reading and writing, be it at an interrupt. */
static __always_inline void add(__u64 *count)
{
	__sync_fetch_and_add(count, 1);
}

static __always_inline void count_key(const struct count_key *key)
{
	__u64 *count, none = 0;
	__u32 zero = 0;

	if (count_by == COUNT_FUNCTION) {
		count = bpf_map_lookup_elem(&functions, &key->function);
		if (count)
			add(count);
		return;
	}
	count = bpf_map_lookup_elem(&counts, key);
	if (!count) {
		/* If another CPU is first, that is as good. */
		bpf_map_update_elem(&counts, key, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&counts, key);
	}
	if (!count)
		count = bpf_map_lookup_elem(&dropped, &zero);
	if (count)
		add(count);
}

static __always_inline void of_argument(struct count_key *key, const struct arguments *arguments)
{
	__u64 value;

	if (!(arguments->present >> (count_parameter & 31) & 1)) {
		key->flags = COUNT_MISSING;
		return;
	}
	value = narrow(argument_at(arguments, count_parameter), count_bits, count_signed);
	if (count_by == COUNT_HISTOGRAM) {
		if (count_signed && (__s64)value < 0) {
			key->flags = COUNT_NEGATIVE;
			value = -value;
		}
		/* 0 stands by itself. */
		value = value ? log2(value) + 1 : 0;
	}
	key->value = value;
}

static __always_inline void of_task(struct count_key *key, void *ctx, __u64 id)
{
	if (count_by == COUNT_SITE) {
		const struct siteseer_site *site = siteseer_site(ctx);

		key->value = site ? site->id : ~0u;
	} else if (count_by == COUNT_TGID) {
		key->value = id >> 32;
	} else if (count_by == COUNT_PID) {
		key->value = (__u32)id;
	} else if (count_by == COUNT_CPU) {
		key->value = bpf_get_smp_processor_id();
	} else if (count_by == COUNT_COMM) {
		bpf_get_current_comm(key->comm, sizeof(key->comm));
	}
}

SEC("kprobe_maybe_inline")
int count(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct count_key key = { .function = bpf_get_attach_cookie(ctx) };

	if (!is_process(id))
		return 0;
	of_task(&key, ctx, id);
	count_key(&key);
	return 0;
}

SEC("kprobe_maybe_inline")
int count_arguments(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct count_key key = { .function = bpf_get_attach_cookie(ctx) };
	struct arguments arguments;
	union comm comm = {};

	if (!is_process(id))
		return 0;
	read_arguments(ctx, &arguments);
	read_fields(&arguments, 0);
	bpf_get_current_comm(comm.text, sizeof(comm.text));
	if (!is_wanted(&arguments, id, &comm, 0))
		return 0;
	if (count_by == COUNT_ARGUMENT || count_by == COUNT_HISTOGRAM)
		of_argument(&key, &arguments);
	else
		of_task(&key, ctx, id);
	count_key(&key);
	return 0;
}

static __always_inline void of_stack(struct count_key *key, void *ctx)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	long stack = bpf_get_stackid(ctx, &stacks, 0);

	if (!site || stack < 0)
		key->flags = COUNT_MISSING;
	else
		key->value = (__u64)site->id << 32 | stack;
}

SEC("fentry")
int count_stacks(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct count_key key = { .function = bpf_get_attach_cookie(ctx) };
	struct arguments arguments;
	union comm comm = {};

	if (!is_process(id))
		return 0;
	read_arguments(ctx, &arguments);
	read_fields(&arguments, 0);
	bpf_get_current_comm(comm.text, sizeof(comm.text));
	if (!is_wanted(&arguments, id, &comm, 0))
		return 0;
	of_stack(&key, ctx);
	count_key(&key);
	return 0;
}
