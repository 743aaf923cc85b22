// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Copies that are entered at more than one place, or not where their first range begins.
//!
//! `TRUTH` is the body's first statement. It cannot be merged, and each copy of it that the compiler makes leaves a
//! record. So there is a site for each record, at the record or before it, and control passes the two together.

use crate::image::{self, Build};
use crate::{arguments, encoded, inline_sites, sites_of};
use siteseer_sites::location::{Located, Location};
use siteseer_sites::site::{Marks, Site, SiteKind};
use siteseer_sites::{Doubt, SiteSet};

const LEVELS: [&str; 3] = ["-O2", "-O3", "-Os"];

/// Checks that a function has as many inline sites as there are records, and gives them.
#[cfg(target_arch = "x86_64")]
fn check<'s>(set: &'s SiteSet, records: &[image::Record], name: &str) -> Vec<&'s Site> {
    let mut sites: Vec<&Site> = sites_of(set, name).into_iter().filter(|site| site.kind == SiteKind::Inline).collect();
    sites.sort_unstable_by_key(|site| site.address);
    let mut addresses: Vec<u64> = records.iter().map(|record| record.address).collect();
    addresses.sort_unstable();
    assert_eq!(sites.len(), addresses.len(), "{name}: one for each beginning of the body: {sites:x?}, {addresses:x?}");
    // In order, each is at its record or before it, and after the record before.
    for (nth, (site, record)) in sites.iter().zip(&addresses).enumerate() {
        assert!(site.address <= *record && nth.checked_sub(1).is_none_or(|before| addresses[before] < site.address));
    }
    sites
}

#[cfg(target_arch = "x86_64")]
fn is_unmarked(site: &Site) -> bool {
    ![Marks::MAY_MISS, Marks::MAY_REPEAT, Marks::ENTRY_UNCERTAIN].into_iter().any(|mark| site.marks.contains(mark))
}

