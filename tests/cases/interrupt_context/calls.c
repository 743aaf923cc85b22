// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

#include <linux/irq_work.h>

static long last;

static long note(long value)
{
	long before = READ_ONCE(last);

	WRITE_ONCE(last, value);
	return before;
}

static long (*note_of)(long value) = note;

static noinline long note_here(long value)
{
	return note(value) + 1;
}

/* In a hard interrupt, once by the body and once by a copy. */
static void interrupted(struct irq_work *work)
{
	SUITE_USE(READ_ONCE(note_of)(SUITE_OPAQUE(long, 11)));
	SUITE_USE(note_here(SUITE_OPAQUE(long, 21)));
}

static struct irq_work work = IRQ_WORK_INIT_HARD(interrupted);

static int case_run(unsigned int number)
{
	irq_work_queue(&work);
	irq_work_sync(&work);
	SUITE_USE(READ_ONCE(note_of)(SUITE_OPAQUE(long, 31)));
	return 0;
}

SUITE_CASE(case_run);
