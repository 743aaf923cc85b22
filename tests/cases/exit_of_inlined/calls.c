// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long last;

static int note(long value)
{
	long before = READ_ONCE(last);

	WRITE_ONCE(last, value);
	return before - value;
}

static int (*note_of)(long) = note;

static noinline int noted_first(long value)
{
	return note(value) + 1;
}

static noinline int noted_second(long value)
{
	return note(-value) * 2;
}

static int case_run(unsigned int number)
{
	WRITE_ONCE(last, 1000);
	SUITE_USE(READ_ONCE(note_of)(SUITE_OPAQUE(long, 11)));
	SUITE_USE(noted_first(SUITE_OPAQUE(long, 21)));
	SUITE_USE(noted_second(SUITE_OPAQUE(long, 31)));
	SUITE_USE(READ_ONCE(note_of)(SUITE_OPAQUE(long, 41)));
	return 0;
}

SUITE_CASE(case_run);
