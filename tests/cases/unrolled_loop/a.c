// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

struct shelf {
	long books;
	long weight;
};

#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* Each call can be seen, and returns early for an empty shelf. */
static void stack(struct shelf *shelf, long books)
{
	WRITE_ONCE(shelf->books, books);
	if (READ_ONCE(shelf->weight) < 0)
		return;
	WRITE_ONCE(shelf->weight, READ_ONCE(shelf->weight) + books * 3);
}

/* The loop is gone: the body is here four times, each with a number of its own. */
static noinline void stacked(struct shelf *shelves, long books)
{
	int i;

	UNROLLED
	for (i = 0; i < 4; i++)
		stack(&shelves[i], books + i * 10);
}

/* The number of turns is not known: several bodies a turn, and the rest one by one. */
static void lend(struct shelf *shelf, long books)
{
	WRITE_ONCE(shelf->books, READ_ONCE(shelf->books) - books);
}

static noinline void lent(struct shelf *shelf, int times, long books)
{
	int i;

#ifdef __clang__
	_Pragma("clang loop unroll_count(4)")
#else
	_Pragma("GCC unroll 4")
#endif
	for (i = 0; i < times; i++)
		lend(shelf, books);
}

static int case_run(unsigned int number)
{
	struct shelf shelves[4] = { { 1, 100 }, { 2, -1 }, { 3, 300 }, { 4, 400 } };

	stacked(shelves, SUITE_OPAQUE(long, 7));
	lent(&shelves[0], SUITE_OPAQUE(int, 6), SUITE_OPAQUE(long, 5));
	lent(&shelves[2], SUITE_OPAQUE(int, 1), SUITE_OPAQUE(long, -9));
	SUITE_USE(shelves[0].books + shelves[1].books + shelves[2].books + shelves[3].weight);
	return 0;
}

SUITE_CASE(case_run);
