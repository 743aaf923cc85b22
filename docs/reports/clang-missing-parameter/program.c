// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile int effect;

static inline void f(int used, int unused)
{
	effect = used;
}

void g(int a, const int *p)
{
	f(a, *p);
}
