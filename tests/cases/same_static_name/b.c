// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long settle_in_b(long amount, int rate);

/* Another function of the same name and prototype. */
static long settle(long amount, int rate)
{
	return amount / rate - 1;
}

static long (*settling)(long amount, int rate) = settle;

noinline long settle_in_b(long amount, int rate)
{
	return READ_ONCE(settling)(amount, rate) * 3;
}