/// A loop that is unrolled around the body, wholly and in part; a body that is a loop by itself, and is not.
const UNROLLED: &str = r#"
volatile long seq, in;
static inline __attribute__((always_inline)) void body(long value, int flag)
{
    TRUTH(value, flag);
    seq = value;
    if (value & 4)
        seq = flag;
}
void three(const long *values) { for (int i = 0; i < 3; i++) body(values[i], i); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn each_body_of_an_unrolled_loop_is_a_site() {
    for level in LEVELS {
        let image = Build::gcc(&[level], &[UNROLLED]).link();
        let (set, census) = encoded(&image);
        let sites = check(&set, &image::truth(&image), "body");
        assert!(sites.iter().all(|site| is_unmarked(site)), "{level}: {sites:x?}");
        assert_eq!(census.sites.total, inline_sites(&set));
        // One copy in the debug information, which can name one entry.
        if sites.len() == 3 {
            let siteseer_encoder::census::EntryCensus { copies, several, further, passed_by, .. } = census.entries;
            assert_eq!((copies, several, further, passed_by), (1, 1, 2, 0), "{level}");
        }
        // Each has its own arguments.
        if sites.len() == 3 {
            let of = |site: &Site| set.prototypes[site.prototype as usize][1].clone();
            assert!(of(sites[0]) != of(sites[1]) && of(sites[1]) != of(sites[2]), "{level}: the flag is 0, 1, 2");
        }
    }
    let image = Build::gcc(&["-O3"], &[UNROLLED]).link();
    assert_eq!(image::truth(&image).len(), 3, "the compiler unrolls what this is about");
}

/// Two ways into the body that jump threading keeps apart.
const THREADED: &str = r#"
volatile long seq, in;
extern __attribute__((noinline)) void opaque(long);
void opaque(long a) { __asm__ volatile("" :: "r"(a) : "memory"); }
static inline __attribute__((always_inline)) void body(long value, int flag)
{
    TRUTH(value, 0);
    if (flag)
        opaque(value);
    else
        seq = value;
}
void threaded(long value)
{
    int flag = 0;
    if (in) {
        opaque(1);
        flag = 1;
    }
    body(value, flag);
    opaque(2);
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn each_beginning_that_jump_threading_made_is_a_site() {
    for level in LEVELS {
        let image = Build::gcc(&[level], &[THREADED]).link();
        let (set, _) = encoded(&image);
        let sites = check(&set, &image::truth(&image), "body");
        assert!(sites.iter().all(|site| is_unmarked(site)), "{level}: {sites:x?}");
    }
}

/// A body that begins with its own loop. The test of the loop is made twice.
const LOOPS: &str = r#"
volatile long seq;
extern __attribute__((noinline)) long opaque(long);
long opaque(long a) { __asm__ volatile("" : "+r"(a) :: "memory"); return a; }
static inline __attribute__((always_inline)) void body(long value)
{
    while (value & 3) {
        opaque(value);
        value >>= 1;
    }
    seq = 9;
}
void user(long value) { opaque(1); body(value); TRUTH(value, 0); }
"#;

#[test]
fn a_loop_of_the_body_is_not_another_entry() {
    for level in LEVELS {
        let (set, _) = encoded(&Build::gcc(&[level], &[LOOPS]).link());
        assert_eq!(sites_of(&set, "body").len(), 1, "{level}");
    }
}

/// The body assigns to a parameter before it does anything; the list begins with what was assigned.
const ASSIGNED: &str = r#"
volatile unsigned seq;
extern __attribute__((noinline)) void opaque(unsigned, unsigned);
void opaque(unsigned a, unsigned b) { __asm__ volatile("" :: "r"(a), "r"(b) : "memory"); }
static inline __attribute__((always_inline)) void body(unsigned a, unsigned b)
{
    b = b | a;
    seq = 18;
    opaque(a, b);
}
void user(unsigned *p) { opaque(1, 2); body(p[0], p[1] + 1); TRUTH(p, 0); }
"#;

#[test]
fn a_probe_does_not_move_past_a_statement() {
    for level in LEVELS {
        let (set, _) = encoded(&Build::gcc(&[level], &[ASSIGNED]).link());
        let [site] = sites_of(&set, "body")[..] else { panic!("one copy") };
        assert_eq!(site.moved, 0, "{level}");
    }
}

/// A loop around the body. The head of the loop is aligned.
const PADDED: &str = r#"
volatile long seq, in;
static inline __attribute__((always_inline)) void body(int a, int b) { seq = a; TRUTH(0, b); }
void padded(int n) { int i = n; do { body(i, 5); in; } while (--i > 0); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn padding_is_not_the_entry() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    for level in LEVELS {
        let image = Build::with(&clang, &[level], &[PADDED]).link();
        let (set, _) = encoded(&image);
        let sites = check(&set, &image::truth(&image), "body");
        let [site] = sites[..] else { panic!("one copy") };
        let text = image::section(&image, ".text");
        let base = set.sections[usize::from(site.section)].address;
        let first = image[text.start + (site.address - base) as usize];
        assert!(![0x90, 0x66, 0x0f, 0x2e].contains(&first), "{level}: {first:#x} is of a no-op");
    }
}

/// Both calls end in the same code, whatever is passed: where one of them began, there is but a jump to the other.
const MERGED: &str = r#"
volatile int seq, in[64];
extern __attribute__((noinline)) void other(void);
void other(void) { __asm__ volatile("" ::: "memory"); }
static inline __attribute__((always_inline)) void merged(unsigned a, int b) { (void)in[55]; seq = 5; }
int caller(int k, int m)
{
    if (k) { seq = 7; (void)in[23]; merged(1, 2); }
    else { (void)in[40]; if (m) (void)in[29]; else (void)in[41]; merged(3, 4); }
    other();
    return 0;
}
"#;

#[test]
fn copies_that_were_merged_are_one_site() {
    let (set, _) = encoded(&Build::gcc(&["-Os"], &[MERGED]).link());
    let [site] = sites_of(&set, "merged")[..] else { panic!("the compiler merges what this is about") };
    let doubts: Vec<_> = arguments(&set, site).iter().flatten().map(|located| located.doubt).collect();
    assert_eq!(doubts, [Some(Doubt::Merged); 2]);
}

/// The same, but the code of one call comes before that of the other: padding leads from one to the other.
const FALLEN_INTO: &str = r#"
volatile long seq, in;
static inline int fallen_into(int a, long b) { seq = 1; return 0; }
__attribute__((noinline)) long caller(unsigned c, long *p, unsigned q)
{
    if (c & 7) {
        {
            __asm__ goto("" : : : : out);
            if (p[1] > 47)
                return q >> 4;
            __asm__("" : "+r"(p));
        }
out:
        ;
        (void)fallen_into(1, 255);
    } else if (fallen_into(4096, ~p[1]) & 1) {
    }
    if (in > 97)
        p[3] += ~p[0];
    return 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_copy_that_another_leads_to_may_have_its_calls() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[FALLEN_INTO]).link());
    let [one, other] = sites_of(&set, "fallen_into")[..] else { panic!("one of the copies is padding") };
    let doubts = |site| arguments(&set, site).iter().flatten().map(|located| located.doubt).collect::<Vec<_>>();
    assert!(!one.marks.contains(Marks::MAY_REPEAT) && other.marks.contains(Marks::MAY_REPEAT), "{one:?}, {other:?}");
    assert!(!doubts(one).contains(&Some(Doubt::Merged)));
    let of_other = doubts(other);
    assert!(!of_other.is_empty() && of_other.iter().all(|doubt| *doubt == Some(Doubt::Merged)), "{of_other:?}");
}

