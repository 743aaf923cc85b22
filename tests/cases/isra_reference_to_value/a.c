// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct point {
	int x, y;
	long tag[3];
};

/* It reads through its pointers and does nothing else with them. It is not inlined, so that there is a clone to look at. */
static noinline long length(const int *scale, const struct point *p, long offset)
{
	return *scale * ((long)p->x * p->x + (long)p->y * p->y) + offset;
}

/* That they are stored shows that the clone returns them: GCC drops results that nobody needs. */
static long results[2];

static int case_run(unsigned int number)
{
	struct point first = { .x = SUITE_OPAQUE(int, 3), .y = SUITE_OPAQUE(int, -4) };
	struct point second = { .x = SUITE_OPAQUE(int, 5), .y = SUITE_OPAQUE(int, 12) };
	int scale = SUITE_OPAQUE(int, 7);

	WRITE_ONCE(results[0], length(&scale, &first, SUITE_OPAQUE(long, 1001)));
	scale = SUITE_OPAQUE(int, 9);
	WRITE_ONCE(results[1], length(&scale, &second, SUITE_OPAQUE(long, -1002)));
	return 0;
}

SUITE_CASE(case_run);
