// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Call frame information: the input is `.debug_frame`, and is asked about the addresses that stand in it.
#![no_main]

use siteseer_encoder::debug::cfi::Frames;

siteseer_fuzz::target!(|data| {
    let frames = Frames::parse(data);
    let mut cursor = frames.cursor();
    let words = data.chunks_exact(8).take(64).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    for address in words.chain([0, 0x1000, 0x100_0000, u64::MAX]) {
        for offset in [0, 1, 4, 16] {
            let at = address.wrapping_add(offset);
            let _ = (cursor.cfa_at(at), cursor.frame_at(at, 6), cursor.frame_at(at, 29));
        }
    }
    assert_eq!(frames.is_empty(), frames.len() == 0);
});
