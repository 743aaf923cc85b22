// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

struct wait_queue_head;

struct wait_queue_entry {
	void *private;
} __attribute__((preserve_access_index));

#define SEND_MINE(waiter)                                                                      \
	({                                                                                     \
		unsigned long private_ = (unsigned long)BPF_CORE_READ(waiter, private);        \
                                                                                               \
		/* Others wait too. */                                                         \
		private_ >> 4 == 0x5117e5e ? SUITE_SEND(private_) : 0;                         \
	})

SEC("kprobe_maybe_inline/__remove_wait_queue")
int BPF_PROG(everywhere, struct wait_queue_head *head, struct wait_queue_entry *waiter)
{
	return SEND_MINE(waiter);
}

SEC("kprobe_maybe_inline/vmlinux:__remove_wait_queue")
int BPF_PROG(in_kernel, struct wait_queue_head *head, struct wait_queue_entry *waiter)
{
	return SEND_MINE(waiter);
}

SEC("kprobe_maybe_inline/siteseer_header_function:__remove_wait_queue")
int BPF_PROG(in_module, struct wait_queue_head *head, struct wait_queue_entry *waiter)
{
	return SEND_MINE(waiter);
}

SEC("fentry/siteseer_header_function:__remove_wait_queue")
int BPF_PROG(entry_in_module, struct wait_queue_head *head, struct wait_queue_entry *waiter)
{
	return SEND_MINE(waiter);
}
