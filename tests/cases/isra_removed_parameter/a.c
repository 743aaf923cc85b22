// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static noinline long paint(const void *colour, long pieces)
{
	return pieces * 5 + 1;
}

/* It passes `colour` on to where nothing needs it. It is not inlined, so that there is a clone to look at. */
static noinline long weigh(short kind, const void *colour, long pieces)
{
	if (kind < 0)
		return paint(colour, pieces / kind);
	return pieces * kind;
}

/* That they are stored shows that the clone returns them: GCC drops results that nobody needs. */
static long results[3];

static int case_run(unsigned int number)
{
	WRITE_ONCE(results[0], weigh(SUITE_OPAQUE(short, 11), SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(long, 1001)));
	WRITE_ONCE(results[1], weigh(SUITE_OPAQUE(short, -12), SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(long, 1002)));
	WRITE_ONCE(results[2], weigh(SUITE_OPAQUE(short, 13), SUITE_OPAQUE(void *, NULL), SUITE_OPAQUE(long, -1003)));
	return 0;
}

SUITE_CASE(case_run);
