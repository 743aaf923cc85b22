// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long last(long value, int factor)
{
	return value * factor + 11;
}

/* A pointer that the compiler does not know: the call is one, and the last thing that is done. */
static long (*last_of)(long, int) = last;

static long forward(int factor, long value)
{
	return READ_ONCE(last_of)(value ^ 1, -factor);
}

static noinline long through(long value, int factor)
{
	return forward(factor, value);
}

static int case_run(unsigned int number)
{
	SUITE_USE(through(SUITE_OPAQUE(long, 1000), SUITE_OPAQUE(int, 11)));
	SUITE_USE(through(SUITE_OPAQUE(long, -2000), SUITE_OPAQUE(int, 21)));
	return 0;
}

SUITE_CASE(case_run);
