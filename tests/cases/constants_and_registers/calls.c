// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

long siteseer_counter, siteseer_other_counter;

static long add(long *counter, int amount)
{
	long before = READ_ONCE(*counter);

	WRITE_ONCE(*counter, before + amount);
	return before;
}

static noinline long constant_and_address(void)
{
	return add(&siteseer_counter, -17) + 1;
}

static noinline long constant_and_register(long *counter)
{
	return add(counter, 27) + 2;
}

static noinline long registers(int amount, long *counter)
{
	return add(counter, amount) + 3;
}

static int case_run(unsigned int number)
{
	WRITE_ONCE(siteseer_counter, 1001);
	WRITE_ONCE(siteseer_other_counter, 2001);
	SUITE_USE(constant_and_address());
	SUITE_USE(constant_and_register(SUITE_OPAQUE(long *, &siteseer_other_counter)));
	SUITE_USE(registers(SUITE_OPAQUE(int, 37), SUITE_OPAQUE(long *, &siteseer_counter)));
	SUITE_USE(registers(SUITE_OPAQUE(int, -47), SUITE_OPAQUE(long *, &siteseer_other_counter)));
	return 0;
}

SUITE_CASE(case_run);
