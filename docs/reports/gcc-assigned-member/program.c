// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
struct number {
	unsigned long value;
};

extern volatile int seq;
long slow(struct number n);

static inline int f(int p)
{
	seq = 1;
	return p;
}

long g(struct number n, int d)
{
	int v;

	n.value = ~n.value;
	seq = 2;
	if (d)
		return (short)n.value;
	v = f(n.value);
	return slow(n);
}
