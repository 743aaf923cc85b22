// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! arm64 instructions, decoded by yaxpeax-arm. Hints (`nop`, `bti`, pointer authentication) are told apart by their
//! encodings: Arm Architecture Reference Manual, C4.1.66 "Branches, Exception Generating and System instructions".

use super::makes::InPlace;
use super::reads::{mask_bytes, shifted_bytes};
use super::result::Result;
use super::same::Beside;
use super::slots::{Access, Slot};
use super::stores::is_data;
use super::unwritten::Step;
use super::zero::ZeroBranch;
use super::{Acts, Effect, Flow, RegisterSet};
use crate::elf::image::Image;
use siteseer_sites::abi::argument_registers;
use siteseer_sites::machine::Register;
use siteseer_sites::{Machine, Unprobeable};
use std::ops::Range;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand, ShiftStyle, SizeCode};

const NOP: u32 = 0xd503_201f;
const PACIASP: u32 = 0xd503_233f;
const AUTIASP: u32 = 0xd503_23bf;
/// `bti`, `bti c`, `bti j`, `bti jc` differ in bits 6 and 7: c is bit 6, j is bit 7.
const BTI: u32 = 0xd503_241f;
const BTI_KINDS: u32 = 0xc0;
const BTI_C: u32 = 0x40;
const BTI_J: u32 = 0x80;
/// DWARF number of the link register.
const LINK: u16 = 30;
/// The number of the stack pointer.
const STACK: u32 = 31;
/// The number of the frame pointer.
const FRAME: u32 = 29;
const RET: u32 = 0xd65f_0000;
const RET_REGISTER: u32 = 0x3e0;

fn is_bti(word: u32) -> bool {
    word & !BTI_KINDS == BTI
}

/// Whether the instruction there is `bti c` or `bti jc`.
pub(super) fn begins_with_bti(image: &Image<'_>, address: u64) -> bool {
    word_at(image, address).is_some_and(|word| is_bti(word) && word & BTI_C != 0)
}

/// Whether an instruction may be the target of an indirect jump or call: `bti`, or `paciasp`, which is one, too.
pub(super) fn is_landing_pad(image: &Image<'_>, address: u64) -> bool {
    word_at(image, address).is_some_and(|word| is_bti(word) || word == PACIASP)
}

/// The registers of `mov xD, xM`, which is `orr xD, xzr, xM`: destination and source.
pub(super) fn register_copy(image: &Image<'_>, address: u64) -> Option<(u16, u16)> {
    const COPY: u32 = 0xaa00_03e0;
    const REGISTERS: u32 = 0x001f_001f;
    const ZERO: u32 = 31;
    let word = word_at(image, address)?;
    let (to, from) = (word & 0x1f, word >> 16 & 0x1f);
    (word & !REGISTERS == COPY && to != ZERO && from != ZERO).then_some((to as u16, from as u16))
}

/// What an instruction does to a register alone: `add` or `sub` with an immediate, `mvn` (`orn` with the zero register)
/// or `neg` (`sub` from it).
pub(super) fn in_place(image: &Image<'_>, address: u64, register: u16) -> Option<InPlace> {
    const GROUP: u32 = 0x1f80_0000;
    const ADD: u32 = 0x1100_0000;
    const SUBTRACTS: u32 = 1 << 30;
    const SHIFTED: u32 = 1 << 22;
    const OF_ALL_BITS: u32 = 1 << 31;
    const REGISTERS: u32 = 0x001f_001f;
    const INVERT: u32 = 0x2a20_03e0;
    const NEGATE: u32 = 0x4b00_03e0;
    let word = word_at(image, address)?;
    if word & 0x1f == u32::from(register) && word >> 16 & 0x1f == u32::from(register) {
        match word & !REGISTERS & !OF_ALL_BITS {
            INVERT => return Some(InPlace::Inverts),
            NEGATE => return Some(InPlace::Negates),
            _ => {}
        }
    }
    let (to, from, immediate) = (word & 0x1f, word >> 5 & 0x1f, i64::from(word >> 10 & 0xfff));
    let distance = if word & SHIFTED == 0 { immediate } else { immediate << 12 };
    let is_one = word & GROUP == ADD && to == from && to == u32::from(register);
    is_one.then_some(InPlace::Adds(if word & SUBTRACTS == 0 { distance } else { -distance }))
}

