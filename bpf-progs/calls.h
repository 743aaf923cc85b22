/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * How long calls take: each thread has a stack of the calls that it is in, so that calls in calls each have their own time, also those of
 * one function in itself.
 *
 * Calls of a thread return in the reverse order of their beginnings, interrupts included. But the kernel may skip a program at one
 * end of a call: where the same program was interrupted on that CPU. Then the top of the stack may be of another function than the
 * one that returns, and which end was skipped is not known. All calls that the thread is in are forgotten, and none of them gets
 * a time. If the stack has calls of one function only, a skipped end does not show there, and another call's beginning may be taken
 * for one that was skipped. The kernel counts skipped programs, and user space then reports that times may be wrong.
 */
#ifndef SITESEER_CALLS_H
#define SITESEER_CALLS_H

#include "latency.h"
#include "thread.h"

/* Calls of one thread that are in each other. */
#define CALLS_DEEP 32

struct begun_call {
	__u64 time;
	/* The attachment's cookie plus 1. It is 0 before the beginning is complete, and after the return. */
	__u32 function;
	__u32 wanted;
};

struct begun_calls {
	__u64 depth;
	struct begun_call calls[CALLS_DEEP];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, struct thread);
	__type(value, struct begun_calls);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, UNTIMED_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} untimed SEC(".maps");

/*
 * What a thread gets that is in no call: the room for the first one is taken already. So an interrupt that comes before the
 * call is there does not find the stack empty when it leaves, and does not remove it.
 */
static const struct begun_calls first_call = { .depth = 1 };

static __always_inline void not_timed(__u32 why)
{
	__u64 *count = bpf_map_lookup_elem(&untimed, &why);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Notes that a call begins. */
static __noinline __attribute__((unused)) int begin_call(__u64 id, __u32 function, __u32 wanted)
{
	struct thread thread = this_thread(id);
	struct begun_calls *calls = bpf_map_lookup_elem(&begun, &thread);
	struct begun_call *call;
	__u64 depth = 0;

	if (calls) {
		depth = calls->depth;
		/* The room first: an interrupt leaves it alone. */
		*(volatile __u64 *)&calls->depth = depth + 1;
		if (depth >= CALLS_DEEP)
			return 0;
	} else {
		bpf_map_update_elem(&begun, &thread, &first_call, BPF_NOEXIST);
		calls = bpf_map_lookup_elem(&begun, &thread);
		if (!calls) {
			not_timed(UNTIMED_ROOM);
			return 0;
		}
	}
	call = &calls->calls[depth & (CALLS_DEEP - 1)];
	call->wanted = wanted;
	call->time = bpf_ktime_get_ns();
	*(volatile __u32 *)&call->function = function + 1;
	return 0;
}

/* The call that returns has no time. */
#define NO_TIME (~0ULL)

/*
 * How long the call took that returns, times two; the lowest bit is whether it is wanted. By value, since a function that has a
 * pointer to the program's frame may read anything there.
 */
static __noinline __u64 end_call(__u64 id, __u32 function)
{
	__u64 now = bpf_ktime_get_ns(), depth, took;
	struct thread thread = this_thread(id);
	struct begun_calls *calls = bpf_map_lookup_elem(&begun, &thread);
	struct begun_call *call;

	if (!calls || !calls->depth) {
		not_timed(UNTIMED_START);
		return NO_TIME;
	}
	depth = calls->depth - 1;
	if (depth >= CALLS_DEEP) {
		*(volatile __u64 *)&calls->depth = depth;
		not_timed(UNTIMED_DEEP);
		return NO_TIME;
	}
	call = &calls->calls[depth & (CALLS_DEEP - 1)];
	if (!call->function) {
		/* A call in an interrupt, between the two steps of a beginning. */
		not_timed(UNTIMED_START);
		return NO_TIME;
	}
	if (call->function != function + 1) {
		bpf_map_delete_elem(&begun, &thread);
		not_timed(UNTIMED_START);
		return NO_TIME;
	}
	took = (now - call->time) << 1 | (call->wanted & 1);
	*(volatile __u32 *)&call->function = 0;
	if (depth)
		*(volatile __u64 *)&calls->depth = depth;
	else
		bpf_map_delete_elem(&begun, &thread);
	return took;
}

#endif
