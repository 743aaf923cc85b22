// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long bias = 3, scaled;

/* What it reads and writes keeps the copies apart. */
static long scale(int factor, long value)
{
	WRITE_ONCE(scaled, READ_ONCE(bias) + value);
	return factor * value + READ_ONCE(bias);
}

static noinline long once(int factor, long value)
{
	return scale(factor, value) - 1;
}

static noinline long twice(int factor, long value)
{
	long first = scale(factor, value);

	barrier();
	return first ^ scale(factor + 1, value + 1);
}

static int case_run(unsigned int number)
{
	SUITE_USE(once(SUITE_OPAQUE(int, 11), SUITE_OPAQUE(long, 1001)));
	SUITE_USE(twice(SUITE_OPAQUE(int, -21), SUITE_OPAQUE(long, 2001)));
	SUITE_USE(once(SUITE_OPAQUE(int, 31), SUITE_OPAQUE(long, -3001)));
	return 0;
}

SUITE_CASE(case_run);
