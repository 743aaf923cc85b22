// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long settle_in_b(unsigned char kind, short day, long amount);

static long settle(long amount, int rate)
{
	return amount * rate + 1;
}

static long (*settling)(long amount, int rate) = settle;

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(settling)(SUITE_OPAQUE(long, 1001), SUITE_OPAQUE(int, 11)));
	SUITE_USE(settle_in_b(SUITE_OPAQUE(unsigned char, 222), SUITE_OPAQUE(short, -22), SUITE_OPAQUE(long, 2002)));
	SUITE_USE(READ_ONCE(settling)(SUITE_OPAQUE(long, 3003), SUITE_OPAQUE(int, -33)));
	return 0;
}

SUITE_CASE(case_run);
