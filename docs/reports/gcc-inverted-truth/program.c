// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile int effect, input;

static inline int f(int p)
{
	effect = 1;
	return input;
}

static inline int g(_Bool b)
{
	effect = 2;
	return f(!b);
}

int h(int k)
{
	effect = 3;
	return g(0) + k;
}
