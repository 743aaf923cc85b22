// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What clang's debug information gets wrong, and its line table leaves out.
#![cfg(target_arch = "x86_64")]

use crate::image::{self, Build};
use crate::{arguments, encoded, sites_of};
use siteseer_sites::SiteSet;
use siteseer_sites::location::{Argument, Location};
use siteseer_sites::site::{Marks, Site, SiteKind};

/// Encodes a source by clang, if there is one.
fn by_clang(flags: &[&str], source: &str) -> Option<SiteSet> {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return None;
    };
    Some(encoded(&Build::with(&clang, flags, &[source]).link()).0)
}

fn is_certain(argument: &Argument) -> bool {
    argument.as_ref().is_ok_and(|located| located.is_certain())
}

fn inlined<'s>(set: &'s SiteSet, name: &str) -> Vec<&'s Site> {
    let mut sites: Vec<&Site> = sites_of(set, name).into_iter().filter(|site| site.kind == SiteKind::Inline).collect();
    sites.sort_unstable_by_key(|site| site.address);
    sites
}

/// Bodies that assign to their first parameter before they do anything else, from a variable and from constants; the
/// second one of each is left alone.
const AT_ONCE: &str = r#"
volatile long seq, in;
extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" : "+r"(a), "+r"(b) :: "memory"); return a ^ b; }
#define INLINE static inline __attribute__((always_inline))
INLINE long adds(long p, long q) { p += 1; seq = 1; return opaque(p, q) ^ p; }
INLINE long merges(long p, long q) { p |= q; seq = 2; return opaque(p, q) ^ p; }
INLINE long replaces(long p, long q) { p = 7; seq = 3; return opaque(p, q) ^ p; }
INLINE long keeps(long p, long q) { seq = 4; return opaque(p, q) ^ p ^ q; }
long one(long a, long b) { opaque(a, b); return adds(in, b) + adds(b, a) + adds(5, 3); }
long two(long a, long b) { opaque(a, b); return merges(in, b + 1) + merges(a, b) + merges(8, b); }
long three(long a, long b) { opaque(a, b); return replaces(in, b) + replaces(5, a); }
INLINE long alone(long p, long q) { p = 7; seq = 5; return opaque(p, q) ^ p; }
long five(long a) { opaque(a, a); return alone(5, a); }
long four(long a, long b) { opaque(a, b); return keeps(in, b) + keeps(a, 5) + keeps(6, in) + keeps(b, 9); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn what_the_body_assigns_at_once_is_not_certain() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], AT_ONCE) else { return };
        for name in ["adds", "merges", "replaces", "alone"] {
            let sites = inlined(&set, name);
            assert!(!sites.is_empty(), "{name}");
            for site in sites {
                let [first, second] = arguments(&set, site) else { panic!("{name}: two parameters") };
                assert!(!is_certain(first), "{level}, {name}: {first:?}");
                assert!(is_certain(second), "{level}, {name}: {second:?}");
            }
        }
        let kept = inlined(&set, "keeps");
        let all = kept.iter().flat_map(|site| arguments(&set, site));
        assert!(all.clone().all(is_certain), "{level}: {:?}", all.collect::<Vec<_>>());
        let constants = kept.iter().flat_map(|site| arguments(&set, site)).flatten();
        let constants = constants.filter(|located| matches!(located.at, Location::Constant(_))).count();
        assert_eq!(constants, 3, "{level}: what is passed is seen in other copies");
    }
}

/// Functions that are passed constants: one increments its parameter at once, one assigns its second parameter to the
/// first, and one has a body out of line.
const CONSTANTS: &str = r#"
volatile long seq, in;
extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" : "+r"(a), "+r"(b) :: "memory"); return a ^ b; }
#define INLINE static inline __attribute__((always_inline))
INLINE long next(long p) { p += 1; seq = 1; return opaque(p, 0) ^ p; }
INLINE long copies(long p, long q) { p = q; seq = 2; return opaque(p, q) ^ p; }
INLINE long itself(long p) { seq = 3; return opaque(p, 0) ^ p; }
long one(void) { return next(5) + next(8) + next(-3); }
long two(long a, long b) { opaque(a, b); return copies(in, b) + copies(7, a); }
long three(void) { return itself(5) + itself(8); }
long (*volatile pointer)(long) = itself;
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn a_constant_of_a_parameter_that_no_copy_has_as_it_is_is_not_certain() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], CONSTANTS) else { return };
        for (name, count, is_known) in [("next", 3, false), ("copies", 2, false), ("itself", 2, true)] {
            let sites = inlined(&set, name);
            assert_eq!(sites.len(), count, "{level}, {name}");
            for site in sites {
                let first = &arguments(&set, site)[0];
                assert_eq!(is_certain(first), is_known, "{level}, {name}: {first:?}");
            }
        }
    }
}

