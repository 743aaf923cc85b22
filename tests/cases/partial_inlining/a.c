// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	bool open;
	long balance;
	long trail[8];
};

/* The head, which often returns early, is worth inlining; the rest is not. All callers get a copy of the head. */
static long charge(struct account *account, long amount)
{
	int i;

	if (!account->open)
		return -1;
	for (i = 0; i < ARRAY_SIZE(account->trail); i++)
		account->trail[i] = account->trail[i] * 3 + amount * i;
	account->balance -= amount;
	if (account->balance < account->trail[1])
		account->balance = account->trail[2] / 3;
	account->trail[3] ^= account->balance / 7 + amount;
	return account->balance;
}

/* The same with a body that stays. */
static long refund(struct account *account, int share)
{
	int i;

	if (!account->open)
		return -2;
	for (i = 0; i < ARRAY_SIZE(account->trail); i++)
		account->trail[i] = account->trail[i] / 3 - share * i;
	account->balance += share;
	if (account->balance > account->trail[4])
		account->balance = account->trail[5] / 5;
	account->trail[6] ^= account->balance / 11 + share;
	return account->balance;
}

static long (*refunding)(struct account *account, int share) = refund;

static noinline long by_hand(struct account *account, long amount)
{
	return charge(account, amount) * 3;
}

static noinline long by_mail(struct account *account, long amount)
{
	long postage = charge(account, 2);

	barrier();
	return postage ^ charge(account, amount);
}

static noinline long returned(struct account *account, int share)
{
	return refund(account, share) * 5;
}

static int case_run(unsigned int number)
{
	struct account open = { .open = true, .balance = 1000 }, closed = { .balance = 2000 };

	SUITE_USE(by_hand(&open, SUITE_OPAQUE(long, 11)));
	SUITE_USE(by_hand(&closed, SUITE_OPAQUE(long, 12)));
	SUITE_USE(by_mail(&closed, SUITE_OPAQUE(long, 13)));
	SUITE_USE(by_mail(&open, SUITE_OPAQUE(long, 14)));
	SUITE_USE(READ_ONCE(refunding)(&open, SUITE_OPAQUE(int, 21)));
	SUITE_USE(returned(&open, SUITE_OPAQUE(int, -22)));
	SUITE_USE(READ_ONCE(refunding)(&closed, SUITE_OPAQUE(int, -23)));
	SUITE_USE(returned(&closed, SUITE_OPAQUE(int, 24)));
	return 0;
}

SUITE_CASE(case_run);
