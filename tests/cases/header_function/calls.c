// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

#include <linux/wait.h>

static DECLARE_WAIT_QUEUE_HEAD(queue);
static struct wait_queue_entry entry;

/* A copy in the module, of a function of a header. */
static noinline void *in_module(struct wait_queue_head *from, struct wait_queue_entry *waiter)
{
	__remove_wait_queue(from, waiter);
	return waiter->private;
}

static void enter(unsigned long private)
{
	entry.private = (void *)private;
	list_add(&entry.entry, &queue.head);
}

static int case_run(unsigned int number)
{
	enter(SUITE_OPAQUE(unsigned long, 0x5117e5e1));
	SUITE_USE(in_module(SUITE_OPAQUE(struct wait_queue_head *, &queue),
			    SUITE_OPAQUE(struct wait_queue_entry *, &entry)));
	/* A copy in the kernel: remove_wait_queue() is in kernel/sched/wait.c. */
	enter(SUITE_OPAQUE(unsigned long, 0x5117e5e2));
	remove_wait_queue(&queue, &entry);
	enter(SUITE_OPAQUE(unsigned long, 0x5117e5e3));
	SUITE_USE(in_module(SUITE_OPAQUE(struct wait_queue_head *, &queue),
			    SUITE_OPAQUE(struct wait_queue_entry *, &entry)));
	return 0;
}

SUITE_CASE(case_run);
