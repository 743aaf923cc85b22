// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
struct pair { unsigned short a, b; };
volatile long effect;

static inline int f(int k, unsigned long p)
{
	effect = 1;
	return (int)p;
}

long g(int k, struct pair pair)
{
	effect = 2;
	if (k <= 0)
		return pair.a;
	f(k, pair.b);
	effect = f(k, -pair.b + 1);
	return 0;
}