/// Decodes linearly; stops when `visit`, which gets each instruction's offset, says so.
pub(super) fn decode(bytes: &[u8], address: u64, visit: &mut dyn FnMut(u32, Flow) -> bool) {
    for (word, offset) in bytes.chunks_exact(4).filter_map(<[u8]>::first_chunk::<4>).zip((0u32..).step_by(4)) {
        let word = u32::from_le_bytes(*word);
        if !visit(offset, flow(word, address.wrapping_add(offset.into()))) {
            return;
        }
    }
}

/// Whether an instruction belongs to the group "Branches, Exception Generating and System instructions" (C4.1: bits
/// 28-26 are 101). No other instruction transfers control, and most instructions do not belong to it.
fn is_branch_or_system(word: u32) -> bool {
    word >> 26 & 0b111 == 0b101
}

/// Whether an instruction of that group is one of the system instructions (C4.1: hints, barriers, `msr`, `mrs`, `sys`),
/// which all go on at the next one.
fn is_system(word: u32) -> bool {
    word >> 22 == 0b11_0101_0100
}

/// [`flow_at`](super::flow_at).
pub(super) fn flow_at(image: &Image<'_>, address: u64) -> Option<(Flow, u64)> {
    Some((flow(word_at(image, address)?, address), address.checked_add(4)?))
}

fn flow(word: u32, address: u64) -> Flow {
    if !is_branch_or_system(word) {
        // udf: the only other one that never goes on.
        return if word >> 16 == 0 { Flow::Trap } else { Flow::Next };
    }
    match word {
        NOP => return Flow::Nop,
        _ if is_bti(word) => return if word & BTI_J != 0 { Flow::LandingPad } else { Flow::Next },
        _ => {}
    }
    // An instruction that is not known here may go anywhere, except system instructions.
    let unknown = if is_system(word) { Flow::Next } else { Flow::Invalid };
    let Some(instruction) = decode_word(word) else { return unknown };
    let target = || {
        instruction.operands.iter().find_map(|operand| match operand {
            Operand::PCOffset(offset) => Some(address.wrapping_add_signed(*offset)),
            _ => None,
        })
    };
    match (instruction.opcode, target()) {
        (Opcode::B, Some(target)) => Flow::Jump(target),
        (Opcode::Bcc(_) | Opcode::BCcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ, Some(target)) => {
            Flow::Conditional(target)
        }
        (Opcode::BL, Some(target)) => Flow::Call(target),
        (Opcode::BR | Opcode::BRAA | Opcode::BRAAZ | Opcode::BRAB | Opcode::BRABZ, _) => Flow::Indirect,
        (Opcode::RET | Opcode::RETAA | Opcode::RETAB, _) => Flow::Stop,
        (Opcode::ERET | Opcode::ERETAA | Opcode::ERETAB | Opcode::DRPS, _) => Flow::Stop,
        (Opcode::BRK | Opcode::HLT, _) => Flow::Trap,
        (Opcode::BLR | Opcode::BLRAA | Opcode::BLRAAZ | Opcode::BLRAB | Opcode::BLRABZ, _) => Flow::Next,
        (Opcode::SVC | Opcode::HVC | Opcode::SMC, _) => Flow::Next,
        _ => unknown,
    }
}

fn decode_word(word: u32) -> Option<Instruction> {
    InstDecoder::default().decode(&mut U8Reader::new(&word.to_le_bytes())).ok()
}

/// The instruction at an address.
pub(crate) fn word_at(image: &Image<'_>, address: u64) -> Option<u32> {
    let bytes = image.bytes(address..address.checked_add(4)?)?;
    Some(u32::from_le_bytes(*bytes.first_chunk::<4>()?))
}

pub(super) fn effect_at(image: &Image<'_>, address: u64) -> Option<Effect> {
    let word = word_at(image, address)?;
    let known = effect(word);
    let (writes, stores) = known.unwrap_or_default();
    Some(Effect { next: address.wrapping_add(4), writes, stores, plain: known.is_some(), straight: known.is_some() })
}

