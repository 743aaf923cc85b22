// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct span {
	unsigned long start;
	unsigned int length;
	short owner;
};

struct box {
	long width;
	long height;
	long depth;
};

static unsigned long last_of(struct span span, int step)
{
	return span.start + (unsigned long)span.length * step + span.owner;
}

static long volume(struct box box, int factor)
{
	return box.width * box.height * factor - box.depth;
}

/* The members live in registers of their own: there is no structure. */
static noinline unsigned long of_members(unsigned long start, unsigned int length, short owner, int step)
{
	struct span span = { start, length, owner };

	return last_of(span, step) + 1;
}

/* One of the members is a constant. */
static noinline unsigned long of_constant(unsigned long start, unsigned int length, int step)
{
	struct span span = { start, length, -45 };

	return last_of(span, step) - 1;
}

static noinline long of_box(long width, long height, long depth, int factor)
{
	struct box box = { width, height, depth };

	return volume(box, factor) + 1;
}

static int case_run(unsigned int number)
{
	SUITE_USE(of_members(SUITE_OPAQUE(long, 0x100000001), SUITE_OPAQUE(int, -12), SUITE_OPAQUE(short, -13),
			     SUITE_OPAQUE(int, 14)));
	SUITE_USE(of_constant(SUITE_OPAQUE(long, 0x200000001), SUITE_OPAQUE(int, 22), SUITE_OPAQUE(int, -24)));
	SUITE_USE(of_box(SUITE_OPAQUE(long, 31), SUITE_OPAQUE(long, -32), SUITE_OPAQUE(long, 33),
			 SUITE_OPAQUE(int, 34)));
	return 0;
}

SUITE_CASE(case_run);
