// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! An emulated processor for a few instructions of a kernel, with random registers and with random memory wherever the
//! image has none.
//!
//! Nothing is mapped beforehand. Each page of the address space that is touched is given one of a few physical pages
//! with random contents, by a hash of its address. So any pointer can be followed, the same address always leads to the
//! same bytes, and another seed leads to others. Pages of the image hold what the image holds; the stack has pages of
//! its own, since a store through some pointer must not change it.

use siteseer_encoder::elf::image::Image;
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;
use std::collections::HashMap;
use unicorn_engine::{Arch, Arm64CpuModel, Mode, Prot, TlbEntry, TlbType, Unicorn, uc_error};

const PAGE: u64 = 0x1000;
/// Physical pages for what is neither stack nor image.
const POOL: u64 = 64;
/// Physical pages of the stack.
const STACK: u64 = 16;
/// The stack pointer is in the middle of its pages.
const STACK_TOP: u64 = 0x7000_4000_0000;
/// Where the image's own pages begin.
const OWN: u64 = POOL + STACK;

/// The state is not what it should be, or an instruction cannot be emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}")]
pub(super) struct CpuError(pub(super) uc_error);

impl From<uc_error> for CpuError {
    fn from(error: uc_error) -> CpuError {
        CpuError(error)
    }
}

/// A sequence of numbers (SplitMix64): the same for the same seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers(u64);

impl Numbers {
    /// The next number.
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One that can be an address: user space's half, so that sums with offsets are addresses too.
    pub(super) fn draw_address(&mut self) -> u64 {
        self.draw() >> 17
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Which physical page each page has.
struct Pages {
    seed: u64,
    /// The image's first page.
    start: u64,
    /// Which pages, from that one on, hold something that is in the image's file.
    own: Vec<bool>,
}

impl Pages {
    fn of(image: &Image<'_>) -> Pages {
        let loaded = image.loaded();
        let start = loaded.start / PAGE * PAGE;
        let count = loaded.end.saturating_sub(start).div_ceil(PAGE);
        Pages { seed: 0, start, own: vec![false; count as usize] }
    }

    /// The physical address of an address. The emulator's own pages may be smaller than these: 1 KiB on arm64.
    fn physical_of(&self, address: u64) -> u64 {
        self.physical(address / PAGE * PAGE) + address % PAGE
    }

    /// The physical page of a page.
    fn physical(&self, page: u64) -> u64 {
        let stack = STACK_TOP - STACK / 2 * PAGE;
        if (stack..stack + STACK * PAGE).contains(&page) {
            return POOL * PAGE + (page - stack);
        }
        let index = page.wrapping_sub(self.start) / PAGE;
        if self.own.get(index as usize) == Some(&true) {
            return (OWN + index) * PAGE;
        }
        mix(page ^ self.seed) % POOL * PAGE
    }
}

/// The processor.
pub(super) struct Cpu<'u> {
    machine: Machine,
    unicorn: Unicorn<'u, Pages>,
    numbers: Numbers,
    /// The contents of the pool and the stack, from which each run starts, by the seed.
    contents: HashMap<u64, Vec<u8>>,
}

impl Cpu<'_> {
    /// A processor that sees an image.
    ///
    /// # Errors
    /// If the emulator cannot be started.
    pub(super) fn new(image: &Image<'_>) -> Result<Self, CpuError> {
        let machine = image.machine();
        let (arch, mode) = match machine {
            Machine::X86_64 => (Arch::X86, Mode::MODE_64),
            Machine::Aarch64 => (Arch::ARM64, Mode::LITTLE_ENDIAN),
        };
        let mut pages = Pages::of(image);
        let (start, count) = (pages.start, pages.own.len() as u64);
        let sections = image.loaded_sections();
        let sections = sections.iter().filter_map(|section| Some((section.address, image.bytes(section.range())?)));
        let sections: Vec<(u64, &[u8])> = sections.filter(|(address, _)| *address >= start).collect();
        for (address, bytes) in &sections {
            for page in (address - start) / PAGE..(address - start + bytes.len() as u64).div_ceil(PAGE) {
                pages.own.get_mut(page as usize).into_iter().for_each(|own| *own = true);
            }
        }
        let mut unicorn = Unicorn::new_with_data(arch, mode, pages)?;
        if machine == Machine::Aarch64 {
            unicorn.ctl_set_cpu_model(Arm64CpuModel::MAX as i32)?;
        }
        unicorn.ctl_set_tlb_type(TlbType::VIRTUAL)?;
        unicorn.mem_map(0, (OWN + count) * PAGE, Prot::ALL)?;
        for (address, bytes) in sections {
            unicorn.mem_write(OWN * PAGE + (address - start), bytes)?;
        }
        unicorn.add_tlb_hook(1, 0, |unicorn, address, _| {
            let paddr = unicorn.get_data().physical_of(address);
            Some(TlbEntry { paddr, perms: Prot::ALL })
        })?;
        Ok(Cpu { machine, unicorn, numbers: Numbers(0), contents: HashMap::new() })
    }

