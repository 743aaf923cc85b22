// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One of two files, and named like the module.
#include <linux/module.h>
#include "second.h"

static int given = 3;
module_param(given, int, 0444);

static int doubled;
module_param(doubled, int, 0444);

static int __init pair_init(void)
{
	doubled = pair_double(given);
	return 0;
}
module_init(pair_init);

static void __exit pair_exit(void)
{
}
module_exit(pair_exit);

MODULE_DESCRIPTION("Shows that it was loaded");
MODULE_LICENSE("Dual BSD/GPL");
