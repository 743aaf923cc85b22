// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Subsets: what the site files of several kernels say about some functions comes back, whole, and nothing else does;
//! anything may be in the bytes.

mod common;

#[path = "common/subset.rs"]
mod subset_common;

use common::{base_btf, site_set};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use siteseer_sites::SiteSet;
use siteseer_sites::btf::{Btf, declaration};
use siteseer_sites::file::{self, SiteFile, Source};
use siteseer_sites::subset::{Subset, SubsetError, SubsetWriter};
use std::collections::BTreeSet;
use subset_common::{exercise_subset, reseal_subset};

/// All that a file says about a name, in words. Sites are in the order of their places: their numbers are the file's
/// alone.
fn told(file: &SiteFile<'_>, name: &str) -> Vec<String> {
    let place = |source: Option<Source<'_>>| source.map(|source| format!("{}:{}", source.file, source.line));
    let mut told = Vec::new();
    for function in file.functions(name).unwrap() {
        let prototype = function.prototype().unwrap();
        let is_base = function.func() < file.btf().first_id();
        let func = is_base.then_some(function.func());
        let mut lines = vec![format!("{func:?} {}", declaration(file.btf(), function.func(), function.name()))];
        for param in &prototype.params {
            lines[0] += &format!(", {} {}", param.name, declaration(file.btf(), param.ty, ""));
        }
        for site in function.sites() {
            let site = site.unwrap();
            lines.push(format!(
                "{:?} {:#x} {} {:?} {} {:?} {:?} {:?} {:?} {:?}",
                site.kind(),
                site.address(),
                site.moved(),
                site.section().name,
                site.section().address,
                site.container(),
                place(site.source()),
                place(site.declared().unwrap()),
                (site.marks(), site.unprobeable()),
                site.arguments().unwrap(),
            ));
        }
        lines[1..].sort();
        told.push(lines.join("\n"));
    }
    told.sort();
    let mut symbols: Vec<String> =
        file.containers_of(name).unwrap().iter().map(|symbol| format!("{symbol:?}")).collect();
    symbols.sort();
    symbols.dedup();
    told.extend(symbols);
    told.push(format!("{:?}", file.base_functions(name).unwrap()));
    told
}

fn names_of(set: &SiteSet) -> BTreeSet<String> {
    let functions = set.functions.iter().map(|function| function.name.clone());
    functions.chain(set.containers.iter().map(|container| container.name.clone())).collect()
}

/// Some sets as those of different kernels: build ids and addresses differ.
fn kernels(mut sets: Vec<SiteSet>) -> Vec<SiteSet> {
    for (nth, set) in sets.iter_mut().enumerate() {
        set.build_id = vec![(nth * 91 % 256) as u8; 20];
        let moved = 0x40 * nth as u64;
        set.sections.iter_mut().for_each(|section| section.size += 0x1_0000);
        set.containers.iter_mut().for_each(|container| container.address += moved);
        set.sites.iter_mut().for_each(|site| site.address += moved);
    }
    sets
}

fn subset_of(sets: &[SiteSet], names: &BTreeSet<String>) -> Vec<u8> {
    let mut writer = SubsetWriter::new(names);
    for set in sets {
        let data = file::write(set).unwrap();
        writer.add(&SiteFile::parse(&data).unwrap(), names.iter().map(String::as_str)).unwrap();
    }
    assert_eq!(writer.len(), sets.len());
    writer.finish().unwrap()
}

