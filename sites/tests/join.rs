// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site file that is put together from its sections is the file that they were taken from. Sections that do not
//! belong together are refused.

mod common;

use common::site_set;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use proptest::prelude::*;
use siteseer_sites::file::{self, FileError};

/// The sections that `join` is given.
fn sections(data: &[u8]) -> [Vec<u8>; 3] {
    let elf = ElfFile64::<LittleEndian>::parse(data).unwrap();
    let section = |name: &str| elf.section_by_name(name).unwrap().data().unwrap().to_vec();
    [section(".BTF"), section(".BTF.inline"), section(".BTF.inline.ext")]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sections_make_their_file(
        set in site_set(),
        part in 0usize..3,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let whole = file::write(&set).unwrap();
        let mut parts = sections(&whole);
        let join = |id: &[u8], [btf, inline, ext]: &[Vec<u8>; 3]| file::join(id, btf, inline, ext);
        prop_assert_eq!(join(&set.build_id, &parts).unwrap(), whole);
        // Another build's.
        let other = join(&[&set.build_id[..], &[1]].concat(), &parts);
        prop_assert!(matches!(other, Err(FileError::Apart)), "{other:?}");
        // A bit is wrong anywhere, or the end is missing.
        let at = at.index(parts[part].len());
        parts[part][at] ^= 1 << bit;
        prop_assert!(join(&set.build_id, &parts).is_err(), "part {part}, byte {at}");
        parts[part][at] ^= 1 << bit;
        parts[part].truncate(at);
        prop_assert!(join(&set.build_id, &parts).is_err(), "part {part}, cut at {at}");
    }

    #[test]
    fn anything(parts in any::<[Vec<u8>; 3]>(), set in site_set()) {
        let [btf, inline, ext] = &parts;
        prop_assert!(file::join(&[1], btf, inline, ext).is_err());
        let [_, _, real] = sections(&file::write(&set).unwrap());
        prop_assert!(file::join(&set.build_id, btf, inline, &real).is_err());
    }
}
