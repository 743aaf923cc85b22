// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long balance;
	int kind;
	int entries;
};

/* Each begins with a call of the next, and all of them are inlined: they begin at one instruction. */
static void store(struct account *account, long amount)
{
	WRITE_ONCE(account->balance, amount);
}

static void record(struct account *account, long amount, int kind)
{
	store(account, amount);
	WRITE_ONCE(account->kind, kind);
}

static void enter(struct account *account, long amount)
{
	record(account, amount, 7);
	WRITE_ONCE(account->entries, account->entries + 1);
}

static noinline long gate(struct account *account, long amount)
{
	enter(account, amount);
	return amount * 3;
}

static int case_run(unsigned int number)
{
	struct account first = {}, second = {};

	SUITE_USE(gate(&first, SUITE_OPAQUE(long, 1001)));
	SUITE_USE(gate(&second, SUITE_OPAQUE(long, -2002)));
	SUITE_USE(gate(&first, SUITE_OPAQUE(long, 3003)));
	return 0;
}

SUITE_CASE(case_run);
