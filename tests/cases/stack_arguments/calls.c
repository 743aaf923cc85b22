// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long eight(long a, long b, long c, long d, long e, long f, long g, long h)
{
	long first = a * b + c * d + e * f;

	barrier();
	return first * g - h;
}

static long ten(long a, long b, long c, long d, long e, long f, long g, unsigned int h, short i, signed char j)
{
	long first = a * b + c * d + e * f;

	barrier();
	return first * g - h * i + j;
}

/* What the address is taken of stays a function, with its own signature. */
static long (*eight_of)(long, long, long, long, long, long, long, long) = eight;
static long (*ten_of)(long, long, long, long, long, long, long, unsigned int, short, signed char) = ten;

/* The copies have their arguments where the callers had theirs. */
static noinline long eight_here(long a, long b, long c, long d, long e, long f, long g, long h)
{
	return eight(b, a, d, c, f, e, h, g) + 1;
}

static noinline long ten_here(long a, long b, long c, long d, long e, long f, long g, unsigned int h, short i,
			      signed char j)
{
	return ten(g, f, e, d, c, b, a, h, i, j) + 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(eight_of)(SUITE_OPAQUE(long, 11), SUITE_OPAQUE(long, 12), SUITE_OPAQUE(long, 13),
				      SUITE_OPAQUE(long, 14), SUITE_OPAQUE(long, 15), SUITE_OPAQUE(long, 16),
				      SUITE_OPAQUE(long, 17), SUITE_OPAQUE(long, -18)));
	/* Each of the narrow ones comes from a wider value, with other bits above what is passed. */
	SUITE_USE(READ_ONCE(ten_of)(SUITE_OPAQUE(long, 21), SUITE_OPAQUE(long, 22), SUITE_OPAQUE(long, 23),
				    SUITE_OPAQUE(long, 24), SUITE_OPAQUE(long, 25), SUITE_OPAQUE(long, 26),
				    SUITE_OPAQUE(long, 27), SUITE_OPAQUE(long, 0x7fffffff80000028),
				    SUITE_OPAQUE(long, 0x123456789abcffe3), SUITE_OPAQUE(long, 0x55555555555555e2)));
	SUITE_USE(eight_here(SUITE_OPAQUE(long, 31), SUITE_OPAQUE(long, 32), SUITE_OPAQUE(long, 33),
			     SUITE_OPAQUE(long, 34), SUITE_OPAQUE(long, 35), SUITE_OPAQUE(long, 36),
			     SUITE_OPAQUE(long, 37), SUITE_OPAQUE(long, -38)));
	SUITE_USE(ten_here(SUITE_OPAQUE(long, 41), SUITE_OPAQUE(long, 42), SUITE_OPAQUE(long, 43),
			   SUITE_OPAQUE(long, 44), SUITE_OPAQUE(long, 45), SUITE_OPAQUE(long, 46),
			   SUITE_OPAQUE(long, 47), SUITE_OPAQUE(long, 0x7fffffff80000048),
			   SUITE_OPAQUE(long, 0x123456789abcffc3), SUITE_OPAQUE(long, 0x55555555555555c2)));
	return 0;
}

SUITE_CASE(case_run);
