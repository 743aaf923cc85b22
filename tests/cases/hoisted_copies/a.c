// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long balance;
	long trail;
};

static void note(struct account *account, int code, long amount)
{
	WRITE_ONCE(account->trail, 7);
	SUITE_USE(code);
}

/* Both branches begin with the same store. It is done before they part. */
static noinline long withdraw(struct account *account, long amount)
{
	if (amount > READ_ONCE(account->balance)) {
		note(account, -28, amount);
		WRITE_ONCE(account->balance, amount);
		return 0;
	}
	note(account, 1, amount);
	WRITE_ONCE(account->balance, 5);
	return 1;
}

static int case_run(unsigned int number)
{
	struct account first = { .balance = 100 }, second = { .balance = 200 };

	SUITE_USE(withdraw(&first, SUITE_OPAQUE(long, 31)));
	SUITE_USE(withdraw(&second, SUITE_OPAQUE(long, 232)));
	return 0;
}

SUITE_CASE(case_run);