/// A function that compares its parameter with a constant, and has a body of its own.
const COMPARES: &str = r#"
volatile long seq;
extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" : "+r"(a), "+r"(b) :: "memory"); return a ^ b; }
long compares(long p, long q) { seq = 2; if (p != 5) return opaque(p, q); return opaque(q, p) ^ 7; }
long calls(long b) { return compares(9, b) + compares(5, b); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn a_comparison_is_not_taken_for_an_assignment() {
    for level in ["-O1", "-O2"] {
        let Some(set) = by_clang(&[level], COMPARES) else { return };
        let sites = inlined(&set, "compares");
        assert!(!sites.is_empty(), "{level}");
        for site in sites {
            let first = &arguments(&set, site)[0];
            assert!(is_certain(first), "{level}: {first:?}");
        }
    }
}

/// A body of one statement, in a loop that is unrolled: all bodies are in one row of the line table. And a body that
/// begins with its own loop, which is unrolled.
const REPEATED: &str = r#"
volatile long seq, in;
static inline __attribute__((always_inline)) void store(long value) { seq = 5; }
static inline __attribute__((always_inline)) void several(void) { for (int i = 0; i < 3; i++) seq = i; in = 3; }
void three(void) { for (int i = 0; i < 3; i++) store(i); }
void user(void) { several(); in = 8; }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn bodies_in_one_row_are_sites_each() {
    for level in ["-O2", "-O3"] {
        let Some(set) = by_clang(&[level], REPEATED) else { return };
        assert_eq!(inlined(&set, "store").len(), 3, "{level}");
        let several = inlined(&set, "several");
        let (first, again) = several.split_first().expect("a site");
        assert!(!first.marks.contains(Marks::ENTRY_UNCERTAIN));
        assert!(again.iter().all(|site| site.marks.contains(Marks::MAY_REPEAT)), "{level}: a loop of its own, perhaps");
    }
}

/// A loop that is unrolled in part: control comes into the copy in two ways, to four bodies and to the rest.
const IN_PART: &str = r#"
static inline __attribute__((always_inline)) void lend(volatile long *at, long value) { *at = *at - value; }
void lent(volatile long *at, int times, long value)
{
    _Pragma("clang loop unroll_count(4)")
    for (int i = 0; i < times; i++)
        lend(at, value);
}
void unused(long a) { TRUTH(a, 0); }
volatile long seq, in;
"#;

#[test]
fn ways_in_that_are_all_entries_are_certain() {
    for level in ["-O2", "-O3"] {
        let Some(set) = by_clang(&[level], IN_PART) else { return };
        let sites = inlined(&set, "lend");
        assert_eq!(sites.len(), 5, "{level}");
        assert!(sites.iter().all(|site| !site.marks.contains(Marks::ENTRY_UNCERTAIN)), "{level}: {sites:x?}");
        assert!(sites.iter().all(|site| site.marks.contains(Marks::MAY_REPEAT)), "{level}: {sites:x?}");
    }
}

/// Recursion that becomes a loop, in a function that loses a parameter; and a function without, that loses one, too.
const RECURSIVE: &str = r#"
volatile long seq, in;
static __attribute__((noinline)) long recursive(long never, long depth)
{
    seq = 6;
    if (depth <= 0)
        return 1;
    in = depth;
    return recursive(never, depth - 1);
}
static __attribute__((noinline)) long plain(long never, long value)
{
    seq = 7;
    while (value & in)
        value >>= 1;
    return value;
}
long one(long a, long b) { return recursive(a, b) + recursive(b, 3) + plain(a, b) + plain(b, a); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn calls_that_became_a_loop_may_be_missed() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], RECURSIVE) else { return };
        for (name, may_miss) in [("recursive", true), ("plain", false)] {
            let [site] = sites_of(&set, name)[..] else { panic!("{name}: one site") };
            assert_eq!(site.marks.contains(Marks::MAY_MISS), may_miss, "{level}, {name}");
        }
    }
}

