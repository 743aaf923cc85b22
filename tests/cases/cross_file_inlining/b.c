// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct account {
	long amount;
	int rate;
};

void convert(struct account *account, int rate, long amount);

/* Small enough for the other file (-import-instr-limit=5). */
void convert(struct account *account, int rate, long amount)
{
	account->amount = amount * rate;
}
