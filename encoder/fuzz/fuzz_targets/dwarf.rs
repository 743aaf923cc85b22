// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! DWARF by unit: a whole image is encoded in which parts of the debug sections are replaced. The first byte chooses
//! the image. What is encoded is written, and read again.
#![no_main]

use siteseer_encoder::{Detail, Options, encode_all};
use siteseer_fuzz::images::IMAGES;
use siteseer_fuzz::patch;
use siteseer_sites::file::{self, SiteFile};

const SECTIONS: [&str; 13] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_loclists",
    ".debug_rnglists",
    ".debug_loc",
    ".debug_ranges",
    ".debug_addr",
    ".debug_str_offsets",
    ".debug_line_str",
    ".debug_str",
    ".debug_frame",
    ".text",
];

siteseer_fuzz::target!(|data| {
    let Some((&first, data)) = data.split_first() else { return };
    let image = &IMAGES[usize::from(first) % IMAGES.len()];
    let mut bytes = image.bytes.to_vec();
    patch::apply(data, &mut bytes, &image.sections(&SECTIONS));
    siteseer_fuzz::alone(|| {
        let options = Options { ranges: Detail::Lines, code: true, ..Options::default() };
        let Ok(encoded) = encode_all(&bytes, &options) else { return };
        let mut written = Vec::new();
        if file::write_with(&encoded.set, &encoded.optional(), &mut written).is_ok() {
            let file = SiteFile::parse(&written).expect("what was written is read");
            assert_eq!(file.sites().filter_map(Result::ok).count(), encoded.set.sites.len(), "sites of the file");
        }
    });
});
