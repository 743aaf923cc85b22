// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

#include <linux/stdarg.h>

long add_up(int count, long first, ...);

static long (*add_up_of)(int count, long first, ...) = add_up;

long add_up(int count, long first, ...)
{
	long sum = first;
	va_list rest;

	va_start(rest, first);
	while (count-- > 0)
		sum += va_arg(rest, long);
	va_end(rest);
	return sum;
}

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(add_up_of)(SUITE_OPAQUE(int, 2), SUITE_OPAQUE(long, -11), SUITE_OPAQUE(long, 12),
				       SUITE_OPAQUE(long, 13)));
	SUITE_USE(READ_ONCE(add_up_of)(SUITE_OPAQUE(int, 0), SUITE_OPAQUE(long, 21)));
	SUITE_USE(READ_ONCE(add_up_of)(SUITE_OPAQUE(int, 8), SUITE_OPAQUE(long, 31), 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L));
	return 0;
}

SUITE_CASE(case_run);
