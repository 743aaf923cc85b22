// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The encoder against small images that the machine's own compilers make.
//!
//! Each source leaves the truth in a section of its own: where a body starts, an `asm` statement records its own
//! address and, in the compiler's words, where its operands are there. What the encoder makes of the DWARF
//! must agree.

mod clang;
mod entries;
mod folded;
mod homes;
mod image;
mod ranges;
mod signatures;
mod variables;

use image::{Build, Record};
use siteseer_encoder::{Census, Options, encode};
use siteseer_sites::btf::{Btf, rules};
use siteseer_sites::file;
use siteseer_sites::location::{Argument, Location, LocationKind, Missing};
use siteseer_sites::site::{Marks, Site, SiteKind};
use siteseer_sites::{Machine, SiteSet};

fn encoded(image: &[u8]) -> (SiteSet, Census) {
    let (set, census) = encode(image, &Options::default()).expect("a freshly compiled image is encoded");
    let inline = file::write_raw(&set).expect("the sites are written");
    let base = Btf::parse(&set.base_btf).expect("the image's BTF");
    assert_eq!(rules::check(&inline, Some(&base)), Ok(Vec::new()), "the kernel would take it");
    (set, census)
}

fn sites_of<'s>(set: &'s SiteSet, name: &str) -> Vec<&'s Site> {
    set.sites.iter().filter(|site| set.functions[site.function as usize].name == name).collect()
}

fn inline_sites(set: &SiteSet) -> u64 {
    set.sites.iter().filter(|site| site.kind == SiteKind::Inline).count() as u64
}

fn arguments<'s>(set: &'s SiteSet, site: &Site) -> &'s [Argument] {
    &set.prototypes[site.prototype as usize]
}

/// Inlined copies with constants, registers and memory for arguments; `TRUTH` records them.
const INLINED: &str = r#"
struct pair { long a, b; };
extern __attribute__((noinline)) long opaque(long, long);
long opaque(long a, long b) { __asm__ volatile("" ::: "memory"); return a ^ b; }

static inline __attribute__((always_inline)) long target(long value, int flag)
{
    TRUTH(value, flag);
    return opaque(value, flag);
}

long with_constants(void) { return target(5, 7) + target(-1, 8); }
long with_registers(long a, int b) { return target(b, (int)a); }
long with_memory(struct pair *p, int b) { long r = target(p->a, b); return r + target(p->b, 3); }
long in_a_branch(long a, int b) { if (a > 10) return target(a, b); return 0; }
long in_a_loop(long n) { long s = 0; for (long i = 0; i < n; i++) s += target(i, 9); return s; }
static inline __attribute__((always_inline)) long outer(long v) { return target(v, 11); }
long nested(long a) { return outer(a + 1); }
"#;

