// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
extern volatile int effect;

static inline int f(unsigned short a)
{
	a++;
	effect = 1;
	return a;
}

int g(void)
{
	return f(41);
}

int h(void)
{
	return f(6);
}
