// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

/* GCC inlines it into itself and into its caller, a few levels deep. Clang inlines no function that calls itself. */
static long fold(int depth, long seed)
{
	long below;

	if (depth <= 0)
		return seed / 3;
	below = fold(depth - 1, seed * 3 + 1);
	return below / 5 + depth;
}

static noinline long folded(int depth, long seed)
{
	return fold(depth, seed) ^ 1;
}

/* Two that call each other: one is inlined into the other. */
static long odd(int depth, long seed);

static long even(int depth, long seed)
{
	if (depth <= 0)
		return seed / 7;
	return odd(depth - 1, seed * 2 + 1) / 3 + depth;
}

static long odd(int depth, long seed)
{
	if (depth <= 0)
		return seed / 11;
	return even(depth - 1, seed * 5 + 1) / 3 - depth;
}

static noinline long oddly(int depth, long seed)
{
	return odd(depth, seed) ^ 3;
}

static noinline long evenly(int depth, long seed)
{
	return even(depth, seed) ^ 5;
}

static int case_run(unsigned int number)
{
	SUITE_USE(folded(SUITE_OPAQUE(int, 7), SUITE_OPAQUE(long, 11)));
	SUITE_USE(folded(SUITE_OPAQUE(int, 1), SUITE_OPAQUE(long, -21)));
	SUITE_USE(folded(SUITE_OPAQUE(int, -2), SUITE_OPAQUE(long, 31)));
	SUITE_USE(oddly(SUITE_OPAQUE(int, 4), SUITE_OPAQUE(long, 41)));
	SUITE_USE(evenly(SUITE_OPAQUE(int, 3), SUITE_OPAQUE(long, -51)));
	return 0;
}

SUITE_CASE(case_run);