/// Whether an instruction does something that can be seen. `frame_pointer` is a register with the frame's address,
/// beside the stack pointer.
pub(super) fn acts(image: &Image<'_>, address: u64, frame_pointer: Option<Register>) -> Acts {
    let Some(word) = word_at(image, address) else { return Acts::Yes };
    let is_frame = |base: u32| base == STACK || frame_pointer.is_some_and(|register| u32::from(register) == base);
    match flow(word, address) {
        Flow::Jump(target) | Flow::Conditional(target) => return Acts::Jumps(target),
        Flow::Nop | Flow::LandingPad => return Acts::No,
        Flow::Stop if word & !RET_REGISTER == RET => return Acts::No,
        Flow::Next => {}
        _ => return Acts::Yes,
    }
    match effect(word) {
        Some((_, false)) => Acts::No,
        // Bits 5 to 9 of a store are its base register.
        Some((_, true)) if is_frame(word >> 5 & 0x1f) => Acts::No,
        _ => Acts::Yes,
    }
}

/// Whether the instructions at two addresses do the same, with whichever registers.
pub(super) fn is_alike(image: &Image<'_>, one: u64, other: u64) -> bool {
    /// What is stored or called, and where to.
    const REGISTERS: u32 = 0x3ff;
    let (Some(first), Some(second)) = (word_at(image, one), word_at(image, other)) else { return false };
    match (flow(first, one), flow(second, other)) {
        (Flow::Call(first), Flow::Call(second)) => first == second,
        (Flow::Next, Flow::Next) => first & !REGISTERS == second & !REGISTERS,
        _ => first == second,
    }
}

/// What the instruction at one address is beside that at another one, and the lengths of both; `None` if they do
/// something else.
pub(super) fn beside(image: &Image<'_>, one: u64, other: u64) -> Option<(Beside, (u64, u64))> {
    let (first, second) = (word_at(image, one)?, word_at(image, other)?);
    let beside = match (flow(first, one), flow(second, other)) {
        (Flow::Jump(here), Flow::Jump(there))
        | (Flow::Call(here), Flow::Call(there))
        | (Flow::Conditional(here), Flow::Conditional(there)) => {
            let target = target_bits(first);
            (first & !target == second & !target).then_some(Beside::Leads(here, there))?
        }
        (Flow::Invalid, _) => return None,
        _ => match (relative(first, one), relative(second, other)) {
            (Relative::Nothing, Relative::Nothing) if first == second => Beside::Same,
            (Relative::Address(here), Relative::Address(there)) if here == there && first & 0x1f == second & 0x1f => {
                Beside::Same
            }
            _ => return None,
        },
    };
    Some((beside, (4, 4)))
}

/// The bits of a direct branch that say where it leads (C4.1.66): those of `b` and `bl`, of `tbz` and `tbnz`, and of
/// `b.cond`, `cbz` and `cbnz`.
fn target_bits(word: u32) -> u32 {
    match word >> 24 & 0x7f {
        0x14..=0x17 => 0x03ff_ffff,
        0x36 | 0x37 => 0x0007_ffe0,
        _ => 0x00ff_ffe0,
    }
}