/// Branches that begin with calls of one function do what it does before they part. In `both` and `withdraw` each call
/// has left its marker in its branch. In `one` the first one has not: nothing is left of its branch.
const HOISTED: &str = r#"
volatile long seq, acc;
static inline __attribute__((always_inline)) int both_left(int a, long b) { seq = 1; return a; }
static inline __attribute__((always_inline)) int one_left(int a, long b) { seq = 2; return a; }
struct account { long balance, trail; };
static inline void note(struct account *account, int code, long amount)
{
    *(volatile long *)&account->trail = 7;
    __asm__ volatile("" : : "r"(code));
}
__attribute__((noinline)) long withdraw(struct account *account, long amount)
{
    if (amount > *(volatile long *)&account->balance) {
        note(account, -28, amount);
        *(volatile long *)&account->balance = amount;
        return 0;
    }
    note(account, 1, amount);
    *(volatile long *)&account->balance = 5;
    return 1;
}
__attribute__((noinline)) void both(int c)
{
    if (c & 1) {
        (void)both_left(c, 5);
        acc = 3;
    } else if (both_left(c >> 1, 6) & 1) {
        acc = 4;
    }
}
__attribute__((noinline)) void one(int c)
{
    if (c & 1)
        (void)one_left(c, 5);
    else if (one_left(c >> 1, 6) & 1)
        acc = 5;
    acc = 6;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_that_were_moved_up_together_are_entered_where_their_markers_are() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[HOISTED]).link());
    let constants = |site| {
        let located = arguments(&set, site)[1].clone().unwrap();
        (located.at, located.doubt)
    };
    let [one, other] = sites_of(&set, "both_left")[..] else { panic!("two calls") };
    assert!(is_unmarked(one) && is_unmarked(other), "{one:?}, {other:?}");
    let mut both = [constants(one), constants(other)];
    both.sort_unstable_by_key(|(at, _)| format!("{at:?}"));
    assert_eq!(both, [(Location::Constant(5), None), (Location::Constant(6), None)]);
    let [one, other] = sites_of(&set, "note")[..] else { panic!("two calls") };
    assert!(is_unmarked(one) && is_unmarked(other), "the store before the branch is of both: {one:?}, {other:?}");
    let mut sites = sites_of(&set, "one_left");
    sites.sort_unstable_by_key(|site| site.address);
    let [one, other] = sites[..] else { panic!("two calls") };
    assert!(is_unmarked(one), "both hit it: {one:?}");
    assert!(other.marks.contains(Marks::MAY_REPEAT), "one of them hits it besides: {other:?}");
}

