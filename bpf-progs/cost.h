/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What cost.bpf.c and cost.rs have in common. */
#ifndef SITESEER_COST_H
#define SITESEER_COST_H

/* Words of struct pt_regs that programs may read. */
#define COST_REGISTERS 21
/* By-hand programs get the words of the site in place of these. */
#define COST_PLACE_A 1
#define COST_PLACE_B 2
#define COST_PLACE_C 3

/* Kinds of arguments that the interpreter knows. */
#define COST_CONSTANT 0
#define COST_REGISTER 1
#define COST_MEMORY 2

/* As many as libbpf's specifications have. */
#define COST_ARGUMENTS 12

struct cost_argument {
	/* The constant, or what is added to the register's value before memory is read. */
	__u64 offset;
	/* One of the kinds. */
	__u32 kind;
	/* Bytes into struct pt_regs. */
	__u16 place;
	__u8 is_signed;
	/* 64 less the width in bits. */
	__u8 shift;
};

struct cost_spec {
	struct cost_argument arguments[COST_ARGUMENTS];
	__u64 cookie;
	__u64 count;
};

#endif
