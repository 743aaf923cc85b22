// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! An ELF image: its headers, symbols, tables and sections, and what the loader reads of its symbols.
#![no_main]

use siteseer_encoder::elf::image::Image;
use siteseer_encoder::{Options, encode_all};

const DEBUG: [&str; 4] = [".debug_info", ".debug_abbrev", ".debug_frame", ".debug_line"];

fn exercise(data: &[u8]) {
    let Ok(image) = Image::parse(data) else { return };
    let _ = (image.btf().is_ok(), image.distilled_btf().is_ok(), image.module_name(), image.has_retpolines());
    for section in image.loaded_sections().iter().chain(image.text_sections()) {
        let range = section.range();
        let _ = (image.bytes(range.clone()), image.section_at(range.start), image.container(range.start));
        let _ = (image.tables().bug_at(range.start), image.tables().jump_label_at(range.start));
        let _ = (image.tables().in_alternative(range.start), image.tables().has_ftrace(&range));
    }
    for symbol in image.symbols().iter().take(200) {
        let _ = (image.symbol_at(symbol.address).len(), image.container(symbol.address));
        let _ = image.symbols_named(symbol.name).count();
    }
    for name in DEBUG {
        let _ = image.debug_section(name).map(|bytes| bytes.len());
    }
}

siteseer_fuzz::target!(|data| {
    exercise(data);
    siteseer_fuzz::alone(|| {
        let _ = encode_all(data, &Options { code: true, ..Options::default() });
    });
});
