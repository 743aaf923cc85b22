// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs to measure the cost of: siteseer's, and what one would use instead. All do the same work: they count the
 * call and add up the arguments, so that none of them can be left out.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"
#include "cost.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 calls;
__u64 sum;

/* As an array of words. */
struct pt_regs {
	u64 at[COST_REGISTERS];
};

/* 1. Through siteseer. */

SEC("kprobe_maybe_inline")
int read0(void *ctx)
{
	calls++;
	return 0;
}

SEC("kprobe_maybe_inline")
int BPF_PROG(read1, u32 a)
{
	calls++;
	sum += a;
	return 0;
}

SEC("kprobe_maybe_inline")
int BPF_PROG(read2, u32 a, u32 b)
{
	calls++;
	sum += a + b;
	return 0;
}

SEC("kprobe_maybe_inline")
int BPF_PROG(read3, u32 a, u32 b, u32 c)
{
	calls++;
	sum += a + b + c;
	return 0;
}

SEC("kprobe_maybe_inline")
int BPF_PROG(read6, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f)
{
	calls++;
	sum += a + b + c + d + e + f;
	return 0;
}

/* As many callers as there are sites of a function: nothing is read, nothing is written. */
SEC("kprobe_maybe_inline")
int nothing(void *ctx)
{
	return 0;
}

/*
 * 2. By hand: the loads from struct pt_regs are written out. Which registers they are is known only when the site is:
 * before the program is loaded, the loader of the measurement puts the right offsets in place of these.
 */

SEC("kprobe")
int hand0(struct pt_regs *ctx)
{
	calls++;
	return 0;
}

SEC("kprobe")
int hand1(struct pt_regs *ctx)
{
	calls++;
	sum += (u32)ctx->at[COST_PLACE_A];
	return 0;
}

SEC("kprobe")
int hand2(struct pt_regs *ctx)
{
	calls++;
	sum += (u32)ctx->at[COST_PLACE_A] + (u32)ctx->at[COST_PLACE_B];
	return 0;
}

SEC("kprobe")
int hand3(struct pt_regs *ctx)
{
	calls++;
	sum += (u32)ctx->at[COST_PLACE_A] + (u32)ctx->at[COST_PLACE_B] + (u32)ctx->at[COST_PLACE_C];
	return 0;
}

SEC("kprobe")
int hand_nothing(struct pt_regs *ctx)
{
	return 0;
}

/*
 * 3. As USDT does it in user space: a map holds one specification of all arguments per site, and an interpreter
 * fetches each argument by it. Laid out and looked up as libbpf's USDT support has it: the specification's number is the
 * link's cookie, the specifications are an array map, registers are read by bpf_probe_read_kernel() at a variable
 * offset from the context, and shifts trim and extend the value.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct cost_spec);
} specs SEC(".maps");

__attribute__((weak, noinline)) int interpret(struct pt_regs *ctx __arg_ctx, u64 number, long *result)
{
	u32 id = (u32)bpf_get_attach_cookie(ctx);
	struct cost_argument *argument;
	struct cost_spec *spec;
	u64 value = 0;
	int error;

	if (!result)
		return -22;
	*result = 0;
	spec = bpf_map_lookup_elem(&specs, &id);
	if (!spec)
		return -3;
	if (number >= COST_ARGUMENTS)
		return -2;
	asm volatile("" : "+r"(number));
	if (number >= COST_ARGUMENTS || number >= spec->count)
		return -2;
	argument = &spec->arguments[number];
	switch (argument->kind) {
	case COST_CONSTANT:
		value = argument->offset;
		break;
	case COST_REGISTER:
		error = bpf_probe_read_kernel(&value, sizeof(value), (void *)ctx + argument->place);
		if (error)
			return error;
		break;
	case COST_MEMORY:
		error = bpf_probe_read_kernel(&value, sizeof(value), (void *)ctx + argument->place);
		if (error)
			return error;
		error = bpf_probe_read_kernel(&value, sizeof(value), (void *)value + argument->offset);
		if (error)
			return error;
		break;
	default:
		return -22;
	}
	value <<= argument->shift;
	if (argument->is_signed)
		value = (u64)((s64)value >> argument->shift);
	else
		value >>= argument->shift;
	*result = (long)value;
	return 0;
}

static __always_inline u32 interpreted(struct pt_regs *ctx, u64 number)
{
	long value = 0;

	interpret(ctx, number, &value);
	return (u32)value;
}

SEC("kprobe")
int spec1(struct pt_regs *ctx)
{
	calls++;
	sum += interpreted(ctx, 0);
	return 0;
}

SEC("kprobe")
int spec2(struct pt_regs *ctx)
{
	calls++;
	sum += interpreted(ctx, 0) + interpreted(ctx, 1);
	return 0;
}

SEC("kprobe")
int spec3(struct pt_regs *ctx)
{
	calls++;
	sum += interpreted(ctx, 0) + interpreted(ctx, 1) + interpreted(ctx, 2);
	return 0;
}

/*
 * 4. The kernel's own ways to an entry, by hand. kprobe and kprobe.multi get the registers; fentry and tracing-multi the
 * array of arguments.
 */

#ifdef __TARGET_ARCH_x86
/* di, si, dx, cx, r8, r9 in struct pt_regs, arch/x86/include/asm/ptrace.h */
#define ABI_A 14
#define ABI_B 13
#define ABI_C 12
#define ABI_D 11
#define ABI_E 9
#define ABI_F 8
#else
#define ABI_A 0
#define ABI_B 1
#define ABI_C 2
#define ABI_D 3
#define ABI_E 4
#define ABI_F 5
#endif

#define ENTRY(section, prefix, type, field, a, b, c, d, e, f)                                                          \
	SEC(section) int prefix##0(type *ctx)                                                                          \
	{                                                                                                              \
		calls++;                                                                                               \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC(section) int prefix##1(type *ctx)                                                                          \
	{                                                                                                              \
		calls++;                                                                                               \
		sum += (u32)ctx field[a];                                                                              \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC(section) int prefix##3(type *ctx)                                                                          \
	{                                                                                                              \
		calls++;                                                                                               \
		sum += (u32)ctx field[a] + (u32)ctx field[b] + (u32)ctx field[c];                                      \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC(section) int prefix##6(type *ctx)                                                                          \
	{                                                                                                              \
		calls++;                                                                                               \
		sum += (u32)ctx field[a] + (u32)ctx field[b] + (u32)ctx field[c] + (u32)ctx field[d] +                 \
		       (u32)ctx field[e] + (u32)ctx field[f];                                                          \
		return 0;                                                                                              \
	}

ENTRY("kprobe", entry_kprobe, struct pt_regs, ->at, ABI_A, ABI_B, ABI_C, ABI_D, ABI_E, ABI_F)
ENTRY("kprobe.multi", entry_multi, struct pt_regs, ->at, ABI_A, ABI_B, ABI_C, ABI_D, ABI_E, ABI_F)
