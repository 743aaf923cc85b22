/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What count.bpf.c tells user space: src/count.rs reads the same layout. */
#ifndef SITESEER_COUNT_H
#define SITESEER_COUNT_H

/* What calls are counted by, besides the function. */
enum {
	COUNT_FUNCTION,
	COUNT_SITE,
	COUNT_TGID,
	COUNT_PID,
	COUNT_CPU,
	COUNT_COMM,
	/* An argument's value, or the power of two below it. */
	COUNT_ARGUMENT,
	COUNT_HISTOGRAM,
	/* The stack: its number in the map `stacks`, and above it the site's id. */
	COUNT_STACK,
};

/* The most functions of a stack. */
#define COUNT_FRAMES 127

/* The call does not have the argument, or the stack has no place in the map. */
#define COUNT_MISSING 1
/* In a histogram: the value is negative, and its magnitude stands for it. */
#define COUNT_NEGATIVE 2

struct count_key {
	__u64 value;
	char comm[16];
	__u32 function; /* the attachment's cookie */
	__u32 flags;
};

#endif
