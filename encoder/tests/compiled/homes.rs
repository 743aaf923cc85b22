// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Parameters that GCC describes by one expression for the whole function: the variable's home, where the prologue puts
//! the value, and not where it is at the entry.

use crate::image::Build;
use crate::{arguments, encoded, sites_of};
use siteseer_sites::SiteSet;
use siteseer_sites::location::{Argument, Location};

/// The address of a parameter is taken, so it lives in the frame. Two functions of one name get a site each.
const HOMES: &str = r#"
typedef struct { unsigned long pte; } pte_t;
extern __attribute__((noinline)) void use(void *);
void use(void *p) { __asm__ volatile("" :: "r"(p) : "memory"); }
__attribute__((noinline)) void visible(pte_t pte, int y) { use(&pte); }
static __attribute__((noinline)) void twice(pte_t pte, int y) { use(&pte); use(&y); }
void CALLER(unsigned long x, int y) { pte_t pte = { x }; visible(pte, y); twice(pte, y); }
void AGAIN(unsigned long x, int y) { pte_t pte = { x + 1 }; visible(pte, y); twice(pte, y + 1); }
"#;

/// The locations of the arguments at each site of a function.
fn places(set: &SiteSet, name: &str) -> Vec<Vec<Option<Location>>> {
    let place = |argument: &Argument| argument.as_ref().ok().map(|located| located.at.clone());
    sites_of(set, name).iter().map(|site| arguments(set, site).iter().map(place).collect()).collect()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_calling_convention_decides_for_unchanged_signatures() {
    let other = HOMES.replace("visible", "hidden").replace("CALLER", "caller").replace("AGAIN", "again");
    let other = other.replace("void use(void *p)", "static void unused(void *p)");
    for optimised in ["-O1", "-O2", "-Os"] {
        let image = Build::gcc(&[optimised, "-fno-ipa-icf"], &[HOMES, &other]).link();
        let (set, _) = encoded(&image);
        let expected = vec![Some(Location::Register(5)), Some(Location::Register(4))];
        assert_eq!(places(&set, "twice"), [expected.clone(), expected.clone()], "{optimised}");
        // pahole leaves a function out of BTF if a parameter seems to be in another register. Else its name says it
        // all.
        assert!(places(&set, "visible").iter().all(|places| *places == expected), "{optimised}");
    }
}

/// The clone's first parameter is a constant. The second one lives in the frame, the third in a register that the clone
/// writes.
const CLONED: &str = r#"
typedef struct { unsigned long a, b, c; } big;
extern __attribute__((noinline)) long use(void *, long);
long use(void *p, long v) { __asm__ volatile("" :: "r"(p) : "memory"); return v; }
static __attribute__((noinline)) long cloned(long flag, long kept, big by_value, long last)
{ if (flag) use(&by_value, kept); return use(&kept, last + flag) + last; }
long CALLER(long x, long y) { big b = { x, y, x }; return cloned(0, x, b, y); }
long AGAIN(long x, long y) { big b = { y, y, x }; return cloned(0, y, b, x); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn homes_in_a_clone_are_not_where_its_arguments_are() {
    let image = Build::gcc(&["-O2"], &[CLONED]).link();
    let (set, _) = encoded(&image);
    let of_clone = places(&set, "cloned");
    let [places] = &of_clone[..] else { panic!("one clone: {of_clone:?}") };
    assert_eq!(places[0], Some(Location::Constant(0)));
    for (place, passed) in places[1..].iter().zip([5, 0, 4]) {
        let right = match place {
            Some(Location::Register(register)) => *register == passed,
            // What the caller left on the stack is above the return address.
            Some(Location::Memory(7, offset)) => passed == 0 && *offset >= 8,
            Some(_) => false,
            None => true,
        };
        assert!(right, "{places:?}");
    }
}

/// No register outlives what the asm statements write, so the values wait on the stack for the copies.
#[cfg(target_arch = "x86_64")]
const SPILLED: &str = r#"
#define ALL "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"
extern __attribute__((noinline)) long use(long, long);
long use(long a, long b) { __asm__ volatile("" : "+r"(a), "+r"(b) :: "memory"); return a ^ b; }
static inline __attribute__((always_inline)) long body(long p, long q)
{ __asm__ volatile("nop" ::: ALL, "memory"); return use(q, p); }
long spilled(long a, long b) { __asm__ volatile("" ::: ALL, "memory"); return body(a, b) + 1; }
long branched(long a, long b) { if (a > b) a = use(a, b); __asm__ volatile("" ::: ALL, "memory"); return body(b, a) + 2; }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn what_was_put_on_the_stack_before_the_copy_is_certain() {
    for optimised in ["-O1", "-O2", "-Os"] {
        let (set, _) = encoded(&Build::gcc(&[optimised], &[SPILLED]).link());
        let sites = sites_of(&set, "body");
        assert_eq!(sites.len(), 2, "{optimised}");
        for located in
            sites.iter().flat_map(|site| arguments(&set, site)).map(|argument| argument.as_ref().expect("a location"))
        {
            assert!(matches!(located.at, Location::Memory(7, 0..)), "{optimised}: {located:?}");
            assert!(located.is_certain(), "{optimised}: {located:?}");
        }
    }
}
