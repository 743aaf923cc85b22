/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * Members of structures that a program reads: chains of offsets, which user space finds in the kernel's BTF and writes into the
 * program's constants before it is loaded (src/fields.rs). The verifier knows constants, and removes what they do not ask for.
 *
 * The chains are followed in functions that are not inlined, and that never see the program's context or its frame. So
 * the programs stay small, and the loader still sees which arguments they read.
 *
 * A member that cannot be read has no value: it is never taken for zero. The types do not tell whether a pointer is to user memory, so
 * that only addresses in the kernel's half of the address space are followed.
 */
#ifndef SITESEER_FIELDS_H
#define SITESEER_FIELDS_H

#define FIELDS 8
/* Pointers that are followed for one member, and the last read. */
#define FIELD_STEPS 8

enum {
	/* There is none. */
	FIELD_NONE,
	FIELD_NUMBER,
	/* The pointer that is read points to text. */
	FIELD_TEXT_POINTER,
	/* The last offset leads to text. */
	FIELD_CHARACTERS,
};

/* Where a chain begins; lower numbers are parameters. */
#define FIELD_TASK 32
#define FIELD_RESULT 33

struct field {
	__u32 kind;
	__u32 base;
	/* Offsets that count. Without one the value is in the base itself. */
	__u32 steps;
	/* Bytes of the last read; the value in them. */
	__u32 size;
	__u32 shift;
	__u32 bits;
	__u32 is_signed;
	__u32 is_big_endian;
	/* For characters, how many there may be, with a NUL after them. */
	__u32 text_len;
	__u32 offsets[FIELD_STEPS];
	__u32 reserved;
};

const volatile struct field fields[FIELDS] = {};

/* The bits above a narrow value are arbitrary. */
static __always_inline __u64 narrow(__u64 value, __u32 bits, bool is_signed)
{
	__u32 shift = (64 - bits) & 63;

	value <<= shift;
	return is_signed ? (__u64)((__s64)value >> shift) : value >> shift;
}

static __always_inline bool is_kernel_address(__u64 address)
{
	return (__s64)address < 0;
}

/*
 * Where the last read of a field is, if its base has that value: all other reads are done. 0 if one of them fails. Only
 * for fields that have an offset.
 */
static __noinline __u64 field_at(__u64 value, __u32 n)
{
	const volatile struct field *field = &fields[n & (FIELDS - 1)];
	__u32 steps = field->steps;

	for (__u32 step = 0; step < FIELD_STEPS; step++) {
		__u64 at = value + field->offsets[step];

		if (step + 1 >= steps)
			return at;
		if (!is_kernel_address(at) || bpf_probe_read_kernel(&value, sizeof(value), (const void *)at))
			return 0;
	}
	return 0;
}

/* The value of a field in what the last read gave. */
static __noinline __u64 field_value(__u64 raw, __u32 n)
{
	const volatile struct field *field = &fields[n & (FIELDS - 1)];
	__u32 size = field->size;

	if (field->is_big_endian)
		raw = size == 2 ? __builtin_bswap16(raw) : size == 4 ? __builtin_bswap32(raw) : __builtin_bswap64(raw);
	return narrow(raw >> (field->shift & 63), field->bits, field->is_signed);
}

/* Reads a field: a number, or the address of text. False if it cannot be read. */
static __always_inline bool read_field(__u64 base, __u32 n, __u64 *value)
{
	const volatile struct field *field = &fields[n & (FIELDS - 1)];
	__u64 raw = base, at;

	if (field->steps) {
		at = field_at(base, n);
		if (!is_kernel_address(at))
			return false;
		if (field->kind == FIELD_CHARACTERS) {
			*value = at;
			return true;
		}
		raw = 0;
		if (bpf_probe_read_kernel(&raw, field->size & 15, (const void *)at))
			return false;
	}
	*value = field_value(raw, n);
	return true;
}

/* Reads the text at an address: its length with the NUL, or an error. A pointer may be to user memory. */
static __always_inline long read_text(__u32 n, char *text, __u32 len, __u64 from)
{
	const volatile struct field *field = &fields[n & (FIELDS - 1)];
	__u32 most = field->text_len;

	if (!is_kernel_address(from))
		return bpf_probe_read_user_str(text, len, (const void *)from);
	return bpf_probe_read_kernel_str(text, most && most < len ? most : len, (const void *)from);
}

#endif
