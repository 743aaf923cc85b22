// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/module.h>

int no_such_function_of_the_kernel(void);

static int __init lacking_init(void)
{
	return no_such_function_of_the_kernel();
}
module_init(lacking_init);

MODULE_DESCRIPTION("Compiles, and lacks a symbol");
MODULE_LICENSE("Dual BSD/GPL");
