// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long state;

static long mix(long value)
{
	return value * 3 + READ_ONCE(state);
}

/* Here it runs while the module is loaded, before anything can be attached, and never again. */
static int __init first_start(void)
{
	WRITE_ONCE(state, mix(SUITE_OPAQUE(long, 11)));
	return 0;
}

static noinline long later(long value)
{
	return mix(value) - 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(later(SUITE_OPAQUE(long, 21)));
	SUITE_USE(later(SUITE_OPAQUE(long, -31)));
	return 0;
}

SUITE_INIT(first_start);
SUITE_CASE(case_run);
