// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long narrow(signed char a, unsigned char b, short c, unsigned short d, bool e, int f)
{
	/* All are there at once. */
	barrier();
	return a * 3 + b * 5 + c * 7 + d * 11 + (e ? 13 : 17) + f;
}

static long half(int a, unsigned int b)
{
	return (long)a * 3 - b;
}

static long (*narrow_of)(signed char, unsigned char, short, unsigned short, bool, int) = narrow;
static long (*half_of)(int, unsigned int) = half;

/* Conversions need no instruction: the registers keep what is above the narrow values. */
static noinline long pass_on(long a, unsigned long b)
{
	return READ_ONCE(half_of)(a, b);
}

static noinline long narrow_here(long a, long b, long c, long d, long e, long f)
{
	return narrow(a, b, c, d, e, f) + 1;
}

static noinline long half_here(long a, unsigned long b)
{
	return half(a, b) + 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(narrow_of)(SUITE_OPAQUE(long, 0x11111111111111f1), SUITE_OPAQUE(long, 0x22222222222222f2),
				       SUITE_OPAQUE(long, 0x333333333333fff3), SUITE_OPAQUE(long, 0x444444444444fff4),
				       SUITE_OPAQUE(long, 0x100), SUITE_OPAQUE(long, 0x66666666fffffff6)));
	SUITE_USE(pass_on(SUITE_OPAQUE(long, 0x77777777fffffff7), SUITE_OPAQUE(unsigned long, 0x88888888fffffff8)));
	SUITE_USE(narrow_here(SUITE_OPAQUE(long, 0x1111111111111181), SUITE_OPAQUE(long, 0x2222222222222282),
			      SUITE_OPAQUE(long, 0x3333333333338003), SUITE_OPAQUE(long, 0x4444444444448004),
			      SUITE_OPAQUE(long, 0), SUITE_OPAQUE(long, 0x6666666680000006)));
	SUITE_USE(half_here(SUITE_OPAQUE(long, 0x7777777780000007), SUITE_OPAQUE(unsigned long, 0x9999999980000009)));
	return 0;
}

SUITE_CASE(case_run);
