// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

/* TODO: the function that the case is about. Small and static: the compiler inlines it by itself. */
static long target(long a, int b)
{
	SUITE_USE(b);
	return a * 3 + b;
}

/* Callers that stay functions of their own, one for each way in which the function is called. */
static noinline long first(long a)
{
	return target(a, 1) + 5;
}

static noinline long second(long a, int b)
{
	return target(a + 1, b) ^ 7;
}

static int case_run(unsigned int number)
{
	SUITE_USE(first(SUITE_OPAQUE(long, 11)));
	SUITE_USE(second(SUITE_OPAQUE(long, -22), SUITE_OPAQUE(int, 33)));
	return 0;
}

SUITE_CASE(case_run);