/// The registers that a plain instruction writes and whether it stores; `None` for all others.
fn effect(word: u32) -> Option<(RegisterSet, bool)> {
    let mut writes = RegisterSet::default();
    match word {
        NOP => return Some((writes, false)),
        PACIASP | AUTIASP => {
            writes.insert(LINK);
            return Some((writes, false));
        }
        _ if is_bti(word) => return Some((writes, false)),
        _ => {}
    }
    let instruction = decode_word(word)?;
    use Opcode as O;
    // How many of the first operands are written.
    let (results, stores) = match instruction.opcode {
        O::MOVN | O::MOVK | O::MOVZ | O::ADR | O::ADRP | O::EXTR | O::BFM | O::UBFM | O::SBFM => (1, false),
        O::ADD | O::ADDS | O::SUB | O::SUBS | O::ADC | O::ADCS | O::SBC | O::SBCS => (1, false),
        O::AND | O::ANDS | O::ORR | O::ORN | O::EOR | O::EON | O::BIC | O::BICS => (1, false),
        O::CSEL | O::CSNEG | O::CSINC | O::CSINV | O::RBIT | O::REV | O::REV16 | O::REV32 | O::CLZ | O::CLS => {
            (1, false)
        }
        O::MADD | O::MSUB | O::SMADDL | O::SMSUBL | O::UMADDL | O::UMSUBL | O::SMULH | O::UMULH => (1, false),
        O::UDIV | O::SDIV | O::LSLV | O::LSRV | O::ASRV | O::RORV | O::MRS => (1, false),
        O::CCMP | O::CCMN => (0, false),
        O::LDR | O::LDRB | O::LDRH | O::LDRSB | O::LDRSH | O::LDRSW => (1, false),
        O::LDUR | O::LDURB | O::LDURH | O::LDURSB | O::LDURSH | O::LDURSW => (1, false),
        O::LDP | O::LDPSW | O::LDNP => (2, false),
        O::STR | O::STRB | O::STRH | O::STUR | O::STURB | O::STURH | O::STP | O::STNP => (0, true),
        _ => return None,
    };
    for (index, operand) in instruction.operands.iter().enumerate() {
        match *operand {
            // Register 31 is the zero register here, ...
            Operand::Register(_, register) if index < results && register < 31 => writes.insert(register),
            // ... the stack pointer here, ...
            Operand::RegisterOrSP(_, register) if index < results => writes.insert(register),
            // ... and in addresses.
            Operand::RegPreIndex(base, _, true)
            | Operand::RegPostIndex(base, _)
            | Operand::RegPostIndexReg(base, _) => {
                writes.insert(base);
            }
            Operand::RegPreIndex(..) | Operand::RegRegOffset(..) | Operand::SIMDRegister(..) => {}
            _ if index < results && !matches!(operand, Operand::Register(..)) => return None,
            _ => {}
        }
    }
    Some((writes, stores))
}

/// Whether an instruction makes a new value in a register.
pub(super) fn makes(image: &Image<'_>, address: u64, register: u16) -> bool {
    let Some(word) = word_at(image, address) else { return false };
    if !effect(word).is_some_and(|(writes, _)| writes.contains(register)) {
        return false;
    }
    let Some(instruction) = decode_word(word) else { return false };
    use Opcode as O;
    match instruction.opcode {
        O::MOVN | O::MOVK | O::MOVZ | O::ADR | O::ADRP => false,
        // `mov` is `orr` with the zero register, bits 5 to 9.
        O::ORR => word >> 5 & 0x1f != 31,
        // `sxtw` and the like begin at bit 0, which bits 16 to 21 say.
        O::UBFM | O::SBFM => word >> 16 & 0x3f != 0,
        // Or the same value in fewer bits.
        O::AND => !matches!(
            instruction.operands[2],
            Operand::Immediate(1 | 0xff | 0xffff) | Operand::Imm64(1 | 0xff | 0xffff)
        ),
        // An address on the stack.
        O::ADD | O::SUB if matches!(instruction.operands[1], Operand::RegisterOrSP(_, 31)) => false,
        O::LDR | O::LDRB | O::LDRH | O::LDRSB | O::LDRSH | O::LDRSW | O::LDP | O::LDPSW | O::LDNP => {
            !matches!(word >> 5 & 0x1f, STACK | FRAME)
        }
        O::LDUR | O::LDURB | O::LDURH | O::LDURSB | O::LDURSH | O::LDURSW => !matches!(word >> 5 & 0x1f, STACK | FRAME),
        _ => true,
    }
}

