// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A module that comes and goes: a function with a body, two that are inlined, and a parameter that makes calls of them with
 * known arguments.
 */
#include <linux/kernel.h>
#include <linux/module.h>

struct life_thing {
	int number;
	struct life_thing *next;
};

static struct life_thing life_last = { .number = 202 };
static struct life_thing life_first = { .number = 101, .next = &life_last };
static struct life_thing *life_things = &life_first;
static int life_sink;

int life_body(struct life_thing *thing, u64 number);
int life_caller(struct life_thing *thing, u64 number, u64 next);

static __always_inline void life_copied(u64 first, u32 second)
{
	WRITE_ONCE(life_sink, (int)first);
	WRITE_ONCE(life_sink, (int)second);
}

static __always_inline void life_followed(struct life_thing *thing)
{
	WRITE_ONCE(life_sink, READ_ONCE(thing->number));
}

noinline int life_body(struct life_thing *thing, u64 number)
{
	WRITE_ONCE(life_sink, thing->number);
	return READ_ONCE(life_sink) + (int)number;
}

/* What the copies get are parameters as they came: what is computed a compiler may have without saying where. */
noinline int life_caller(struct life_thing *thing, u64 number, u64 next)
{
	life_copied(number, 7);
	life_copied(next, 8);
	life_followed(thing);
	return READ_ONCE(life_sink);
}

static int life_run(const char *value, const struct kernel_param *param)
{
	u64 number;
	int error = kstrtou64(value, 0, &number);

	if (error)
		return error;
	life_caller(READ_ONCE(life_things), number, number + 1);
	life_body(READ_ONCE(life_things), number);
	return 0;
}

static const struct kernel_param_ops life_run_ops = { .set = life_run };
module_param_cb(run, &life_run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "makes the calls, with this number");

MODULE_DESCRIPTION("Functions to be traced while the module comes and goes");
MODULE_LICENSE("Dual BSD/GPL");
