// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/module.h>

#error this module cannot be built

MODULE_DESCRIPTION("Cannot be compiled");
MODULE_LICENSE("Dual BSD/GPL");