/// Every other name.
fn some_names(sets: &[SiteSet]) -> BTreeSet<String> {
    sets.iter().flat_map(names_of).collect::<BTreeSet<String>>().into_iter().step_by(2).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_comes_back(sets in prop::collection::vec(site_set(), 1..5)) {
        let sets = kernels(sets);
        let names = some_names(&sets);
        let data = subset_of(&sets, &names);
        let subset = Subset::parse(&data).unwrap();
        prop_assert_eq!(subset.asked().unwrap(), names.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(subset.len(), sets.len());
        for set in &sets {
            let image = subset.find(&set.build_id).unwrap().unwrap();
            prop_assert_eq!((image.machine(), image.build_id()), (set.machine, &set.build_id[..]));
            let again = file::write(&image.site_set(&set.base_btf, None).unwrap()).unwrap();
            let whole = file::write(set).unwrap();
            let (again, whole) = (SiteFile::parse(&again).unwrap(), SiteFile::parse(&whole).unwrap());
            prop_assert_eq!((again.build_id(), again.base_address()), (whole.build_id(), whole.base_address()));
            for name in &names {
                prop_assert_eq!(told(&again, name), told(&whole, name), "{}", name);
            }
            let kept: BTreeSet<&str> = again.function_names().collect();
            prop_assert!(kept.iter().all(|name| names.contains(*name)));
        }
        prop_assert!(subset.find(&[7; 3]).unwrap().is_none());
        // The same sets give the same bytes; a kernel is there once.
        prop_assert_eq!(&data, &subset_of(&sets, &names));
    }

    #[test]
    fn altered(
        set in site_set(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        more in any::<[(prop::sample::Index, u8); 3]>(),
    ) {
        let names = names_of(&set);
        let whole = subset_of(std::slice::from_ref(&set), &names);
        let mut data = whole.clone();
        reseal_subset(&mut data);
        prop_assert_eq!(&data, &whole, "what is written has right checksums");
        data[at.index(whole.len())] ^= 1 << bit;
        // Every bit that is read is checked.
        if let Ok(sets) = exercise_subset(&data, &set.base_btf) {
            let fine = exercise_subset(&whole, &set.base_btf).unwrap();
            prop_assert_eq!(format!("{:?}", sets[0].sites), format!("{:?}", fine[0].sites));
        }
        // With right checksums it is for the parser to see, or another set comes out, which may contradict itself.
        more.iter().for_each(|(at, byte)| data[at.index(whole.len())] = *byte);
        reseal_subset(&mut data);
        for set in exercise_subset(&data, &set.base_btf).unwrap_or_default() {
            let _ = file::write(&set);
        }
    }

    #[test]
    fn cut(set in site_set(), cut in any::<prop::sample::Index>()) {
        let data = subset_of(std::slice::from_ref(&set), &names_of(&set));
        prop_assert!(Subset::parse(&data[..cut.index(data.len())]).is_err());
    }

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..300)) {
        let btf = base_btf().0;
        prop_assert!(exercise_subset(&data, &btf).is_err());
        let mut headed = [&b"SITESUB\0\x01\0\0\0\x68\0\0\0"[..], &data].concat();
        let _ = exercise_subset(&headed, &btf);
        reseal_subset(&mut headed);
        let _ = exercise_subset(&headed, &btf);
    }
}

/// A set with much in it: the first that the strategy gives that has sites.
fn a_set() -> SiteSet {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    loop {
        let set = site_set().new_tree(&mut runner).unwrap().current();
        if set.sites.len() > 10 {
            return set;
        }
    }
}

#[test]
fn what_is_the_same_is_stored_once() {
    let set = a_set();
    let names = names_of(&set);
    let size = |count: usize| subset_of(&kernels(vec![set.clone(); count]), &names).len();
    let (one, many) = (size(1), size(101));
    // Each further kernel adds its record, with an address of about two bytes for each symbol, and its place in the
    // table.
    let each = (many - one) / 100;
    assert!(
        each < 60 + 4 * (set.containers.len() * 2 + names.len() * 3),
        "{each} bytes for each kernel, {one} for the first"
    );
}

#[test]
fn errors_say_what() {
    let set = a_set();
    let names = names_of(&set);
    let data = subset_of(std::slice::from_ref(&set), &names);
    let text = |data: &[u8]| Subset::parse(data).map(|_| ()).unwrap_err().to_string();
    assert_eq!(text(b"hello"), "not a subset of site data: it does not begin with SITESUB");
    let mut newer = data.clone();
    newer[8] = 2;
    assert_eq!(text(&newer), "the subset has version 2, which is not supported: it was written by another release");
    assert!(text(&data[..data.len() - 1]).contains("cut"), "{}", text(&data[..data.len() - 1]));
    let subset = Subset::parse(&data).unwrap();
    let image = subset.find(&set.build_id).unwrap().unwrap();
    let mut other = set.base_btf.clone();
    *other.last_mut().unwrap() ^= 1;
    let error = image.site_set(&other, None).unwrap_err();
    assert!(matches!(error, SubsetError::OtherTypes { .. }), "{error}");
    let base = Btf::parse(&set.base_btf).unwrap();
    assert!(matches!(image.site_set(&set.base_btf, Some(&base)), Err(SubsetError::Base(_))));
    // A kernel twice.
    let whole = file::write(&set).unwrap();
    let mut writer = SubsetWriter::new(["a"]);
    writer.add(&SiteFile::parse(&whole).unwrap(), ["a"]).unwrap();
    let twice = writer.add(&SiteFile::parse(&whole).unwrap(), ["a"]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "an image with the build id 000102030405060708090a0b0c0d0e0f10111213 is in the subset already"
    );
}
