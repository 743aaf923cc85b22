// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

typedef unsigned __int128 wide;

/* On arm64 a pair begins at an even register: one is left out. */
static long high(int before, wide value, long after)
{
	return before + (long)(value >> 64) * 3 - (long)value + after;
}

/* On x86-64 there is one register left: the pair is on the stack, and what comes after it is in the register. */
static long late(long a, long b, long c, long d, long e, wide value, long after)
{
	return a * b + c * d - e + (long)(value >> 64) * 3 - (long)value + after;
}

static long (*high_of)(int, wide, long) = high;
static long (*late_of)(long, long, long, long, long, wide, long) = late;

static noinline long high_here(int before, wide value, long after)
{
	return high(before, value, after) + 1;
}

static int case_run(unsigned int number)
{
	wide first = (wide)SUITE_OPAQUE(long, 12) << 64 | SUITE_OPAQUE(unsigned long, 0xfffffffffffffff3);
	wide second = (wide)SUITE_OPAQUE(long, -22) << 64 | SUITE_OPAQUE(unsigned long, 23);
	wide third = (wide)SUITE_OPAQUE(long, 32) << 64 | SUITE_OPAQUE(unsigned long, 33);

	SUITE_USE(READ_ONCE(high_of)(SUITE_OPAQUE(int, 11), first, SUITE_OPAQUE(long, 14)));
	SUITE_USE(high_here(SUITE_OPAQUE(int, -21), second, SUITE_OPAQUE(long, 24)));
	SUITE_USE(READ_ONCE(late_of)(SUITE_OPAQUE(long, 41), SUITE_OPAQUE(long, 42), SUITE_OPAQUE(long, 43),
				     SUITE_OPAQUE(long, 44), SUITE_OPAQUE(long, 45), third, SUITE_OPAQUE(long, 47)));
	return 0;
}

SUITE_CASE(case_run);