/// A recursion that becomes a loop, and two bodies that begin with a statement that is in none.
const RECURSION: &str = r#"
extern volatile long seq, in;
static __attribute__((noinline)) long again(long n) { seq = n; if (n <= 0) return in; return again(n - 1); }
static __attribute__((noinline)) long once(long n) { seq = n; return in; }
static __attribute__((noinline)) long first(long n) { seq = in; while (n-- > 0) seq = n; return in; }
long USER(long n) { return again(n) + once(n) + first(n); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_recursion_that_became_a_loop_is_marked() {
    // Two functions of each name get a site each.
    let [one, other] = ["one", "other"].map(|user| RECURSION.replace("USER", user));
    for level in ["-O2", "-Os"] {
        let image = Build::gcc(&[level, "-fno-ipa-icf"], &[&one, &other.replace("extern volatile", "volatile")]).link();
        let (set, _) = encoded(&image);
        for (name, is_marked) in [("again", true), ("once", false), ("first", false)] {
            let sites = sites_of(&set, name);
            assert_eq!(sites.len(), 2, "{level}, {name}");
            // At -Os the loop may come back to the entry.
            let has_mark = |site: &&Site| site.marks.0 & (Marks::MAY_MISS | Marks::MAY_REPEAT).0 != 0;
            assert!(sites.iter().all(|site| has_mark(site) == is_marked), "{level}, {name}: {sites:?}");
            for site in sites {
                let doubt = site.marks.contains(Marks::MAY_REPEAT).then_some(Doubt::OtherCall);
                let located = arguments(&set, site)[0].clone().unwrap();
                assert_eq!(located.doubt, doubt, "{level}, {name}: later calls may have it elsewhere");
            }
        }
    }
}

/// A recursion that becomes a straight line, because its depth is known.
const STRAIGHTENED: &str = r#"
volatile long seq, in;
static inline long again(long n)
{
    seq = 7;
    if (n <= 0)
        return in;
    return again(n - 1);
}
long caller(void)
{
    in = 1;
    return again(3);
}
"#;

#[test]
fn a_recursion_that_was_unrolled_is_marked() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[STRAIGHTENED]).link());
    let sites = sites_of(&set, "again");
    let marked = sites.iter().filter(|site| site.marks.contains(Marks::MAY_MISS)).count();
    assert!(sites.len() == 4 || marked > 0, "four calls: {sites:?}");
}

/// A function that is inlined in what is left of it, where that begins.
const IN_ITSELF: &str = r#"
volatile int seq;
volatile long sink;
int deep(int depth)
{
    seq = 1;
    if (depth <= 0)
        return depth + depth;
    sink = deep(depth - 1);
    (void)deep(depth - 1);
    return depth & 255;
}
int caller(int depth) { seq = 2; return deep(2) + deep(depth); }
int other(int depth) { seq = 3; sink = deep(3); sink = deep(depth + 1); return caller(depth); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn the_row_with_which_a_function_begins_is_no_marker_of_a_copy_in_it() {
    let (set, _) = encoded(&Build::gcc(&["-O3"], &[IN_ITSELF]).link());
    let sites = sites_of(&set, "deep");
    let mut addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "{sites:x?}");
}

