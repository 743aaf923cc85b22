// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Truncated, altered and random input: errors, not panics, and no more memory than the input is worth.

mod common;

use common::reseal::reseal;
use common::{base_btf, exercise, rename, site_set};
use object::{LittleEndian, elf};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use siteseer_sites::btf::{self, Btf, BtfError, Kind};
use siteseer_sites::file::{self, FileError, Image, SiteFile};
use siteseer_sites::{Machine, SiteSet};
use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the largest single allocation: a length that is believed shows there.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Far more than the tests' inputs are worth, far less than any length that they can claim.
const MOST: usize = 8 << 20;

fn check_memory() {
    assert!(LARGEST.load(Ordering::Relaxed) < MOST, "one allocation of {LARGEST:?} bytes");
}

fn read(data: &[u8]) -> Result<usize, FileError> {
    let result = SiteFile::parse(data).and_then(|file| exercise::exercise_file(&file));
    check_memory();
    result
}

fn read_inline(set: &SiteSet, inline: &[u8]) -> Result<usize, FileError> {
    let base = Btf::parse(&set.base_btf).unwrap();
    let image =
        Image { machine: Machine::X86_64, build_id: vec![], base_address: Some(0), sections: set.sections.clone() };
    let result = SiteFile::from_inline(inline, &base, image).and_then(|file| exercise::exercise_file(&file));
    check_memory();
    result
}

fn read_btf(data: &[u8]) -> Result<usize, BtfError> {
    let (base, _) = base_btf();
    let base = Btf::parse(&base).unwrap();
    let alone = Btf::parse(data).map(|btf| exercise::exercise_btf(&btf));
    let split = Btf::parse_split(data, &base).map(|btf| exercise::exercise_btf(&btf));
    check_memory();
    alone.or(split)
}

/// All that a file says about a name, as text.
fn answer(data: &[u8], name: &str) -> Result<String, FileError> {
    let file = SiteFile::parse(data)?;
    let mut text = format!("{:?} {:x?} {:#x}", file.machine(), file.build_id(), file.base_address());
    for function in file.functions(name)? {
        let prototype = function.prototype()?;
        text += &format!("\n{name} {:?} {:?}", function.func(), prototype);
        text += &btf::declaration(file.btf(), function.func(), name);
        for site in function.sites() {
            let site = site?;
            text += &format!("\n{} {:#x} {} {:?}", site.index(), site.address(), site.moved(), site.kind());
            text += &format!("{:?} {:?} {:?}", site.container(), site.source(), site.declared()?);
            text += &format!("{:?} {:?} {:?}", site.parent(), site.marks(), site.unprobeable());
            text += &format!("{:?}", site.arguments()?);
        }
    }
    text += &format!("\n{:?}", file.containers_of(name)?);
    for id in file.base_functions(name)? {
        text += &btf::declaration(file.btf(), id, name);
    }
    // The declarations came without a result.
    file.whole()?;
    Ok(text)
}

/// Numbers that tend to go wrong.
fn nasty() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(vec![
            0,
            1,
            2,
            3,
            255,
            256,
            0x00ff_ffff,
            0x0100_0000,
            i32::MAX as u32,
            1 << 31,
            u32::MAX - 3,
            u32::MAX
        ]),
        any::<u32>(),
        0u32..10_000,
    ]
}

#[derive(Debug, Clone)]
enum Damage {
    Bit(usize, u8),
    Word(usize, u32),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        (any::<usize>(), 0u8..8).prop_map(|(at, bit)| Damage::Bit(at, bit)),
        (any::<usize>(), nasty()).prop_map(|(at, word)| Damage::Word(at, word)),
    ];
    prop::collection::vec(one, 1..6)
}

