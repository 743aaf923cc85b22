// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile long effect;

void assigns(long a, long b)
{
	a = b;
	effect = a;
}

void other(long a, long b)
{
	effect = b;
}
