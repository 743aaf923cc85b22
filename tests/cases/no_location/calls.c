// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

/* The compiler may leave out a call if nothing of it is used. */
static noinline __attribute_const__ long derived(long value)
{
	OPTIMIZER_HIDE_VAR(value);
	return value * 3 + 1;
}

static long note(long key, long detail)
{
	/* Where it is entered, its arguments are there. */
	barrier();
	return key * 7 + 5;
}

/* What the address is taken of keeps its signature. */
static long (*note_of)(long key, long detail) = note;

/* Nobody uses the detail: it is never computed. */
static noinline long without(long key)
{
	return note(key, derived(key)) + 1;
}

static noinline long with(long key, long detail)
{
	return note(key, detail) ^ detail;
}

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(note_of)(SUITE_OPAQUE(long, 11), SUITE_OPAQUE(long, 12)));
	SUITE_USE(without(SUITE_OPAQUE(long, 21)));
	SUITE_USE(with(SUITE_OPAQUE(long, 31), SUITE_OPAQUE(long, -32)));
	return 0;
}

SUITE_CASE(case_run);
