// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

enum direction {
	BACK = -7,
	FORTH = 9,
};

enum flags {
	LOW = 1,
	HIGH = 0x80000000,
};

enum wide {
	NEAR = 5,
	FAR = 0x123456789abLL,
};

enum wide_signed {
	BELOW = -0x123456789aLL,
	ABOVE = 6,
};

static long go(enum direction direction, enum flags flags, enum wide wide, enum wide_signed wide_signed)
{
	return direction * 3 + flags + (long)wide * 5 - (long)wide_signed;
}

static long (*go_of)(enum direction, enum flags, enum wide, enum wide_signed) = go;

static noinline long go_here(long direction, long flags, long wide, long wide_signed)
{
	return go(direction, flags, wide, wide_signed) + 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(go_of)(SUITE_OPAQUE(enum direction, BACK), SUITE_OPAQUE(enum flags, HIGH),
				   SUITE_OPAQUE(enum wide, FAR), SUITE_OPAQUE(enum wide_signed, BELOW)));
	SUITE_USE(go_here(SUITE_OPAQUE(long, 0x55555555fffffff9), SUITE_OPAQUE(long, 0x4444444480000000), SUITE_OPAQUE(long, FAR),
			  SUITE_OPAQUE(long, BELOW)));
	SUITE_USE(READ_ONCE(go_of)(FORTH, LOW, NEAR, ABOVE));
	return 0;
}

SUITE_CASE(case_run);
