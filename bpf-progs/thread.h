/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What tells threads apart in the maps of programs that follow calls. */
#ifndef SITESEER_THREAD_H
#define SITESEER_THREAD_H

/* A thread; interrupts belong to the one that they interrupt. Idle threads of all CPUs have the same number. */
struct thread {
	__u64 task;
	__u64 tid;
};

static __always_inline struct thread this_thread(__u64 id)
{
	struct thread thread = { .task = bpf_get_current_task(), .tid = (__u32)id };

	return thread;
}

#endif
