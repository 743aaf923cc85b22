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

static long results[3];

static noinline void first(long value)
{
	WRITE_ONCE(results[0], pick(6, value, 1));
}

static noinline void second(long value)
{
	WRITE_ONCE(results[1], pick(6, value ^ 1, 1));
}

static noinline void third(long value)
{
	WRITE_ONCE(results[2], pick(6, -value, 1));
}

static int case_run(unsigned int number)
{
	first(SUITE_OPAQUE(long, 4));
	second(SUITE_OPAQUE(long, -8));
	third(SUITE_OPAQUE(long, -1));
	return 0;
}

SUITE_CASE(case_run);
