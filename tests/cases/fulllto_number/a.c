// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long settled_in_b(long amount, int rate);

static noinline long settle(long amount, int rate)
{
	return amount * rate + 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(settle(SUITE_OPAQUE(long, 1001), SUITE_OPAQUE(int, 11)));
	SUITE_USE(settled_in_b(SUITE_OPAQUE(long, -2002), SUITE_OPAQUE(int, 22)));
	SUITE_USE(settle(SUITE_OPAQUE(long, 3003), SUITE_OPAQUE(int, -33)));
	return 0;
}

SUITE_CASE(case_run);
