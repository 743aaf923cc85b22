/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef INLINE_CHECK_H
#define INLINE_CHECK_H

#include <linux/types.h>

/*
 * Checks split BTF with sites: `data` is over the kernel's types, and over those of a module if `module` is not NULL. Returns 0,
 * -EINVAL if a rule is broken (a line in the kernel's log says which), or -ENOMEM.
 */
int inline_check(const char *name, const void *image, size_t image_size, const void *module, size_t module_size,
		 const void *data, size_t size);

#endif
