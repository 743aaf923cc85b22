// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Runs a program in the emulator.

use crate::machine::{Emulator, EmulatorError, PAGE};
use crate::random::program::START;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};
use siteseer_sites::Machine;
use siteseer_sites::location::Located;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Where the stack is, and where the program returns to.
const STACK: u64 = 0x7000_0000;
const STACK_SIZE: u64 = 1 << 20;
pub(crate) const STACK_RANGE: Range<u64> = STACK..STACK + STACK_SIZE;
const END: u64 = 0x6000_0000;
/// The log of the unoptimised build: see runtime.c.
const LOG: u64 = 0x4000_0000;
const LOG_SIZE: u64 = 64 << 20;
/// How long a run may take: it takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);
/// How many blocks of code the unoptimised program may run.
const BLOCKS: u64 = 2_000_000;

/// Parts of the memory of a program: see prelude.h.
const INPUTS: u64 = 4;
const INPUT_COUNT: usize = 64;
const OBJECTS: u64 = 272;
const OBJECT_COUNT: u64 = 8;
const OBJECT_SIZE: u64 = 48;
const OBJECT_LINK: u64 = 16;
const WORLD_SIZE: u64 = 4096;

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The image cannot be read.
    #[error("the image cannot be read")]
    Image(#[from] object::Error),
    /// It lacks something.
    #[error("the image has no {0}")]
    Lacks(&'static str),
    /// The emulator.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// The unoptimised program runs for too long, or the log ran over.
    #[error("the unoptimised program does not end, or makes too many calls to be logged")]
    TooLong,
}

/// A place to look at, with what is to be read there.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) address: u64,
    /// What the caller knows the place by.
    pub(crate) index: usize,
    pub(crate) arguments: Vec<Option<Located>>,
    /// What is added to link-time addresses.
    pub(crate) displacement: u64,
}

/// A hit at a place.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) index: usize,
    /// How many stores of numbers came before it.
    pub(crate) time: usize,
    /// The slots of each argument; `None` where there is no location; an empty list where it cannot be read.
    pub(crate) arguments: Vec<Option<Vec<u64>>>,
}

/// A store of a function's number.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) number: u64,
    pub(crate) pc: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) hits: Vec<Hit>,
    pub(crate) stores: Vec<Store>,
    /// How many blocks of code were run, if they are counted.
    blocks: u64,
}

/// A program in the emulator, to be run with one input after another.
pub(crate) struct Runner<'e> {
    emulator: Emulator<'e, Seen>,
    machine: Machine,
    start: u64,
    world: u64,
    /// What the program may change, as it is at the start.
    fresh: Vec<Part>,
}

/// A section that is loaded.
struct Part {
    address: u64,
    bytes: Vec<u8>,
    is_code: bool,
    is_written: bool,
}

fn loaded(file: &object::File<'_>) -> Result<Vec<Part>, RunError> {
    let mut parts = Vec::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
        if !sh_flags.contains(object::elf::SHF_ALLOC) || section.size() == 0 || section.address() == 0 {
            continue;
        }
        let mut bytes = section.uncompressed_data()?.into_owned();
        bytes.resize(section.size() as usize, 0);
        parts.push(Part {
            address: section.address(),
            bytes,
            is_code: sh_flags.contains(object::elf::SHF_EXECINSTR),
            is_written: sh_flags.contains(object::elf::SHF_WRITE),
        });
    }
    Ok(parts)
}

/// The pages that hold the parts, in order, and whether there is code on them.
fn pages(parts: &[Part]) -> BTreeMap<u64, bool> {
    let mut pages = BTreeMap::new();
    for part in parts {
        let end = (part.address + part.bytes.len() as u64).next_multiple_of(PAGE);
        for page in (part.address / PAGE * PAGE..end).step_by(PAGE as usize) {
            *pages.entry(page).or_default() |= part.is_code;
        }
    }
    pages
}

/// Ranges of pages of a kind that do not touch.
fn ranges(pages: &BTreeMap<u64, bool>, is_code: bool) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for page in pages.iter().filter(|(_, code)| **code == is_code).map(|(page, _)| *page) {
        match merged.last_mut() {
            Some(last) if page == last.end => last.end += PAGE,
            _ => merged.push(page..page + PAGE),
        }
    }
    merged
}

