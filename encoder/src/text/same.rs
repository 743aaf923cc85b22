// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions with the same code as another function.

use super::{Flow, arm64, x86};
use crate::elf::image::Image;
use siteseer_sites::Machine;
use std::ops::Range;

/// Whether the code of two functions is alike: instructions of the same lengths that pass control on in the same ways,
/// and go on in the same functions. Where they lead inside of it, and so how long jumps are, depends on where it is.
pub(crate) fn are_alike(image: &Image<'_>, one: Range<u64>, other: Range<u64>) -> bool {
    let starts = [one.start, other.start];
    let shape = |range: Range<u64>| {
        let bytes = image.bytes(range.clone())?;
        let mut ends: Vec<(u32, Option<Flow>)> = Vec::new();
        let mut visit = |offset: u32, flow: Flow| {
            ends.push((offset, Some(flow)));
            true
        };
        match image.machine() {
            Machine::X86_64 => x86::decode(bytes, range.start, &mut visit),
            Machine::Aarch64 => arm64::decode(bytes, range.start, &mut visit),
        }
        ends.push((bytes.len() as u32, None));
        let length = |pair: &[(u32, Option<Flow>)]| match pair[0].1 {
            Some(Flow::Jump(_) | Flow::Conditional(_)) => 0,
            _ => pair[1].0 - pair[0].0,
        };
        // A function that calls itself still does where it has a copy.
        let is_elsewhere = |target: &u64| !range.contains(target) && !starts.contains(target);
        // Each has a cold part of its own, which is jumped into.
        let is_function = |target: &u64| image.symbol_at(*target).iter().any(|symbol| !symbol.name.contains(".cold"));
        let way = |flow: Option<Flow>| {
            let kind = flow.map(|flow| std::mem::discriminant(&flow));
            let target = match flow {
                Some(Flow::Call(target)) => Some(target),
                Some(Flow::Jump(target) | Flow::Conditional(target)) => Some(target).filter(is_function),
                _ => None,
            };
            (kind, target.filter(is_elsewhere))
        };
        Some(ends.windows(2).map(|pair| (length(pair), way(pair[0].1))).collect::<Vec<_>>())
    };
    !one.is_empty() && shape(one).is_some_and(|one| shape(other) == Some(one))
}

/// What one instruction is beside another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// It does the same.
    Same,
    /// It does the same if these two addresses are the same place.
    Leads(u64, u64),
}

/// Where each instruction of a function is in another function with the same code, in order: each pair does the same
/// with the same operands, or passes control to another pair. `None` if the code is not the same.
pub(crate) fn places_in(image: &Image<'_>, one: Range<u64>, other: Range<u64>) -> Option<Vec<(u64, u64)>> {
    let beside = |here: u64, there: u64| match image.machine() {
        Machine::X86_64 => x86::beside(image, here, there),
        Machine::Aarch64 => arm64::beside(image, here, there),
    };
    let mut parts = vec![(one, other)];
    let (mut places, mut targets) = (Vec::new(), Vec::new());
    let mut next = 0;
    while let Some((one, other)) = parts.get(next).cloned() {
        next += 1;
        let (mut here, mut there) = (one.start, other.start);
        while here < one.end && there < other.end {
            places.push((here, there));
            let (beside, lengths) = beside(here, there)?;
            if let Beside::Leads(here, there) = beside
                && here != there
            {
                targets.push((here, there));
                let is_known = |part: &(Range<u64>, Range<u64>)| part.0.contains(&here);
                if !parts.iter().any(is_known) {
                    parts.push((cold_part(image, here)?, cold_part(image, there)?));
                }
            }
            (here, there) = (here + lengths.0, there + lengths.1);
        }
        if (here, there) != (one.end, other.end) {
            return None;
        }
    }
    places.sort_unstable();
    targets.iter().all(|pair| places.binary_search(pair).is_ok()).then_some(places)
}

