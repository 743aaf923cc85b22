// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! An input as a list of replacements in a valid object, so that headers and checksums do not stand in the way of the
//! fuzzer.
//!
//! Each is a byte that chooses a section, a byte with the number of bytes that follow, two bytes with an offset,
//! little-endian, and the bytes. All numbers are taken modulo what there is.

use std::ops::Range;

/// Carries the replacements out.
pub fn apply(mut input: &[u8], object: &mut [u8], sections: &[Range<usize>]) {
    while let Some(([section, len, low, high], rest)) = input.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        input = rest;
        if sections.is_empty() {
            return;
        }
        let range = sections[usize::from(*section) % sections.len()].clone();
        let Some(into) = object.get_mut(range).filter(|into| !into.is_empty()) else { continue };
        let at = usize::from(u16::from_le_bytes([*low, *high])) % into.len();
        let into = &mut into[at..];
        let len = len.min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
    }
}

/// The replacement that leaves the object as it is, for these bytes of it: a seed.
pub fn identity(section: u8, offset: u16, bytes: &[u8]) -> Vec<u8> {
    let len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    let [low, high] = offset.to_le_bytes();
    [&[section, len, low, high], &bytes[..usize::from(len)]].concat()
}
