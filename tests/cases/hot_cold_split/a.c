// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long balance;
	long trail;
};

static noinline __cold void complain(struct account *account)
{
	SUITE_USE(account->trail);
}

static void note(struct account *account, int code, long amount)
{
	account->trail = account->trail * 5 + code + amount;
}

static noinline long withdraw(struct account *account, long amount)
{
	if (amount > account->balance) {
		note(account, -28, amount);
		complain(account);
		return -28;
	}
	note(account, 1, amount);
	account->balance -= amount;
	return account->balance;
}

static int case_run(unsigned int number)
{
	struct account first = { .balance = 100 }, second = { .balance = 200 };

	SUITE_USE(withdraw(&first, SUITE_OPAQUE(long, 31)));
	SUITE_USE(withdraw(&second, SUITE_OPAQUE(long, 232)));
	SUITE_USE(withdraw(&first, SUITE_OPAQUE(long, 73)));
	SUITE_USE(withdraw(&second, SUITE_OPAQUE(long, 54)));
	return 0;
}

SUITE_CASE(case_run);
