// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"
#include <linux/jump_label.h>
#include <linux/static_call.h>

struct lamp {
	long watts;
	long hours;
};

static DEFINE_STATIC_KEY_FALSE(lit);

static noinline long dim(struct lamp *lamp, long by)
{
	return READ_ONCE(lamp->watts) - by;
}

static noinline long brighten(struct lamp *lamp, long by)
{
	return READ_ONCE(lamp->watts) + by;
}

DEFINE_STATIC_CALL(lamp_turn, dim);

/* Its first instruction is the key's: a nop, or a jump while the key is on. */
static long shine(struct lamp *lamp, long by)
{
	if (static_branch_unlikely(&lit))
		WRITE_ONCE(lamp->hours, by);
	return READ_ONCE(lamp->watts) * by;
}

/* Its first instruction is the call, where static calls are patched in line. */
static long turn(struct lamp *lamp, long by)
{
	return static_call(lamp_turn)(lamp, by) * 3;
}

/* What is loaded before the copy is not an argument of it. */
static noinline long room(struct lamp *lamp, long by)
{
	long before = READ_ONCE(lamp->hours);

	return shine(lamp, by) + before;
}

/* What is loaded before the copy is an argument of it. */
static noinline long hall(struct lamp *lamp, struct lamp *other)
{
	long by = READ_ONCE(other->hours);

	return shine(lamp, by) - 1;
}

static noinline long porch(struct lamp *lamp, long by)
{
	long before = READ_ONCE(lamp->hours);

	return turn(lamp, by) + before;
}

static void all(struct lamp *first, struct lamp *second, long by)
{
	SUITE_USE(room(first, by + 1));
	SUITE_USE(room(second, by + 2));
	SUITE_USE(hall(second, first));
	SUITE_USE(porch(first, by + 3));
}

/* With the key off, on, and off again; the call goes elsewhere while the key is on. */
static int case_run(unsigned int number)
{
	struct lamp first = { .watts = 10, .hours = 77 }, second = { .watts = 20, .hours = 88 };

	all(&first, &second, SUITE_OPAQUE(long, 100));
	static_branch_enable(&lit);
	static_call_update(lamp_turn, brighten);
	all(&second, &first, SUITE_OPAQUE(long, -200));
	static_branch_disable(&lit);
	static_call_update(lamp_turn, dim);
	all(&first, &second, SUITE_OPAQUE(long, 300));
	return 0;
}

SUITE_CASE(case_run);