/// The cold part of a function that an address is in.
fn cold_part(image: &Image<'_>, address: u64) -> Option<Range<u64>> {
    let start = image.container(address)?.address;
    let cold = image.symbol_at(start).iter().find(|symbol| symbol.name.contains(".cold"))?;
    Some(start..start.saturating_add(cold.size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::{TEXT, TestImage};

    #[test]
    fn the_same_code_elsewhere() {
        // Twice: call +11 or so; ret. Then: nop (5 bytes); ret. Then: call -23; ret.
        let code = [
            0xe8, 11, 0, 0, 0, 0xc3, 0xe8, 5, 0, 0, 0, 0xc3, 0x0f, 0x1f, 0x44, 0, 0, 0xc3, 0xe8, 0xe9, 0xff, 0xff,
            0xff, 0xc3,
        ];
        let bytes = TestImage::kernel(Machine::X86_64, &code).build();
        let image = Image::parse(&bytes).unwrap();
        assert!(are_alike(&image, TEXT..TEXT + 6, TEXT + 6..TEXT + 12));
        assert!(!are_alike(&image, TEXT..TEXT + 6, TEXT + 12..TEXT + 18), "a no-op is not a call");
        assert!(!are_alike(&image, TEXT + 6..TEXT + 12, TEXT + 18..TEXT + 24), "it calls something else");
        assert!(are_alike(&image, TEXT..TEXT + 18, TEXT..TEXT + 18));
        assert!(!are_alike(&image, TEXT..TEXT, TEXT + 6..TEXT + 6));
    }
    #[test]
    fn cold_parts_are_not_where_code_differs() {
        // Two functions: jne +4; ret; and jne +2; ret. They jump to 6 and to 7, where there is a return each.
        let code = [0x75, 4, 0xc3, 0x75, 2, 0xc3, 0xc3, 0xc3];
        let is_alike = |names: [&str; 2]| {
            let mut test = TestImage::kernel(Machine::X86_64, &code);
            test.function(names[0], TEXT + 6, 1);
            test.function(names[1], TEXT + 7, 1);
            let bytes = test.build();
            are_alike(&Image::parse(&bytes).unwrap(), TEXT..TEXT + 3, TEXT + 3..TEXT + 6)
        };
        assert!(is_alike(["f.cold", "g.cold"]));
        assert!(!is_alike(["f", "g"]), "each ends in another function");
    }

    /// Where the first function's instructions are in the second one; both are given by their offsets.
    fn places(
        machine: Machine,
        code: &[u8],
        functions: [Range<u64>; 2],
        cold: &[Range<u64>],
    ) -> Option<Vec<(u64, u64)>> {
        let mut test = TestImage::kernel(machine, code);
        for (range, name) in cold.iter().zip(["f.cold", "g.cold"]) {
            test.function(name, TEXT + range.start, range.end - range.start);
        }
        let bytes = test.build();
        let [one, other] = functions.map(|range| TEXT + range.start..TEXT + range.end);
        let places = places_in(&Image::parse(&bytes).unwrap(), one, other)?;
        Some(places.into_iter().map(|(here, there)| (here - TEXT, there - TEXT)).collect())
    }

    #[test]
    fn jumps_of_the_same_code_may_be_longer() {
        // Twice: test %edi,%edi; je to the end; mov %edi,%eax; ret. The second je has four bytes for the distance.
        let code = [0x85, 0xff, 0x74, 2, 0x89, 0xf8, 0xc3, 0x85, 0xff, 0x0f, 0x84, 2, 0, 0, 0, 0x89, 0xf8, 0xc3];
        let places = |code: &[u8]| places(Machine::X86_64, code, [0..7, 7..18], &[]);
        assert_eq!(places(&code), Some(vec![(0, 7), (2, 9), (4, 15), (6, 17)]));
        let mut elsewhere = code;
        elsewhere[11] = 0;
        assert_eq!(places(&elsewhere), None, "it jumps to another instruction");
        let mut other = code;
        other[16] = 0xf0;
        assert_eq!(places(&other), None, "another register");
        assert_eq!(self::places(Machine::X86_64, &code, [0..7, 7..17], &[]), None, "the return is not there");
    }

    #[test]
    fn what_is_relative_leads_to_the_same() {
        // Twice: mov 7(%rip),%eax and mov 0(%rip),%eax; ret.
        let code = [0x8b, 5, 7, 0, 0, 0, 0xc3, 0x8b, 5, 0, 0, 0, 0, 0xc3];
        assert_eq!(places(Machine::X86_64, &code, [0..7, 7..14], &[]), Some(vec![(0, 7), (6, 13)]));
        let mut other = code;
        other[2] = 8;
        assert_eq!(places(Machine::X86_64, &other, [0..7, 7..14], &[]), None);
        // Twice: bl to the end; adr x0 of the end; tbz w0, #1 past it; ret.
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let code = [0x9400_0008u32, 0x1000_00e0, 0x3608_0040, 0xd503_201f, 0xd65f_03c0];
        let again = [0x9400_0003u32, 0x1000_0040, 0x3608_0040, 0xd503_201f, 0xd65f_03c0];
        let both = |again: [u32; 5]| places(Machine::Aarch64, &words(&[code, again].concat()), [0..20, 20..40], &[]);
        let expected = (0..5).map(|word| (4 * word, 20 + 4 * word)).collect();
        assert_eq!(both(again), Some(expected));
        for (index, word, what) in [
            (0, 0x9400_0002, "it calls something else"),
            (1, 0x1000_0041, "another register"),
            (1, 0x1000_0060, "another address"),
            (2, 0x3610_0040, "another bit"),
            (2, 0x3608_0020, "another place"),
            (3, 0x5800_0040, "it loads what is beside the code"),
        ] {
            let mut other = again;
            other[index] = word;
            assert_eq!(both(other), None, "{what}");
        }
    }

    #[test]
    fn cold_parts_belong_to_the_code() {
        // Twice: je to a cold part; ret. Then each cold part: nop; jmp back to the return.
        let code = [0x74, 4, 0xc3, 0x74, 4, 0xc3, 0x90, 0xeb, 0xf9, 0x90, 0xeb, 0xf9];
        let places = |code: &[u8], cold: &[Range<u64>]| places(Machine::X86_64, code, [0..3, 3..6], cold);
        let cold = [6..9, 9..12];
        assert_eq!(places(&code, &cold), Some(vec![(0, 3), (2, 5), (6, 9), (7, 10)]));
        assert_eq!(places(&code, &[]), None, "they end in other functions");
        let mut other = code;
        other[9] = 0xcc;
        assert_eq!(places(&other, &cold), None, "the cold parts differ");
    }
}
