// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The machine code of one function, as a graph of instructions, and the ways through it.
//!
//! Instruction boundaries and branches are those of the encoder's reader of text: jump labels and exceptions are among
//! them. What an instruction does with control is decoded here, since an emulated way goes over calls and takes
//! branches as it is told.

use iced_x86::{Code as X86Code, Decoder, DecoderOptions, FlowControl, Instruction};
use siteseer_encoder::elf::image::Image;
use siteseer_encoder::text::{FunctionText, Known};
use siteseer_sites::Machine;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

/// What an instruction does with control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Goes on.
    Plain,
    /// Goes on, but repeats itself first (x86-64's string instructions).
    Repeated,
    /// Calls something and goes on.
    Call,
    /// The same, and the result is the first argument, as the compiler knows.
    CallForFirst,
    /// The call or no-op that ftrace patches: goes on, and changes nothing.
    Ftrace,
    /// Goes on or branches. A trap that may be resumed counts as one.
    Branch,
    /// Does not go on.
    Away,
}

/// An instruction, as ways go over it.
#[derive(Debug, Clone, Copy)]
struct Step {
    address: u64,
    flow: Flow,
}

/// The code of a function.
pub(super) struct Code {
    instructions: Vec<Step>,
    /// The end of each piece, by its last instruction.
    last: Vec<usize>,
    successors: Vec<Vec<u32>>,
    predecessors: Vec<Vec<u32>>,
    entry: usize,
}

impl Code {
    /// Decodes a function that is entered where its first range begins.
    pub(super) fn decode(image: &Image<'_>, ranges: &[Range<u64>]) -> Code {
        let text = FunctionText::decode(image, ranges, &Known::default());
        let mut instructions: Vec<Step> = text.addresses().map(|address| Step { address, flow: Flow::Plain }).collect();
        instructions.sort_unstable_by_key(|instruction| instruction.address);
        for instruction in &mut instructions {
            instruction.flow = flow(image, instruction.address);
        }
        let index: HashMap<u64, usize> =
            instructions.iter().enumerate().map(|(index, instruction)| (instruction.address, index)).collect();
        let ends: Vec<u64> = ranges.iter().map(|range| range.end).collect();
        let mut code = Code {
            last: Vec::new(),
            successors: vec![Vec::new(); instructions.len()],
            predecessors: vec![Vec::new(); instructions.len()],
            entry: ranges.first().and_then(|range| index.get(&range.start)).copied().unwrap_or(0),
            instructions,
        };
        for at in 0..code.instructions.len() {
            let next = code.instructions.get(at + 1).map(|next| next.address);
            let address = code.instructions[at].address;
            if next.is_none_or(|next| ends.iter().any(|&end| (address + 1..=next).contains(&end))) {
                code.last.push(at);
            } else if code.instructions[at].flow != Flow::Away {
                code.connect(at, at + 1);
            }
        }
        for (source, target) in text.branches() {
            if let (Some(&source), Some(&target)) = (index.get(&source), index.get(&target)) {
                code.connect(source, target);
            }
        }
        code
    }

    fn connect(&mut self, from: usize, to: usize) {
        if !self.successors[from].contains(&(to as u32)) {
            self.successors[from].push(to as u32);
            self.predecessors[to].push(from as u32);
        }
    }

    /// The instruction at an address.
    pub(super) fn at(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, |instruction| instruction.address).ok()
    }

    /// Where the function is entered.
    pub(super) fn entry(&self) -> usize {
        self.entry
    }

    /// An instruction's address.
    pub(super) fn address(&self, index: usize) -> u64 {
        self.instructions[index].address
    }

    /// What an instruction does with control.
    pub(super) fn flow(&self, index: usize) -> Flow {
        self.instructions[index].flow
    }

    /// Whether control may go on to the next instruction from this one, which follows it in memory.
    pub(super) fn falls_into(&self, from: usize, to: usize) -> bool {
        to == from + 1 && self.successors[from].contains(&(to as u32))
    }

    /// A shortest way between two instructions of at most so many, both ends among them, that does not go through an
    /// instruction that is not wanted.
    pub(super) fn way(
        &self,
        from: usize,
        to: usize,
        most: usize,
        unwanted: &dyn Fn(usize) -> bool,
    ) -> Option<Vec<usize>> {
        let mut before: HashMap<usize, usize> = HashMap::from([(from, from)]);
        let mut open = VecDeque::from([(from, 1)]);
        while let Some((at, length)) = open.pop_front() {
            if at == to {
                let mut way = vec![to];
                let mut at = to;
                while at != from {
                    at = before[&at];
                    way.push(at);
                }
                way.reverse();
                return Some(way);
            }
            if length >= most || (at != from && unwanted(at)) {
                continue;
            }
            for &next in &self.successors[at] {
                let next = next as usize;
                if let std::collections::hash_map::Entry::Vacant(free) = before.entry(next) {
                    free.insert(at);
                    open.push_back((next, length + 1));
                }
            }
        }
        None
    }

    /// A way that ends at an instruction: a shortest one from the function's entry, or if that leads nowhere near, the
    /// longest that is found backwards within so many instructions.
    pub(super) fn way_to(&self, to: usize, most: usize) -> Vec<usize> {
        let mut after: HashMap<usize, usize> = HashMap::from([(to, to)]);
        let mut open = VecDeque::from([(to, 1)]);
        let mut farthest = to;
        while let Some((at, length)) = open.pop_front() {
            farthest = at;
            if at == self.entry || length >= most {
                break;
            }
            for &previous in &self.predecessors[at] {
                let previous = previous as usize;
                if let std::collections::hash_map::Entry::Vacant(free) = after.entry(previous) {
                    free.insert(at);
                    open.push_back((previous, length + 1));
                }
            }
        }
        let mut way = vec![farthest];
        let mut at = farthest;
        while at != to {
            at = after[&at];
            way.push(at);
        }
        way
    }
}