/// Recursion that becomes a loop. What the body does first is the same in all turns, and is moved out of the loop.
const SUNK: &str = r#"
volatile long seq;
long sum;
struct three { long a, b, c; };
static __attribute__((noinline, cold)) long recursive(long depth, struct three p)
{
    p.a = -4;
    seq = 6;
    if (depth <= 0)
        return p.c;
    sum += (unsigned)p.a;
    return recursive(depth - 1, p);
}
long one(long a, struct three *p) { return recursive(a, *p) + recursive(a + 1, *p); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn calls_that_became_a_loop_may_lose_what_comes_first() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], SUNK) else { return };
        let [site] = sites_of(&set, "recursive")[..] else { panic!("{level}: one site") };
        assert!(site.marks.contains(Marks::MAY_MISS), "{level}");
    }
}

/// A loop that counts what it passes, and a body that reads a byte of it: the counter of the loop is another one.
const COUNTED: &str = r#"
volatile long seq, in[2];
volatile unsigned char sink;
static inline __attribute__((always_inline)) void low(long other, unsigned long p) { seq = other; sink = (unsigned char)~p; }
void counts(void) { for (int i = 0; i < (int)(in[1] % 3); i++) low((long)((unsigned long)~i >> 5), i); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn a_register_that_only_the_caller_reads_whole_is_not_certain() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], COUNTED) else { return };
        for site in inlined(&set, "low") {
            let counter = &arguments(&set, site)[1];
            let is_register = matches!(counter, Ok(located) if matches!(located.at, Location::Register(_)));
            assert!(!is_register || !is_certain(counter), "{level}: {counter:?}");
        }
    }
}

/// Bodies that read a byte of a number, nothing of it, and all of it; and one that reads nothing of a pointer.
const NARROWED: &str = r#"
volatile long seq;
long sum;
#define INLINE static inline __attribute__((always_inline))
INLINE void byte(unsigned long p) { seq = 1; sum += (unsigned char)p; }
INLINE void nothing(unsigned long p) { seq = 2; }
INLINE void whole(unsigned long p) { seq = 3; sum += p; seq = p; }
INLINE void points(volatile void *p) { seq = 4; }
void caller(volatile unsigned long *in) { byte(in[0]); nothing(in[1]); whole(in[2]); points(in); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn a_register_that_the_body_does_not_read_whole_is_not_certain() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], NARROWED) else { return };
        let argument = |name: &str| match inlined(&set, name)[..] {
            [site] => arguments(&set, site)[0].clone(),
            ref sites => panic!("{level}: one copy of {name}: {sites:x?}"),
        };
        for name in ["byte", "nothing"] {
            let found = argument(name);
            assert!(found.is_ok() && !is_certain(&found), "{level}, {name}: {found:?}");
        }
        for name in ["whole", "points"] {
            assert!(is_certain(&argument(name)), "{level}, {name}: {:?}", argument(name));
        }
    }
}

/// A number of 32 bits that is passed as one of 64: the body divides the 32 bits, and then takes the register with all
/// 64.
const WIDENED: &str = r#"
volatile unsigned counts[64];
static unsigned long bits[4];
static inline __attribute__((always_inline)) void widened(unsigned long p, unsigned long *map)
{
    counts[p >> 6] = 1;
    __asm__ volatile("lock btsq %1, %0" : "+m"(*map) : "r"(p));
}
void caller(unsigned number) { counts[number & 3]++; widened(number, bits); }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn a_register_that_the_body_reads_a_part_of_is_not_certain_by_another_one() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], WIDENED) else { return };
        let sites = inlined(&set, "widened");
        let [site] = sites[..] else { panic!("{level}: one copy: {sites:x?}") };
        let number = &arguments(&set, site)[0];
        assert!(number.is_ok() && !is_certain(number), "{level}: {number:?}");
    }
}

/// What the body computes last is the same in all calls, so clang computes it before the loop.
const MOVED_OUT: &str = r#"
volatile long seq, again;
static long mask, kept;
static inline __attribute__((always_inline)) void body(long value) { seq = value; kept &= mask; }
void caller(void) { for (int i = 0; i < 50; i++) body(again); }
void setter(long x) { mask = x; kept = x; }
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn what_was_moved_out_of_a_loop_is_not_the_entry() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level, "-fno-unroll-loops"], MOVED_OUT) else { return };
        let sites = inlined(&set, "body");
        let [site] = sites[..] else { panic!("{level}: one copy: {sites:?}") };
        assert_eq!(site.marks, Marks::default(), "{level}: {site:?}");
        // The loop reads what it passes: there is no place for it before the loop.
        let [Ok(value)] = arguments(&set, site) else { panic!("{level}: {:?}", arguments(&set, site)) };
        assert!(matches!(value.at, Location::Register(_)), "{level}: {value:?}");
    }
}

