// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long quote(int zone, long weight);

/*
 * quote() is small enough for the other file, and takes its call of tariff() along: tariff() has to be visible there, under a
 * name that nobody else has.
 */
static noinline long tariff(int zone, long weight)
{
	if (zone < 0)
		return weight / zone;
	return weight * zone;
}

long quote(int zone, long weight)
{
	return tariff(zone, weight);
}