/// What an instruction does to a slot.
pub(super) fn slot_access(image: &Image<'_>, address: u64, slot: &Slot) -> Access {
    use Opcode as O;
    let Some(instruction) = word_at(image, address).and_then(decode_word) else { return Access::Read };
    let size = match instruction.operands[0] {
        Operand::Register(SizeCode::W, _) => 4,
        Operand::Register(SizeCode::X, _) => 8,
        Operand::SIMDRegister(..) => 16,
        _ => return Access::None,
    };
    let (size, is_store) = match instruction.opcode {
        O::STRB | O::STURB => (1, true),
        O::STRH | O::STURH => (2, true),
        O::STR | O::STUR => (size, true),
        O::STP | O::STNP => (2 * size, true),
        O::LDRB | O::LDRSB | O::LDURB | O::LDURSB => (1, false),
        O::LDRH | O::LDRSH | O::LDURH | O::LDURSH => (2, false),
        O::LDR | O::LDUR | O::LDRSW | O::LDURSW => (size, false),
        O::LDP | O::LDNP | O::LDPSW => (2 * size, false),
        _ => return Access::None,
    };
    for operand in instruction.operands {
        let (base, start) = match operand {
            Operand::RegPreIndex(base, offset, _) => (base, i64::from(offset)),
            Operand::RegPostIndex(base, _) => (base, 0),
            _ => continue,
        };
        let bytes = start..start + size;
        if slot.overlaps(base, &bytes) {
            return if is_store { slot.written(&bytes) } else { Access::Read };
        }
    }
    Access::None
}

/// `add` or `sub` of an immediate, with 64 bits: the registers of the result and of the operand, and what is added.
fn sum_with_immediate(word: u32) -> Option<(u32, u32, i64)> {
    let value = i64::from(word >> 10 & 0xfff) << if word & 1 << 22 != 0 { 12 } else { 0 };
    let added = match word & 0xff80_0000 {
        0x9100_0000 => value,
        0xd100_0000 => -value,
        _ => return None,
    };
    Some((word & 0x1f, word >> 5 & 0x1f, added))
}

/// What an instruction does to a slot that is given as it is after the instruction.
pub(super) fn frame_step(image: &Image<'_>, address: u64, slot: &Slot) -> Step {
    let Some(word) = word_at(image, address) else { return Step::Reaches };
    let base = word >> 5 & 0x1f;
    match flow(word, address) {
        Flow::Jump(_) | Flow::Conditional(_) | Flow::Indirect | Flow::Nop | Flow::LandingPad => return Step::Keeps(0),
        Flow::Call(_) => return Step::MayReach,
        Flow::Next => {}
        _ => return Step::Reaches,
    }
    if let Some((STACK, STACK, added)) = sum_with_immediate(word) {
        return Step::Keeps(added);
    }
    let Some((writes, stores)) = effect(word) else {
        return if base == STACK { Step::Reaches } else { Step::MayReach };
    };
    let Some(instruction) = decode_word(word) else { return Step::Reaches };
    // Where an access is, from the stack pointer as it is after it, and how far that moves.
    let found = instruction.operands.iter().find_map(|operand| match *operand {
        Operand::RegPreIndex(base, offset, true) => Some((base, 0, i64::from(offset))),
        Operand::RegPreIndex(base, offset, false) => Some((base, i64::from(offset), 0)),
        Operand::RegPostIndex(base, offset) => Some((base, -i64::from(offset), i64::from(offset))),
        _ => None,
    });
    let moves_stack = writes.contains(STACK as u16);
    match found {
        Some((base, start, by)) if u32::from(base) == STACK => {
            let bytes = start..start + access_size(&instruction);
            let is_reached = stores && slot.overlaps(slot.base, &bytes);
            if is_reached { Step::Reaches } else { Step::Keeps(by) }
        }
        _ if moves_stack || stores && matches!(base, STACK | FRAME) => Step::Reaches,
        _ if stores => Step::MayReach,
        _ => Step::Keeps(0),
    }
}

/// How many bytes a load or store is of, at most.
fn access_size(instruction: &Instruction) -> i64 {
    let of_one = match instruction.operands[0] {
        Operand::Register(SizeCode::W, _) => 4,
        Operand::Register(SizeCode::X, _) => 8,
        _ => 16,
    };
    use Opcode as O;
    match instruction.opcode {
        O::STRB | O::STURB => 1,
        O::STRH | O::STURH => 2,
        O::STP | O::STNP => 2 * of_one,
        _ => of_one,
    }
}

