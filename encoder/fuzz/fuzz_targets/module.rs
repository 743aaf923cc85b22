// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A module for arm64, which is relocated before it is read: parts of its relocations, symbols, and debug sections are
//! replaced. The first byte chooses the module.
#![no_main]

use siteseer_encoder::{BaseKernel, Detail, KernelTypes, Options, encode_all};
use siteseer_fuzz::images::MODULES;
use siteseer_fuzz::patch;

const SECTIONS: [&str; 12] = [
    ".rela.debug_info",
    ".rela.debug_addr",
    ".rela.text",
    ".symtab",
    ".rela.debug_line",
    ".rela.debug_str_offsets",
    ".rela.debug_frame",
    ".debug_info",
    ".debug_abbrev",
    ".debug_loclists",
    ".BTF",
    ".text",
];

siteseer_fuzz::target!(|data| {
    let Some((&first, data)) = data.split_first() else { return };
    // Without a clang there is none.
    let Some((module, btf)) = MODULES.get(usize::from(first) % MODULES.len().max(1)) else { return };
    let mut bytes = module.bytes.to_vec();
    patch::apply(data, &mut bytes, &module.sections(&SECTIONS));
    siteseer_fuzz::alone(|| {
        let types = KernelTypes::new(btf);
        let kernel = types.as_ref().ok().map(|types| BaseKernel { types, build_id: b"kernel" });
        let _ = encode_all(&bytes, &Options { kernel, ranges: Detail::Lines, code: true, ..Options::default() });
    });
});
