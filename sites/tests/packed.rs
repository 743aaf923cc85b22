// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Packed site files: what was packed comes out byte for byte, and is in columns; anything may be in the bytes.

mod common;

use common::{base_btf, ranges, site_set};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use siteseer_sites::CodeSum;
use siteseer_sites::file::packed::{UnpackError, is_packed, pack, parts, unpack};
use siteseer_sites::file::{self, Optional, SiteFile};

const LIMIT: usize = 64 << 20;

/// Bytes that are packed as they are: in the columns that have no part of their own.
fn plain(packed: &[u8]) -> usize {
    parts(packed).unwrap().iter().find(|(name, _)| *name == "rest").map_or(0, |(_, part)| part.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_packed_comes_out(sets in prop::collection::vec(site_set(), 1..4), ranges in ranges()) {
        let mut files: Vec<Vec<u8>> = sets.iter().map(|set| file::write(set).unwrap()).collect();
        let mut whole = Vec::new();
        if file::write_with(&sets[0], &Optional { ranges: Some(&ranges), ..Optional::default() }, &mut whole).is_ok() {
            files.push(whole);
        }
        let code = vec![CodeSum::of(&[0x55, 0x48], 0..2); sets[0].sites.len()];
        let mut with_code = Vec::new();
        file::write_with(&sets[0], &Optional { code: Some(&code), ..Optional::default() }, &mut with_code).unwrap();
        let of_code = with_code.len() - files[0].len();
        files.push(with_code);
        let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        let (btf, _) = base_btf();
        for beside in [None, Some(&btf[..])] {
            let packed = pack(&slices, beside);
            prop_assert!(is_packed(&packed));
            prop_assert_eq!(&unpack(&packed, beside, LIMIT).unwrap(), &files);
            // Only what is optional is plain.
            let of_ranges = files[sets.len()].len() - files[0].len();
            prop_assert!(plain(&packed) < 1000 * sets.len() + of_ranges + of_code, "{} bytes are not in columns", plain(&packed));
            // What was left out is missed.
            let other = pack(&[&btf], None);
            let without = unpack(&packed, None, LIMIT);
            prop_assert_eq!(without.is_err(), beside.is_some());
            prop_assert_eq!(unpack(&other, None, LIMIT).unwrap(), [btf.clone()]);
        }
    }

    #[test]
    fn anything_is_packed(files: Vec<Vec<u8>>, btf: Option<Vec<u8>>) {
        let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        let packed = pack(&slices, btf.as_deref());
        prop_assert_eq!(unpack(&packed, btf.as_deref(), LIMIT).unwrap(), files);
    }

    #[test]
    fn damage_is_found(set in site_set(), at: prop::sample::Index, bit in 0..8u8, cut: prop::sample::Index) {
        let data = file::write(&set).unwrap();
        let (btf, _) = base_btf();
        let mut packed = pack(&[&data], Some(&btf));
        let len = cut.index(packed.len());
        prop_assert!(unpack(&packed[..len], Some(&btf), LIMIT).is_err());
        let at = at.index(packed.len());
        packed[at] ^= 1 << bit;
        // A number can be written in several ways: then the file is the same.
        if let Ok(files) = unpack(&packed, Some(&btf), LIMIT) {
            prop_assert_eq!(files, [data]);
        }
    }

    #[test]
    fn several_damages_are_no_panic(set in site_set(), damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let (btf, _) = base_btf();
        let mut packed = pack(&[&file::write(&set).unwrap()], None);
        for (at, byte) in damages {
            let at = at.index(packed.len());
            packed[at] = byte;
        }
        let _ = unpack(&packed, Some(&btf), LIMIT);
        let _ = parts(&packed);
    }
}

fn some_file() -> Vec<u8> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    file::write(&site_set().new_tree(&mut runner).unwrap().current()).unwrap()
}

#[test]
fn what_comes_out_is_bounded() {
    let data = some_file();
    let packed = pack(&[&data], None);
    assert_eq!(unpack(&packed, None, data.len() / 2), Err(UnpackError::TooLarge(data.len() / 2)));
    // A header that promises a gigabyte of types.
    let (mut btf, _) = base_btf();
    btf[12..16].copy_from_slice(&(1u32 << 30).to_le_bytes());
    assert_eq!(unpack(&pack(&[&btf], None), None, LIMIT).unwrap(), [btf]);
}

#[test]
fn other_versions_and_other_types_are_refused() {
    let data = some_file();
    let (btf, _) = base_btf();
    let mut packed = pack(&[&data], Some(&btf));
    assert!(SiteFile::parse(&packed).is_err());
    let mut other = btf.clone();
    // A string of another letter: nothing that is made again contradicts it, and the sum tells.
    *other.iter_mut().rfind(|byte| byte.is_ascii_lowercase()).unwrap() ^= 1;
    assert_eq!(unpack(&packed, Some(&other), LIMIT), Err(UnpackError::Malformed));
    packed[8] = 9;
    assert_eq!(unpack(&packed, Some(&btf), LIMIT), Err(UnpackError::Version(9)));
    assert_eq!(unpack(b"hello", None, LIMIT), Err(UnpackError::Magic));
}

/// BTF that is longer or shorter than its header says has no columns, and comes out all the same.
#[test]
fn btf_that_does_not_end_where_it_says() {
    let (btf, _) = base_btf();
    for odd in [[&btf[..], b"more"].concat(), btf[..btf.len() - 1].to_vec()] {
        let packed = pack(&[&odd, &btf], None);
        assert_eq!(unpack(&packed, None, LIMIT), Ok(vec![odd, btf.clone()]));
    }
}
