/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * What the module of a conformance case is made with: a driver that makes the case's calls when it is told to, and the means
 * to keep values from the compiler. README.md beside this file says what a case is.
 */
#ifndef SUITE_H
#define SUITE_H

#include <linux/compiler.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/types.h>

/*
 * A value that the compiler does not know. `value` is a constant, `type` a scalar. Each use in the source has a variable of
 * its own, so that nothing tells the compiler that two of them are equal.
 */
#define SUITE_OPAQUE(type, value)                                                              \
	({                                                                                     \
		static type suite_opaque_ = (value);                                           \
		READ_ONCE(suite_opaque_);                                                      \
	})

/* Uses a scalar: what computed it cannot be left out. Says nothing of memory. */
#define SUITE_USE(value)                                                                       \
	do {                                                                                   \
		typeof(value) suite_used_ = (value);                                           \
		asm volatile("" : : "r"(suite_used_));                                         \
	} while (0)

/*
 * The last function of the module's text is none of the case's: some kernels look past it when a probe is put there (semantics.md,
 * S8.8, ends_module). A case that is about that has its own in this section, and defines SUITE_OWN_END before it includes this.
 */
#define SUITE_END __section(".text..suite_end")
#ifdef SUITE_OWN_END
#define SUITE_END_FUNCTION
#else
#define SUITE_END_FUNCTION                                                                     \
	static SUITE_END noinline void __used suite_end(void)                                  \
	{                                                                                      \
	}
#endif

/*
 * The case's driver: `run` makes the case's calls. It is called when a number is written to the module's parameter `run`
 * (/sys/module/siteseer_NAME/parameters/run), and gets that number; what it returns is the result of the write if it is
 * negative. It is called by a pointer that the compiler does not know, so that it stays a function of its own.
 * To be written once, in one of the case's files, after the function.
 */
#define SUITE_CASE(run_)                                                                       \
	static int (*suite_run)(unsigned int number) = run_;                                   \
	static int suite_set(const char *text, const struct kernel_param *param)               \
	{                                                                                      \
		unsigned int number;                                                           \
		int error = kstrtouint(text, 0, &number);                                      \
                                                                                               \
		return error ? error : READ_ONCE(suite_run)(number);                           \
	}                                                                                      \
	static const struct kernel_param_ops suite_ops = { .set = suite_set };                 \
	module_param_cb(run, &suite_ops, NULL, 0200);                                          \
	SUITE_END_FUNCTION                                                                     \
	MODULE_DESCRIPTION("A case of siteseer's conformance suite");                          \
	MODULE_LICENSE("Dual BSD/GPL")

/* For a case that does something when its module is loaded: `init` is a `static int __init init(void)`. */
#define SUITE_INIT(init_)                                                                      \
	static void __exit suite_exit(void)                                                    \
	{                                                                                      \
	}                                                                                      \
	module_init(init_);                                                                    \
	module_exit(suite_exit)

#endif /* SUITE_H */
