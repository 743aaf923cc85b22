// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
struct pair { int a, b; };
volatile int effect;

static inline int first(struct pair p)
{
	effect = 1;
	return p.a;
}

int g(int n)
{
	struct pair p = { n, n * 3 };

	return first(p);
}