fn apply(data: &mut [u8], damage: &[Damage]) {
    for damage in damage {
        match *damage {
            Damage::Bit(at, bit) => {
                let at = at % data.len();
                data[at] ^= 1 << bit;
            }
            Damage::Word(at, word) => {
                let at = at % (data.len() / 4) * 4;
                data[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn altered_site_files(set in site_set(), damage in damage()) {
        let whole = file::write(&set).unwrap();
        let mut data = whole.clone();
        apply(&mut data, &damage);
        let mut names: Vec<&str> = set.functions.iter().map(|function| function.name.as_str()).collect();
        names.extend(set.containers.iter().map(|container| container.name.as_str()));
        names.push("nothing");
        for name in names {
            if let Ok(answer) = answer(&data, name) {
                prop_assert_eq!(answer, self::answer(&whole, name).unwrap());
            }
        }
        let _ = read(&data);
    }

    #[test]
    fn altered_site_files_with_right_checksums(set in site_set(), damage in damage()) {
        let mut data = file::write(&set).unwrap();
        let before = data.clone();
        reseal(&mut data);
        prop_assert_eq!(&data, &before, "what is written has right checksums");
        apply(&mut data, &damage);
        reseal(&mut data);
        let _ = read(&data);
    }

    #[test]
    fn altered_headers(set in site_set(), damage in damage(), nth in 0usize..3) {
        // The first bytes of each section decide most.
        let mut data = file::write(&set).unwrap();
        let magics = [[0x9f, 0xeb, 1, 0], [0x53, 0x53, 2, 0]];
        let starts: Vec<usize> =
            data.windows(4).enumerate().filter(|(_, w)| magics.iter().any(|m| m == w)).map(|(at, _)| at).collect();
        let start = starts[nth % starts.len()];
        let end = (start + 160).min(data.len());
        apply(&mut data[start..end], &damage);
        reseal(&mut data);
        let _ = read(&data);
    }

    #[test]
    fn truncated_site_files(set in site_set(), cut in any::<prop::sample::Index>()) {
        let data = file::write(&set).unwrap();
        // The section headers come last: a file that lacks any byte cannot be opened.
        prop_assert!(read(&data[..cut.index(data.len())]).is_err());
    }

    #[test]
    fn altered_split_btf(set in site_set(), damage in damage()) {
        let mut data = file::write_raw(&set).unwrap();
        apply(&mut data, &damage);
        let _ = read_inline(&set, &data);
        let _ = read_btf(&data);
    }

    #[test]
    fn truncated_split_btf(set in site_set(), cut in any::<prop::sample::Index>()) {
        let data = file::write_raw(&set).unwrap();
        prop_assert!(read_inline(&set, &data[..cut.index(data.len())]).is_err());
    }

    #[test]
    fn random_types(types in prop::collection::vec(nasty(), 0..80), kinds in prop::collection::vec(1u8..25, 8)) {
        // A true header, then types of true kinds with random numbers.
        let mut words = types;
        for (nth, kind) in kinds.iter().enumerate() {
            if let Some(info) = words.get_mut(nth * 7 + 1) {
                *info = u32::from(*kind) << 24 | (*info & 0x8000_0007);
            }
        }
        let mut data = vec![0x9f, 0xeb, 1, 0];
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for word in [24, 0, types.len() as u32, types.len() as u32, 6] {
            data.extend_from_slice(&word.to_le_bytes());
        }
        data.extend_from_slice(&types);
        data.extend_from_slice(b"\0a\0bc\0");
        let _ = read_btf(&data);
    }

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&data).is_err());
        let _ = read_btf(&data);
        let with_magic = [&[0x9f, 0xeb, 1, 0][..], &data].concat();
        let _ = read_btf(&with_magic);
    }
}

/// Without its companion section, and with text, the file would be like a debug vmlinux that has sites in upstream's
/// kinds, at other addresses.
#[test]
fn companion_section_without_its_name() {
    let set = site_set().new_tree(&mut TestRunner::deterministic()).unwrap().current();
    let mut data = file::write(&set).unwrap();
    rename::rename_section(&mut data, ".BTF.inline.ext");
    assert!(matches!(SiteFile::parse(&data), Err(FileError::NoSection(".BTF.inline.ext"))), "no executable section");
    let headers = u64::from_le_bytes(data[40..48].try_into().unwrap()) as usize;
    let flags = headers
        + size_of::<elf::SectionHeader64<LittleEndian>>()
        + offset_of!(elf::SectionHeader64<LittleEndian>, sh_flags);
    data[flags] |= elf::SHF_EXECINSTR.0 as u8;
    assert!(matches!(SiteFile::parse(&data), Err(FileError::NoSection(".BTF.inline.ext"))), "an executable section");
}

#[test]
fn every_error_says_what() {
    let (base, _) = base_btf();
    let header = |words: [u32; 5]| {
        let mut data = vec![0x9f, 0xeb, 1, 0];
        words.iter().for_each(|word| data.extend_from_slice(&word.to_le_bytes()));
        data
    };
    let text = |data: &[u8]| Btf::parse(data).unwrap_err().to_string();
    assert_eq!(text(&base[..10]), "BTF header is truncated: 10 bytes");
    assert_eq!(text(&[0x7f; 30]), "not BTF: magic 0x7f7f, expected 0xeb9f");
    let swapped = [&[0xeb, 0x9f][..], &[0; 30]].concat();
    assert_eq!(text(&swapped), "not BTF: magic 0x9feb, expected 0xeb9f (big-endian BTF is not supported)");
    assert_eq!(
        text(&header([24, 0, u32::MAX, 0, 1])),
        "BTF type section at 0x0, 0xffffffff bytes, reaches past the end of the data (0x0 bytes after the header)"
    );
    assert_eq!(
        text(&header([24, 0, 0, 0, 0])),
        "BTF string section is malformed: it does not begin with the empty string"
    );
    let mut unknown = header([24, 0, 12, 12, 1]);
    unknown.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0]);
    assert_eq!(text(&unknown), "BTF type 1 at 0x0 has unknown kind 99, and the file has no layout for it");
    assert_eq!(Btf::parse(&unknown).unwrap_err(), BtfError::UnknownKind { id: 1, kind: 99, offset: 0 });
    let mut long = header([24, 0, 12, 12, 1]);
    long.extend_from_slice(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0]);
    assert_eq!(Btf::parse(&long).unwrap_err(), BtfError::TruncatedType { id: 1, kind: Kind::Struct, offset: 0 });
    assert!(matches!(SiteFile::parse(&base), Err(FileError::Elf(_))));
}
