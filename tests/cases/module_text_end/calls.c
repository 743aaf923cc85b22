// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#define SUITE_OWN_END
#include "suite.h"

static long last;

static long mark(long value)
{
	long before = READ_ONCE(last);

	WRITE_ONCE(last, value);
	return before + value * 3;
}

static noinline long inside(long value)
{
	return mark(value) - 1;
}

/* Nothing follows it but the rest of a page. */
static SUITE_END noinline long at_the_end(long value)
{
	return mark(value) - 2;
}

static int case_run(unsigned int number)
{
	SUITE_USE(inside(SUITE_OPAQUE(long, 11)));
	SUITE_USE(at_the_end(SUITE_OPAQUE(long, 21)));
	SUITE_USE(inside(SUITE_OPAQUE(long, -31)));
	return 0;
}

SUITE_CASE(case_run);
