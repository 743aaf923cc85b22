/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * Which calls a program looks at: an expression over arguments and task, in postfix order, that user space writes into the program's
 * constants before it is loaded (src/filter.rs). The kernel's verifier knows constants, so that of all this only what the
 * expression needs is left when the program runs.
 *
 * A comparison with an argument that the site does not have is neither true nor false, and so is what depends on it.
 * Only calls for which the whole expression is true are looked at.
 */
#ifndef SITESEER_FILTER_H
#define SITESEER_FILTER_H

/* Parameters that can be looked at: their first 8 bytes. */
#define FILTER_PARAMETERS 12
#define FILTER_OPS 16
#define FILTER_TEXTS 4

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
};

enum {
	/* Lower numbers are parameters. */
	FILTER_TGID = 32,
	FILTER_PID,
	FILTER_CPU,
};

struct filter_op {
	__u32 kind;
	__u32 field;
	__u32 bits;
	__u32 reserved;
	__u64 value;
};

const volatile struct filter_op filter[FILTER_OPS] = {};
/* The beginning of a thread's name, or all of it: bytes that count, and which do. */
struct filter_text {
	__u64 text[2];
	__u64 mask[2];
};

const volatile struct filter_text filter_texts[FILTER_TEXTS] = {};

/* A thread's name. */
union comm {
	char text[16];
	__u64 words[2];
};

/* The first slot of each parameter, and one bit for each that is present. */
struct arguments {
	/* A power of two, so that any number can be made one of theirs. */
	__u64 values[16];
	__u32 present;
};

static __always_inline void read_arguments(void *ctx, struct arguments *arguments)
{
	__builtin_memset(arguments, 0, sizeof(*arguments));
#pragma unroll
	for (int n = 0; n < FILTER_PARAMETERS; n++)
		if (siteseer_arg(ctx, n, &arguments->values[n]) == 0)
			arguments->present |= 1u << n;
}

static __always_inline __u64 argument_at(const struct arguments *arguments, __u32 n)
{
	return *(volatile const __u64 *)&arguments->values[n & 15];
}

/* What is above the bits of a narrow value is anything. */
static __always_inline __u64 narrow(__u64 value, __u32 bits, bool is_signed)
{
	__u32 shift = (64 - bits) & 63;

	value <<= shift;
	return is_signed ? (__u64)((__s64)value >> shift) : value >> shift;
}

/* Whether the expression is true of the call; without one all are. */
static __always_inline bool is_wanted(const struct arguments *arguments, __u64 id, const union comm *comm)
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
		} else {
			bool is_signed = kind == FILTER_SIGNED_BELOW || kind == FILTER_SIGNED_ABOVE;

			if (field == FILTER_TGID) {
				value = id >> 32;
			} else if (field == FILTER_PID) {
				value = (__u32)id;
			} else if (field == FILTER_CPU) {
				value = bpf_get_smp_processor_id();
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