/// Functions of the C library, which the kernel has too, that return their first argument.
const RETURNING_FIRST: [&str; 6] = ["memset", "memcpy", "memmove", "__memset", "__memcpy", "__memmove"];

/// A call of what is at an address.
fn call(image: &Image<'_>, target: u64) -> Flow {
    let mut names = image.symbol_at(target).iter().map(|symbol| symbol.name);
    if names.any(|name| RETURNING_FIRST.contains(&name)) { Flow::CallForFirst } else { Flow::Call }
}

fn flow(image: &Image<'_>, address: u64) -> Flow {
    if image.tables().ftrace.binary_search(&address).is_ok() {
        return Flow::Ftrace;
    }
    match image.machine() {
        Machine::X86_64 => x86_flow(image, address),
        Machine::Aarch64 => arm64_flow(image, address),
    }
}

fn x86_flow(image: &Image<'_>, address: u64) -> Flow {
    const LONGEST: u64 = 15;
    let bytes = (1..=LONGEST).rev().find_map(|length| image.bytes(address..address + length)).unwrap_or_default();
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    match instruction.flow_control() {
        _ if instruction.code() == X86Code::INVALID => Flow::Away,
        FlowControl::Next if is_repeated(&instruction) => Flow::Repeated,
        FlowControl::Next | FlowControl::XbeginXabortXend => Flow::Plain,
        FlowControl::Call | FlowControl::IndirectCall => {
            let is_fentry = image.symbol_at(instruction.near_branch_target()).iter().any(|s| s.name == "__fentry__");
            if is_fentry { Flow::Ftrace } else { call(image, instruction.near_branch_target()) }
        }
        FlowControl::ConditionalBranch => Flow::Branch,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => Flow::Away,
        // WARN's trap resumes.
        FlowControl::Exception | FlowControl::Interrupt => {
            if image.tables().bug_at(address).is_some_and(|bug| bug.resumes) { Flow::Branch } else { Flow::Away }
        }
    }
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

fn arm64_flow(image: &Image<'_>, address: u64) -> Flow {
    let Some(bytes) = image.bytes(address..address + 4) else { return Flow::Away };
    let Ok(instruction) = InstDecoder::default().decode(&mut U8Reader::new(bytes)) else { return Flow::Plain };
    match instruction.opcode {
        Opcode::BL => match instruction.operands[0] {
            Operand::PCOffset(offset) => call(image, address.wrapping_add_signed(offset)),
            _ => Flow::Call,
        },
        Opcode::BLR | Opcode::BLRAA | Opcode::BLRAAZ | Opcode::BLRAB | Opcode::BLRABZ => Flow::Call,
        Opcode::Bcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => Flow::Branch,
        Opcode::B | Opcode::BR | Opcode::BRAA | Opcode::BRAAZ | Opcode::BRAB | Opcode::BRABZ => Flow::Away,
        Opcode::RET | Opcode::RETAA | Opcode::RETAB | Opcode::ERET | Opcode::ERETAA | Opcode::ERETAB => Flow::Away,
        Opcode::BRK | Opcode::HLT => {
            if image.tables().bug_at(address).is_some_and(|bug| bug.resumes) {
                Flow::Branch
            } else {
                Flow::Away
            }
        }
        _ => Flow::Plain,
    }
}
