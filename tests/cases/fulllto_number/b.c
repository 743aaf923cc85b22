// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long settled_in_b(long amount, int rate);

/* Another function of the same name. In one link, one of the two has to get another. */
static noinline long settle(long amount, int rate)
{
	return amount / rate - 1;
}

long settled_in_b(long amount, int rate)
{
	long first = settle(amount, rate);

	barrier();
	return first * settle(amount + 1, -rate);
}
