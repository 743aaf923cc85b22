// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site data that has upstream's kinds alone: what is not known there is said, or refused.

mod made;

use made::{folder, said, site_file, siteseer};
use object::write::{Object, Symbol, SymbolSection};
use object::{Object as _, ObjectSection};
use std::fs;
use std::path::PathBuf;

/// The image that a kernel's build could make: text, `_text`, types and sites, nothing of siteseer's own.
fn image(site_file: &[u8]) -> Vec<u8> {
    let elf = object::File::parse(site_file).unwrap();
    let (format, machine, order) =
        (object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
    let mut image = Object::new(format, machine, order);
    let text = image.add_section(Vec::new(), b".text".to_vec(), object::SectionKind::Text);
    image.append_section_data(text, &[0x90; 0x2000], 16);
    image.add_symbol(Symbol {
        name: b"_text".to_vec(),
        value: 0,
        size: 0,
        kind: object::SymbolKind::Text,
        scope: object::SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(text),
        flags: object::SymbolFlags::None,
    });
    for name in [".BTF", ".BTF.inline"] {
        let data = elf.section_by_name(name).unwrap().data().unwrap();
        let section = image.add_section(Vec::new(), name.into(), object::SectionKind::Other);
        image.append_section_data(section, data, 8);
    }
    image.write().unwrap()
}

/// A folder with a site file, `whole`, and an image with the part of it that is upstream's, `alone`.
fn both(name: &str) -> PathBuf {
    let folder = folder(name);
    let whole = site_file(1, 0);
    fs::write(folder.join("alone"), image(&whole)).unwrap();
    fs::write(folder.join("whole"), whole).unwrap();
    folder
}

#[test]
fn sites_are_listed_with_a_note() {
    let folder = both("sites-alone");
    let note = "has upstream's kinds only: which inlined copies may be passed by";
    for (file, is_noted) in [("alone", true), ("whole", false)] {
        let output = siteseer(&folder).args(["sites", "vfs_read", "--sites", file]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let listed = String::from_utf8_lossy(&output.stdout);
        assert!(listed.contains(", 2 inlined copies;"), "{}", said(&output));
        assert!(!listed.contains(note), "{listed}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains(note), is_noted, "{}", said(&output));
    }
}

#[test]
fn what_is_inlined_is_not_counted_without_kinds() {
    let folder = both("map-alone");
    for (file, is_counted) in [("alone", false), ("whole", true)] {
        let output = siteseer(&folder).args(["map", "--sites", file]).output().unwrap();
        assert_eq!(output.status.success(), is_counted, "{}", said(&output));
        let is_refused = String::from_utf8_lossy(&output.stderr).contains(".BTF.inline.ext");
        assert_eq!((is_refused, output.stdout.is_empty()), (!is_counted, !is_counted), "{}", said(&output));
    }
}
