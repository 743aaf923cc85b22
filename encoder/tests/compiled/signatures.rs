// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions with a signature that the compiler changed, with and without another name.

use crate::image::{self, Build};
use crate::{arguments, encoded, sites_of};
use siteseer_encoder::{BaseKernel, KernelTypes, Options, encode};
use siteseer_sites::location::{Argument, Location, Missing};
use siteseer_sites::site::{Marks, Site};
use siteseer_sites::{Doubt, Machine, SiteSet};

/// Each is called so that a compiler that sees all callers changes it, except `plain`.
const CHANGED: &str = r#"
struct pair { long a, b, c[6]; };
long sink;
extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" ::: "memory"); return a ^ b; }

static __attribute__((noinline)) long dead(long never, long value)
{ TRUTH(value, 1); return opaque(value, 1); }
static __attribute__((noinline)) long promoted(struct pair *p, long last)
{ long b = p->b; TRUTH(last, 2); return opaque(b, last); }
static __attribute__((noinline)) long dropped(long never, long value)
{ TRUTH(value, 3); opaque(value, 3); return sink; }
static __attribute__((noinline)) long plain(struct pair *p, long last)
{ TRUTH(last, 4); return opaque((long)p, last); }
static __attribute__((noinline)) void nothing(long never, long value)
{ TRUTH(value, 5); opaque(value, 5); }

void one(long a, long b)
{
    struct pair p = { .a = a, .b = b };
    sink = dead(a, b); dropped(a, b); nothing(a, b);
    sink = plain((struct pair *)a, b);
    sink = promoted(&p, a);
}
void two(long a, long b)
{
    struct pair p = { .a = b, .b = a };
    sink = dead(a, b + 1); dropped(b, a); nothing(b, a + 2);
    sink = plain((struct pair *)b, a);
    sink = promoted(&p, b);
}
"#;

/// Before they do anything, the bodies assign to parameters: what the debug information then has is what was assigned.
/// Calls by name leave out what is not looked at, if they can: `pointed` has none.
const ASSIGNED: &str = r#"
extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" ::: "memory"); return a ^ b; }

__attribute__((noinline)) long kept(long first, long second)
{ first = second; return opaque(first * 3, second); }
static __attribute__((noinline)) long lost(long first, long second)
{ first = second; return opaque(first * 5, second); }
__attribute__((noinline)) long heedless(long first, long second)
{ return opaque(second * 7, 1); }
static long pointed(long first, long second)
{ first = second; return opaque(first * 9, second); }
long (*volatile pointer)(long, long) = pointed;

long one(long a, long b) { return kept(a, b) + lost(b, a) + heedless(a, b) + pointer(a, b); }
long two(long a, long b) { return kept(b, a + 1) + lost(a, b + 1) + heedless(a + 2, b); }
"#;

fn the_site<'s>(set: &'s SiteSet, name: &str) -> (&'s Site, &'s Argument, &'s Argument) {
    let sites = sites_of(set, name);
    let [site] = sites[..] else { panic!("{name}: one site, not {}", sites.len()) };
    let [first, second] = arguments(set, site) else { panic!("{name}: two parameters, as the source has them") };
    (site, first, second)
}

fn register(argument: &Argument) -> Option<u16> {
    match argument.as_ref().map(|located| &located.at) {
        Ok(Location::Register(register)) => Some(*register),
        _ => None,
    }
}

/// What must hold whoever compiled it. `registers` are those of the calling convention.
fn check(set: &SiteSet, registers: [u16; 2]) {
    for name in ["dead", "promoted", "dropped", "nothing"] {
        let (site, gone, passed) = the_site(set, name);
        assert!(site.marks.contains(Marks::SIGNATURE_CHANGED), "{name}");
        assert_ne!(register(gone), Some(registers[0]), "{name}: something else is there");
        assert!(register(passed).is_some(), "{name}: {passed:?}");
        // The parameters after one that is gone have moved up; those after a promoted one have not.
        let expected = if name == "promoted" { registers[1] } else { registers[0] };
        assert_eq!(register(passed), Some(expected), "{name}");
    }
    for name in ["dead", "promoted", "plain"] {
        assert!(the_site(set, name).0.marks.returns_value(), "{name}: its callers use what it returns");
    }
    assert!(!the_site(set, "dropped").0.marks.returns_value(), "no caller uses what it returns");
    assert!(!the_site(set, "nothing").0.marks.contains(Marks::RETURN_KEPT), "there is nothing to keep");
    let (site, first, second) = the_site(set, "plain");
    assert!(!site.marks.contains(Marks::SIGNATURE_CHANGED), "it is as the source has it");
    assert_eq!([register(first), register(second)], registers.map(Some));
}

