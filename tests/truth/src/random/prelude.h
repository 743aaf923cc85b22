/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef unsigned __int128 u128;
typedef _Bool bool;
enum mode { MODE_NONE, MODE_READ, MODE_WRITE, MODE_BOTH, MODE_OTHER = 1000 };
struct s1 { u8 a; };
struct s4 { u16 a, b; };
struct s8 { u64 a; };
struct s12 { u32 a, b, c; };
struct s16 { u64 a, b; };
struct s24 { u64 a, b, c; };
struct link { struct link *next; };
struct obj {
	u64 a;
	u32 b;
	u16 c;
	u8 d;
	s8 e;
	struct link link;
	struct s16 in;
	int f;
};
/* All memory of a program, at the same address in every build, so that pointers can be compared. */
struct world {
	volatile int seq;
	volatile u32 in[64];
	volatile u64 sink;
	struct obj objs[8];
	u64 acc[8];
};
extern struct world G;
typedef int (*callback_t)(int, u64);

#define inline __inline__
#define noinline __attribute__((__noinline__))
#ifdef TRUTH
/* Each call has a return address. */
#define always_inline inline
#else
#define always_inline inline __attribute__((__always_inline__))
#endif
#define cold __attribute__((__cold__))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ __volatile__("" ::: "memory")
#define hide(x) ({ __typeof__(x) hidden_ = (x); __asm__("" : "+r"(hidden_)); hidden_; })
#define container_of(ptr, type, member) ({ \
	void *member_ = (void *)(ptr); \
	(type *)(member_ - __builtin_offsetof(type, member)); })
#define max(x, y) ({ __typeof__(x) x_ = (x); __typeof__(x) y_ = (y); x_ > y_ ? x_ : y_; })

#ifdef TRUTH
void log_enter(u64 id, const void *return_address);
void log_bytes(const void *from, u64 size);
void log_seq(u64 number);
void log_leave(u64 *id);
#define ENTER(id, args) __attribute__((__cleanup__(log_leave))) u64 entered_ = id; log_enter(id, __builtin_return_address(0)); args
#define ARG(p) log_bytes(&p, sizeof(p));
/* MASKS(p) is an array of values of its type: bits that are 1 in all of them have a meaning. */
void log_record(const void *from, u64 size, const void *masks, u64 count);
#define RECORD(p) log_record((const void *)&p, sizeof(p), (const void *)MASKS(p), sizeof(MASKS(p)) / sizeof(p));
#define SEQ(n) do { G.seq = n; log_seq(n); } while (0)
#else
#define ENTER(id, args)
#define ARG(p)
#define RECORD(p)
#define SEQ(n) G.seq = n
#endif

