// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long balance;
	long trail;
};

static void note(struct account *account, int code, long amount)
{
	account->trail = account->trail * 5 + code + amount;
}

/* What both copies begin with is moved before the branch. */
static noinline long withdraw(struct account *account, long amount)
{
	if (amount > account->balance) {
		note(account, -28, amount);
		return -28;
	}
	note(account, 1, amount);
	account->balance -= amount;
	return account->balance;
}

/* The copies are equal: one is left. */
static noinline long touch(struct account *account, long amount)
{
	if (amount > account->balance) {
		note(account, 2, amount);
		return 7;
	}
	note(account, 2, amount);
	account->balance = amount;
	return 8;
}

static int case_run(unsigned int number)
{
	struct account first = { .balance = 100 }, second = { .balance = 200 };

	SUITE_USE(withdraw(&first, SUITE_OPAQUE(long, 31)));
	SUITE_USE(withdraw(&second, SUITE_OPAQUE(long, 232)));
	SUITE_USE(touch(&first, SUITE_OPAQUE(long, 53)));
	SUITE_USE(touch(&second, SUITE_OPAQUE(long, 254)));
	return 0;
}

SUITE_CASE(case_run);
