/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * What the programs of `siteseer trace` do: at each call, or return, they send every argument that the site has, whatever the function.
 *
 * They name no function: each is attached once for each function that is traced, with the function's number as its
 * cookie. They ask for every argument by the fallible accessor, so that they can be attached at sites that lack some.
 *
 * TRACE_FILTER is defined where a program looks at some calls only. TRACE_WITH_FIELDS is defined as well where it also sends members
 * of structures, and TRACE_TIMED or TRACE_WITH_STACK besides where it sends how long calls took, or the kernel's stack. TRACE_TREE is
 * defined where a program sends calls with their places in trees of calls (tree.h).
 */
#ifndef SITESEER_TRACE_BODY_H
#define SITESEER_TRACE_BODY_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "siteseer.bpf.h"
#ifdef TRACE_FILTER
#include "filter.h"
#endif
#ifdef TRACE_TIMED
#include "calls.h"
#endif
#include "process.h"
#include "trace.h"
#ifdef TRACE_TREE
#include "tree.h"
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
#ifdef TRACE_TREE
	__uint(max_entries, 1 << 24);
#else
	__uint(max_entries, 1 << 22);
#endif
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct trace_function);
} functions SEC(".maps");

/* Calls that found no room in the ring buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/* All but the arguments. */
static __always_inline void fill_head(struct trace_record *record, void *ctx, __u64 function, __u64 id, bool is_return)
{
	const struct siteseer_site *site = siteseer_site(ctx);

	record->time = bpf_ktime_get_ns();
	record->function = function;
	record->address = site ? site->address : 0;
	record->site = site ? site->id : ~0u;
	record->cpu = bpf_get_smp_processor_id();
	record->tgid = id >> 32;
	record->pid = (__u32)id;
	record->present = 0;
	record->strings = 0;
	record->result = 0;
	record->flags = is_return ? TRACE_RETURN : 0;
	record->reserved = 0;
	record->duration = 0;
	if (is_return && bpf_get_func_ret(ctx, &record->result) == 0)
		record->flags |= TRACE_RESULT;
	bpf_get_current_comm(record->comm, sizeof(record->comm));
}

static __always_inline void fill(struct trace_record *record, void *ctx, __u64 function, __u64 id, bool is_return)
{
	__u32 present = 0;
	/* One for all: clang gives each variable of an unrolled loop a place of its own, and the stack is short. */
	__u64 value;

	fill_head(record, ctx, function, id, is_return);
#pragma unroll
	for (int n = 0; n < TRACE_PARAMETERS; n++) {
#pragma unroll
		for (int slot = 0; slot < TRACE_SLOTS; slot++) {
			value = 0;
			if (siteseer_arg_slot(ctx, n, slot, &value) == 0)
				present |= 1u << (n * TRACE_SLOTS + slot);
			record->values[n][slot] = value;
			/* Now, not later from many copies on the stack. */
			asm volatile("" : "+r"(present)::"memory");
		}
	}
	record->present = present;
}

static __always_inline void fill_strings(struct trace_record *record, struct trace_strings *strings,
					 const struct trace_function *wanted)
{
	__u32 next = 0;

#pragma unroll
	for (int n = 0; n < TRACE_PARAMETERS; n++) {
		__u32 bit = 1u << n;
		const void *from = (const void *)record->values[n][0];
		long len;

		if (!(wanted->strings & bit) || next >= TRACE_STRINGS)
			continue;
		/* Types do not tell user memory from kernel memory: the upper half of the address space is the kernel's. */
		if ((__s64)from >= 0)
			len = bpf_probe_read_user_str(strings->text[next], TRACE_STRING_LEN, from);
		else
			len = bpf_probe_read_kernel_str(strings->text[next], TRACE_STRING_LEN, from);
		if (len > 0 && (record->present & (1u << (n * TRACE_SLOTS))))
			record->strings |= 1u << next;
		next++;
	}
}

static __always_inline void drop(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&dropped, &zero);

	if (count)
		*count += 1;
}

struct trace_record_with_strings {
	struct trace_record record;
	struct trace_strings strings;
};

/* Whether the call is one of those that are asked for. */
static __always_inline bool is_asked_for(void *ctx, __u64 id, bool is_return)
{
#ifdef TRACE_FILTER
	struct arguments arguments;
	union comm comm = {};
	const __u64 *returned;
	__u64 result = 0;
	bool has_result = false;
#endif

	if (!is_process(id))
		return false;
#ifdef TRACE_FILTER
	if (filter[0].kind == FILTER_END)
		return true;
	read_arguments(ctx, &arguments);
	if (is_return)
		has_result = bpf_get_func_ret(ctx, &result) == 0;
	returned = has_result ? &result : 0;
	read_fields(&arguments, returned);
	bpf_get_current_comm(comm.text, sizeof(comm.text));
	return is_wanted(&arguments, id, &comm, returned);
#else
	return true;
#endif
}

