// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Made-up states of a machine, in which locations are compared by their values.
//!
//! Two descriptions of a place that look unlike may mean the same: `rax+0` and `rax`, a chain of DWARF operations and
//! the form that it was lowered to. In a state where registers and memory are filled from a hash, different values are
//! equal by accident once in 2^64 for each 8 bytes; several states are tried, since one-bit results are equal more
//! often.

use super::perf::PerfLocation;
use siteseer_sites::evaluate::evaluate;
use siteseer_sites::location::Located;

/// States that are tried.
pub const STATES: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Mixes bits (the finaliser of splitmix64).
pub fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A register's value in a state.
pub fn register(state: u64, register: u16) -> u64 {
    mix(mix(state) ^ u64::from(register))
}

/// Fills a buffer from memory in a state.
pub fn memory(state: u64, address: u64, bytes: &mut [u8]) {
    for (place, byte) in (0u64..).zip(bytes) {
        *byte = mix(!mix(state) ^ address.wrapping_add(place)) as u8;
    }
}

/// The bytes of our argument in a state.
pub fn of_ours(located: &Located, state: u64) -> Option<Vec<u8>> {
    let mut read = |address: u64, bytes: &mut [u8]| {
        memory(state, address, bytes);
        true
    };
    let slots = evaluate(located, &|number| register(state, number), &mut read, 0)?;
    let mut bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    bytes.truncate(located.size as usize);
    Some(bytes)
}

/// The bytes of perf's argument in a state: those of one word, which is all that a kprobe event reads.
pub fn of_perf(location: &PerfLocation, size: u32, state: u64) -> Option<Vec<u8>> {
    let mut bytes = word(location, state)?.to_le_bytes().to_vec();
    bytes.truncate(size as usize);
    Some(bytes)
}

fn word(location: &PerfLocation, state: u64) -> Option<u64> {
    match location {
        PerfLocation::Register(number) => Some(register(state, *number)),
        PerfLocation::Constant(value) => Some(*value),
        PerfLocation::Memory(base, offset) => {
            let mut bytes = [0; 8];
            memory(state, word(base, state)?.wrapping_add_signed(*offset), &mut bytes);
            Some(u64::from_le_bytes(bytes))
        }
        PerfLocation::At(_) | PerfLocation::Magic | PerfLocation::Other(_) => None,
    }
}

/// Whether perf's location is worth what ours is, as far as perf reads.
pub fn equal(ours: &Located, perf: &PerfLocation) -> bool {
    STATES.iter().all(|&state| {
        let (Some(ours), Some(perf)) = (of_ours(ours, state), of_perf(perf, ours.size, state)) else { return false };
        ours.get(..perf.len()) == Some(&perf[..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::{Computed, Location, Op};

    #[test]
    fn unlike_forms_of_one_value_are_equal() {
        let computed =
            Computed { slots: Box::new([Box::new([Op::Register(5), Op::Constant(8), Op::Add, Op::Load(4)])]) };
        let ours = Located::certain(4, true, Location::Computed(computed));
        let at = |offset| PerfLocation::Memory(Box::new(PerfLocation::Register(5)), offset);
        assert!(equal(&ours, &at(8)));
        assert!(!equal(&ours, &at(4)));
        assert!(!equal(&ours, &PerfLocation::Register(5)));
        assert!(!equal(&ours, &PerfLocation::Magic));
    }
}
