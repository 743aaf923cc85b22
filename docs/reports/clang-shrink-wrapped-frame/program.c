// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
volatile long effect;
extern void use(long, long);

long f(long a, long b, long c, long d, long e, long f6, long seven)
{
	if (!a) {
		effect = 1;
		return 0;
	}
	use(seven, b);
	use(b, seven);
	return seven + b;
}
