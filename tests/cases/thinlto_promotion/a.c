// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long quote(int zone, long weight);

static noinline long shipped(int zone, long weight)
{
	return quote(zone, weight) + 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(shipped(SUITE_OPAQUE(int, 11), SUITE_OPAQUE(long, 1001)));
	SUITE_USE(quote(SUITE_OPAQUE(int, -21), SUITE_OPAQUE(long, 2002)));
	SUITE_USE(shipped(SUITE_OPAQUE(int, 31), SUITE_OPAQUE(long, -3003)));
	return 0;
}

SUITE_CASE(case_run);
