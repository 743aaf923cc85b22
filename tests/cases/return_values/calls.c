// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"

static long state;
struct node {
	long value;
};
struct node siteseer_first_node = { 1 }, siteseer_second_node = { 2 };

static int to_int(long value)
{
	return value - 100;
}

static bool to_bool(long value)
{
	return value & 4;
}

static struct node *to_pointer(long value)
{
	return value > 0 ? &siteseer_first_node : &siteseer_second_node;
}

static void to_nothing(long value)
{
	WRITE_ONCE(state, value);
}

static signed char to_char(long value)
{
	return value;
}

static short to_short(long value)
{
	return value;
}

static unsigned char to_byte(long value)
{
	return value;
}

static long to_long(long value)
{
	return ~value;
}

/* What the address is taken of stays a function, with its own signature. */
static int (*int_of)(long) = to_int;
static bool (*bool_of)(long) = to_bool;
static struct node *(*pointer_of)(long) = to_pointer;
static void (*nothing_of)(long) = to_nothing;
static signed char (*char_of)(long) = to_char;
static short (*short_of)(long) = to_short;
static unsigned char (*byte_of)(long) = to_byte;
static long (*long_of)(long) = to_long;

static int case_run(unsigned int number)
{
	SUITE_USE(READ_ONCE(int_of)(SUITE_OPAQUE(long, 11)));
	SUITE_USE(READ_ONCE(int_of)(SUITE_OPAQUE(long, 0x7777777700000112)));
	SUITE_USE(READ_ONCE(bool_of)(SUITE_OPAQUE(long, 0xff04)));
	SUITE_USE(READ_ONCE(bool_of)(SUITE_OPAQUE(long, 0xff08)));
	SUITE_USE(READ_ONCE(pointer_of)(SUITE_OPAQUE(long, 31)));
	SUITE_USE(READ_ONCE(pointer_of)(SUITE_OPAQUE(long, -32)));
	READ_ONCE(nothing_of)(SUITE_OPAQUE(long, 41));
	SUITE_USE(READ_ONCE(char_of)(SUITE_OPAQUE(long, 0x1234567890123485)));
	SUITE_USE(READ_ONCE(short_of)(SUITE_OPAQUE(long, 0x1234567890129006)));
	SUITE_USE(READ_ONCE(byte_of)(SUITE_OPAQUE(long, 0x1234567890ffff87)));
	SUITE_USE(READ_ONCE(long_of)(SUITE_OPAQUE(long, 0x7fffffffffffff88)));
	return 0;
}

SUITE_CASE(case_run);
