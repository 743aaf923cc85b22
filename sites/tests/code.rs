// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sums of the code at sites come out of a file as they went in, and damage to them is an error.

mod common;

use common::{exercise, rename, reseal, site_set};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use proptest::prelude::*;
use siteseer_sites::file::{self, FileError, Optional, SiteFile};
use siteseer_sites::{CodeSum, SiteSet};
use std::ops::Range;

/// A sum that tells by the address which site it is of.
fn sum_at(address: u64) -> CodeSum {
    CodeSum::of(&address.to_le_bytes(), 0..8)
}

fn written(set: &SiteSet) -> Vec<u8> {
    let code: Vec<CodeSum> = set.sites.iter().map(|site| sum_at(site.address)).collect();
    let mut bytes = Vec::new();
    file::write_with(set, &Optional { code: Some(&code), ..Optional::default() }, &mut bytes).unwrap();
    bytes
}

/// Where the section is in a file.
fn section(data: &[u8]) -> Range<usize> {
    let elf = ElfFile64::<LittleEndian>::parse(data).unwrap();
    let (offset, len) = elf.section_by_name(".BTF.inline.code").unwrap().file_range().unwrap();
    offset as usize..(offset + len) as usize
}

/// What reading all sums of an altered file is refused with.
fn refused(data: &[u8]) -> String {
    let file = SiteFile::parse(data).expect("the rest of the file can be used");
    let read = || -> Result<(), FileError> {
        let code = file.code()?.expect("the section is there");
        (0..file.site_count()).try_for_each(|site| code.of(site).map(drop))
    };
    read().expect_err("it was altered").to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_site_has_its_own(set in site_set(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut data = written(&set);
        let file = SiteFile::parse(&data).unwrap();
        let code = file.code().unwrap().unwrap();
        for index in 0..file.site_count() {
            let site = file.site(index).unwrap();
            prop_assert_eq!(code.of(index).unwrap(), sum_at(site.address()), "site {}", index);
        }
        prop_assert_eq!(code.of(file.site_count()).unwrap(), CodeSum::NONE);
        prop_assert!(SiteFile::parse(&file::write(&set).unwrap()).unwrap().code().unwrap().is_none());
        // A bit is wrong anywhere: the flags in the header are under the checksum, too.
        let section = section(&data);
        let before = data.clone();
        reseal::reseal(&mut data);
        prop_assert_eq!(&data, &before, "what is written has right checksums");
        data[section.start + at.index(section.len())] ^= 1 << bit;
        refused(&data);
        // With right checksums it is read as it is, or refused.
        reseal::reseal(&mut data);
        let _ = exercise::exercise_file(&SiteFile::parse(&data).unwrap());
    }

    #[test]
    fn without_its_name(set in site_set()) {
        let mut data = written(&set);
        rename::rename_section(&mut data, ".BTF.inline.code");
        let error = SiteFile::parse(&data).expect_err("the code at sites would not be compared");
        prop_assert!(matches!(error, FileError::NoSection(".BTF.inline.code")), "{}", error);
    }

    #[test]
    fn as_many_as_sites(set in site_set()) {
        let code = vec![CodeSum::NONE; set.sites.len() + 1];
        let optional = Optional { code: Some(&code), ..Optional::default() };
        let error = file::write_with(&set, &optional, &mut Vec::new()).expect_err("one too many");
        let expected = format!("{} sums of code for {} sites", code.len(), set.sites.len());
        prop_assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn another_section(set in site_set().prop_filter("it has sites", |set| !set.sites.is_empty())) {
        let data = written(&set);
        let range = section(&data);
        let altered = |at: usize, byte: u8| {
            let mut data = data.clone();
            data[range.start + at] = byte;
            reseal::reseal(&mut data);
            refused(&data)
        };
        prop_assert!(altered(0, 0).contains("its magic number is another"));
        prop_assert!(altered(2, 7).contains("another release wrote it"));
        prop_assert!(altered(8, data[range.start + 8] ^ 1).contains("it is about another number of sites"));
        prop_assert!(altered(6, 0xff).contains("it is truncated"));
        // The section of another file.
        let mut other = set.clone();
        other.build_id.push(1);
        let other = written(&other);
        let mut data = data.clone();
        let from = section(&other);
        prop_assert_eq!(from.len(), range.len());
        data[range].copy_from_slice(&other[from]);
        prop_assert!(refused(&data).contains(".BTF.inline.code is damaged at 0x0"));
    }
}