impl<'e> Runner<'e> {
    /// Loads an image with its memory at `world`, with a hook at each place.
    pub(crate) fn new(image: &[u8], machine: Machine, world: u64, watches: Vec<Watch>) -> Result<Self, RunError> {
        let file = object::File::parse(image)?;
        let start = file.symbols().find(|symbol| symbol.name() == Ok(START)).ok_or(RunError::Lacks("start"))?.address();
        let mut emulator = Emulator::new(machine, Seen::default())?;
        let parts = loaded(&file)?;
        let pages = pages(&parts);
        for range in ranges(&pages, true) {
            emulator.map(range.start, range.end - range.start)?;
        }
        for range in ranges(&pages, false) {
            emulator.map_data(range.start, range.end - range.start)?;
        }
        for part in &parts {
            emulator.write(part.address, &part.bytes)?;
        }
        emulator.map_data(STACK, STACK_SIZE)?;
        emulator.map(END, PAGE)?;
        let mut watches = watches;
        watches.sort_by_key(|watch| watch.address);
        for same in watches.chunk_by(|one, other| one.address == other.address) {
            let same = same.to_vec();
            emulator.on_execution(same[0].address, move |cpu| {
                for watch in &same {
                    let read = |located: &Located| cpu.evaluate(located, watch.displacement).unwrap_or_default();
                    let arguments = watch.arguments.iter().map(|located| located.as_ref().map(read)).collect();
                    let time = cpu.data().stores.len();
                    cpu.data().hits.push(Hit { index: watch.index, time, arguments });
                }
            })?;
        }
        emulator.on_write(world, 4, |cpu, number| {
            let pc = cpu.pc();
            cpu.data().stores.push(Store { number, pc });
        })?;
        let fresh = parts.into_iter().filter(|part| part.is_written).collect();
        Ok(Runner { emulator, machine, start, world, fresh })
    }

    /// Has room for the log of the unoptimised build, which may not run for longer than so many blocks of code: on any
    /// machine, what is too long is the same.
    pub(crate) fn with_log(mut self) -> Result<Self, RunError> {
        self.emulator.map_data(LOG, LOG_SIZE)?;
        self.emulator.on_block(|seen| {
            seen.blocks += 1;
            seen.blocks <= BLOCKS
        })?;
        Ok(self)
    }

    /// Runs the program on an input.
    pub(crate) fn run(&mut self, input: &[u64]) -> Result<Seen, RunError> {
        for part in &self.fresh {
            self.emulator.write(part.address, &part.bytes)?;
        }
        self.emulator.write(self.world, &self.fresh_world(input))?;
        let stack = STACK + STACK_SIZE - 0x1000;
        match self.machine {
            Machine::X86_64 => {
                self.emulator.write(stack - 8, &END.to_le_bytes())?;
                self.emulator.set_register(self.machine.stack_pointer(), stack - 8)?;
            }
            Machine::Aarch64 => {
                const LINK: u16 = 30;
                self.emulator.set_register(LINK, END)?;
                self.emulator.set_register(self.machine.stack_pointer(), stack)?;
            }
        }
        *self.emulator.data_mut() = Seen::default();
        self.emulator.run(self.start, END, LIMIT)?;
        Ok(std::mem::take(self.emulator.data_mut()))
    }

    /// Runs the unoptimised program, and gives its log.
    pub(crate) fn log(&mut self, input: &[u64]) -> Result<Vec<u64>, RunError> {
        self.emulator.write(LOG, &[0; 8])?;
        if let Err(error) = self.run(input) {
            return Err(if self.emulator.data_mut().blocks > BLOCKS { RunError::TooLong } else { error });
        }
        let words = |bytes: Vec<u8>| -> Vec<u64> {
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect()
        };
        let used = words(self.emulator.read(LOG, 8)?)[0];
        if used >= LOG_SIZE / 8 - 2 {
            return Err(RunError::TooLong);
        }
        Ok(words(self.emulator.read(LOG + 8, used as usize * 8)?))
    }

    /// The program's memory as it is at the start.
    fn fresh_world(&self, input: &[u64]) -> Vec<u8> {
        let mut world = vec![0; WORLD_SIZE as usize];
        let mut put = |at: u64, bytes: &[u8]| world[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        for (index, value) in input.iter().take(INPUT_COUNT).enumerate() {
            put(INPUTS + 4 * index as u64, &(*value as u32).to_le_bytes());
        }
        for object in 0..OBJECT_COUNT {
            let at = OBJECTS + object * OBJECT_SIZE;
            for word in 0..OBJECT_SIZE / 8 {
                let value = input[((object * 7 + word) % input.len() as u64) as usize];
                put(at + 8 * word, &value.to_le_bytes());
            }
            let next = OBJECTS + (object * 3 + 1) % OBJECT_COUNT * OBJECT_SIZE + OBJECT_LINK;
            put(at + OBJECT_LINK, &(self.world + next).to_le_bytes());
        }
        world
    }
}
