// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that GCC folded into equal ones.

use crate::image::Build;
use crate::{arguments, encoded, sites_of};
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::site::{Marks, Site, SiteKind};

/// `kept` and `folded` are equal; `alias` is another name of `named` by the source's will.
const EQUAL: &str = r#"
volatile int seq;
static __attribute__((noinline)) int kept(int a, long b) { seq = a; return b + 3; }
static __attribute__((noinline)) int folded(int x, long y) { seq = x; return y + 3; }
__attribute__((noinline)) int named(int a) { seq = a; seq = 4; return 3; }
int alias(int a) __attribute__((alias("named")));
int user(int a) { return kept(a, 3) + folded(a, 4) + kept(a, 5) + folded(a, 6) + named(7) + alias(8); }
"#;

#[test]
fn a_folded_function_has_a_site_and_each_hit_may_be_the_others() {
    let image = Build::gcc(&["-O2"], &[EQUAL]).link();
    let (set, _) = encoded(&image);
    let abi = abi_arguments(set.machine, &[ParamShape::scalar(4, true), ParamShape::scalar(8, true)], None);
    let mut addresses = Vec::new();
    for name in ["kept", "folded"] {
        let [site] = sites_of(&set, name)[..] else { panic!("{name} has one site") };
        assert_eq!((site.kind, site.marks), (SiteKind::Body, Marks::MAY_REPEAT), "{name}");
        assert_eq!(arguments(&set, site), abi, "{name}");
        addresses.push(site.address);
    }
    assert_eq!(addresses[0], addresses[1], "the compiler folds what this is about");
    assert!(
        sites_of(&set, "named").iter().all(|site| site.marks == Marks::default()),
        "an alias is a name of the same function"
    );
    assert!(sites_of(&set, "alias").is_empty());
}

/// A clone of `kept` for a constant has calls of both.
const CLONED: &str = r#"
volatile int seq;
static __attribute__((noinline)) int kept(int a, long b) { seq = a; for (long i = 0; i < b; i++) seq = i; return b + 3; }
static __attribute__((noinline)) int folded(int a, long b) { seq = a; for (long i = 0; i < b; i++) seq = i; return b + 3; }
int user(int a, long b)
{
    int sum = kept(a, b) + folded(a + 1, b);
    for (int i = 0; i < 100; i++)
        sum += kept(a, 3) + folded(a, 3) + kept(i, 3) + folded(i, 3);
    return sum;
}
"#;

#[test]
fn a_clone_of_what_a_function_was_folded_into_has_its_calls() {
    let (set, _) = encoded(&Build::gcc(&["-O3"], &[CLONED]).link());
    let clones = sites_of(&set, "kept").into_iter().filter(|site| site.kind == SiteKind::Clone).count();
    assert_eq!(clones, 1, "the compiler makes what this is about");
    let [site] = sites_of(&set, "folded")[..] else { panic!("one site") };
    assert_eq!((site.kind, site.marks), (SiteKind::Body, Marks::MAY_REPEAT | Marks::MAY_MISS));
}

/// Other units may compare the addresses of `first` and `second`: the second one has text of its own.
const WRAPPED: &str = r#"
volatile int seq;
extern __attribute__((noinline)) int opaque(int);
int opaque(int a) { __asm__ volatile("" : "+r"(a) :: "memory"); return a; }
int first(int a) { for (int i = 0; i < a; i++) seq = opaque(a) + opaque(i); return opaque(a + 9); }
int second(int x) { for (int i = 0; i < x; i++) seq = opaque(x) + opaque(i); return opaque(x + 9); }
int user(int a) { return first(a) + second(a); }
"#;

#[test]
fn a_wrapper_of_what_was_folded_misses_calls() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[WRAPPED]).link());
    let abi = abi_arguments(set.machine, &[ParamShape::scalar(4, true)], None);
    for (name, mark) in [("first", Marks::MAY_REPEAT), ("second", Marks::MAY_MISS)] {
        let sites: Vec<_> = sites_of(&set, name).into_iter().filter(|site| site.kind == SiteKind::Body).collect();
        let [site] = sites[..] else { panic!("{name} has one body: {sites:x?}") };
        assert!(site.marks.contains(mark), "{name}");
        assert_eq!(arguments(&set, site), abi, "{name}");
    }
    let copies = sites_of(&set, "first").into_iter().filter(|site| site.kind == SiteKind::Inline);
    assert!(copies.into_iter().all(|site| site.marks.contains(Marks::MAY_REPEAT)), "a copy may be a call of the other");
}

/// `second` is a wrapper with a copy of the body of `first`, and nothing describes the copies of `inner` and `deeper`
/// in it.
const WRAPPED_COPY: &str = r#"
volatile int seq, other;
static inline int deeper(int a) { if (a & 8) other = a; return other + 3; }
static inline int inner(int a) { if (a & 7) seq = a; return seq + deeper(a + 1); }
static inline int elsewhere(int a) { if (a & 7) seq = a + 1; return seq + 4; }
int first(int a) { seq = 1; return inner(a); }
int second(int x) { seq = 1; return inner(x); }
int third(int a) { seq = 2; return elsewhere(a); }
"#;