/// A recursion that is inlined into itself, and passes itself what it computes; and a function that only gets that.
const COMPUTES: &str = r#"
volatile int seq;
volatile long in, sink;
static long deep(int depth, unsigned long p)
{
    seq = 1;
    if (depth <= 0)
        return (long)p;
    sink = deep(depth - 1, (unsigned int)(p << 2));
    (void)deep(depth - 1, ~p);
    return (long)p & 255;
}
static inline __attribute__((always_inline)) void flat(unsigned long p) { seq = 2; sink = (long)p; }
long caller(int depth) { seq = 3; return deep(2, in) + deep(depth, in + 1); }
void other(unsigned long p) { sink = p; flat(~p); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn what_a_recursion_in_itself_computes_is_doubtful() {
    for level in ["-O2", "-O3"] {
        let (set, _) = encoded(&Build::gcc(&[level], &[COMPUTES]).link());
        let is_computed = |located: &&Located| matches!(located.at, Location::Computed(_));
        let computed = |sites: &[&Site]| -> Vec<Located> {
            let all = sites.iter().flat_map(|site| arguments(&set, site)).flatten();
            all.filter(is_computed).cloned().collect()
        };
        let function_of = |site: &Site| &set.functions[site.function as usize].name;
        let is_inside =
            |site: &&Site| site.parent.is_some_and(|parent| function_of(&set.sites[parent as usize]) == "deep");
        let inside: Vec<&Site> = sites_of(&set, "deep").into_iter().filter(is_inside).collect();
        let found = computed(&inside);
        assert!(!found.is_empty() && found.iter().all(|located| !located.is_certain()), "{level}: {found:?}");
        let other_call = |located: &Located| located.doubt == Some(Doubt::OtherCall);
        assert!(found.iter().any(other_call), "{level}: {found:?}");
        let flat = computed(&sites_of(&set, "flat"));
        assert!(!flat.is_empty() && flat.iter().all(Located::is_certain), "{level}: {flat:?}");
    }
}

/// The head of the outer function ends in the middle of the inner one, and the rest is inlined back.
const CUT: &str = r#"
volatile long seq;
struct object { int flag, count; struct object *next; };
void warn(struct object *object) { seq = object->count; }
static inline __attribute__((always_inline)) void inner(struct object *object)
{
    seq = 1;
    if (__builtin_expect(object->flag, 1))
        return;
    object->count++;
    if (object->count == 7)
        warn(object);
}
struct object *outer(struct object *object)
{
    seq = 9;
    if (object)
        inner(object);
    return object;
}
long user(struct object *object) { seq = 4; outer(object->next); seq = 5; outer(object); return object->count; }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn the_rest_of_a_copy_in_an_inlined_rest_is_no_call() {
    for (level, calls) in [("-O2", 3), ("-O3", 3), ("-Os", 1)] {
        let (set, _) = encoded(&Build::gcc(&[level], &[CUT]).link());
        let sites = sites_of(&set, "inner");
        assert_eq!(sites.len(), calls, "{level}: {sites:x?}");
        assert!(sites.iter().all(|site| !site.marks.contains(Marks::MAY_REPEAT)), "{level}: {sites:x?}");
    }
}

/// The symbol makes the second function the rest of one that was split.
const REST: &str = r#"
volatile long seq, in;
static inline __attribute__((always_inline)) void late(long value) { TRUTH(value, 1); seq = value; }
void whole(long value) { late(value); }
static inline __attribute__((always_inline)) void split(long value) { TRUTH(value, 2); seq = value; }
void rest(long value) __asm__("rest.part.0");
void rest(long value) { split(value); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_copy_that_begins_the_rest_of_a_split_function_may_be_a_rest() {
    for level in LEVELS {
        // Nothing says where a copy begins.
        let set = encoded(&Build::gcc(&[level, "-gno-inline-points", "-gno-statement-frontiers"], &[REST]).link()).0;
        let may_repeat = |name: &str| match sites_of(&set, name)[..] {
            [site] => site.marks.contains(Marks::MAY_REPEAT),
            ref sites => panic!("{level}: one copy of {name}: {sites:x?}"),
        };
        assert!(!may_repeat("late"), "{level}: the function is whole");
        assert!(may_repeat("split"), "{level}: the copy may have begun before the split");
        // With them, the copy's marker is its beginning.
        let set = encoded(&Build::gcc(&[level], &[REST]).link()).0;
        assert!(sites_of(&set, "split").iter().all(|site| !site.marks.contains(Marks::MAY_REPEAT)), "{level}");
    }
}