/// Whether an instruction takes an address in the frame. The frame pointer is one that no other register follows.
pub(super) fn takes_frame_address(image: &Image<'_>, address: u64) -> bool {
    let Some(word) = word_at(image, address) else { return true };
    let is_frame = |register: u32| register == STACK || register == FRAME;
    if let Some((result, operand, _)) = sum_with_immediate(word) {
        return is_frame(operand) && !is_frame(result);
    }
    // `add` and `sub` of an extended register, where 31 is the stack pointer, and `mov` from the frame pointer.
    let is_sum = matches!(word & 0xffe0_0000, 0x8b20_0000 | 0xcb20_0000) && is_frame(word >> 5 & 0x1f);
    is_sum || word & !0x1f == 0xaa1d_03e0
}

/// What an instruction makes of its own address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Relative {
    Nothing,
    /// An address, or that of a page: the bytes.
    Address(Range<u64>),
    /// What may be anything.
    Unknown,
}

fn relative(word: u32, address: u64) -> Relative {
    const PAGE: u64 = 1 << 12;
    // `ldr` of a literal (C4.1.96): it may be an address.
    if word & 0x3b00_0000 == 0x1800_0000 {
        return Relative::Unknown;
    }
    // `adr` and `adrp` (C6.2.12, C6.2.13); most words are none.
    if word & 0x1f00_0000 != 0x1000_0000 {
        return Relative::Nothing;
    }
    let Some(instruction) = decode_word(word) else { return Relative::Unknown };
    let offset = instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(*offset),
        _ => None,
    });
    let Some(offset) = offset else { return Relative::Unknown };
    let (start, size) = match instruction.opcode {
        Opcode::ADRP => ((address & !(PAGE - 1)).wrapping_add_signed(offset), PAGE),
        _ => (address.wrapping_add_signed(offset), 1),
    };
    Relative::Address(start..start.saturating_add(size))
}

/// Whether an instruction makes an address from which bytes with a fixed address can be reached.
pub(super) fn may_lead_to(image: &Image<'_>, address: u64, bytes: &Range<u64>) -> bool {
    match word_at(image, address).map(|word| relative(word, address)) {
        None | Some(Relative::Unknown) => true,
        Some(Relative::Nothing) => false,
        Some(Relative::Address(made)) => {
            let is_near = made.start < bytes.end && bytes.start < made.end;
            is_near || is_data(image, made.start) || is_data(image, made.end - 1)
        }
    }
}

/// What an instruction has to do with `x0`.
pub(super) fn result_at(image: &Image<'_>, address: u64) -> Result {
    use Opcode as O;
    let Some(word) = word_at(image, address) else { return Result::Over };
    let Some(instruction) = decode_word(word) else { return Result::Over };
    let is_result = |operand: &Operand| match *operand {
        Operand::Register(_, register) | Operand::RegisterOrSP(_, register) => register == 0,
        Operand::RegShift(_, _, _, register) => register == 0,
        Operand::RegPreIndex(base, ..) | Operand::RegPostIndex(base, _) => base == 0,
        Operand::RegPostIndexReg(base, offset) => base == 0 || offset == 0,
        Operand::RegRegOffset(base, offset, ..) => base == 0 || offset == 0,
        _ => false,
    };
    // Branches on the register's value read it, whichever way they go.
    if matches!(instruction.opcode, O::CBZ | O::CBNZ | O::TBZ | O::TBNZ) {
        return if instruction.operands.iter().any(is_result) { Result::Read } else { Result::Over };
    }
    if let Flow::Jump(target) = flow(word, address) {
        return Result::Untouched(target);
    }
    let Some((writes, stores)) = effect(word) else { return Result::Over };
    // `movk` keeps part of what it writes to, and may begin a constant.
    if instruction.opcode == O::MOVK && writes.contains(0) {
        return Result::Over;
    }
    // Instructions that store or compare only read their operands. All others write their first operands.
    let results = match instruction.opcode {
        _ if stores => 0,
        O::CCMP | O::CCMN => 0,
        O::LDP | O::LDPSW | O::LDNP => 2,
        _ => 1,
    };
    if instruction.operands.iter().skip(results).any(is_result) {
        // `eor x1, x0, x0` and the like make a value of nothing.
        let sources = instruction.operands.iter().skip(results).filter(|operand| is_result(operand)).count();
        return if sources > 1 { Result::Over } else { Result::Read };
    }
    if writes.contains(0) { Result::Over } else { Result::Untouched(address.wrapping_add(4)) }
}