#[test]
fn what_was_inlined_into_the_body_is_in_the_wrapper() {
    let inlined = |flag| {
        let (set, _) = encoded(&Build::gcc(&["-O2", flag], &[WRAPPED_COPY]).link());
        let is_folded = sites_of(&set, "second").iter().any(|site| site.marks.contains(Marks::MAY_MISS));
        let mut inlined = Vec::new();
        for site in set.sites.iter().filter(|site| site.kind == SiteKind::Inline) {
            let name = |site: &Site| set.functions[site.function as usize].name.clone();
            let around = &set.containers[site.container as usize];
            let parent = site.parent.map(|parent| name(&set.sites[parent as usize]));
            let place = (around.name.clone(), site.address - around.address);
            inlined.push((name(site), place, parent, site.marks, arguments(&set, site).to_vec()));
        }
        inlined.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        (inlined, is_folded)
    };
    let ((folded, is_folded), (kept_apart, is_kept)) = (inlined("-fipa-icf"), inlined("-fno-ipa-icf"));
    assert!(is_folded && !is_kept, "the compiler does what this is about");
    assert_eq!(folded.len(), 5);
    assert_eq!(folded, kept_apart);
}

/// Each of `first` and `second` has data of its own for the check of the index.
const WITH_DATA: &str = r#"
volatile int seq, table[8];
void __ubsan_handle_out_of_bounds(void *data, unsigned long index) { seq = index; }
static inline int inner(int a) { if (a & 7) seq = a; return seq + 3; }
int first(int a) { seq = table[a]; return inner(a); }
int second(int x) { seq = table[x]; return inner(x); }
"#;

/// `third` has the same code as `first`, and takes something else.
const THIRD: &str = r#"
volatile long seq;
static inline TYPE inner(TYPE a) { if (a & 7) seq = a; return seq + 3; }
static inline char *other(char *a) { if ((TYPE)a & 7) seq = (TYPE)a; return (char *)(seq + 3); }
TYPE first(TYPE a) { seq = 1; return inner(a); }
TYPE second(TYPE x) { seq = 1; return inner(x); }
char *third(char *a) { seq = 1; return other(a); }
"#;

#[test]
fn where_the_wrapper_has_the_copy_of_a_function_is_not_always_known() {
    let with_data = Build::gcc(&["-O2", "-fsanitize=bounds"], &[WITH_DATA]).link();
    let third = Build::gcc(&["-O2", "-DTYPE=unsigned long"], &[THIRD]).link();
    for (image, functions) in [(with_data, &["inner"][..]), (third, &["inner", "other"])] {
        let (set, _) = encoded(&image);
        for name in functions {
            let [site] = sites_of(&set, name)[..] else { panic!("{name} has one site") };
            assert_eq!((site.kind, site.marks), (SiteKind::Inline, Marks::MAY_MISS), "{name}");
        }
    }
}

#[test]
fn a_body_with_parameters_of_other_shapes_is_not_the_wrappers() {
    let (set, _) = encoded(&Build::gcc(&["-O2", "-DTYPE=long"], &[THIRD]).link());
    for (name, sites) in [("inner", 2), ("other", 1)] {
        let found = sites_of(&set, name);
        assert_eq!(found.len(), sites, "{name}");
        assert!(found.iter().all(|site| site.kind == SiteKind::Inline && site.marks == Marks::default()), "{name}");
    }
}

/// With link-time optimisation, the debug entry of `second` is in a unit without text.
const LINKED: &str = r#"
volatile int seq;
static inline int inner(int a) { if (a & 7) seq = a; return seq; }
int first(int a) { seq = 1; return inner(a); }
int second(int x) { seq = 1; return inner(x); }
"#;

const LINKED_TO: &str = r#"
extern int first(int), second(int);
__attribute__((used)) void *_start(int a) { return a ? first : second; }
"#;

#[test]
fn what_is_folded_when_it_is_linked_has_a_site() {
    let (set, _) = encoded(&Build::gcc(&["-O2", "-flto"], &[LINKED, LINKED_TO]).link());
    let abi = abi_arguments(set.machine, &[ParamShape::scalar(4, true)], None);
    for (name, mark) in [("first", Marks::MAY_REPEAT), ("second", Marks::MAY_MISS)] {
        let [site] = sites_of(&set, name)[..] else { panic!("{name} has one site") };
        assert_eq!((site.kind, site.marks), (SiteKind::Body, mark), "{name}");
        assert_eq!(arguments(&set, site), abi, "{name}");
    }
    let copies = sites_of(&set, "inner");
    assert!(copies.iter().all(|site| site.kind == SiteKind::Inline && site.marks == Marks::default()), "{copies:x?}");
    let containers = copies.iter().map(|site| &*set.containers[site.container as usize].name);
    let mut containers: Vec<&str> = containers.collect();
    containers.sort_unstable();
    assert_eq!(containers, ["first", "second"]);
}

