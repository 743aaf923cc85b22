// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long by_ship(long weight);

/* All callers of this file pass the same zone, and those of the other file another one. */
static noinline long freight(int zone, long weight)
{
	if (zone == 3)
		return weight * 7 + 1;
	return weight / zone - 5;
}

static noinline long by_rail(long weight)
{
	return freight(3, weight) + 2;
}

static int case_run(unsigned int number)
{
	SUITE_USE(by_rail(SUITE_OPAQUE(long, 1001)));
	SUITE_USE(by_ship(SUITE_OPAQUE(long, 2002)));
	SUITE_USE(freight(3, SUITE_OPAQUE(long, -3003)));
	SUITE_USE(by_ship(SUITE_OPAQUE(long, 4004)));
	return 0;
}

SUITE_CASE(case_run);
