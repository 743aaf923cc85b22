// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile int effect;

static void f(int a, int b)
{
	effect = 1;
}

void g(int k)
{
	switch (k) {
	case 0:
		f(10, 20);
		break;
	case 1:
		f(30, 40);
		break;
	default:
		effect = 2;
	}
}
