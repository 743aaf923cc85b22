// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/module.h>

static int doubled = 1;
module_param(doubled, int, 0444);

MODULE_DESCRIPTION("Does nothing");
MODULE_LICENSE("Dual BSD/GPL");
