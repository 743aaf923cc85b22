// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

/* Types of the module's own: the kernel's BTF has none of them. */
struct siteseer_leaf {
	long weight;
	int colour;
};

struct siteseer_branch {
	long length;
	struct siteseer_leaf *leaf;
};

static struct siteseer_branch *seen;

static long grow(struct siteseer_branch *branch, int by)
{
	WRITE_ONCE(seen, branch);
	return branch->length + by;
}

static long shrink(struct siteseer_branch *branch, int by)
{
	WRITE_ONCE(seen, branch);
	return branch->length - by;
}

static long (*grow_of)(struct siteseer_branch *, int) = grow;
static long (*shrink_of)(struct siteseer_branch *, int) = shrink;

static noinline long shrink_here(int by, struct siteseer_branch *branch)
{
	return shrink(branch, by) + 1;
}

static int case_run(unsigned int number)
{
	static struct siteseer_leaf first_leaf = { .weight = 1001, .colour = -12 };
	static struct siteseer_leaf second_leaf = { .weight = 1002, .colour = -22 };
	static struct siteseer_branch first = { .length = 2001, .leaf = &first_leaf };
	static struct siteseer_branch second = { .length = 2002, .leaf = &second_leaf };

	SUITE_USE(READ_ONCE(grow_of)(&first, SUITE_OPAQUE(int, 31)));
	SUITE_USE(READ_ONCE(shrink_of)(&first, SUITE_OPAQUE(int, 41)));
	SUITE_USE(shrink_here(SUITE_OPAQUE(int, 51), SUITE_OPAQUE(struct siteseer_branch *, &second)));
	return 0;
}

SUITE_CASE(case_run);
