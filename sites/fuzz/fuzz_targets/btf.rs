// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BTF: the input split at the place that its first two bytes name is a base and split BTF over it.
#![no_main]

#[path = "../../tests/common/exercise.rs"]
mod exercise;

use siteseer_sites::Machine;
use siteseer_sites::btf::Btf;
use siteseer_sites::file::{Image, SiteFile, section_names};
use siteseer_sites::set::Section;

siteseer_fuzz::target!(|data| {
    let Some(([low, high], rest)) = data.split_first_chunk() else {
        return;
    };
    let at = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (first, second) = rest.split_at(at);
    let Ok(base) = Btf::parse(first) else { return };
    let _ = exercise::exercise_btf(&base);
    let Ok(names) = section_names(second, &base) else {
        return;
    };
    let section = |name: &&str| Section { name: (*name).to_owned(), address: 0x1000, size: 0x1000 };
    let sections = names.iter().map(section).collect();
    let image = Image { machine: Machine::X86_64, build_id: Vec::new(), base_address: Some(0), sections };
    if let Ok(file) = SiteFile::from_inline(second, &base, image) {
        let _ = exercise::exercise_file(&file);
    }
});
