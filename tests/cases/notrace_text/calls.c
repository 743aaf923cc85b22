// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long last;

static long mark(long value)
{
	long before = READ_ONCE(last);

	WRITE_ONCE(last, value);
	return before + value * 3;
}

static noinline long seen(long value)
{
	return mark(value) - 1;
}

static noinline notrace long unseen(long value)
{
	return mark(value) - 2;
}

static noinstr long untouchable(long value)
{
	return mark(value) - 3;
}

static int case_run(unsigned int number)
{
	SUITE_USE(seen(SUITE_OPAQUE(long, 11)));
	SUITE_USE(unseen(SUITE_OPAQUE(long, 21)));
	SUITE_USE(untouchable(SUITE_OPAQUE(long, 31)));
	SUITE_USE(seen(SUITE_OPAQUE(long, -41)));
	return 0;
}

SUITE_CASE(case_run);
