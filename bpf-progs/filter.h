/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * Which calls a program looks at: an expression over arguments, task and what was returned, in postfix order. User space
 * writes it into the program's constants before the program is loaded (src/filter.rs). The kernel's verifier knows
 * constants, so that of all this only what the expression needs is left when the program runs.
 *
 * A comparison is neither true nor false if the site does not have the argument, if the member cannot be read, or if no
 * return is seen, and so is what depends on it. Only calls for which the whole expression is true are looked at.
 */
#ifndef SITESEER_FILTER_H
#define SITESEER_FILTER_H

#include "fields.h"

/* Parameters that can be looked at: their first 8 bytes. */
#define FILTER_PARAMETERS 12
/* Members of structures that can be looked at: the first ones of fields.h. */
#define FILTER_FIELDS 4
#define FILTER_OPS 16
#define FILTER_TEXTS 4
/* Bytes of a text, with its NUL. */
#define FILTER_TEXT_LEN 32

enum {
	FILTER_END,
	FILTER_NOT,
	FILTER_AND,
	FILTER_OR,
	/* Compare a field with the value. Only `bits` bits of the field count. */
	FILTER_EQUAL,
	FILTER_BELOW,
	FILTER_ABOVE,
	FILTER_SIGNED_BELOW,
	FILTER_SIGNED_ABOVE,
	/* The thread's name is the text of number `value`. */
	FILTER_COMM,
	/* The text that a field leads to is the text of number `value`. */
	FILTER_TEXT,
};

enum {
	/* Lower numbers are parameters and, after those, fields. */
	FILTER_TGID = 32,
	FILTER_PID,
	FILTER_CPU,
	/* What the function returned. */
	FILTER_RESULT,
};

struct filter_op {
	__u32 kind;
	__u32 field;
	__u32 bits;
	__u32 reserved;
	__u64 value;
};

const volatile struct filter_op filter[FILTER_OPS] = {};
/* The beginning of a text, or all of it: bytes that count, and which do. */
struct filter_text {
	__u64 text[FILTER_TEXT_LEN / 8];
	__u64 mask[FILTER_TEXT_LEN / 8];
};

const volatile struct filter_text filter_texts[FILTER_TEXTS] = {};

/* A thread's name. */
union comm {
	char text[16];
	__u64 words[2];
};

/* The first slot of each parameter, then the fields, and one bit for each that is present. */
struct arguments {
	/* A power of two, so that any number can be made one of theirs. */
	__u64 values[FILTER_PARAMETERS + FILTER_FIELDS];
	__u32 present;
};

static __always_inline void read_arguments(void *ctx, struct arguments *arguments)
{
	__u32 present = 0;

	__builtin_memset(arguments, 0, sizeof(*arguments));
#pragma unroll
	for (int n = 0; n < FILTER_PARAMETERS; n++) {
		if (siteseer_arg(ctx, n, &arguments->values[n]) == 0)
			present |= 1u << n;
		/* Now, not later from many results on the stack, which is short. */
		asm volatile("" : "+r"(present));
	}
	arguments->present = present;
}

static __always_inline __u64 argument_at(const struct arguments *arguments, __u32 n)
{
	return *(volatile const __u64 *)&arguments->values[n & 15];
}

/*
 * The same, of a range, for a value that is used as an address. What is read at an index that the loader does not know may
 * be anything on the stack, the context too: if that went to a helper, the program would seem to read every argument.
 */
static __always_inline __u64 one_of(const struct arguments *arguments, __u32 n, int from, int to)
{
	__u64 value = 0;

#pragma unroll
	for (int k = from; k < to; k++) {
		if (n == k)
			value = arguments->values[k];
		asm volatile("" : "+r"(value));
	}
	return value;
}

/* Reads the fields that the expression, or a key, is about. `returned` is what the function returned, if that is known. */
static __always_inline void read_fields(struct arguments *arguments, const __u64 *returned)
{
#pragma unroll
	for (int n = 0; n < FILTER_FIELDS; n++) {
		__u32 from = fields[n].base;
		__u64 base = 0, value = 0;
		bool there = true;

		if (fields[n].kind == FIELD_NONE)
			continue;
		if (from == FIELD_TASK) {
			base = bpf_get_current_task();
		} else if (from == FIELD_RESULT) {
			there = returned;
			base = returned ? *returned : 0;
		} else {
			there = arguments->present >> (from & 31) & 1;
			base = one_of(arguments, from, 0, FILTER_PARAMETERS);
		}
		if (there && read_field(base, n, &value)) {
			arguments->values[FILTER_PARAMETERS + n] = value;
			arguments->present |= 1u << (FILTER_PARAMETERS + n);
		}
	}
}

