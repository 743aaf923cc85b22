// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct stop {
	struct stop *next;
	long fare;
};

/* Its first instruction is the loop's: it is reached once a turn, not once a call. A hot loop would have padding in front. */
static void visit(struct stop *stop, long by)
{
	do {
		WRITE_ONCE(stop->fare, READ_ONCE(stop->fare) + by);
		stop = READ_ONCE(stop->next);
	} while (unlikely(stop));
}

/* There is something before the loop. */
static long ride(struct stop *stop, long sum)
{
	WRITE_ONCE(stop->fare, sum);
	do {
		sum += READ_ONCE(stop->fare);
		stop = READ_ONCE(stop->next);
	} while (stop);
	return sum;
}

static noinline long visited(struct stop *stop, long by)
{
	visit(stop, by);
	return by * 3;
}

static noinline long ridden(struct stop *stop, long sum)
{
	return ride(stop, sum) * 5;
}

static int case_run(unsigned int number)
{
	struct stop last = { .fare = 30 }, middle = { .next = &last, .fare = 20 }, first = { .next = &middle, .fare = 10 };

	SUITE_USE(visited(&first, SUITE_OPAQUE(long, 1)));
	SUITE_USE(visited(&last, SUITE_OPAQUE(long, -2)));
	SUITE_USE(ridden(&first, SUITE_OPAQUE(long, 1001)));
	SUITE_USE(ridden(&middle, SUITE_OPAQUE(long, -2002)));
	return 0;
}

SUITE_CASE(case_run);