/// The asm statements say where the compiler itself had the value.
#[cfg(target_arch = "x86_64")]
fn check_truth(image: &[u8], set: &SiteSet) {
    let records = image::truth(image);
    for (name, tag) in [("dead", "$1"), ("promoted", "$2"), ("dropped", "$3"), ("plain", "$4"), ("nothing", "$5")] {
        let record = records.iter().find(|record| record.operands[1] == tag).expect("each left a record");
        let (site, _, passed) = the_site(set, name);
        let container = &set.containers[site.container as usize];
        assert!((container.address..container.address + container.size).contains(&record.address), "{name}");
        let named = passed.as_ref().expect("it is located").display(Machine::X86_64).to_string();
        // After a frame's pushes the value may have been copied for later; before, it is where it was passed.
        if image::is_volatile(&record.operands[0]) {
            assert_eq!(image::wide_name(&record.operands[0]), named, "{name}");
        }
    }
}

// Proves S13.16.
#[test]
#[cfg(target_arch = "x86_64")]
fn clang_changes_signatures_under_the_same_name() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    // Arguments are promoted from -O3 on, or with link-time optimisation.
    let image = Build::with(&clang, &["-O3"], &[CHANGED]).link();
    let (set, _) = encoded(&image);
    check(&set, [5, 4]);
    check_truth(&image, &set);
    assert!(set.sites.iter().all(|site| set.containers[site.container as usize].name.find('.').is_none()));
}

#[test]
fn clang_changes_signatures_on_arm64() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    // As the kernel is built where ftrace has a patch site in each function, and where it has none.
    for flags in [&["-O3"][..], &["-O3", "-fpatchable-function-entry=4,2", "-mbranch-protection=pac-ret+bti"]] {
        let (module, kernel) = image::arm64_module(&clang, flags, CHANGED);
        let types = KernelTypes::new(&kernel).unwrap();
        let options = Options { kernel: Some(BaseKernel { types: &types, build_id: &[] }), ..Options::default() };
        let (set, _) = encode(&module, &options).expect("a freshly compiled module is encoded");
        assert_eq!(set.machine, Machine::Aarch64);
        check(&set, [0, 1]);
    }
}

/// clang begins the locations of parameters after the instruction that ftrace patches.
#[test]
#[cfg(target_arch = "x86_64")]
fn clang_changes_signatures_of_functions_that_ftrace_knows() {
    const TRACED: &str = r#"
__attribute__((naked, no_instrument_function)) void __fentry__(void) { __asm__("ret"); }
__asm__(".pushsection .mcount,\"a\"\n.globl __start_mcount_loc\n__start_mcount_loc:\n"
    ".quad dead, promoted, dropped, plain, nothing, opaque\n"
    ".globl __stop_mcount_loc\n__stop_mcount_loc:\n.popsection");
"#;
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    let image = Build::with(&clang, &["-O3", "-pg", "-mfentry"], &[&format!("{CHANGED}{TRACED}")]).link();
    let (set, _) = encoded(&image);
    check(&set, [5, 4]);
    check_truth(&image, &set);
}

/// What `ASSIGNED` must come to. `registers` are those of the calling convention.
fn check_assigned(set: &SiteSet, registers: [u16; 2]) {
    for name in ["kept", "heedless"] {
        let (site, first, second) = the_site(set, name);
        assert!(!site.marks.contains(Marks::SIGNATURE_CHANGED), "{name}: callers that nobody knows may call it");
        assert_eq!((first, register(second)), (&Err(Missing::Unread), Some(registers[1])), "{name}");
    }
    let (site, first, second) = the_site(set, "pointed");
    assert!(!site.marks.contains(Marks::SIGNATURE_CHANGED));
    assert_eq!([register(first), register(second)], registers.map(Some), "who calls it knows its type alone");
    let (site, first, second) = the_site(set, "lost");
    assert!(site.marks.contains(Marks::SIGNATURE_CHANGED));
    assert!(first.is_err(), "it is not passed: {first:?}");
    assert!(second.is_err() || register(second) == Some(registers[0]), "{second:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn clang_says_what_was_assigned() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    for flags in [&["-O2"][..], &["-O2", "-fpatchable-function-entry=5"]] {
        let image = Build::with(&clang, flags, &[ASSIGNED]).link();
        check_assigned(&encoded(&image).0, [5, 4]);
        let (module, kernel) = image::arm64_module(&clang, flags, ASSIGNED);
        let types = KernelTypes::new(&kernel).unwrap();
        let options = Options { kernel: Some(BaseKernel { types: &types, build_id: &[] }), ..Options::default() };
        check_assigned(&encode(&module, &options).expect("a freshly compiled module is encoded").0, [0, 1]);
    }
}