/// `second` is declared inline and has a copy, so that its debug entry is that of most functions of headers.
const INLINE: &str = r#"
volatile int seq;
extern __attribute__((noinline)) int opaque(int);
int opaque(int a) { __asm__ volatile("" : "+r"(a) :: "memory"); return a; }
static inline int first(int a) { for (int i = 0; i < a; i++) seq = opaque(a) + opaque(i); return opaque(a + 9); }
static inline int second(int a) { for (int i = 0; i < a; i++) seq = opaque(a) + opaque(i); return opaque(a + 9); }
static inline int third(int a) { return a * a; }
int (*pointers[2])(int) = { first, second };
__attribute__((flatten)) int flat(int a) { return second(a) + third(a); }
int user(int a) { return first(a) + second(a); }
"#;

#[test]
fn a_wrapper_of_a_function_that_is_declared_inline_misses_calls() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[INLINE]).link());
    for (name, mark) in [("first", Marks::MAY_REPEAT), ("second", Marks::MAY_MISS)] {
        let sites = sites_of(&set, name);
        assert_eq!(sites.iter().filter(|site| site.kind == SiteKind::Body).count(), 1, "{name}: {sites:x?}");
        assert!(sites.iter().any(|site| site.kind == SiteKind::Inline), "{name}: {sites:x?}");
        assert!(sites.iter().all(|site| site.marks.contains(mark)), "{name}: {sites:x?}");
    }
    let [third] = sites_of(&set, "third")[..] else { panic!("third has one copy") };
    assert_eq!(third.marks, Marks::default());
}

/// Nothing is left of `gone`: its one argument is a constant, as that of `clone` is.
const GONE: &str = r#"
volatile int seq;
extern __attribute__((noinline)) int opaque(int);
int opaque(int a) { __asm__ volatile("" : "+r"(a) :: "memory"); return a; }
static __attribute__((noinline)) int clone(int a, int unused) { seq = a; return opaque(a + 3); }
static __attribute__((noinline)) int gone(int a, int unused) { seq = a; return opaque(a + 3); }
static __attribute__((noinline)) int other(int a, int *unused) { seq = a; return opaque(a + 4); }
int user(int a) { return clone(a, 2) + gone(a, 3) + other(a, 0) + clone(a, 4) + gone(a, 5) + other(a, 0); }
"#;

#[test]
fn hits_of_a_clone_may_be_calls_of_what_is_gone() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[GONE]).link());
    assert!(sites_of(&set, "gone").is_empty(), "the compiler leaves nothing of what this is about");
    for (name, repeats) in [("clone", true), ("other", false)] {
        let [site] = sites_of(&set, name)[..] else { panic!("{name} has one site") };
        assert_eq!((site.kind, site.marks.contains(Marks::MAY_REPEAT)), (SiteKind::Clone, repeats), "{name}");
    }
}

/// What one unit defines and another defines, too, has text in one of them.
#[test]
fn a_weak_function_that_another_unit_defines_is_no_wrapper() {
    let weak =
        "int weak(int a); __attribute__((weak)) int weak(int a) { return a + 1; } int one(int a) { return weak(a); }";
    let strong = "int weak(int a); int weak(int a) { return a * 3; } int two(int a) { return weak(a) - 5; }";
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[weak, strong]).link());
    let sites = sites_of(&set, "weak");
    assert!(sites.iter().all(|site| site.marks == Marks::default()), "{sites:x?}");
}

#[test]
fn functions_that_are_kept_apart_have_no_such_marks() {
    let (set, _) = encoded(&Build::gcc(&["-O2", "-fno-ipa-icf"], &[EQUAL]).link());
    for name in ["kept", "folded"] {
        assert!(sites_of(&set, name).iter().all(|site| site.marks == Marks::default()), "{name}");
    }
}

/// Nothing is left of `folded`: its calls became copies of `kept`. `other` is of another shape.
const INLINED_AS_ANOTHER: &str = r#"
volatile long seq, in;
static inline long kept(const long *p, int a)
{
    for (int i = 0; i < a; i++)
        if (in & i)
            seq = *p + i;
        else
            seq = in * p[i];
    return in + p[3];
}
static inline long folded(const long *q, int b)
{
    for (int i = 0; i < b; i++)
        if (in & i)
            seq = *q + i;
        else
            seq = in * q[i];
    return in + q[3];
}
static inline __attribute__((always_inline)) long other(const long *p) { seq = *p; return in; }
long first(const long *p, int a) { return kept(p, a) + other(p); }
long second(const long *p, int a) { return folded(p + 1, a); }
"#;

#[test]
fn copies_of_what_was_kept_may_be_calls_of_what_was_folded() {
    let (set, _) = encoded(&Build::gcc(&["-O2"], &[INLINED_AS_ANOTHER]).link());
    let [kept, folded] = ["kept", "folded"].map(|name| sites_of(&set, name));
    let of_both = if folded.is_empty() { kept } else { folded };
    assert_eq!(of_both.len(), 2, "the compiler does what this is about: {of_both:x?}");
    assert!(of_both.iter().all(|site| site.kind == SiteKind::Inline && site.marks.contains(Marks::MAY_REPEAT)));
    assert!(sites_of(&set, "other").iter().all(|site| site.marks == Marks::default()));
}
