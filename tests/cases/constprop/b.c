// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long by_ship(long weight);

/* The same as in a.c. */
static noinline long freight(int zone, long weight)
{
	if (zone == 3)
		return weight * 7 + 1;
	return weight / zone - 5;
}

long by_ship(long weight)
{
	long there = freight(-9, weight);

	barrier();
	return there ^ freight(-9, weight + 1);
}
