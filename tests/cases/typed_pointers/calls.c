// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

#include <linux/rbtree.h>

static struct rb_node *seen;

/* What is two steps away tells that both were made: p->rb_left->rb_right. */
static long visit(struct rb_node *node, int key)
{
	struct rb_node *before = READ_ONCE(seen);

	WRITE_ONCE(seen, node);
	return before == node ? key : -key;
}

static long (*visit_of)(struct rb_node *, int) = visit;

static noinline long visit_here(int key, struct rb_node *node)
{
	return visit(node, key) + 1;
}

#define ONE_STEP()                                                                             \
	do {                                                                                   \
		struct rb_node *next = READ_ONCE(at->rb_left);                                 \
                                                                                               \
		if (!next)                                                                     \
			next = READ_ONCE(at->rb_right);                                        \
		if (!next)                                                                     \
			return sum;                                                            \
		if (READ_ONCE(next->__rb_parent_color) > sum)                                  \
			sum += factor;                                                         \
		else                                                                           \
			sum = sum * 3 + READ_ONCE(at->__rb_parent_color);                      \
		at = next;                                                                     \
	} while (0)

/* Too large to be copied, and one argument is always the same: a clone, or a changed signature. */
static unsigned long walk(struct rb_node *node, unsigned long factor)
{
	struct rb_node *at = node;
	unsigned long sum = 0;

	ONE_STEP();
	ONE_STEP();
	ONE_STEP();
	ONE_STEP();
	ONE_STEP();
	ONE_STEP();
	return sum + node->__rb_parent_color;
}

static noinline unsigned long walk_first(struct rb_node *node)
{
	return walk(node, 9) + 1;
}

static noinline unsigned long walk_second(struct rb_node *node)
{
	return walk(node, 9) - 1;
}

static noinline unsigned long walk_third(struct rb_node *node)
{
	return walk(node->rb_left, 9) * 2;
}

static struct rb_node first, second, third, fourth;

static int case_run(unsigned int number)
{
	first = (struct rb_node){ .__rb_parent_color = 1001, .rb_left = &second };
	second = (struct rb_node){ .__rb_parent_color = 1002, .rb_left = &fourth, .rb_right = &third };
	third = (struct rb_node){ .__rb_parent_color = 1003, .rb_left = &first };
	fourth = (struct rb_node){ .__rb_parent_color = 1004, .rb_left = &third };
	SUITE_USE(READ_ONCE(visit_of)(&first, SUITE_OPAQUE(int, 11)));
	SUITE_USE(visit_here(SUITE_OPAQUE(int, 21), SUITE_OPAQUE(struct rb_node *, &second)));
	SUITE_USE(walk_first(SUITE_OPAQUE(struct rb_node *, &third)));
	SUITE_USE(walk_second(SUITE_OPAQUE(struct rb_node *, &fourth)));
	SUITE_USE(walk_third(SUITE_OPAQUE(struct rb_node *, &second)));
	return 0;
}

SUITE_CASE(case_run);
