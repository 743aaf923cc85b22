// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which copies addresses are in: what is written is what is read, and damage is an error and never another answer.

mod common;

use common::{BASE, exercise, ranges, reseal, site_set};
use proptest::prelude::*;
use siteseer_sites::file::{self, FileError, Optional, RangesError, SiteFile};
use siteseer_sites::ranges::Ranges;
use siteseer_sites::site::SourceLine;
use siteseer_sites::{SiteSet, with_causes};

/// A frame, as text.
fn text(function: &str, line: Option<(&str, u32)>) -> String {
    match line {
        Some((file, line)) => format!("{function} {file}:{line}"),
        None => function.to_owned(),
    }
}

/// What the ranges say about an address.
fn expected(ranges: &Ranges, address: u64) -> Option<Vec<String>> {
    // None of the pieces without text at an address holds it.
    let mut found = None;
    for piece in &ranges.pieces {
        let mut here = piece.address;
        for run in &ranges.runs[piece.runs.start as usize..piece.runs.end as usize] {
            if (here..here + u64::from(run.size)).contains(&address) {
                found = Some((piece, run));
            }
            here += u64::from(run.size);
        }
    }
    let (piece, run) = found?;
    let tree = &ranges.trees[piece.tree as usize];
    let place = |at: SourceLine| Some((ranges.files.get(at.file as usize)?.as_str(), at.line));
    let mut line = if ranges.has_lines { place(run.line) } else { None };
    let (mut copy, mut frames) = (run.copy, Vec::new());
    while let Some(nth) = copy.checked_sub(1) {
        let inlined = &ranges.copies[(tree.copies.start + nth) as usize];
        frames.push(text(&ranges.functions[inlined.function as usize].name, line));
        (copy, line) = (inlined.parent, place(inlined.call));
    }
    let own = tree.function.map_or("", |function| &ranges.functions[function as usize].name);
    frames.push(text(own, line));
    Some(frames)
}

/// What a file says about it: by a search, and by the index of all.
fn found(file: &SiteFile<'_>, address: u64) -> Result<Option<Vec<String>>, FileError> {
    let chains = file.chains()?.expect("the section is there");
    let chain = chains.at(address)?;
    let one = chain.map(|chain| {
        let frame = |frame: &file::Frame<'_>| text(frame.function, frame.line.map(|line| (line.file, line.line)));
        chain.frames.iter().map(frame).collect::<Vec<String>>()
    });
    Ok(one)
}

fn written(set: &SiteSet, ranges: &Ranges) -> Vec<u8> {
    let mut bytes = Vec::new();
    file::write_with(set, &Optional { ranges: Some(ranges), ..Optional::default() }, &mut bytes)
        .expect("they do not contradict each other");
    bytes
}

fn end(ranges: &Ranges) -> u64 {
    let last = ranges.pieces.last();
    last.map_or(BASE, |piece| {
        let runs = &ranges.runs[piece.runs.start as usize..piece.runs.end as usize];
        piece.address + runs.iter().map(|run| u64::from(run.size)).sum::<u64>()
    })
}

fn flip(data: &mut [u8], at: usize, bit: u8) {
    let at = at % data.len();
    data[at] ^= 1 << bit;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(set in site_set(), ranges in ranges()) {
        let bytes = written(&set, &ranges);
        let file = SiteFile::parse(&bytes).unwrap();
        let chains = file.chains().unwrap().unwrap();
        let index = chains.index().unwrap();
        prop_assert_eq!(chains.has_lines(), ranges.has_lines);
        let mut addresses: Vec<u64> = vec![0, BASE - 1, BASE, end(&ranges), u64::MAX];
        for piece in &ranges.pieces {
            let mut here = piece.address;
            for run in &ranges.runs[piece.runs.start as usize..piece.runs.end as usize] {
                addresses.extend([here.wrapping_sub(1), here, here + u64::from(run.size / 2)]);
                here += u64::from(run.size);
            }
            addresses.push(here);
        }
        for address in addresses {
            let expected = expected(&ranges, address);
            prop_assert_eq!(&found(&file, address).unwrap(), &expected, "{:#x}", address);
            let indexed = index.at(address).map(|frames| {
                frames.map(|frame| text(frame.function, frame.line.map(|line| (line.file, line.line)))).collect::<Vec<String>>()
            });
            prop_assert_eq!(indexed, expected, "{:#x} in the index", address);
        }
        // The rest of the file is as it is without them.
        let plain = file::write(&set).unwrap();
        let before = SiteFile::parse(&plain).unwrap();
        prop_assert!(before.chains().unwrap().is_none());
        prop_assert_eq!(before.sizes(), file::Sizes { ranges: 0, ..file.sizes() });
    }

    #[test]
    fn altered_files(set in site_set(), ranges in ranges(), damage in prop::collection::vec((any::<usize>(), 0u8..8), 1..4)) {
        let whole = written(&set, &ranges);
        let mut data = whole.clone();
        damage.iter().for_each(|&(at, bit)| flip(&mut data, at, bit));
        let Ok(altered) = SiteFile::parse(&data) else { return Ok(()) };
        if !matches!(altered.chains(), Ok(Some(_))) {
            return Ok(());
        }
        for offset in (0..end(&ranges) - BASE).step_by(29).take(300) {
            if let Ok(answer) = found(&altered, BASE + offset) {
                prop_assert_eq!(answer, expected(&ranges, BASE + offset));
            }
        }
    }

    #[test]
    fn altered_sections_with_right_checksums(
        set in site_set(),
        ranges in ranges(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8),
    ) {
        let mut data = written(&set, &ranges);
        let before = data.clone();
        reseal::reseal(&mut data);
        prop_assert_eq!(&data, &before, "what is written has right checksums");
        let start = data.windows(4).rposition(|word| word == [0x53, 0x52, 1, u8::from(ranges.has_lines)]).unwrap();
        let len = SiteFile::parse(&data).unwrap().sizes().ranges;
        for (at, byte) in damage {
            data[start + at % len] = byte;
        }
        reseal::reseal(&mut data);
        if let Ok(file) = SiteFile::parse(&data) {
            let _ = exercise::exercise_file(&file);
        }
    }
}