/// Checks one image against what its sources recorded.
fn check_against_truth(build: &Build) {
    let image = build.link();
    let records = image::truth(&image);
    let (set, census) = encoded(&image);
    let sites = sites_of(&set, "target");
    assert_eq!(sites.len(), records.len(), "one site for each copy of the body");
    assert_eq!(census.sites.total, records.len() as u64 + 1, "the copies of target and the one of outer");
    for Record { address, operands } in &records {
        // The nearest site at or before what the body's first statement recorded, in the same function.
        let site = sites
            .iter()
            .filter(|site| site.address <= *address)
            .max_by_key(|site| site.address)
            .unwrap_or_else(|| panic!("no site before {address:#x}"));
        let container = &set.containers[site.container as usize];
        assert!((container.address..container.address + container.size).contains(address), "in the same function");
        assert_eq!(site.kind, SiteKind::Inline);
        for (argument, operand) in arguments(&set, site).iter().zip(operands) {
            let Ok(located) = argument else { continue };
            if let Some(constant) = operand.strip_prefix('$') {
                let value: i64 = constant.parse().expect("an immediate operand");
                let Location::Constant(found) = located.at else { panic!("{operand}: found {located:?}") };
                let width = 64 - 8 * located.size.min(8);
                assert_eq!((found << width) as i64 >> width, value);
            } else if site.address == *address
                && let Location::Register(_) = located.at
            {
                let name = located.display(Machine::X86_64).to_string();
                assert_eq!(image::wide_name(operand), name, "at {address:#x}");
            }
        }
        assert_eq!(arguments(&set, site).len(), 2);
        assert!(!site.marks.contains(Marks::ENTRY_UNCERTAIN));
    }
    let located = sites.iter().flat_map(|site| arguments(&set, site)).filter(|argument| argument.is_ok()).count();
    assert!(located >= records.len(), "at least half of the arguments are located: {located}");
    let outer = sites_of(&set, "outer");
    let in_outer = sites.iter().filter(|site| {
        site.parent.is_some_and(|parent| set.functions[set.sites[parent as usize].function as usize].name == "outer")
    });
    assert_eq!((outer.len(), in_outer.count()), (1, 1), "the nested copy knows its parent");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn inlined_copies_agree_with_the_compiler() {
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        for level in ["-O1", "-O2", "-O3", "-Os"] {
            check_against_truth(&Build::gcc(&[level, version], &[INLINED]));
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn inlined_copies_agree_with_clang() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        check_against_truth(&Build::with(&clang, &["-O2", version], &[INLINED]));
    }
}

/// A program of the shape of the one that dwarves' tests/btf_inline.sh has: nested copies, a constant parameter, a copy
/// without parameters, and several copies in one function.
const NESTED: &str = r#"
static inline int scale(int value, int factor) { return value * factor; }
static inline int add_bias(int value, int bias) { return scale(value, 2) + bias; }
static volatile int inline_bias;
static inline int add_global(void) { return inline_bias; }
static inline int combine(int value, int bias) { return add_bias(value, bias) + add_global(); }
__attribute__((noinline)) int wrapper_once(int value, int bias) { return combine(value, bias); }
__attribute__((noinline)) int wrapper_twice(int value, int bias) { return combine(value, bias) + combine(bias, value); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn nested_copies_are_all_there() {
    let image = Build::gcc(&["-O2"], &[NESTED]).link();
    let (set, _) = encoded(&image);
    for (name, in_once, in_twice) in [("scale", 1, 2), ("add_bias", 1, 2), ("add_global", 1, 2), ("combine", 1, 2)] {
        let held = |container: &str| {
            let sites = sites_of(&set, name);
            sites.iter().filter(|site| set.containers[site.container as usize].name == container).count()
        };
        assert_eq!((held("wrapper_once"), held("wrapper_twice")), (in_once, in_twice), "{name}");
    }
    for site in sites_of(&set, "scale") {
        let [value, factor] = arguments(&set, site) else { panic!("two parameters") };
        assert!(matches!(factor, Ok(located) if located.at == Location::Constant(2)), "{factor:?}");
        assert!(matches!(value, Ok(located) if matches!(located.at, Location::Register(_))), "{value:?}");
    }
    assert!(sites_of(&set, "add_global").iter().all(|site| arguments(&set, site).is_empty()));
}

#[test]
fn both_versions_of_dwarf_give_the_same_sites() {
    let five = Build::gcc(&["-O2", "-gdwarf-5"], &[INLINED]).link();
    let four = Build::gcc(&["-O2", "-gdwarf-4"], &[INLINED]).link();
    let (five, four) = (encoded(&five).0, encoded(&four).0);
    assert_eq!(five.prototypes, four.prototypes);
    assert_eq!(five.sites, four.sites);
    assert!(!five.sites.is_empty());
}

#[test]
fn the_same_image_gives_the_same_set() {
    let image = Build::gcc(&["-O2"], &[INLINED, SAME_NAME_A, SAME_NAME_B]).link();
    let with = |threads| encode(&image, &Options { threads: Some(threads), ..Options::default() }).unwrap();
    let ((one, census_of_one), (many, census_of_many)) = (with(1), with(4));
    assert_eq!(one.sites, many.sites);
    assert_eq!(one.prototypes, many.prototypes);
    assert_eq!(one.functions, many.functions);
    assert_eq!(one.types.to_bytes(), many.types.to_bytes());
    assert_eq!(census_of_one, census_of_many);
}

#[test]
fn asking_for_one_function_gives_its_sites() {
    let image = Build::gcc(&["-O2"], &[INLINED, SAME_NAME_A, SAME_NAME_B]).link();
    let all = encoded(&image).0;
    for name in ["target", "outer", "same"] {
        let options = Options { functions: Some(vec![name.to_owned()]), ..Options::default() };
        let one = encode(&image, &options).unwrap().0;
        let key = |set: &SiteSet| -> Vec<_> {
            let sites = sites_of(set, name).into_iter();
            sites.map(|site| (site.address, site.kind, arguments(set, site).to_vec())).collect()
        };
        assert_eq!(key(&one), key(&all));
        assert_eq!(one.sites.len(), key(&all).len(), "and no others");
    }
    let options = Options { functions: Some(vec!["absent".to_owned()]), ..Options::default() };
    assert!(encode(&image, &options).unwrap().0.sites.is_empty());
}

/// A function that the compiler changes: one parameter is always the same, one is never read.
const CLONED: &str = r#"
int sink;
static __attribute__((noinline)) int cloned(int value, int always, int never)
{
    TRUTH(value, 0);
    sink += value * always;
    return sink;
}
int first(int a) { return cloned(a, 42, a); }
int second(int a) { return cloned(a + 1, 42, 0); }
"#;

#[test]
fn clones_have_only_what_the_debug_information_says() {
    let image = Build::gcc(&["-O2", "-fipa-cp", "-fipa-sra"], &[CLONED]).link();
    let symbols = image::symbols(&image);
    let Some(symbol) = symbols.iter().find(|(name, _)| name.starts_with("cloned.") && !name.contains("cold")) else {
        // A compiler that changes it without saying so in the name is not what this test is about.
        assert!(symbols.iter().any(|(name, _)| name == "cloned"));
        return;
    };
    let (set, census) = encoded(&image);
    let sites = sites_of(&set, "cloned");
    assert_eq!(sites.len(), 1);
    let site = sites[0];
    assert_eq!((site.kind, site.address), (SiteKind::Clone, symbol.1));
    assert_eq!(set.containers[site.container as usize].name, symbol.0);
    assert!(site.marks.contains(Marks::SIGNATURE_CHANGED));
    let [value, always, never] = arguments(&set, site) else { panic!("three parameters, as the source has them") };
    assert_eq!(value.as_ref().map(|value| value.at.kind()), Ok(LocationKind::Register));
    if let Ok(always) = always {
        assert_eq!(always.at, Location::Constant(42));
    }
    assert!(never.is_err(), "where the calling convention would have had it, there is something else: {never:?}");
    assert_eq!((census.out_of_line.clones, census.out_of_line.signature_changed), (1, 1));
}

/// A function that GCC splits. GCC inlines its rest after each copy of the head.
const SPLIT: &str = r#"
struct object { long count; struct object *parent; long data[4]; };
extern __attribute__((noinline)) long opaque(long);
long opaque(long a) { __asm__ volatile("" ::: "memory"); return a; }
static void put(struct object *object)
{
    if (__builtin_expect(!object, 1))
        return;
    opaque(object->data[0]);
    opaque(object->data[1]);
    opaque(object->data[2]);
    opaque(object->data[3]);
}
void first(struct object *object) { opaque(1); put(object); opaque(2); }
void second(struct object *object) { opaque(3); put(object); opaque(4); }
void third(struct object *object) { opaque(5); put(object->parent); opaque(6); TRUTH(object, 0); }
"#;

// Proves S3.4.
#[test]
fn the_rest_of_a_split_function_is_no_site() {
    let (set, census) = encoded(&Build::gcc(&["-O2"], &[SPLIT]).link());
    let sites = sites_of(&set, "put");
    assert_eq!(sites.len(), 3, "one for each call");
    assert!(sites.iter().all(|site| site.parent.is_none()));
    let callers: Vec<&str> = sites.iter().map(|site| &set.containers[site.container as usize].name[..]).collect();
    assert!(["first", "second", "third"].iter().all(|caller| callers.contains(caller)), "{callers:?}");
    // All copies are counted; how many there are is the compiler's choice.
    assert_eq!(census.sites.total, 3 + census.sites.rests);
    assert_eq!(inline_sites(&set), census.sites.total - census.sites.rests);
}

/// Recursion that is inlined into itself, and two functions that one macro wrote.
const NESTED_ON_PURPOSE: &str = r#"
extern __attribute__((noinline)) long opaque(long);
long opaque(long a) { __asm__ volatile("" ::: "memory"); return a; }
long recurse(long *p, long n)
{
    if (!p || n <= 0)
        return 0;
    return opaque(n) + recurse(p + 1, n - 1) + recurse(p + 2, n - 2);
}
#define PAIR(name) \
    static inline __attribute__((always_inline)) long __do_##name(long v) { return opaque(v) + 1; } \
    static inline __attribute__((always_inline)) long name(long v) { return v > 3 ? __do_##name(v) : 0; }
PAIR(event)
long user(long v) { TRUTH(v, 0); return event(v); }
"#;

#[test]
fn copies_inside_copies_that_are_calls_are_kept() {
    let (set, census) = encoded(&Build::gcc(&["-O2"], &[NESTED_ON_PURPOSE]).link());
    assert_eq!(sites_of(&set, "event").len(), 1);
    assert_eq!(sites_of(&set, "__do_event").len(), 1);
    assert_eq!(census.sites.rests, 0);
    assert_eq!(inline_sites(&set), census.sites.total);
}

/// Two functions of one name, with different prototypes.
const SAME_NAME_A: &str = r#"
static __attribute__((noinline)) int same(int value, char *unused) { TRUTH(value, 0); return value; }
int (*same_a)(int, char *) = same;
"#;
const SAME_NAME_B: &str = r#"
static __attribute__((noinline)) long same(long value) { TRUTH(value, 0); return value; }
long (*same_b)(long) = same;
"#;

#[test]
fn functions_of_one_name_stay_apart() {
    let image = Build::gcc(&["-O2", "-fno-ipa-icf"], &[SAME_NAME_A, SAME_NAME_B]).link();
    let (set, _) = encoded(&image);
    let sites = sites_of(&set, "same");
    assert_eq!(sites.len(), 2, "each body is a site: its name does not tell");
    assert!(sites.iter().all(|site| site.kind == SiteKind::Body && !site.marks.contains(Marks::SIGNATURE_CHANGED)));
    assert_ne!(set.functions[sites[0].function as usize].func, set.functions[sites[1].function as usize].func);
    let count = |site: &Site| arguments(&set, site).len();
    assert_eq!((count(sites[0]), count(sites[1])), (2, 1));
    // The signature is the source's: each argument is where the calling convention has it, also the unused one.
    assert!(sites.iter().flat_map(|site| arguments(&set, site)).all(Result::is_ok));
}

// Proves S3.5.
#[test]
fn the_census_adds_up() {
    let image = Build::gcc(&["-O2"], &[INLINED, CLONED, SAME_NAME_A, SAME_NAME_B]).link();
    let (set, census) = encoded(&image);
    let (sites, arguments) = (&census.sites, &census.arguments);
    assert_eq!(sites.probeable + sites.unprobeable.values().sum::<u64>(), sites.total);
    assert_eq!(arguments.by_location.values().sum::<u64>(), arguments.located);
    assert_eq!(arguments.located + arguments.unavailable.values().sum::<u64>(), arguments.total);
    assert!(arguments.located_of_usable <= arguments.usable && arguments.usable <= arguments.total);
    assert_eq!(arguments.certain + arguments.doubtful.values().sum::<u64>(), arguments.located);
    assert!(sites.all_certain <= sites.all_arguments && sites.all_arguments <= sites.total);
    let computed: u64 = arguments.computed_shapes.iter().map(|(_, count)| count).sum();
    assert_eq!(computed, arguments.by_location.get(&LocationKind::Computed).copied().unwrap_or(0));
    let out_of_line = &census.out_of_line;
    assert_eq!(out_of_line.located + out_of_line.unavailable.values().sum::<u64>(), out_of_line.arguments);
    assert_eq!(sites.total + out_of_line.bodies + out_of_line.clones, set.sites.len() as u64);
    let text = census.to_string();
    assert!(text.contains(&format!("{}          inline sites", sites.total)), "{text}");
    assert!(!set.prototypes.iter().flat_map(|p| p.iter()).any(|a| *a == Err(Missing::Unknown)));
}

#[test]
fn images_that_lack_something_are_refused_with_the_reason() {
    let message = |image: &[u8]| match encode(image, &Options::default()) {
        Ok(_) => panic!("encoded"),
        Err(error) => error.to_string(),
    };
    assert_eq!(message(b"not an ELF file"), "not an ELF file");
    let without_dwarf = Build::gcc(&["-O2", "-g0"], &[INLINED]).link();
    assert!(message(&without_dwarf).contains(".debug_info"), "{}", message(&without_dwarf));
    let without_btf = Build::gcc(&["-O2"], &[INLINED]).without_btf().link();
    assert!(message(&without_btf).contains(".BTF"), "{}", message(&without_btf));
    let mut image = Build::gcc(&["-O2"], &[INLINED]).link();
    let debug_info = image::section(&image, ".debug_info");
    // The first unit's first abbreviation code: 12 bytes of header in DWARF 5.
    image[debug_info.start + 12] = 0x7f;
    let text = message(&image);
    assert!(text.contains(".debug_info") && text.contains("offset 0x0"), "{text}");
}

#[test]
fn damaged_images_never_panic() {
    let image = Build::gcc(&["-O2"], &[INLINED, CLONED, SAME_NAME_A]).link();
    let debug: Vec<_> = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_loclists",
        ".debug_rnglists",
        ".debug_line",
        ".debug_str",
        ".debug_frame",
        ".BTF",
        ".symtab",
        ".text",
    ]
    .iter()
    .map(|name| image::section(&image, name))
    .filter(|range| !range.is_empty())
    .collect();
    assert!(debug.len() >= 8);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    };
    let (mut refused, mut encoded) = (0, 0);
    for round in 0..1500 {
        let mut damaged = image.clone();
        match round % 3 {
            0 => {
                for _ in 0..=next(4) {
                    let range = &debug[next(debug.len())];
                    damaged[range.start + next(range.len())] ^= 1 << next(8);
                }
            }
            1 => {
                let range = &debug[next(debug.len())];
                let start = range.start + next(range.len());
                for byte in &mut damaged[start..range.end.min(start + 16)] {
                    *byte = next(256) as u8;
                }
            }
            _ => damaged.truncate(next(image.len())),
        }
        let options = Options { threads: Some(1), ..Options::default() };
        match encode(&damaged, &options) {
            Ok((set, census)) => {
                encoded += 1;
                assert_eq!(
                    census.arguments.located + census.arguments.unavailable.values().sum::<u64>(),
                    census.arguments.total
                );
                assert!(set.sites.iter().all(|site| (site.prototype as usize) < set.prototypes.len()));
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(refused > 100 && encoded > 100, "both outcomes are met: {refused} refused, {encoded} encoded");
}

/// A copy right after the call to ftrace that consumes its arguments at once: GCC gives their locations as zero-width
/// ones at the start of the function.
#[cfg(target_arch = "x86_64")]
#[test]
fn gcc_views_behind_the_call_to_ftrace() {
    let first = r#"
__asm__(".pushsection __mcount_loc,\"a\"\n.globl __start_mcount_loc\n__start_mcount_loc:\n.popsection\n"
        ".globl __fentry__\n__fentry__: ret");
static long half(int a, unsigned b) { return (long)a * 3 - b; }
__attribute__((noinline)) long half_here(long a, unsigned long b) { return half(a, b) + 1; }
long caller(long a, unsigned long b) { return half_here(a + 1, b) + half_here(a, b + 1); }
"#;
    let last =
        r#"__asm__(".pushsection __mcount_loc,\"a\"\n.globl __stop_mcount_loc\n__stop_mcount_loc:\n.popsection");"#;
    let build = Build::gcc(&["-O2", "-gdwarf-5", "-pg", "-mfentry", "-mrecord-mcount"], &[first, last]);
    let image = build.link();
    let (set, _) = encoded(&image);
    let [site] = sites_of(&set, "half")[..] else { panic!("one copy") };
    assert_eq!(site.address, set.containers[site.container as usize].address + 5, "after the call");
    let places: Vec<&Location> =
        arguments(&set, site).iter().map(|argument| &argument.as_ref().expect("it is there").at).collect();
    assert_eq!(places, [&Location::Register(5), &Location::Register(4)]);
}
