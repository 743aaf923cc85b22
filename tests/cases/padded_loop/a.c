// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct cart {
	struct cart *next;
	long load;
};

/* Its first instruction is the first of its caller's loop. */
static void haul(struct cart *cart, long by)
{
	WRITE_ONCE(cart->load, READ_ONCE(cart->load) + by);
}

/*
 * A hot loop, which begins with the copy. Where the compiler aligns the head of the loop, it says that the padding before it is
 * the copy's, too: a probe there is hit once for all turns.
 */
static noinline long hauled(struct cart *cart, long by)
{
	do {
		haul(cart, by);
		cart = READ_ONCE(cart->next);
	} while (likely(cart));
	return by * 3;
}

static int case_run(unsigned int number)
{
	struct cart last = { .load = 30 }, middle = { .next = &last, .load = 20 }, first = { .next = &middle, .load = 10 };

	SUITE_USE(hauled(&first, SUITE_OPAQUE(long, 1)));
	SUITE_USE(hauled(&middle, SUITE_OPAQUE(long, -2)));
	return 0;
}

SUITE_CASE(case_run);
