// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
// What kernels are made of, in little: copies with constants, registers and memory for arguments, loops, structures that are passed
// by value, aggregates in pieces, clones, split functions, recursion, and a jump table.

enum colour { RED, GREEN = 7, BLUE = -1 };
struct pair { long a; int b; };
struct list { struct list *next; unsigned bits : 5, flag : 1; union { long number; char text[12]; } in; };
typedef int (*callback)(struct list *, enum colour);

extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" ::: "memory"); return a ^ b; }

static inline __attribute__((always_inline)) long target(long value, int flag, struct pair pair)
{
    return opaque(value + pair.a, flag * pair.b);
}

static inline __attribute__((always_inline)) long outer(long value, enum colour colour)
{
    struct pair pair = { value, (int)colour };
    return target(value * 3, colour, pair) + target(-1, 2, pair);
}

static __attribute__((noinline)) int cloned(int value, int always, int never)
{
    opaque(value, always);
    return value * always;
}

static void put(struct list *list)
{
    if (__builtin_expect(!list, 1))
        return;
    opaque(list->in.number, 0);
    opaque(list->in.number, 1);
    opaque(list->in.number, 2);
    opaque(list->in.number, list->bits);
}

long walk(struct list *list, callback callback)
{
    long sum = 0;
    for (; list; list = list->next) {
        sum += outer(list->in.number, list->flag ? GREEN : BLUE);
        if (callback && callback(list, RED))
            break;
    }
    return sum;
}

long recurse(struct list *list, long n)
{
    if (n <= 0)
        return 0;
    return opaque(n, 1) + recurse(list->next, n - 1);
}

int first(int a, struct list *list) { put(list); return cloned(a, 42, a); }
int second(int a, struct list *list) { put(list->next); return cloned(a + 1, 42, 0) + (int)outer(a, BLUE); }

long table(int which, long value, struct pair pair, __int128 wide)
{
    switch (which) {
    case 0: return opaque(value, 1);
    case 1: return opaque(value, 3) + target(1, 2, pair);
    case 2: return opaque(value + 9, 4);
    case 3: return opaque(value ^ 7, (long)wide);
    case 4: return opaque(value - 1, 6) * 3;
    case 5: return opaque(value, (long)(wide >> 64));
    default: return which;
    }
}
