// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Location lists, ranges and addresses: a whole image is encoded in which one of those sections is the input, from its
//! first byte on. The first byte of the input chooses the image and the section.
#![no_main]

use siteseer_encoder::{Options, encode};
use siteseer_fuzz::images::IMAGES;

const SECTIONS: [&str; 6] =
    [".debug_loclists", ".debug_loc", ".debug_rnglists", ".debug_ranges", ".debug_addr", ".debug_frame"];
/// Length, version, sizes of addresses and segments, and the count of offsets: DWARF 5 section 7.28.
const HEADER: usize = 12;

siteseer_fuzz::target!(|data| {
    let Some((&first, data)) = data.split_first() else { return };
    let choice = usize::from(first);
    let image = &IMAGES[choice % IMAGES.len()];
    let sections = image.sections(&SECTIONS);
    let Some(section) = sections.get(choice / IMAGES.len() % sections.len().max(1)) else { return };
    let mut bytes = image.bytes.to_vec();
    let from = if first >= 128 { section.start } else { section.end.min(section.start + HEADER) };
    let into = &mut bytes[from..section.end];
    let len = into.len().min(data.len());
    into[..len].copy_from_slice(&data[..len]);
    siteseer_fuzz::alone(|| {
        let _ = encode(&bytes, &Options::default());
    });
});