/// What is passed as `p` is not looked at. Clang passes one member of the structure, and its register is that of `p`,
/// too.
const IN_PARTS: &str = r#"
volatile long seq;
struct three { unsigned a, b, c; };
static __attribute__((noinline)) int replaces(struct three s, int p) { p = s.c; seq = 1; return p ? p : 4096; }
int one(unsigned x, int y) { return replaces((struct three){ x, x + 1, x + 2 }, y); }
int two(unsigned x, int y) { return replaces((struct three){ y, x, x * 3 }, y + 1); }
"#;

#[test]
fn a_register_with_a_part_of_another_argument_has_only_that() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], IN_PARTS) else { return };
        let sites = sites_of(&set, "replaces");
        assert!(!sites.is_empty(), "{level}");
        for site in sites {
            let [_, second] = arguments(&set, site) else { panic!("two parameters") };
            assert!(!is_certain(second), "{level}: {second:?}");
        }
    }
}

/// Branches that begin, that end, and that begin and end with what their calls of one function have in common: clang
/// merges it.
const MERGED: &str = r#"
volatile long seq, in, out, other;
#define INLINE static inline __attribute__((always_inline))
INLINE void first(long p, long q) { seq = 1; if (p & 1) out = q; else other = in; }
INLINE void last(long p, long q) { if (p & 1) out = q; else other = in; seq = 2; }
INLINE void around(long *p, long q) { *p = *p * 5 + q; }
void begins(long a)
{
    if (in & 7)
        first(2, a);
    else
        first(3, a);
}
void ends(long a)
{
    if (in & 7)
        last(2, a);
    else
        last(3, a);
}
__attribute__((noinline)) long both(long *a, long b)
{
    if (b > a[1]) {
        around(a, b - 28);
        return -28;
    }
    around(a, b + 1);
    a[1] -= b;
    return a[1];
}
void unused(long a) { TRUTH(a, 0); }
"#;

#[test]
fn what_was_merged_of_two_calls_is_not_a_third() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], MERGED) else { return };
        for name in ["first", "last", "around"] {
            let sites = inlined(&set, name);
            // Optimised further, the two calls of `around` are one copy.
            let count = if name == "around" && level != "-O1" { 1 } else { 2 };
            assert_eq!(sites.len(), count, "{level}, {name}: {sites:x?}");
            assert!(sites.iter().all(|site| site.marks == Marks::default()), "{level}, {name}: {sites:x?}");
            // Of `around`, nothing is left of what is passed.
            if name == "around" {
                continue;
            }
            let mut passed: Vec<String> = sites.iter().map(|site| format!("{:?}", arguments(&set, site)[0])).collect();
            passed.dedup();
            assert_eq!(passed.len(), 2, "{level}, {name}: each call has its own argument: {passed:?}");
        }
    }
}

/// Bodies that make one call twice, inlined and out of line.
const CALLS_TWICE: &str = r#"
volatile long seq, in, out;
#define INLINE static inline __attribute__((always_inline))
INLINE void inner(long p) { seq = 1; out = p; }
INLINE void twice(long p) { inner(p); seq = 2; inner(p + 1); }
void caller(long a) { twice(a); in = 3; twice(in); }
__attribute__((noinline)) void alone(long p) { inner(p); seq = 3; inner(p + 1); }
void unused(long a) { alone(a); TRUTH(a, 0); }
"#;

#[test]
fn a_call_that_a_body_makes_again_is_not_the_body_again() {
    for level in ["-O1", "-O2", "-Os"] {
        let Some(set) = by_clang(&[level], CALLS_TWICE) else { return };
        assert_eq!(inlined(&set, "inner").len(), 6, "{level}");
        let twice = inlined(&set, "twice");
        assert_eq!(twice.len(), 2, "{level}: {twice:x?}");
        let alone = sites_of(&set, "alone");
        let all = twice.iter().chain(&alone);
        assert!(all.into_iter().all(|site| site.marks == Marks::default()), "{level}: {twice:x?} {alone:x?}");
    }
}
