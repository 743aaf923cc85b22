// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long table[4] = { 3, -5, 7, -11 };

#define ONE_ENTRY(at)                                                                          \
	do {                                                                                   \
		long entry = READ_ONCE(table[at]);                                             \
                                                                                               \
		if (entry > value)                                                             \
			sum += entry * scale;                                                  \
		else if (entry < -value)                                                       \
			sum -= entry ^ value;                                                  \
		else                                                                           \
			sum ^= value + scale;                                                  \
		WRITE_ONCE(table[at], entry);                                              \
	} while (0)

/*
 * Too large to be copied to each caller, and always called with the same constants: compilers leave those away, GCC in
 * a clone, clang in the function itself.
 */
static long pick(int scale, long value, int unused)
{
	long sum = 0;

	ONE_ENTRY(0);
	ONE_ENTRY(1);
	ONE_ENTRY(2);
	ONE_ENTRY(3);
	ONE_ENTRY(3);
	ONE_ENTRY(2);
	ONE_ENTRY(1);
	ONE_ENTRY(0);
	return sum;
}

static noinline long first(long value)
{
	return pick(6, value, 1) + 1;
}

static noinline long second(long value)
{
	return pick(6, value ^ 1, 1) - 1;
}

static noinline long third(long value)
{
	return pick(6, -value, 1) * 2;
}

static int case_run(unsigned int number)
{
	SUITE_USE(first(SUITE_OPAQUE(long, 4)));
	SUITE_USE(second(SUITE_OPAQUE(long, -8)));
	SUITE_USE(third(SUITE_OPAQUE(long, -1)));
	return 0;
}

SUITE_CASE(case_run);
