// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long balance;
	long fee;
};

/*
 * They assign to a parameter before they do anything else. Where that takes no instruction, the parameter has two values at the
 * first address: what it was called with, and what was assigned.
 */
static void charge(struct account *account, long amount, long fee)
{
	amount = amount + 3;
	account->balance = amount;
	account->fee = fee;
}

static void refund(struct account *account, long amount, long fee)
{
	amount = fee;
	account->balance = amount * 3;
	account->fee = 7;
}

static noinline long charged(struct account *account, long fee)
{
	charge(account, 5, fee);
	return fee * 3;
}

static noinline long refunded(struct account *account, long amount, long fee)
{
	refund(account, amount, fee);
	return amount * 5;
}

/* Out of line, and called by who knows whom. */
static noinline long settle(long amount, long fee)
{
	amount = fee;
	return amount * 7 + 1;
}

static long (*settling)(long amount, long fee) = settle;

static int case_run(unsigned int number)
{
	struct account first = { .balance = 100 }, second = { .balance = 200 };

	SUITE_USE(charged(&first, SUITE_OPAQUE(long, 11)));
	SUITE_USE(charged(&second, SUITE_OPAQUE(long, -12)));
	SUITE_USE(refunded(&first, SUITE_OPAQUE(long, 1001), SUITE_OPAQUE(long, 21)));
	SUITE_USE(refunded(&second, SUITE_OPAQUE(long, -1002), SUITE_OPAQUE(long, 22)));
	SUITE_USE(READ_ONCE(settling)(SUITE_OPAQUE(long, 2001), SUITE_OPAQUE(long, 31)));
	SUITE_USE(READ_ONCE(settling)(SUITE_OPAQUE(long, 2002), SUITE_OPAQUE(long, -32)));
	return 0;
}

SUITE_CASE(case_run);
