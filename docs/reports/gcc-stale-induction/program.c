// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile int effect;

static inline void f(int p)
{
	effect = 1;
}

void g(void)
{
	int i = 30;

	while (i-- > 0)
		f(i + 5);
}
