// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

/* The result depends on the arguments alone: the compiler leaves out calls whose result it does not need, or already has. */
static noinline long mix(long a, int b)
{
	return (a * 7 + b) / 3;
}

/* The result is known to the callers without a call. */
static noinline int version(int kind)
{
	return 42;
}

/* It is only called where nobody needs the result. */
static noinline long audit(long a)
{
	return a * a / 5;
}

static noinline long once(long a)
{
	return mix(a, 2) + version(2);
}

static noinline long again(long a)
{
	long first = mix(a, 3), second;

	audit(a);
	second = mix(a, 3);
	return first ^ (second + 1);
}

static noinline void unused(long a)
{
	mix(a, 1);
	SUITE_USE(a);
}

static int case_run(unsigned int number)
{
	unused(SUITE_OPAQUE(long, 1001));
	SUITE_USE(once(SUITE_OPAQUE(long, -2002)));
	SUITE_USE(again(SUITE_OPAQUE(long, 3003)));
	return 0;
}

SUITE_CASE(case_run);