#ifdef TRACE_WITH_FIELDS
struct trace_record_with_fields {
	struct trace_record record;
	struct trace_strings strings;
	struct trace_field fields[FIELDS];
#ifdef TRACE_WITH_STACK
	struct trace_stack stack;
#endif
};

static __noinline void fill_field(struct trace_field *to, __u64 base, __u32 n)
{
	if (!read_field(base, n, &to->value)) {
		to->status = FIELD_UNREADABLE;
		return;
	}
	to->status = FIELD_READ;
	/* A null pointer to text is a value as well. */
	if (fields[n & (FIELDS - 1)].kind != FIELD_NUMBER && to->value &&
	    read_text(n, to->text, sizeof(to->text), to->value) < 0)
		to->status = FIELD_UNREADABLE;
}

static __always_inline void fill_fields(struct trace_record *record, struct trace_field *to)
{
#pragma unroll
	for (int n = 0; n < FIELDS; n++) {
		__u32 from = fields[n].base;
		__u64 base = 0;
		bool there = false;

		to[n].value = 0;
		to[n].status = FIELD_MISSING;
		to[n].reserved = 0;
		to[n].text[0] = 0;
		if (fields[n].kind == FIELD_NONE)
			continue;
		if (from == FIELD_TASK) {
			there = true;
			base = bpf_get_current_task();
		} else if (from == FIELD_RESULT) {
			there = record->flags & TRACE_RESULT;
			base = record->result;
		} else if (from < TRACE_PARAMETERS) {
			there = record->present >> (from * TRACE_SLOTS) & 1;
			base = record->values[from][0];
		}
		if (there)
			fill_field(&to[n], base, n);
	}
}

#ifndef TRACE_TREE
static __always_inline int send(void *ctx, bool is_return)
{
	__u64 id = bpf_get_current_pid_tgid(), function;
	const struct trace_function *wanted;
	struct trace_record_with_fields *all;
	__u32 key;
#ifdef TRACE_TIMED
	__u64 took;

	/* Of all calls, since the beginnings of all were noted. */
	if (!is_process(id))
		return 0;
	took = end_call(id, bpf_get_attach_cookie(ctx));
#endif

	if (!is_asked_for(ctx, id, is_return))
		return 0;
	function = bpf_get_attach_cookie(ctx);
	key = function;
	all = bpf_ringbuf_reserve(&records, sizeof(*all), 0);
	if (!all) {
		drop();
		return 0;
	}
	fill(&all->record, ctx, function, id, is_return);
	all->record.flags |= TRACE_MEMBERS;
#ifdef TRACE_TIMED
	if (took != NO_TIME) {
		all->record.flags |= TRACE_DURATION;
		all->record.duration = took >> 1;
	}
#endif
	wanted = bpf_map_lookup_elem(&functions, &key);
	if (wanted && wanted->strings)
		fill_strings(&all->record, &all->strings, wanted);
	fill_fields(&all->record, all->fields);
#ifdef TRACE_WITH_STACK
	all->record.flags |= TRACE_STACK;
	all->stack.len = bpf_get_stack(ctx, all->stack.frames, sizeof(all->stack.frames), 0);
#endif
	bpf_ringbuf_submit(all, 0);
	return 0;
}
#endif
#else
static __always_inline int send(void *ctx, bool is_return)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u64 function;
	__u32 key;
	const struct trace_function *wanted;

	if (!is_asked_for(ctx, id, is_return))
		return 0;
	function = bpf_get_attach_cookie(ctx);
	key = function;
	wanted = bpf_map_lookup_elem(&functions, &key);
	if (wanted && wanted->strings) {
		struct trace_record_with_strings *all = bpf_ringbuf_reserve(&records, sizeof(*all), 0);

		if (!all) {
			drop();
			return 0;
		}
		fill(&all->record, ctx, function, id, is_return);
		fill_strings(&all->record, &all->strings, wanted);
		bpf_ringbuf_submit(all, 0);
	} else {
		struct trace_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

		if (!record) {
			drop();
			return 0;
		}
		fill(record, ctx, function, id, is_return);
		bpf_ringbuf_submit(record, 0);
	}
	return 0;
}
#endif

#endif
