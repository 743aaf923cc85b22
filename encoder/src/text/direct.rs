// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which functions are entered by a direct call or branch, from anywhere in the image.
//!
//! A compiler that sees a function and a call of it by name may change the two together: pass nothing where the
//! function looks at nothing. One that is entered through pointers alone is called as its type says.

use super::{Flow, arm64, x86};
use crate::elf::image::Image;
use rayon::prelude::*;
use siteseer_sites::Machine;
use std::ops::Range;

/// Pieces of text that one thread decodes at a time.
const AT_ONCE: usize = 256;

/// The first bytes of symbols that direct calls and branches lead to, sorted.
#[derive(Debug, Default)]
pub(crate) struct DirectEntries(Vec<u64>);

impl DirectEntries {
    /// Decodes all text of an image. Bytes that are not an instruction (padding, data) may decode as a branch: then one
    /// function too many is found.
    pub(crate) fn find(image: &Image<'_>) -> DirectEntries {
        let mut symbols: Vec<u64> = image.symbols().iter().map(|symbol| symbol.address).collect();
        symbols.dedup();
        // Decoding starts again at each symbol: data before a symbol does not put it out of step.
        let mut pieces: Vec<Range<u64>> = Vec::with_capacity(symbols.len());
        for section in image.text_sections() {
            let range = section.range();
            let inside = &symbols[symbols.partition_point(|&at| at <= range.start)..];
            let inside = &inside[..inside.partition_point(|&at| at < range.end)];
            let starts = std::iter::once(&range.start).chain(inside);
            pieces.extend(starts.zip(inside.iter().chain([&range.end])).map(|(&start, &end)| start..end));
        }
        let mut entries: Vec<u64> =
            pieces.par_chunks(AT_ONCE).flat_map_iter(|pieces| entered_from(image, pieces, &symbols)).collect();
        entries.par_sort_unstable();
        entries.dedup();
        DirectEntries(entries)
    }

    /// Whether a function is one of them.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.0.binary_search(&address).is_ok()
    }
}

/// The symbols that code in some pieces of text enters.
fn entered_from(image: &Image<'_>, pieces: &[Range<u64>], symbols: &[u64]) -> Vec<u64> {
    let mut targets = Vec::new();
    let mut visit = |_: u32, flow: Flow| {
        if let Flow::Call(target) | Flow::Jump(target) | Flow::Conditional(target) = flow {
            targets.push(target);
        }
        true
    };
    for piece in pieces {
        let Some(bytes) = image.bytes(piece.clone()) else { continue };
        match image.machine() {
            Machine::X86_64 => x86::decode(bytes, piece.start, &mut visit),
            Machine::Aarch64 => arm64::decode(bytes, piece.start, &mut visit),
        }
    }
    targets.sort_unstable();
    targets.dedup();
    targets.retain(|target| symbols.binary_search(target).is_ok());
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::{TEXT, TestImage, relative};

    fn found(machine: Machine, code: &[u8]) -> Vec<u64> {
        let mut test = TestImage::kernel(machine, code);
        for (name, at) in ["called", "jumped", "branched", "unused", "caller"].into_iter().zip((0..).step_by(16)) {
            test.function(name, TEXT + at, 16);
        }
        let bytes = test.build();
        let image = Image::parse(&bytes).unwrap();
        let entries = DirectEntries::find(&image);
        (0..5).map(|nth| nth * 16).filter(|at| entries.has(TEXT + at)).collect()
    }

    #[test]
    fn calls_and_branches_enter_x86_64_functions() {
        let mut code = [0x90; 80];
        // Before the code of `caller`: a byte that begins an instruction as long as the piece is.
        code[63] = 0xe8;
        code[64] = 0xe8;
        code[65..69].copy_from_slice(&relative(TEXT + 69, TEXT));
        code[69..71].copy_from_slice(&[0x0f, 0x84]);
        code[71..75].copy_from_slice(&relative(TEXT + 75, TEXT + 32));
        // jmp, short, to `jumped`; then into the middle of `unused`.
        code[75..77].copy_from_slice(&[0xeb, (16i8 - 77) as u8]);
        code[77..79].copy_from_slice(&[0xeb, (50i8 - 79) as u8]);
        assert_eq!(found(Machine::X86_64, &code), [0, 16, 32]);
    }

    #[test]
    fn calls_and_branches_enter_arm64_functions() {
        let mut code = [0; 80];
        let words: [u32; 4] = [
            // bl -64; b -52; cbz x0, -40; b -20
            0x9400_0000 | (-16i32 as u32 & 0x3ff_ffff),
            0x1400_0000 | (-13i32 as u32 & 0x3ff_ffff),
            0xb400_0000 | (-10i32 as u32 & 0x7_ffff) << 5,
            0x1400_0000 | (-5i32 as u32 & 0x3ff_ffff),
        ];
        for (slot, word) in code[64..].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        assert_eq!(found(Machine::Aarch64, &code), [0, 16, 32]);
    }
}
