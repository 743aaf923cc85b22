// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct eight_bytes {
	int first;
	unsigned int second;
};

struct sixteen_bytes {
	long first;
	short second;
	unsigned int third;
};

struct twenty_four_bytes {
	long first;
	unsigned long second;
	long third;
};

static long by8(int before, struct eight_bytes it, long after)
{
	return before * (long)it.first - it.second * after;
}

static long by16(int before, struct sixteen_bytes it, long after)
{
	return before * it.first - it.second * after + it.third;
}

static long by24(int before, struct twenty_four_bytes it, long after)
{
	return before * it.first - it.second * after + it.third;
}

/* On x86-64 the structure does not fit into the one register that is left, and what comes after it does. */
static long late16(long a, long b, long c, long d, long e, struct sixteen_bytes it, long after)
{
	return a * b + c * d - e * it.first - it.second * after + it.third;
}

static long (*by8_of)(int, struct eight_bytes, long) = by8;
static long (*by16_of)(int, struct sixteen_bytes, long) = by16;
static long (*by24_of)(int, struct twenty_four_bytes, long) = by24;
static long (*late16_of)(long, long, long, long, long, struct sixteen_bytes, long) = late16;

static int case_run(unsigned int number)
{
	struct eight_bytes eight = { SUITE_OPAQUE(int, -12), SUITE_OPAQUE(unsigned int, 0xfffffff3) };
	struct sixteen_bytes sixteen = { SUITE_OPAQUE(long, 22), SUITE_OPAQUE(short, -23),
					 SUITE_OPAQUE(unsigned int, 0x80000024) };
	struct twenty_four_bytes twenty_four = { SUITE_OPAQUE(long, 32), SUITE_OPAQUE(unsigned long, -33),
						 SUITE_OPAQUE(long, 34) };

	SUITE_USE(READ_ONCE(by8_of)(SUITE_OPAQUE(int, 11), eight, SUITE_OPAQUE(long, 14)));
	SUITE_USE(READ_ONCE(by16_of)(SUITE_OPAQUE(int, 21), sixteen, SUITE_OPAQUE(long, 25)));
	SUITE_USE(READ_ONCE(by24_of)(SUITE_OPAQUE(int, 31), twenty_four, SUITE_OPAQUE(long, 35)));
	sixteen.first = SUITE_OPAQUE(long, 46);
	SUITE_USE(READ_ONCE(late16_of)(SUITE_OPAQUE(long, 41), SUITE_OPAQUE(long, 42), SUITE_OPAQUE(long, 43),
				       SUITE_OPAQUE(long, 44), SUITE_OPAQUE(long, 45), sixteen,
				       SUITE_OPAQUE(long, 47)));
	return 0;
}

SUITE_CASE(case_run);
