/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * Trees of calls: which calls a thread is in. Interrupts belong to the thread that they interrupt, and their calls are in its calls.
 *
 * Each record of a tree has its number and the number of calls around it. Both are in one word, which one instruction changes: an
 * interrupt comes before or after it, so that the numbers are always in the order in which calls are in each other, whichever
 * record comes first into the buffer. A missing number is a record that was lost.
 *
 * Only calls with a return that is seen count as calls around others. When another function returns than the one that was entered
 * last, the kernel has skipped a program, and what the thread is in is not known: its tree ends there. If it is a call of
 * the same function, this does not show here. The kernel counts skipped programs, and user space looks at that.
 */
#ifndef SITESEER_TREE_H
#define SITESEER_TREE_H

#include "thread.h"

/* Calls in each other for which it is known which function should return. */
#define TREE_DEEP 32

struct tree {
	__u64 place;
	/* When the outermost call began: this tells the trees of a thread apart. */
	__u64 begin;
	__u64 wanted;
	/* The attachments' cookies plus 1. */
	__u16 functions[TREE_DEEP];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, struct thread);
	__type(value, struct tree);
} trees SEC(".maps");

/* The sites with calls that are seen when they begin and when they return. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
} returning SEC(".maps");

/* Not 0 once everything is attached: a call that is seen in part would look like one that the kernel skipped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} is_ready SEC(".maps");

/* Why calls are in no tree: indices of the map `unplaced`. */
enum {
	/* There is no room for another thread. */
	UNPLACED_ROOM,
	/* A call returns that was not seen when it began. */
	UNPLACED_RETURN,
	UNPLACED_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, UNPLACED_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} unplaced SEC(".maps");

static __always_inline void not_placed(__u32 why)
{
	__u64 *count = bpf_map_lookup_elem(&unplaced, &why);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline bool is_everything_attached(void)
{
	__u32 zero = 0, *ready = bpf_map_lookup_elem(&is_ready, &zero);

	return ready && *ready;
}

/* The tree that the thread is in: twice the time of its beginning, plus 1 if it is wanted. 0 if there is none. */
static __noinline __u64 tree_of(__u64 id)
{
	struct thread thread = this_thread(id);
	struct tree *tree = bpf_map_lookup_elem(&trees, &thread);

	return tree ? tree->begin << 1 | (tree->wanted & 1) : 0;
}

#define ONE_CALL (1ULL << PLACE_DEPTH_SHIFT)

/* Begins a tree with its outermost call, which is record 0. Returns as tree_of(). */
static __noinline __u64 begin_tree(__u64 id, __u32 function, __u64 wanted)
{
	struct thread thread = this_thread(id);
	struct tree tree = { .place = ONE_CALL + 1, .begin = bpf_ktime_get_ns(), .wanted = wanted & 1 };

	tree.functions[0] = function + 1;
	if (bpf_map_update_elem(&trees, &thread, &tree, BPF_NOEXIST)) {
		not_placed(UNPLACED_ROOM);
		return 0;
	}
	return tree.begin << 1 | tree.wanted;
}

/* The thread is not in a tree, or no longer. */
#define NO_PLACE (~0ULL)

/* The place of a call that is in others. `enters` if its return will be seen. */
static __noinline __u64 place_of_call(__u64 id, __u32 function, __u32 enters)
{
	struct thread thread = this_thread(id);
	struct tree *tree = bpf_map_lookup_elem(&trees, &thread);
	__u64 place, depth;

	if (!tree)
		return NO_PLACE;
	if (!enters)
		return __sync_fetch_and_add(&tree->place, 1);
	place = __sync_fetch_and_add(&tree->place, ONE_CALL + 1);
	depth = place >> PLACE_DEPTH_SHIFT;
	if (depth < TREE_DEEP)
		*(volatile __u16 *)&tree->functions[depth & (TREE_DEEP - 1)] = function + 1;
	return place;
}

/* The place of a return, with the depth of its call. NO_PLACE if another function was entered last: then the tree has ended. */
static __noinline __u64 place_of_return(__u64 id, __u32 function)
{
	struct thread thread = this_thread(id);
	struct tree *tree = bpf_map_lookup_elem(&trees, &thread);
	__u64 place, depth;

	if (!tree)
		return NO_PLACE;
	depth = (tree->place >> PLACE_DEPTH_SHIFT) - 1;
	if (depth < TREE_DEEP && tree->functions[depth & (TREE_DEEP - 1)] != (__u16)(function + 1)) {
		bpf_map_delete_elem(&trees, &thread);
		return NO_PLACE;
	}
	if (depth)
		return __sync_fetch_and_add(&tree->place, 1 - ONE_CALL) - ONE_CALL;
	place = __sync_fetch_and_add(&tree->place, 1) - ONE_CALL;
	bpf_map_delete_elem(&trees, &thread);
	return place;
}

#endif