/// How many of a register's lowest bytes an instruction reads.
pub(super) fn read_bytes(image: &Image<'_>, address: u64, register: u16) -> u8 {
    use Opcode as O;
    let Some(word) = word_at(image, address) else { return 8 };
    let is_call = is_branch_or_system(word)
        && match flow(word, address) {
            Flow::Call(_) => true,
            // `blr` among them.
            Flow::Next => !is_system(word),
            _ => false,
        };
    if is_call && argument_registers(Machine::Aarch64).contains(&register) {
        return 8;
    }
    let Some(instruction) = decode_word(word) else { return if is_system(word) { 0 } else { 8 } };
    // Instructions that store, compare or branch only read their operands. Others write their first ones.
    let results = match (instruction.opcode, effect(word)) {
        (O::CBZ | O::CBNZ | O::TBZ | O::TBNZ | O::CCMP | O::CCMN | O::MOVK, _) | (_, Some((_, true))) => 0,
        (O::LDP | O::LDPSW | O::LDNP, Some(_)) => 2,
        (_, Some(_)) => 1,
        (_, None) => {
            let is_operand = instruction.operands.iter().any(|operand| operand_bytes(operand, register) > 0);
            return if is_operand { 8 } else { 0 };
        }
    };
    let bytes = instruction.operands.iter().skip(results).map(|operand| operand_bytes(operand, register)).max();
    let bytes = bytes.unwrap_or(0);
    let most = match (instruction.opcode, instruction.operands[2], instruction.operands[3]) {
        (O::AND | O::ANDS, Operand::Immediate(mask), _) => mask_bytes(mask.into()),
        (O::AND | O::ANDS, Operand::Imm64(mask), _) => mask_bytes(mask),
        (O::UBFM | O::SBFM | O::BFM, _, Operand::Immediate(last)) => last as u8 / 8 + 1,
        // The decoder leaves out the highest bit of the number, bit 31.
        (O::TBZ | O::TBNZ, ..) => {
            return if bytes == 0 { 0 } else { ((word >> 31 << 5 | word >> 19 & 31) / 8 + 1) as u8 };
        }
        (O::STRB | O::STURB, ..) => 1,
        (O::STRH | O::STURH, ..) => 2,
        _ => 8,
    };
    // A narrow store still takes all of its address.
    let is_address = instruction.operands.iter().skip(results).any(|operand| {
        !matches!(operand, Operand::Register(..) | Operand::RegisterOrSP(..)) && operand_bytes(operand, register) == 8
    });
    if is_address { bytes } else { bytes.min(most) }
}

/// How many bytes of a register an operand has.
fn operand_bytes(operand: &Operand, register: u16) -> u8 {
    let of_size = |size: SizeCode| if size == SizeCode::W { 4 } else { 8 };
    let (size, is_it) = match *operand {
        Operand::Register(size, its) | Operand::RegisterOrSP(size, its) => (of_size(size), its == register),
        Operand::RegShift(ShiftStyle::LSL, bits, size, its) => {
            let all = of_size(size);
            (shifted_bytes(all, bits.into()).unwrap_or(all), its == register)
        }
        Operand::RegShift(_, _, size, its) => (of_size(size), its == register),
        Operand::RegPreIndex(base, ..) | Operand::RegPostIndex(base, _) => (8, base == register),
        Operand::RegPostIndexReg(base, offset) => (8, base == register || offset == register),
        Operand::RegRegOffset(base, offset, ..) => (8, base == register || offset == register),
        _ => (0, false),
    };
    if is_it { size } else { 0 }
}

/// A `cbz` or `cbnz`.
pub(super) fn zero_branch(image: &Image<'_>, address: u64) -> Option<ZeroBranch> {
    let word = word_at(image, address)?;
    let Flow::Conditional(target) = flow(word, address) else { return None };
    let instruction = decode_word(word)?;
    let not_zero = match instruction.opcode {
        Opcode::CBZ => address.wrapping_add(4),
        Opcode::CBNZ => target,
        _ => return None,
    };
    let Operand::Register(size, register) = instruction.operands[0] else { return None };
    // Register 31 is the zero register.
    (register < 31).then_some(ZeroBranch { register, size: if size == SizeCode::X { 8 } else { 4 }, not_zero })
}