/// The section alone, altered: what it is refused with.
fn refused(alter: impl FnOnce(&mut [u8])) -> FileError {
    let (set, ranges) = small();
    let mut data = written(&set, &ranges);
    let start = data.windows(4).rposition(|word| word == [0x53, 0x52, 1, 1]).unwrap();
    let len = SiteFile::parse(&data).unwrap().sizes().ranges;
    alter(&mut data[start..start + len]);
    reseal::reseal(&mut data);
    let file = SiteFile::parse(&data).expect("the rest of the file can be used");
    file.chains().expect_err("the section cannot")
}

/// Fixed examples of both.
fn small() -> (SiteSet, Ranges) {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let set = site_set().new_tree(&mut runner).unwrap().current();
    let with = ranges().prop_filter("with lines and text", |ranges| ranges.has_lines && end(ranges) > BASE);
    (set, with.new_tree(&mut runner).unwrap().current())
}

#[test]
fn every_error_says_what() {
    let text = |alter: fn(&mut [u8])| with_causes(&refused(alter));
    assert_eq!(
        text(|section| section[2] = 9),
        ".BTF.inline.ranges: it has version 9, which is not supported: it was written by another release"
    );
    assert_eq!(text(|section| section[0] = 9), ".BTF.inline.ranges: malformed header: its magic number is another");
    assert_eq!(
        text(|section| section[4] = 9),
        ".BTF.inline.ranges: malformed header: its length is less than a header's"
    );
    assert_eq!(text(|section| section[7] = 9), ".BTF.inline.ranges: malformed header: it is truncated");
    // Table 1, the data, and table 0, of records of 8 bytes.
    assert_eq!(text(|section| section[24 + 7] = 9), ".BTF.inline.ranges: the data table is malformed");
    assert_eq!(text(|section| section[16 + 4] += 1), ".BTF.inline.ranges: the piece table is malformed");
}

#[test]
fn the_section_of_another_file_is_refused() {
    let (set, ranges) = small();
    let mut other = set.clone();
    other.build_id.push(1);
    let (bytes, mut others) = (written(&set, &ranges), written(&other, &ranges));
    let section = |data: &[u8]| {
        let start = data.windows(4).rposition(|word| word == [0x53, 0x52, 1, 1]).unwrap();
        start..start + SiteFile::parse(data).unwrap().sizes().ranges
    };
    let (from, to) = (section(&bytes), section(&others));
    assert_eq!(from.len(), to.len());
    others[to].copy_from_slice(&bytes[from]);
    let file = SiteFile::parse(&others).unwrap();
    let error = file.chains().expect_err("it belongs to the first");
    assert!(matches!(error, FileError::Ranges(RangesError::Damaged { offset: 0 })), "{error}");
}

#[test]
fn ranges_that_contradict_themselves_are_not_written() {
    let (set, ranges) = small();
    let error = |alter: fn(&mut Ranges)| {
        let mut ranges = ranges.clone();
        alter(&mut ranges);
        file::write_with(&set, &Optional { ranges: Some(&ranges), ..Optional::default() }, &mut Vec::new())
            .expect_err("a contradiction")
            .to_string()
    };
    let of = |what: &str| format!("the ranges of copies: {what} contradicts the others");
    assert_eq!(error(|ranges| ranges.functions[0].declared.file = 7), of("file 7"));
    assert_eq!(error(|ranges| ranges.trees[0].function = Some(99)), of("tree 0"));
    assert_eq!(error(|ranges| ranges.pieces[0].tree = 99), of("piece 0"));
    assert_eq!(error(|ranges| ranges.runs[0].copy = 99), of("piece 0"));
    assert_eq!(
        error(|ranges| ranges.pieces.push(ranges.pieces[0].clone())),
        of(&format!("piece {}", ranges.pieces.len()))
    );
}
