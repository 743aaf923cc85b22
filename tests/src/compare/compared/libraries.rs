// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The shared libraries that a program of a build root needs, so that a guest without a system can run it.

use object::elf;
use object::read::elf::{Dyn, ElfFile64};
use object::{LittleEndian, ReadCache};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::path::Path;

/// Where Debian has libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// What the kernel starts programs by.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";

/// Paths of the programs' libraries and of their loader, relative to the root.
///
/// # Errors
/// If a library is missing or cannot be read.
pub fn needed(root: &Path, programs: &[&str]) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut found = BTreeSet::from([LOADER.to_owned()]);
    let mut open: Vec<String> = programs.iter().map(|&program| program.to_owned()).collect();
    while let Some(path) = open.pop() {
        for name in names(&root.join(&path)).map_err(|error| format!("{path}: {error}"))? {
            let library = format!("{LIBRARIES}/{name}");
            if found.insert(library.clone()) {
                open.push(library);
            }
        }
    }
    Ok(found)
}

/// The names of the libraries that a file needs itself (DT_NEEDED, System V ABI, "Dynamic Section").
fn names(path: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let file = ReadCache::new(File::open(path)?);
    let elf = ElfFile64::<LittleEndian, _>::parse(&file)?;
    let (endian, sections) = (LittleEndian, elf.elf_section_table());
    let Some((dynamic, strings)) = sections.dynamic(endian, &file)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, &file, strings)?;
    let mut names = Vec::new();
    for entry in dynamic.iter().filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED) {
        names.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
    }
    Ok(names)
}
