// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/error-injection.h>

int siteseer_may_sleep(int value, const char *text);
int siteseer_may_not_sleep(int value, const char *text);

noinline int siteseer_may_sleep(int value, const char *text)
{
	return value + text[0];
}

noinline int siteseer_may_not_sleep(int value, const char *text)
{
	return value - text[0];
}

static int copied(int value, const char *text)
{
	return value ^ READ_ONCE(text[0]);
}

static noinline int copied_here(int value, const char *text)
{
	return copied(value, text) + 1;
}

/* The kernel lets programs that sleep run at functions that are declared so. */
#ifdef CONFIG_FUNCTION_ERROR_INJECTION
ALLOW_ERROR_INJECTION(siteseer_may_sleep, ERRNO);

static int __init declare(void)
{
	return 0;
}
#else
#ifndef BTF_KFUNCS_START
#define BTF_KFUNCS_START BTF_SET8_START
#define BTF_KFUNCS_END BTF_SET8_END
#endif

BTF_KFUNCS_START(siteseer_sleepable)
BTF_ID_FLAGS(func, siteseer_may_sleep, KF_SLEEPABLE)
BTF_KFUNCS_END(siteseer_sleepable)

static const struct btf_kfunc_id_set sleepable_set = {
	.owner = THIS_MODULE,
	.set = &siteseer_sleepable,
};

static int __init declare(void)
{
	return register_btf_fmodret_id_set(&sleepable_set);
}
#endif

static int case_run(unsigned int number)
{
	SUITE_USE(siteseer_may_sleep(SUITE_OPAQUE(int, 11), "a"));
	SUITE_USE(siteseer_may_not_sleep(SUITE_OPAQUE(int, 21), "b"));
	SUITE_USE(copied_here(SUITE_OPAQUE(int, 31), SUITE_OPAQUE(const char *, "c")));
	return 0;
}

SUITE_INIT(declare);
SUITE_CASE(case_run);