/* Whether the text at an address, to which a field leads, is that of the filter: 1, 0, or -1 if it cannot be read. */
static __noinline int same_text(__u64 at, __u32 field, __u32 wanted)
{
	union {
		char text[FILTER_TEXT_LEN];
		__u64 words[FILTER_TEXT_LEN / 8];
	} found = {};
	const volatile struct filter_text *text = &filter_texts[wanted & (FILTER_TEXTS - 1)];
	__u64 differs = 0;

	if (read_text(field, found.text, sizeof(found.text), at) < 0)
		return -1;
#pragma unroll
	for (int n = 0; n < FILTER_TEXT_LEN / 8; n++)
		differs |= (found.words[n] ^ text->text[n]) & text->mask[n];
	return !differs;
}

/* Whether the expression is true of the call; without one all are. `returned` is as for read_fields(). */
static __always_inline bool is_wanted(const struct arguments *arguments, __u64 id, const union comm *comm,
				      const __u64 *returned)
{
	/* Two stacks of bits, the top in bit 0: whether it is true, and whether that is known. */
	__u32 truth = 1, known = 1, same = 0;

#pragma unroll
	for (int n = 0; n < FILTER_TEXTS; n++)
		if (!(((comm->words[0] ^ filter_texts[n].text[0]) & filter_texts[n].mask[0]) |
		      ((comm->words[1] ^ filter_texts[n].text[1]) & filter_texts[n].mask[1])))
			same |= 1u << n;
#pragma unroll
	for (int n = 0; n < FILTER_OPS; n++) {
		__u32 kind = filter[n].kind, field = filter[n].field, bits = filter[n].bits;
		__u64 wanted = filter[n].value, value;
		bool there = true, holds;

		if (kind == FILTER_END)
			break;
		if (kind == FILTER_NOT) {
			truth ^= 1;
			continue;
		}
		if (kind == FILTER_AND || kind == FILTER_OR) {
			__u32 a = truth & 1, b = truth >> 1 & 1, a_known = known & 1, b_known = known >> 1 & 1;
			/* The value that decides whatever the other one is. */
			__u32 decisive = kind == FILTER_OR;
			__u32 decided = (a_known && a == decisive) || (b_known && b == decisive);
			__u32 result = decided ? decisive : !decisive;

			truth = (truth >> 2 << 1) | result;
			known = (known >> 2 << 1) | (decided || (a_known && b_known));
			continue;
		}
		if (kind == FILTER_COMM) {
			holds = same >> (wanted & 31) & 1;
		} else if (kind == FILTER_TEXT) {
			int is_same = -1;

			if (arguments->present >> (field & 31) & 1)
				is_same = same_text(one_of(arguments, field, FILTER_PARAMETERS,
							   FILTER_PARAMETERS + FILTER_FIELDS),
						    field - FILTER_PARAMETERS, wanted);
			there = is_same >= 0;
			holds = is_same > 0;
		} else {
			bool is_signed = kind == FILTER_SIGNED_BELOW || kind == FILTER_SIGNED_ABOVE;

			if (field == FILTER_TGID) {
				value = id >> 32;
			} else if (field == FILTER_PID) {
				value = (__u32)id;
			} else if (field == FILTER_CPU) {
				value = bpf_get_smp_processor_id();
			} else if (field == FILTER_RESULT) {
				there = returned;
				value = returned ? *returned : 0;
			} else {
				value = argument_at(arguments, field);
				there = arguments->present >> (field & 31) & 1;
			}
			value = narrow(value, bits, is_signed);
			holds = kind == FILTER_EQUAL	       ? value == wanted :
				kind == FILTER_BELOW	       ? value < wanted :
				kind == FILTER_ABOVE	       ? value > wanted :
				kind == FILTER_SIGNED_BELOW ? (__s64)value < (__s64)wanted :
							       (__s64)value > (__s64)wanted;
		}
		truth = truth << 1 | holds;
		known = known << 1 | there;
	}
	return truth & known & 1;
}

#endif
