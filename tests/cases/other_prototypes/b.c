// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long settle_in_b(unsigned char kind, short day, long amount);

/* Another function of the same name, with other parameters. */
static int settle(unsigned char kind, short day, long amount)
{
	return kind * day - (int)amount;
}

static int (*settling)(unsigned char kind, short day, long amount) = settle;

noinline long settle_in_b(unsigned char kind, short day, long amount)
{
	return READ_ONCE(settling)(kind, day, amount) * 3;
}