/// Whom the `bl` before an address calls.
pub(super) fn call_target(image: &Image<'_>, returns_to: u64) -> Option<u64> {
    let address = returns_to.checked_sub(4)?;
    match flow(word_at(image, address)?, address) {
        Flow::Call(target) => Some(target),
        _ => None,
    }
}

/// arch/arm64/kernel/probes/kprobes.c `arch_prepare_kprobe`, decode-insn.c `arm_kprobe_decode_insn`.
pub(super) fn refusal(image: &Image<'_>, address: u64) -> Option<Unprobeable> {
    if !address.is_multiple_of(4) {
        return Some(Unprobeable::NotAnInstruction);
    }
    let Some(word) = word_at(image, address) else { return Some(Unprobeable::NotAnInstruction) };
    // Without KPROBES_ON_FTRACE, what ftrace patches is refused (kernel/kprobes.c `check_ftrace_location`).
    let tables = image.tables();
    if tables.may_fault(address) || tables.ftrace.binary_search(&address).is_ok() {
        return Some(Unprobeable::Unsteppable);
    }
    match decode_word(word).map(|instruction| instruction.opcode) {
        Some(Opcode::BRK | Opcode::HLT | Opcode::UDF) => Some(Unprobeable::Bug),
        _ if !is_steppable(word) || is_in_exclusive(image, address) => Some(Unprobeable::Unsteppable),
        _ => None,
    }
}

/// Whether the kernel steps or simulates an instruction (decode-insn.c `aarch64_insn_is_steppable`).
fn is_steppable(word: u32) -> bool {
    const MRS_DAIF: u32 = 0xd53b_4220;
    // prfm (literal), and the exclusive group: C4.1.94 "Loads and Stores".
    let is_prefetch_literal = word & 0xff00_0000 == 0xd800_0000;
    let is_exclusive = word & 0x3f80_0000 == 0x0800_0000;
    if is_prefetch_literal || is_exclusive {
        return false;
    }
    if !is_branch_or_system(word) {
        return true;
    }
    // Hints: nop, xpaclri, pacia1716, pacib1716, paciaz, paciasp, pacibz, pacibsp, bti.
    if word & 0xffff_f01f == NOP {
        return matches!(word >> 5 & 0x7f, 0 | 7 | 8 | 10 | 24..=27 | 32 | 34 | 36 | 38);
    }
    if word & !0x1f == MRS_DAIF {
        return false;
    }
    let Some(instruction) = decode_word(word) else { return false };
    use Opcode as O;
    let is_exception =
        matches!(instruction.opcode, O::SVC | O::HVC | O::SMC | O::BRK | O::HLT | O::DCPS1 | O::DCPS2 | O::DCPS3);
    let is_return = matches!(instruction.opcode, O::ERET | O::DRPS | O::ERETAA | O::ERETAB | O::RETAA | O::RETAB);
    let is_authenticated = matches!(
        instruction.opcode,
        O::BRAA | O::BRAAZ | O::BRAB | O::BRABZ | O::BLRAA | O::BLRAAZ | O::BLRAB | O::BLRABZ
    );
    !is_exception && !is_return && !is_authenticated && instruction.opcode != O::MSR
}

/// Whether the nearest exclusive access before an address, in its symbol and not too far, is a load: then a probe
/// would break the exclusive sequence (decode-insn.c `is_probed_address_atomic`, with the masks of Linux 6.15).
fn is_in_exclusive(image: &Image<'_>, address: u64) -> bool {
    const FARTHEST: u64 = 128;
    let Some(symbol) = image.container(address) else { return false };
    let start = symbol.address.max(address.saturating_sub(FARTHEST));
    let Some(bytes) = image.bytes(start..address) else { return false };
    let words = bytes.rchunks_exact(4).filter_map(<[u8]>::first_chunk::<4>).map(|b| u32::from_le_bytes(*b));
    for word in words {
        match word & 0x3fc0_0000 {
            0x0800_0000 => return false,
            0x0840_0000 => return true,
            _ => {}
        }
    }
    false
}
