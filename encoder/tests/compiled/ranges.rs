// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which copy each instruction belongs to, against what addr2line or llvm-symbolizer make of the same debug
//! information: every address of small images.

use crate::image::{self, Build};
use crate::{CLONED, INLINED, NESTED, SPLIT};
use object::{Object, ObjectSection, SectionKind};
use siteseer_encoder::{Detail, Encoded, Options, encode_all};
use siteseer_sites::file::{self, SiteFile};
use std::process::Command;

/// A function with its unlikely part elsewhere, with copies in both parts, and copies in copies.
const COLD: &str = r#"
extern __attribute__((noinline, cold)) void report(long);
void report(long a) { __asm__ volatile("" :: "r"(a) : "memory"); }
static volatile long seen;
static inline long twice(long v) { seen = v; return v * 2; }
static inline long checked(long v)
{
    if (__builtin_expect(v < 0, 0)) {
        report(twice(v) + seen);
        report(v);
    }
    return twice(v + seen);
}
long hot(long a, long b) { return checked(a) + checked(b) * seen; }
"#;

/// A chain: functions, each with its line; 0 if it is not known.
type Chain = Vec<(String, u32)>;

fn site_file(image: &[u8], ranges: Detail) -> Vec<u8> {
    let encoded = encode_all(image, &Options { ranges, ..Options::default() }).expect("the image is encoded");
    let mut bytes = Vec::new();
    file::write_with(&encoded.set, &encoded.optional(), &mut bytes).expect("the sites are written");
    bytes
}

/// The chains of all addresses, innermost functions first.
fn ours(bytes: &[u8], addresses: &[u64]) -> Vec<Chain> {
    let file = SiteFile::parse(bytes).expect("a site file");
    let chains = file.chains().expect("whole").expect("the section is there");
    let index = chains.index().expect("whole");
    let one = |&address: &u64| -> Chain {
        let chain = chains.at(address).expect("whole").map_or(Vec::new(), |chain| chain.frames);
        let chain: Chain = chain.iter().map(|f| (f.function.to_owned(), f.line.map_or(0, |line| line.line))).collect();
        let indexed = index.at(address).into_iter().flatten();
        let indexed: Chain = indexed.map(|f| (f.function.to_owned(), f.line.map_or(0, |line| line.line))).collect();
        assert_eq!(chain, indexed, "{address:#x}: a search, and the index of all");
        chain
    };
    addresses.iter().map(one).collect()
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    /// Knows what GCC writes. Version 2.40 does not find clang's copies with ranges that are numbers of lists (DWARF
    /// 5).
    Addr2line,
    Llvm,
}

fn theirs(tool: Tool, image: &[u8], addresses: &[u64]) -> Vec<Chain> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    std::fs::write(&path, image).expect("the image is written");
    let words = addresses.iter().map(|address| format!("{address:#x}"));
    let mut command = match tool {
        Tool::Addr2line => Command::new("addr2line"),
        Tool::Llvm => Command::new(LLVM),
    };
    match tool {
        Tool::Addr2line => command.args(["-a", "-i", "-f", "-e"]),
        Tool::Llvm => command.args(["--addresses", "--inlines", "--functions=short", "--output-style=GNU", "--obj"]),
    };
    let output = command.arg(&path).args(words).output().expect("addr2line (package binutils)");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let mut chains: Vec<Chain> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            chains.push(Vec::new());
            continue;
        }
        let place = lines.next().expect("a place after each function").split(" (").next().unwrap_or_default();
        let number = place.rsplit(':').next().and_then(|line| line.parse().ok()).unwrap_or(0);
        chains.last_mut().expect("after an address").push((line.to_owned(), number));
    }
    assert_eq!(chains.len(), addresses.len());
    chains
}

/// Every address of the image's functions.
fn text(image: &[u8]) -> Vec<u64> {
    let elf = object::File::parse(image).expect("an ELF file");
    let sections = elf.sections().filter(|section| section.kind() == SectionKind::Text);
    sections.flat_map(|section| section.address()..section.address() + section.size()).collect()
}

const LLVM: &str = "llvm-symbolizer";

fn check(build: &Build, tool: Tool) {
    let image = build.link();
    let addresses = text(&image);
    let lines = ours(&site_file(&image, Detail::Lines), &addresses);
    let without = ours(&site_file(&image, Detail::Copies), &addresses);
    let (mut compared, mut deepest) = (0, 0);
    for (address, ((ours, without), theirs)) in
        addresses.iter().zip(lines.iter().zip(&without).zip(theirs(tool, &image, &addresses)))
    {
        if ours.is_empty() {
            // Padding: addr2line names the symbol before it.
            assert!(tool == Tool::Addr2line || theirs[0].0 == "??", "{address:#x}: {theirs:?}");
            assert_eq!(theirs.len(), 1, "{address:#x}: {theirs:?}");
            continue;
        }
        assert_eq!(*ours, theirs, "{address:#x}");
        assert_eq!((without[0].0.as_str(), without[0].1), (theirs[0].0.as_str(), 0), "{address:#x}: without lines");
        assert_eq!(without[1..], theirs[1..], "{address:#x}: calls are known without lines");
        compared += 1;
        deepest = deepest.max(ours.len());
    }
    assert!(compared > 100 && deepest > 1, "{compared} addresses, {deepest} functions deep");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_address_is_in_the_chain_that_addr2line_finds() {
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        for level in ["-O1", "-O2", "-O3", "-Os"] {
            check(&Build::gcc(&[level, version], &[INLINED, COLD]), Tool::Addr2line);
        }
        check(&Build::gcc(&["-O2", version], &[NESTED, SPLIT]), Tool::Addr2line);
    }
    check(&Build::gcc(&["-O2", "-ffunction-sections"], &[CLONED, COLD, NESTED]), Tool::Addr2line);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn so_it_is_of_clang() {
    let Some(clang) = image::clang() else {
        eprintln!("no clang on this machine: nothing was checked");
        return;
    };
    if Command::new(LLVM).arg("--version").output().is_err() {
        eprintln!("no {LLVM} on this machine: nothing was checked");
        return;
    }
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        check(&Build::with(&clang, &["-O2", version], &[INLINED, COLD]), Tool::Llvm);
    }
}

#[test]
fn the_sites_are_the_same_with_and_without() {
    let image = Build::gcc(&["-O2"], &[INLINED, COLD]).link();
    let plain = siteseer_encoder::encode(&image, &Options::default()).unwrap();
    for ranges in [Detail::Copies, Detail::Lines] {
        let options = Options { ranges, threads: Some(3), ..Options::default() };
        let Encoded { set, census, ranges, .. } = encode_all(&image, &options).unwrap();
        assert_eq!((&set.sites, &set.files, &census), (&plain.0.sites, &plain.0.files, &plain.1));
        let again = encode_all(&image, &Options { threads: Some(1), ..options }).unwrap();
        assert_eq!(again.ranges, ranges, "whatever the number of threads");
        assert!(ranges.is_some_and(|ranges| !ranges.copies.is_empty()));
        let functions = Some(vec!["target".to_owned()]);
        let part = encode_all(&image, &Options { functions, ..options_of(Detail::Lines) }).unwrap();
        assert!(part.ranges.is_none(), "of some functions alone it is not known");
    }
}

fn options_of(ranges: Detail) -> Options<'static> {
    Options { ranges, ..Options::default() }
}
