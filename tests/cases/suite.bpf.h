/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * What the BPF programs of a conformance case are made with: each sends what it saw to a ring buffer, in the order of
 * the calls.
 *
 *	SEC("fentry/siteseer_example:foo")
 *	int BPF_PROG(entry, int a, struct pair *p)
 *	{
 *		return SUITE_SEND(a, p->first);
 *	}
 *
 * A program in which only some of the arguments are available puts them one by one:
 *
 *	struct suite_record *record = SUITE_BEGIN();
 *
 *	if (record) {
 *		suite_put(record, 0, a);
 *		if (siteseer_arg(ctx, 1, &value))
 *			suite_absent(record, 1);
 *		else
 *			suite_put(record, 1, value);
 *		suite_submit(record);
 *	}
 *
 * Include it first; or after vmlinux.h, if there is one.
 */
#ifndef SUITE_BPF_H
#define SUITE_BPF_H

#ifndef __VMLINUX_H__
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
typedef __s8 s8;
typedef __u16 u16;
typedef __s16 s16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)
/* enum bpf_map_type, include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_RINGBUF 27
#endif

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SUITE_PROGRAM_NAME 32
#define SUITE_VALUES 16

/* One run of a program. README.md has it as part of the format: other runners read it. */
struct suite_record {
	/* The program's name as C's __func__ has it (BPF_PROG puts underscores before it), cut off or filled up with zeros. */
	char program[SUITE_PROGRAM_NAME];
	/* How many values it sent, absent ones too. */
	__u32 count;
	/* Bit n: value n is there. */
	__u32 present;
	__u64 values[SUITE_VALUES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} suite_events SEC(".maps");

/* Records for which there was no room: 0, or the run says nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} suite_lost SEC(".maps");

/* The process whose calls count, set before loading; 0 for all. */
const volatile __u32 suite_tgid = 0;

static __always_inline struct suite_record *suite_begin(const char *name, __u32 size)
{
	struct suite_record *record;
	__u32 zero = 0;

	if (suite_tgid && suite_tgid != bpf_get_current_pid_tgid() >> 32)
		return NULL;
	record = bpf_ringbuf_reserve(&suite_events, sizeof(*record), 0);
	if (!record) {
		__u64 *lost = bpf_map_lookup_elem(&suite_lost, &zero);

		if (lost)
			__sync_fetch_and_add(lost, 1);
		return NULL;
	}
	__builtin_memset(record, 0, sizeof(*record));
#pragma unroll
	for (__u32 at = 0; at < SUITE_PROGRAM_NAME; at++)
		if (at < size)
			record->program[at] = name[at];
	return record;
}

/* Begins a record of the program that it is written in; NULL if the call does not count. */
#define SUITE_BEGIN() suite_begin(__func__, sizeof(__func__))

/* Value number `at`, a constant below SUITE_VALUES. Values are put in ascending order. */
static __always_inline void suite_put(struct suite_record *record, __u32 at, __u64 value)
{
	record->count = at + 1;
	record->present |= 1u << at;
	record->values[at] = value;
}

/* There is no value number `at`. */
static __always_inline void suite_absent(struct suite_record *record, __u32 at)
{
	record->count = at + 1;
}

static __always_inline void suite_submit(struct suite_record *record)
{
	bpf_ringbuf_submit(record, 0);
}

/*
 * Sends the values, up to SUITE_VALUES of them, each converted to __u64 (an int is sign-extended; a pointer takes a
 * cast). Is 0, for the program to return.
 */
#define SUITE_SEND(...)                                                                        \
	({                                                                                     \
		const __u64 suite_values_[] = { __VA_ARGS__ };                                 \
		struct suite_record *suite_record_ = SUITE_BEGIN();                            \
                                                                                               \
		if (suite_record_) {                                                           \
			_Pragma("unroll")                                                      \
			for (__u32 suite_at_ = 0; suite_at_ < sizeof(suite_values_) / 8; suite_at_++) \
				suite_put(suite_record_, suite_at_, suite_values_[suite_at_]); \
			suite_submit(suite_record_);                                           \
		}                                                                              \
		0;                                                                             \
	})

/* Slot `n` of the context as it is, all 64 bits. */
#define SUITE_SLOT(ctx, n) (((const unsigned long long *)(ctx))[n])

#endif /* SUITE_BPF_H */
