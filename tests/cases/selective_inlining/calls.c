// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long total;
	unsigned int entries;
};

static long book(struct account *account, short amount)
{
	account->total += amount;
	return account->total * ++account->entries;
}

/* What the address is taken of stays a function. */
static long (*booking)(struct account *account, short amount) = book;

static noinline long deposit(struct account *account, short amount)
{
	return book(account, amount) + 1;
}

static noinline long transfer(struct account *from, struct account *to, short amount)
{
	short negative = -amount;
	long taken;

	/* Else clang subtracts `amount`, and the copy has no value of its parameter. */
	OPTIMIZER_HIDE_VAR(negative);
	taken = book(from, negative);

	barrier();
	return taken - book(to, amount);
}

static int case_run(unsigned int number)
{
	struct account first = { .total = 100 }, second = { .total = 200 };

	SUITE_USE(READ_ONCE(booking)(&first, SUITE_OPAQUE(short, 7)));
	SUITE_USE(deposit(&first, SUITE_OPAQUE(short, 17)));
	SUITE_USE(transfer(&first, &second, SUITE_OPAQUE(short, 27)));
	SUITE_USE(READ_ONCE(booking)(&second, SUITE_OPAQUE(short, -37)));
	return 0;
}

SUITE_CASE(case_run);
