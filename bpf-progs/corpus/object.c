// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * One object of table.h: compiled once for each, with SECTION and RETURNED.
 */
#define SEC(name) __attribute__((section(name), used))

char LICENSE[] SEC("license") = "GPL";

SEC(SECTION) int program(void *ctx)
{
	return RETURNED;
}
