// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long half(long value)
{
	return value / 2;
}

static long square(long value)
{
	return value * value;
}

typedef long function_of_long(long);

static long apply(long (*function)(long), const char *name, volatile long *place, const volatile int *const flags)
{
	long value = function(*place);

	*place = value + *name + *flags;
	return value;
}

static long (*apply_of)(long (*)(long), const char *, volatile long *, const volatile int *) = apply;

static noinline long apply_here(long (*function)(long), const char *name, volatile long *place,
				const volatile int *flags)
{
	return apply(function, name, place, flags) + 1;
}

char siteseer_half_name[] = "half", siteseer_square_name[] = "square";
long siteseer_half_place, siteseer_square_place;
int siteseer_half_flags = -12, siteseer_square_flags = 22;

static int case_run(unsigned int number)
{
	siteseer_half_place = SUITE_OPAQUE(long, 1001);
	siteseer_square_place = SUITE_OPAQUE(long, 31);
	SUITE_USE(READ_ONCE(apply_of)(half, siteseer_half_name, &siteseer_half_place, &siteseer_half_flags));
	SUITE_USE(apply_here(SUITE_OPAQUE(function_of_long *, square), SUITE_OPAQUE(const char *, siteseer_square_name),
			     SUITE_OPAQUE(long *, &siteseer_square_place), SUITE_OPAQUE(int *, &siteseer_square_flags)));
	return 0;
}

SUITE_CASE(case_run);
