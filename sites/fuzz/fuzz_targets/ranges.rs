// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The section of ranges: the input takes the place of its bytes, from the header's end if the first byte is odd, and
//! the checksums are made right.
#![no_main]

#[path = "../../tests/common/exercise.rs"]
mod exercise;
#[path = "../../tests/common/reseal.rs"]
mod reseal;

use siteseer_sites::btf::{Btf, SplitBtf};
use siteseer_sites::file::{self, Optional, SiteFile};
use siteseer_sites::ranges::{Copy, Named, Piece, Ranges, Run, Tree};
use siteseer_sites::site::SourceLine;
use siteseer_sites::{Machine, SiteSet};
use std::sync::LazyLock;

const HEADER: usize = 64;

/// A site file without sites, and with room for the input in its last section: where that begins.
static TEMPLATE: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
    let base_btf = SplitBtf::standalone().to_bytes();
    let base = Btf::parse(&base_btf).expect("BTF");
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![1],
        base: 0x1000,
        types: SplitBtf::new(&base),
        sections: Vec::new(),
        functions: Vec::new(),
        prototypes: Vec::new(),
        containers: Vec::new(),
        files: Vec::new(),
        sites: Vec::new(),
        base_btf: base_btf.clone(),
    };
    let line = SourceLine { file: 0, line: 7 };
    let count = 40;
    let ranges = Ranges {
        functions: vec![Named { name: "f".to_owned(), declared: line }],
        files: vec!["a.c".to_owned()],
        trees: vec![Tree { function: Some(0), copies: 0..count }],
        copies: (0..count).map(|parent| Copy { function: 0, parent, call: line }).collect(),
        pieces: (0..count)
            .map(|nth| Piece { address: 0x1000 + 8 * u64::from(nth), tree: 0, runs: nth..nth + 1 })
            .collect(),
        runs: (0..count).map(|copy| Run { size: 8, copy, line }).collect(),
        has_lines: true,
    };
    let mut bytes = Vec::new();
    file::write_with(&set, &Optional { ranges: Some(&ranges), ..Optional::default() }, &mut bytes).expect("written");
    let magic = [0x53, 0x52, 1, 1];
    let start = bytes.windows(4).rposition(|word| word == magic).expect("the section");
    (bytes, start)
});

siteseer_fuzz::target!(|data| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let (template, start) = &*TEMPLATE;
    let mut bytes = template.clone();
    let len = SiteFile::parse(template).expect("a site file").sizes().ranges;
    let from = if first & 1 == 1 { HEADER } else { 0 };
    let section = &mut bytes[start + from..start + len];
    let len = data.len().min(section.len());
    section[..len].copy_from_slice(&data[..len]);
    reseal::reseal(&mut bytes);
    if let Ok(file) = SiteFile::parse(&bytes) {
        let _ = exercise::exercise_file(&file);
    }
});
