// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile int effect;

static inline void f(short p)
{
	effect = p;
}

void g(int n)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < n; i++)
		f(i * 5);
}