    /// New random registers and memory. The stack pointer is aligned as it is at a function's entry, or as it is in its
    /// body.
    ///
    /// # Errors
    /// If the emulator fails.
    pub(super) fn reset(&mut self, seed: u64, at_entry: bool) -> Result<(), CpuError> {
        let mut numbers = Numbers(mix(seed));
        self.unicorn.mem_write(0, self.contents.entry(seed).or_insert_with(|| contents(seed)))?;
        self.unicorn.get_data_mut().seed = seed;
        self.unicorn.ctl_flush_tlb()?;
        for register in general(self.machine) {
            let value = numbers.draw_address();
            self.set_register(register, value)?;
        }
        let below = if at_entry && self.machine == Machine::X86_64 { 8 } else { 0 };
        self.set_register(self.machine.stack_pointer(), STACK_TOP - below)?;
        self.numbers = numbers;
        Ok(())
    }

    /// Runs from an address until another is reached, on a straight line.
    ///
    /// # Errors
    /// If an instruction cannot be emulated, or the address is not reached.
    pub(super) fn run(&mut self, from: u64, until: u64) -> Result<(), CpuError> {
        // On arm64 the emulator does not always stop there, and would go on for ever.
        let most = match self.machine {
            Machine::X86_64 => 0,
            Machine::Aarch64 => (until.saturating_sub(from) / 4).max(1) as usize,
        };
        self.unicorn.emu_start(from, until, 0, most)?;
        if self.unicorn.pc_read()? == until { Ok(()) } else { Err(CpuError(uc_error::EXCEPTION)) }
    }

    /// What a call leaves: the registers that the calling convention lets a function change hold something else. The
    /// result may be the first argument.
    ///
    /// # Errors
    /// If the emulator fails.
    pub(super) fn clobber(&mut self, returns_first: bool) -> Result<(), CpuError> {
        const X86_64: &[Register] = &[0, 1, 2, 4, 5, 8, 9, 10, 11];
        const AARCH64: &[Register] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 30];
        let clobbered = match self.machine {
            Machine::X86_64 => X86_64,
            Machine::Aarch64 => AARCH64,
        };
        let (first, result) = match self.machine {
            Machine::X86_64 => (5, 0),
            Machine::Aarch64 => (0, 0),
        };
        let argument = self.register(first);
        for &register in clobbered {
            let value = self.numbers.draw_address();
            self.set_register(register, value)?;
        }
        if returns_first { self.set_register(result, argument) } else { Ok(()) }
    }

    /// Sees to it that a repeated string instruction ends soon.
    ///
    /// # Errors
    /// If the emulator fails.
    pub(super) fn shorten_repetition(&mut self) -> Result<(), CpuError> {
        const RCX: Register = 2;
        let count = self.register(RCX) & 0x1f;
        self.set_register(RCX, count)
    }

    /// A register by DWARF number; 0 if there is no such register.
    pub(super) fn register(&self, register: Register) -> u64 {
        number(self.machine, register).and_then(|number| self.unicorn.reg_read(number).ok()).unwrap_or(0)
    }

    /// The same at an address, which the instruction pointer holds there.
    pub(super) fn register_at(&self, register: Register, address: u64) -> u64 {
        const RIP: Register = 16;
        let is_pointer = self.machine == Machine::X86_64 && register == RIP;
        if is_pointer { address } else { self.register(register) }
    }

    fn set_register(&mut self, register: Register, value: u64) -> Result<(), CpuError> {
        match number(self.machine, register) {
            Some(number) => Ok(self.unicorn.reg_write(number, value)?),
            None => Ok(()),
        }
    }

    /// Reads memory.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut at = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let here = ((PAGE - at % PAGE) as usize).min(rest.len());
            let (part, behind) = rest.split_at_mut(here);
            if self.unicorn.mem_read(self.unicorn.get_data().physical_of(at), part).is_err() {
                return false;
            }
            at = at.wrapping_add(here as u64);
            rest = behind;
        }
        true
    }
}

/// The general purpose registers, without x86-64's instruction pointer.
fn general(machine: Machine) -> std::ops::Range<Register> {
    match machine {
        Machine::X86_64 => 0..16,
        Machine::Aarch64 => 0..32,
    }
}

/// Random memory. Much of it can be read as pointers.
fn contents(seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..OWN * PAGE / 8).flat_map(|_| numbers.draw_address().to_le_bytes()).collect()
}

/// The emulator's number of a register.
fn number(machine: Machine, register: Register) -> Option<i32> {
    crate::machine::number(machine, register)
}
