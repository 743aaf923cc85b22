// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long amount;
	int rate;
};

void convert(struct account *account, int rate, long amount);

static noinline long bought(struct account *account, int rate, long amount)
{
	convert(account, rate, amount);
	return amount + 3;
}

static noinline void rest(struct account *account)
{
	SUITE_USE(account->amount);
}

static noinline long sold(struct account *account, int rate, long amount)
{
	convert(account, 5, amount);
	rest(account);
	convert(account, rate, -amount);
	return amount - 3;
}

static int case_run(unsigned int number)
{
	void (*converting)(struct account *account, int rate, long amount) = SUITE_OPAQUE(void *, convert);
	struct account account = {};

	SUITE_USE(bought(&account, SUITE_OPAQUE(int, 11), SUITE_OPAQUE(long, 1001)));
	SUITE_USE(sold(&account, SUITE_OPAQUE(int, -21), SUITE_OPAQUE(long, 2002)));
	converting(&account, SUITE_OPAQUE(int, 31), SUITE_OPAQUE(long, -3003));
	return 0;
}

SUITE_CASE(case_run);
