// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
struct object {
	long value;
};

long slow(struct object *object);

static inline long get(struct object *p)
{
	long value;

	__asm__ volatile("" : : : "memory");
	value = p->value;
	if (!value)
		value = slow(p);
	return value;
}

void save(struct object *object, long *result)
{
	*result = get(object);
}
