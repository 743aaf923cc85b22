/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What a program links with beside its own sources: its memory, the log, and what compilers call without being asked. */
typedef unsigned long u64;
typedef unsigned char u8;

__attribute__((section(".world"), used)) u8 G[4096] __attribute__((aligned(64)));

/* Linkers define these only for who asks. */
extern char _end[], _etext[];
static void *const ends[] __attribute__((used)) = { _end, _etext };

#ifdef TRUTH
/* The first word is how many words follow. */
#define LOG ((volatile u64 *)0x40000000)
#define LIMIT ((64ul << 20) / 8 - 2)

static void put(u64 word)
{
	u64 used = LOG[0];

	if (used < LIMIT)
		LOG[used + 1] = word;
	LOG[0] = used + 1;
}

void log_enter(u64 id, const void *return_address)
{
	put(1ul << 56 | id);
	put((u64)return_address);
}

void log_seq(u64 number)
{
	put(2ul << 56 | number);
}

void log_leave(u64 *id)
{
	put(3ul << 56 | *id);
}

void log_bytes(const void *from, u64 size)
{
	const u8 *bytes = from;

	while (size) {
		u64 word = 0;
		u64 part = size < 8 ? size : 8;

		for (u64 i = 0; i < part; i++)
			word |= (u64)bytes[i] << 8 * i;
		put(word);
		bytes += part;
		size -= part;
	}
}

/* The size, the bytes, and which bits of them have a meaning. */
void log_record(const void *from, u64 size, const void *masks, u64 count)
{
	const u8 *bytes = masks;

	put(size);
	log_bytes(from, size);
	for (u64 at = 0; at < size; at += 8) {
		u64 word = 0;

		for (u64 i = at; i < at + 8 && i < size; i++) {
			u8 mask = 0xff;

			for (u64 index = 0; index < count; index++)
				mask &= bytes[index * size + i];
			word |= (u64)mask << 8 * (i - at);
		}
		put(word);
	}
}
#endif

__attribute__((used)) void *memset(void *to, int byte, u64 size)
{
	for (u64 i = 0; i < size; i++)
		((volatile u8 *)to)[i] = byte;
	return to;
}

__attribute__((used)) void *memcpy(void *to, const void *from, u64 size)
{
	for (u64 i = 0; i < size; i++)
		((volatile u8 *)to)[i] = ((const u8 *)from)[i];
	return to;
}

__attribute__((used)) void *memmove(void *to, const void *from, u64 size)
{
	if ((u64)to - (u64)from >= size)
		return memcpy(to, from, size);
	while (size--)
		((volatile u8 *)to)[size] = ((const u8 *)from)[size];
	return to;
}

#ifdef __x86_64__
__asm__(".pushsection .text\n"
	".globl __fentry__, __x86_return_thunk\n"
	"__fentry__:\n"
	"__x86_return_thunk: ret\n"
	".macro thunk r\n"
	".globl __x86_indirect_thunk_\\r\n"
	"__x86_indirect_thunk_\\r: jmp *%\\r\n"
	".endm\n"
	".irp r, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15\n"
	"thunk \\r\n"
	".endr\n"
	".popsection");
#else
__asm__(".pushsection .text\n.globl _mcount\n_mcount: ret\n.popsection");
#endif
