// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

/* Nothing in it needs `berth`, and nobody its result. It is not inlined, so that there is a function to look at. */
static noinline long dock(short ship, const void *berth, long crew)
{
	SUITE_USE(ship * 3);
	return crew * 5 + ship;
}

/* The same, and the result is used. */
static noinline long sail(const void *berth, short ship, long crew)
{
	return crew * 7 + ship;
}

/* That they are stored shows that `sail` returns them. */
static long results[2];

static int case_run(unsigned int number)
{
	dock(SUITE_OPAQUE(short, 11), SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(long, 1001));
	dock(SUITE_OPAQUE(short, -12), SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(long, 1002));
	WRITE_ONCE(results[0], sail(SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(short, -21), SUITE_OPAQUE(long, -2001)));
	WRITE_ONCE(results[1], sail(SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(short, 22), SUITE_OPAQUE(long, 2002)));
	return 0;
}

SUITE_CASE(case_run);