/// Copies at a function's very beginning, after the call to ftrace, that assign to a parameter at once.
#[cfg(target_arch = "x86_64")]
const ASSIGNED_BEHIND_FTRACE: &str = r#"
long sink;
void __fentry__(void);
void __fentry__(void) {}
static inline __attribute__((always_inline)) long rounded(long size, long by)
{ size = size + 3; sink = size; return size * by; }
static inline __attribute__((always_inline)) long swapped(long size, long by)
{ size = by; sink = size * 3; return by; }
long one(long x) { return rounded(5, x); }
long two(long x, long y) { return swapped(x, y) + x; }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn gcc_notes_assignments_in_front_of_the_call_to_ftrace() {
    let flags = ["-O2", "-gdwarf-5", "-pg", "-mfentry", "-mrecord-mcount"];
    let image = Build::gcc(&flags, &[ASSIGNED_BEHIND_FTRACE]).recording_ftrace().link();
    let (set, _) = encoded(&image);
    for (name, first) in [("rounded", Location::Constant(5)), ("swapped", Location::Register(5))] {
        let (site, size, _) = the_site(&set, name);
        let container = &set.containers[site.container as usize];
        assert_eq!(site.address - container.address, 5, "{name}: after the call");
        assert_eq!(size.as_ref().map(|located| &located.at), Ok(&first), "{name}");
    }
}

/// The locations begin after the no-ops.
#[test]
#[cfg(target_arch = "x86_64")]
fn clang_locates_arguments_behind_what_ftrace_patches() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    let image = Build::with(&clang, &["-O3", "-fpatchable-function-entry=5"], &[CHANGED]).link();
    let (set, _) = encoded(&image);
    check(&set, [5, 4]);
    check_truth(&image, &set);
    let (module, kernel) = image::arm64_module(&clang, &["-O3", "-fpatchable-function-entry=2"], CHANGED);
    let types = KernelTypes::new(&kernel).unwrap();
    let options = Options { kernel: Some(BaseKernel { types: &types, build_id: &[] }), ..Options::default() };
    check(&encode(&module, &options).expect("a freshly compiled module is encoded").0, [0, 1]);
}

// Proves S13.15.
#[test]
#[cfg(target_arch = "x86_64")]
fn gcc_changes_signatures_of_clones() {
    let image = Build::gcc(&["-O2"], &[CHANGED]).link();
    let (set, census) = encoded(&image);
    check(&set, [5, 4]);
    check_truth(&image, &set);
    let symbol = |name: &str| &set.containers[the_site(&set, name).0.container as usize].name[..];
    assert!(symbol("promoted").contains(".isra.") && symbol("dropped").contains(".isra."));
    let out = &census.out_of_line;
    assert_eq!((out.clones, out.signature_changed, out.return_kept), (4, 4, 2));
}

/// `assigned` gets 2 from all callers, and has another value before it does anything.
const ASSIGNED_IN_A_CLONE: &str = r#"
extern void opaque(long, long);
static __attribute__((noinline)) void assigned(int first, unsigned long second)
{ second = 65535; opaque(first, second); opaque(second, 3); }
void one(int a) { assigned(a, 2); }
void two(int a) { assigned(a + 1, 2); opaque(a, 4); }
"#;

const CALLERS: &str = r#"
__attribute__((noipa)) void opaque(long a, long b) { __asm__ volatile("" ::: "memory"); }
extern void one(int), two(int);
__attribute__((used)) void _start(int a) { one(a); two(a); }
"#;

// Proves S4.3.
#[test]
#[cfg(target_arch = "x86_64")]
fn gcc_says_what_was_assigned_in_clones_that_it_makes_when_it_links() {
    let sources = &[ASSIGNED_IN_A_CLONE, CALLERS];
    for (flags, is_linked) in [(&["-O2"][..], false), (&["-O2", "-flto"], true)] {
        let (set, _) = encoded(&Build::gcc(flags, sources).link());
        let (site, first, second) = the_site(&set, "assigned");
        let symbol = &set.containers[site.container as usize].name;
        assert!(symbol.contains(".constprop."), "{flags:?}: {symbol}");
        assert_eq!(register(first), Some(5), "{flags:?}");
        match second {
            Ok(located) if is_linked => assert_eq!(located.doubt, Some(Doubt::Constant), "{located:?}"),
            // Its list begins with a view of what was passed, in which nothing is done yet.
            Ok(located) => assert_eq!(located.at, Location::Constant(2)),
            Err(missing) => assert!(!is_linked && *missing == Missing::AfterEntry, "{flags:?}: {missing:?}"),
        }
    }
}
