// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Arguments that GCC says to be in a variable, which nothing reads there: the code that did was removed, or the
//! variable has moved to a register.

use crate::image::Build;
use crate::{arguments, encoded, sites_of};
use siteseer_sites::Doubt;
use siteseer_sites::location::{Computed, Located, Location, Op};

/// The body does not look at its parameter, so nothing reads `kept` for it.
const UNREAD: &str = r#"
volatile int seq;
static long kept;
static inline void ignores(long value) { seq = 1; }
void setter(long x) { kept = x; }
void caller(void) { ignores(kept); seq = 2; kept = 7; }
long reader(void) { return kept; }
"#;

#[test]
fn a_variable_that_is_not_read_for_the_call_is_doubtful() {
    for optimised in ["-O1", "-O2", "-Os"] {
        let (set, _) = encoded(&Build::gcc(&[optimised], &[UNREAD]).link());
        let sites = sites_of(&set, "ignores");
        let [site] = sites[..] else { panic!("{optimised}: one copy: {sites:?}") };
        let [Ok(Located { at: Location::Computed(Computed { slots }), doubt, .. })] = arguments(&set, site) else {
            panic!("{optimised}: {:?}", arguments(&set, site))
        };
        assert!(matches!(*slots[0], [Op::Address(_), Op::Load(8)]), "{optimised}: {slots:?}");
        assert_eq!(*doubt, Some(Doubt::Stale), "{optimised}: a store of it may come later");
    }
}

#[test]
fn a_variable_that_the_function_never_stores_to_is_certain() {
    let loads = UNREAD.replace("kept = 7;", "");
    for optimised in ["-O1", "-O2", "-Os"] {
        let (set, _) = encoded(&Build::gcc(&[optimised], &[&loads]).link());
        let sites = sites_of(&set, "ignores");
        let [site] = sites[..] else { panic!("{optimised}: one copy: {sites:?}") };
        let [Ok(located)] = arguments(&set, site) else { panic!("{optimised}: {:?}", arguments(&set, site)) };
        assert!(matches!(located.at, Location::Computed(_)), "{optimised}: {located:?}");
        let is_known = cfg!(target_arch = "x86_64");
        assert!(!is_known || located.is_certain(), "{optimised}: nothing stores to it: {located:?}");
    }
}

/// At -O2 the variable moves to a register before the branch, and what the branch adds to it is there alone; at -O1 it
/// stays where it is.
const MOVED: &str = r#"
volatile int seq;
extern __attribute__((noinline)) void opaque(void);
void opaque(void) { __asm__ volatile("" ::: "memory"); }
static inline void ignores(long value) { seq = 1; }
long caller(void)
{
    int v = 5;
    __asm__ volatile("" : "+m"(v));
    int flag = (v & 32) != 0;
    opaque();
    if (flag) v += v;
    ignores(v);
    seq = 2;
    return ~v;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_slot_that_nothing_reads_any_more_is_doubtful() {
    for (optimised, expected) in [("-O1", None), ("-O2", Some(Doubt::Stale))] {
        let (set, _) = encoded(&Build::gcc(&[optimised], &[MOVED]).link());
        let sites = sites_of(&set, "ignores");
        let [site] = sites[..] else { panic!("{optimised}: one copy: {sites:?}") };
        let [Ok(Located { at: Location::Computed(Computed { slots }), doubt, .. })] = arguments(&set, site) else {
            panic!("{optimised}: {:?}", arguments(&set, site))
        };
        let is_load = |op: &Op| matches!(op, Op::Load(4));
        assert!(slots[0].iter().any(is_load), "{optimised}: it is said to be on the stack: {slots:?}");
        assert_eq!(*doubt, expected, "{optimised}");
    }
}

/// The program of docs/reports/gcc-assigned-member: GCC 14 to 16 say that the parameter is the member as it was, with
/// `KEPT` in a register that still has that.
const ASSIGNED_MEMBER: &str = r#"
struct number { unsigned long value; };
volatile int seq;
extern __attribute__((noinline)) long opaque(struct number n);
long opaque(struct number n) { __asm__ volatile("" ::: "memory"); return n.value; }
static inline int inner(int p) { seq = 1; return p; }
long caller(struct number n, int d)
{
    int result;
    unsigned long before = n.value;
    n.value = CHANGED;
    seq = 2;
    if (d) return (short)n.value;
    result = inner(n.value);
    return opaque(n) + KEPT;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_member_that_was_assigned_to_is_not_certain_as_it_was() {
    const RDI: u16 = 5;
    let mut seen = 0;
    for (changed, kept) in [("~n.value", "0"), ("n.value + 4", "0"), ("n.value >> 3", "before")] {
        let (changed, kept) = (format!("-DCHANGED={changed}"), format!("-DKEPT={kept}"));
        for optimised in ["-O1", "-O2", "-Os"] {
            let (set, _) = encoded(&Build::gcc(&[optimised, &changed, &kept], &[ASSIGNED_MEMBER]).link());
            let sites = sites_of(&set, "inner");
            let [site] = sites[..] else { panic!("{changed} {optimised}: one copy: {sites:?}") };
            let [Ok(located)] = arguments(&set, site) else { continue };
            seen += 1;
            let is_right = located.at == Location::Register(RDI);
            assert!(is_right || located.doubt == Some(Doubt::Stale), "{changed} {optimised}: {located:?}");
        }
    }
    assert!(seen > 0, "the compiler says where it is, right or wrong");
}
