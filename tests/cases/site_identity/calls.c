// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long last;

/* Called by a pointer, and copied into one caller. */
static long note(int value)
{
	long before = READ_ONCE(last);

	WRITE_ONCE(last, value);
	return before;
}

static long (*note_of)(int value) = note;

long siteseer_note_here(int value);

noinline long siteseer_note_here(int value)
{
	return note(value) + 1;
}

static long table[4] = { 3, -5, 7, -11 };

#define ONE_ENTRY(at)                                                                          \
	do {                                                                                   \
		long entry = READ_ONCE(table[at]);                                             \
                                                                                               \
		if (entry > value)                                                             \
			sum += entry * scale;                                                  \
		else if (entry < -value)                                                       \
			sum -= entry ^ value;                                                  \
		else                                                                           \
			sum ^= value + scale;                                                  \
		WRITE_ONCE(table[at], entry);                                                  \
	} while (0)

/* Too large to be copied, and always called with the same scale: GCC makes a clone. */
static long tally(int value, int scale)
{
	long sum = 0;

	ONE_ENTRY(0);
	ONE_ENTRY(1);
	ONE_ENTRY(2);
	ONE_ENTRY(3);
	ONE_ENTRY(2);
	ONE_ENTRY(1);
	return sum;
}

static noinline long first_tally(int value)
{
	return tally(value, 6) + 1;
}

static noinline long second_tally(int value)
{
	return tally(-value, 6) - 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(note_of)(SUITE_OPAQUE(int, 11)));
	SUITE_USE(siteseer_note_here(SUITE_OPAQUE(int, 21)));
	SUITE_USE(first_tally(SUITE_OPAQUE(int, 31)));
	SUITE_USE(second_tally(SUITE_OPAQUE(int, 41)));
	return 0;
}

SUITE_CASE(case_run);
