// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Probes before the entry of a copy, in a whole kernel: each of them is hit when the entry is reached, and only then.
//!
//! The image is the vmlinux that the environment variable SITESEER_TEST_VMLINUX names. Its instructions are read here
//! without the encoder's own control flow: every branch of the symbol is looked at, wherever it is.

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess};
use siteseer_encoder::elf::image::Image;
use siteseer_encoder::{Options, encode};
use siteseer_sites::{Machine, Marks, Site, SiteSet, Unprobeable};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;

/// An instruction, as far as it matters here.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    address: u64,
    next: u64,
    /// It goes on at the next one, whatever happens, and stores nothing.
    is_quiet: bool,
    target: Option<u64>,
}

fn instructions(image: &Image<'_>, range: Range<u64>) -> Vec<Instruction> {
    let bytes = image.bytes(range.clone()).expect("text");
    match image.machine() {
        Machine::X86_64 => {
            let mut factory = InstructionInfoFactory::new();
            let decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
            let one = |instruction: iced_x86::Instruction| {
                let memory = factory.info(&instruction).used_memory().to_vec();
                let stores = memory.iter().any(|used| !matches!(used.access(), OpAccess::Read | OpAccess::NoMemAccess));
                Instruction {
                    address: instruction.ip(),
                    next: instruction.next_ip(),
                    is_quiet: instruction.flow_control() == FlowControl::Next && !stores,
                    target: Some(instruction.near_branch_target()).filter(|&target| target != 0),
                }
            };
            decoder.into_iter().map(one).collect()
        }
        Machine::Aarch64 => {
            let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
            words.zip((range.start..).step_by(4)).map(|(word, address)| arm64(word, address)).collect()
        }
    }
}

/// Arm Architecture Reference Manual, C4.1: branches by their encodings, stores by that of their group.
fn arm64(word: u32, address: u64) -> Instruction {
    let signed = |low: u32, bits: u32| i64::from(((word >> low) << (32 - bits)) as i32 >> (32 - bits)) * 4;
    let distance = match word >> 24 {
        byte if byte & 0x7c == 0x14 => Some(signed(0, 26)),
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => Some(signed(5, 19)),
        0x36 | 0x37 | 0xb6 | 0xb7 => Some(signed(5, 14)),
        _ => None,
    };
    let is_branch_or_system = word >> 26 & 7 == 5;
    let is_hint_or_register = word >> 12 == 0xd5032 || word >> 20 == 0xd53;
    // Op0 of the main table is x1x0, and bit 22 (of pairs, and of single registers with bit 23) says whether it loads.
    let is_memory = word >> 25 & 0b101 == 0b100;
    let loads = word >> 22 & 1 == 1 || word >> 24 & 0x3b == 0x18 || (word >> 27 & 7 == 7 && word >> 22 & 3 != 0);
    Instruction {
        address,
        next: address + 4,
        is_quiet: (!is_branch_or_system || is_hint_or_register) && word >> 16 != 0 && (!is_memory || loads),
        target: distance.map(|distance| address.wrapping_add_signed(distance)),
    }
}

fn check(set: &SiteSet, image: &Image<'_>, site: &Site, cache: &mut HashMap<u32, Vec<Instruction>>) {
    let (probe, entry) = (site.address, site.entry());
    let container = &set.containers[site.container as usize];
    let whole = container.address..container.address + container.size;
    let what = || format!("{} at {probe:#x}, entered at {entry:#x}", set.functions[site.function as usize].name);
    assert!(probe > whole.start && entry < whole.end && probe < entry, "{}", what());
    let all = cache.entry(site.container).or_insert_with(|| instructions(image, whole.clone()));
    let mut at = probe;
    for instruction in all.iter().filter(|instruction| (probe..entry).contains(&instruction.address)) {
        assert_eq!(instruction.address, at, "{}", what());
        assert!(instruction.is_quiet, "{}: {instruction:x?}", what());
        at = instruction.next;
    }
    assert_eq!(at, entry, "{}", what());
    let leads_between = |target: u64| (probe + 1..=entry).contains(&target);
    let branch = all.iter().find(|instruction| instruction.target.is_some_and(leads_between));
    assert!(branch.is_none(), "{}: {branch:x?}", what());
    let tables = image.tables();
    assert!(!tables.jump_labels.iter().any(|label| leads_between(label.target)), "{}: a jump label", what());
    assert!(!tables.exceptions.iter().any(|exception| leads_between(exception.fixup)), "{}: a fixup", what());
    let faults = |address: u64| (probe..entry).contains(&address);
    assert!(!tables.exceptions.iter().any(|exception| faults(exception.instruction)), "{}: a fault", what());
    assert!(!tables.ftrace.iter().any(|&address| faults(address)), "{}: a patch site", what());
    assert!(tables.jump_label_at(probe).is_none(), "{}: on a jump label", what());
    assert!(tables.bug_at(probe).is_none(), "{}: on a trap", what());
    assert_eq!(site.unprobeable, None::<Unprobeable>, "{}", what());
}

#[test]
fn probes_before_entries_are_hit_exactly_when_the_entry_is_reached() {
    let Some(path) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing is tested here");
        return;
    };
    let bytes = fs::read(path).expect("SITESEER_TEST_VMLINUX");
    let (set, census) = encode(&bytes, &Options::default()).unwrap();
    let image = Image::parse(&bytes).unwrap();
    let mut cache = HashMap::new();
    let mut checked = 0;
    for site in set.sites.iter().filter(|site| site.marks.contains(Marks::MOVED_BACK)) {
        check(&set, &image, site, &mut cache);
        checked += 1;
    }
    eprintln!("{checked} probes are before the entry");
    assert!(checked > 0 && checked <= census.sites.moved_back, "{checked}");
    let refused = census.sites.refused_at_entry;
    assert!(refused.values().map(|counts| counts.back).sum::<u64>() >= census.sites.moved_back);
    let reasons = [Unprobeable::JumpLabel, Unprobeable::StaticCall, Unprobeable::Bug, Unprobeable::NotAnInstruction];
    for reason in reasons {
        let counts = refused.get(&reason).copied().unwrap_or_default();
        let left = census.sites.unprobeable.get(&reason).copied().unwrap_or(0);
        assert_eq!(counts.total - counts.forward - counts.back, left, "{reason:?}");
    }
}
