// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is encoded, by upstream's measure: the kernel's rules hold, and a reader that knows upstream's kinds alone
//! finds the same sites and the same values as siteseer's own, for all that these kinds can express. And bodies have
//! their arguments where the calling convention puts them.
//!
//! The images are the vmlinux files that the environment variables SITESEER_TEST_VMLINUX and
//! SITESEER_TEST_VMLINUX_ARM64 name. A module is compiled here.

mod module;
mod reader;

use reader::{Reader, State};
use siteseer_encoder::{Options, encode};
use siteseer_sites::btf::{Btf, loc, rules};
use siteseer_sites::evaluate::evaluate;
use siteseer_sites::file::{self, SiteFile, SiteRef};
use siteseer_sites::location::Located;
use siteseer_sites::{Argument, Location, Machine, Marks, SiteKind, SiteSet};
use std::collections::HashMap;
use std::fs;

/// How far the image is displaced.
const DISPLACEMENT: u64 = 0x1234_5000;

/// A register holds a number that has bits everywhere.
fn register(number: u32) -> u64 {
    u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn byte(address: u64) -> u8 {
    (address.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u8
}

/// An argument's value by siteseer's reference.
fn value(argument: &Argument) -> Option<Vec<u64>> {
    let located = argument.as_ref().ok()?;
    let mut memory = |address: u64, buffer: &mut [u8]| {
        (address..).zip(buffer).for_each(|(address, place)| *place = byte(address));
        true
    };
    evaluate(located, &|number| register(u32::from(number)), &mut memory, DISPLACEMENT)
}

/// What was compared.
#[derive(Debug, Default)]
struct Counts {
    /// Bytes of `.BTF.inline`.
    bytes: usize,
    sites: usize,
    arguments: usize,
    located: usize,
    only_ours: usize,
}

/// Compares the sites of an image, or of a module over a kernel's types.
fn compare(set: &SiteSet, kernel: Option<&[u8]>) -> Counts {
    let (inline, whole) = (file::write_raw(set).unwrap(), file::write(set).unwrap());
    let kernel_btf = kernel.map(|kernel| Btf::parse(kernel).unwrap());
    let base = match &kernel_btf {
        Some(kernel) => Btf::parse_split(&set.base_btf, kernel).unwrap(),
        None => Btf::parse(&set.base_btf).unwrap(),
    };
    assert_eq!(rules::check(&inline, Some(&base)).unwrap(), []);
    let plain = match kernel {
        Some(kernel) => Reader::new(&[kernel, &set.base_btf, &inline]),
        None => Reader::new(&[&set.base_btf, &inline]),
    };
    let ours = match &kernel_btf {
        Some(kernel) => SiteFile::parse_module(&whole, kernel).unwrap(),
        None => SiteFile::parse(&whole).unwrap(),
    };
    let state = State { register: &register, byte: &byte, base: set.base.wrapping_add(DISPLACEMENT) };
    let mut counts = Counts { bytes: inline.len(), ..Counts::default() };
    let sites = plain.sites();
    assert_eq!(sites.len(), ours.site_count() as usize);
    assert_eq!(sites.len(), set.sites.len());
    for (theirs, ours) in sites.iter().zip(ours.sites()) {
        let ours = ours.unwrap();
        same_place(theirs, &ours, &plain);
        let (theirs, ours) = (plain.values(theirs, &state), ours.arguments().unwrap());
        assert_eq!(theirs.len(), ours.len());
        counts.sites += 1;
        for (theirs, ours) in theirs.into_iter().zip(&ours) {
            counts.arguments += 1;
            match theirs {
                Some(theirs) => {
                    assert_eq!(Some(theirs), value(ours), "{ours:?}");
                    counts.located += 1;
                }
                None => {
                    // What a module's address constants are relative to at run time cannot be written.
                    let sayable = |located: &&Located| {
                        let is_loose = kernel.is_some() && matches!(located.at, Location::Address(_));
                        loc::to_upstream(located, set.base).is_some() && located.is_certain() && !is_loose
                    };
                    assert_eq!(ours.as_ref().ok().filter(sayable), None, "it could have been said");
                    counts.only_ours += usize::from(ours.is_ok());
                }
            }
        }
    }
    eprintln!("{counts:?}, LOC_PARAMs {:x?}", plain.shapes());
    counts
}

fn same_place(theirs: &reader::Site, ours: &SiteRef<'_, '_>, plain: &Reader<'_>) {
    let section = theirs.locsec.strip_prefix("inline").expect("the name of a LOCSEC");
    assert_eq!((section, theirs.offset), (ours.section().name, ours.section_offset()));
    assert_eq!((theirs.func, plain.func_name(theirs.func).as_str()), (ours.func(), ours.function_name()));
}

/// That an argument is signed as its type is: sites in upstream's kinds come back so.
fn check_signs(set: &SiteSet) {
    let whole = file::write(set).unwrap();
    let ours = SiteFile::parse(&whole).unwrap();
    let mut by_place: HashMap<(u32, u64, String), usize> = HashMap::new();
    let text = |arguments: &[Argument]| {
        let one = |argument: &Argument| argument.as_ref().map(|located| (located.size, located.signed)).ok();
        format!("{:?}", arguments.iter().map(one).collect::<Vec<_>>())
    };
    for site in &set.sites {
        let func = set.functions[site.function as usize].func;
        *by_place.entry((func, site.address, text(&set.prototypes[site.prototype as usize]))).or_default() += 1;
    }
    for site in ours.sites() {
        let site = site.unwrap();
        let key = (site.func(), site.address(), text(&site.arguments().unwrap()));
        let left = by_place.get_mut(&key).unwrap_or_else(|| panic!("{} {key:?}", site.function_name()));
        *left = left.checked_sub(1).unwrap();
    }
}

/// Where the calling convention puts the nth argument, if each takes one register or one word of the stack. Written out
/// once more: the encoder has its own.
fn by_convention(machine: Machine, nth: usize) -> Location {
    let registers: &[u16] = match machine {
        Machine::X86_64 => &[5, 4, 1, 2, 8, 9],
        Machine::Aarch64 => &[0, 1, 2, 3, 4, 5, 6, 7],
    };
    // Above the return address on x86-64.
    let first = if machine == Machine::X86_64 { 8 } else { 0 };
    let on_stack = |beyond: usize| Location::Memory(machine.stack_pointer(), first + 8 * beyond as i32);
    registers.get(nth).map_or_else(|| on_stack(nth - registers.len()), |register| Location::Register(*register))
}

/// A body with the source's signature has its arguments where the calling convention puts them, whatever the debug
/// information says of homes in the frame and of registers that the prologue moved them to. Parameters after one of
/// more than 8 bytes are not looked at.
fn check_bodies(set: &SiteSet) {
    let inline = file::write_raw(set).unwrap();
    let base = Btf::parse(&set.base_btf).unwrap();
    let btf = Btf::parse_split(&inline, &base).unwrap();
    let size = |ty: Option<u32>| ty.and_then(|ty| btf.size_of(ty));
    let mut compared = 0;
    for site in &set.sites {
        if site.kind != SiteKind::Body || site.marks.contains(Marks::SIGNATURE_CHANGED) {
            continue;
        }
        let function = &set.functions[site.function as usize];
        let prototype = btf.ty(function.func).and_then(|func| btf.ty(func.target()?)).unwrap();
        if size(prototype.target()).is_some_and(|size| size > 16) {
            continue;
        }
        let arguments = &set.prototypes[site.prototype as usize];
        // A variadic one has a parameter more.
        assert!(arguments.len() <= prototype.params().len(), "{}", function.name);
        let parameters =
            prototype.params().zip(arguments).take_while(|(param, _)| matches!(size(Some(param.ty)), Some(1..=8)));
        for (nth, (_, argument)) in parameters.enumerate() {
            let Ok(located) = argument else { continue };
            assert_eq!(located.at, by_convention(set.machine, nth), "{}, argument {nth}", function.name);
            compared += 1;
        }
    }
    eprintln!("{compared} arguments of bodies are where the calling convention puts them");
    assert!(compared > 1000);
}

/// What `.BTF.inline` may have in bytes for each site: 5% above the 20.5 that the format was measured with. A size is
/// not a time: it is the same on every machine.
const MOST_A_SITE: f64 = 21.5;

fn whole_kernel(variable: &str) {
    let Some(path) = std::env::var_os(variable) else {
        eprintln!("{variable} does not name a vmlinux: nothing is tested here");
        return;
    };
    let image = fs::read(path).expect(variable);
    let (set, _) = encode(&image, &Options::default()).unwrap();
    drop(image);
    check_signs(&set);
    check_bodies(&set);
    let counts = compare(&set, None);
    assert!(counts.sites > 100_000 && counts.located > 100_000, "{counts:?}");
    let a_site = counts.bytes as f64 / counts.sites as f64;
    assert!(a_site <= MOST_A_SITE, "{a_site:.2} bytes a site");
}

#[test]
fn a_whole_kernel() {
    whole_kernel("SITESEER_TEST_VMLINUX");
}

#[test]
fn a_whole_kernel_for_arm64() {
    whole_kernel("SITESEER_TEST_VMLINUX_ARM64");
}
