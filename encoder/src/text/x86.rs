// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! x86-64 instructions, decoded by iced-x86.

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
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use siteseer_sites::abi::argument_registers;
use siteseer_sites::{Machine, Unprobeable, machine};
use std::ops::Range;

/// The longest instruction.
const LONGEST: u64 = 15;

/// Decodes linearly; stops when `visit`, which gets each instruction's offset, says so.
pub(super) fn decode(bytes: &[u8], address: u64, visit: &mut dyn FnMut(u32, Flow) -> bool) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let offset = decoder.position() as u32;
        decoder.decode_out(&mut instruction);
        if !visit(offset, flow(&instruction)) {
            return;
        }
    }
}

/// [`flow_at`](super::flow_at).
pub(super) fn flow_at(image: &Image<'_>, address: u64) -> Option<(Flow, u64)> {
    image.section_at(address)?;
    let known = instruction_at(image, address).map(|instruction| (flow(&instruction), instruction.next_ip()));
    known.or_else(|| Some((Flow::Invalid, address.checked_add(1)?)))
}

fn flow(instruction: &Instruction) -> Flow {
    let target = || instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Nop => Flow::Nop,
        FlowControl::Next if instruction.code() == Code::INVALID => Flow::Invalid,
        FlowControl::Next | FlowControl::IndirectCall | FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(target()),
        FlowControl::ConditionalBranch => Flow::Conditional(target()),
        FlowControl::Call if instruction.is_call_near() => Flow::Call(target()),
        // syscall, vmcall and the like.
        FlowControl::Call => Flow::Next,
        FlowControl::IndirectBranch => Flow::Indirect,
        FlowControl::Return => Flow::Stop,
        FlowControl::Exception if instruction.code() == Code::INVALID => Flow::Invalid,
        FlowControl::Exception => Flow::Trap,
        FlowControl::Interrupt if instruction.code() == Code::Int3 => Flow::Trap,
        FlowControl::Interrupt => Flow::Next,
    }
}

/// Finds what instructions write.
pub(super) struct Effects {
    factory: InstructionInfoFactory,
}

impl Default for Effects {
    fn default() -> Effects {
        Effects { factory: InstructionInfoFactory::new() }
    }
}

impl Effects {
    pub(super) fn at(&mut self, image: &Image<'_>, address: u64) -> Option<Effect> {
        let instruction = instruction_at(image, address)?;
        let info = self.factory.info(&instruction);
        let is_write = |access: OpAccess| {
            matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
        };
        let mut writes = RegisterSet::default();
        for used in info.used_registers() {
            if is_write(used.access())
                && let Some(register) = dwarf_register(used.register())
            {
                writes.insert(register);
            }
        }
        let stores = info.used_memory().iter().any(|used| is_write(used.access()));
        let straight = instruction.flow_control() == FlowControl::Next;
        Some(Effect { next: instruction.next_ip(), writes, stores, plain: is_plain(&instruction), straight })
    }
}

impl Effects {
    /// Whether an instruction does something that can be seen. `frame_pointer` is a register with the frame's address,
    /// beside the stack pointer.
    pub(super) fn acts(&mut self, image: &Image<'_>, address: u64, frame_pointer: Option<machine::Register>) -> Acts {
        let Some(instruction) = instruction_at(image, address) else { return Acts::Yes };
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                return Acts::Jumps(instruction.near_branch_target());
            }
            FlowControl::Return => return Acts::No,
            _ => return Acts::Yes,
        }
        let is_write = |access: OpAccess| {
            matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
        };
        let info = self.factory.info(&instruction);
        let mut stores = info.used_memory().iter().filter(|used| is_write(used.access()));
        let is_frame_pointer = |base: Register| frame_pointer.is_some() && dwarf_register(base) == frame_pointer;
        let is_frame = |base: Register| base == Register::RSP || is_frame_pointer(base);
        let stores_elsewhere = stores.any(|used| !is_frame(used.base().full_register()));
        if is_plain(&instruction) && !stores_elsewhere { Acts::No } else { Acts::Yes }
    }

    /// What an instruction does to a slot.
    pub(super) fn slot_access(&mut self, image: &Image<'_>, address: u64, slot: &Slot) -> Access {
        let Some(instruction) = instruction_at(image, address) else { return Access::Read };
        let mut found = Access::None;
        for used in self.factory.info(&instruction).used_memory() {
            let size = used.memory_size().size() as i64;
            let start = used.displacement() as i64;
            let bytes = start..start + size;
            if dwarf_register(used.base()).is_some_and(|base| slot.overlaps(base, &bytes)) {
                match used.access() {
                    OpAccess::Write if used.index() == Register::None => found = slot.written(&bytes),
                    OpAccess::NoMemAccess | OpAccess::None => {}
                    _ => return Access::Read,
                }
            }
        }
        found
    }

    /// What an instruction does to a slot that is given as it is after the instruction.
    pub(super) fn frame_step(&mut self, image: &Image<'_>, address: u64, slot: &Slot) -> Step {
        let Some(instruction) = instruction_at(image, address) else { return Step::Reaches };
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                return Step::Keeps(0);
            }
            _ => return Step::MayReach,
        }
        let of_immediate = || instruction.try_immediate(1).ok().map(|value| value as i64);
        let by = match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq if slot.bytes.start < 8 && slot.bytes.end > 0 => None,
            Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Popfq => Some(instruction.stack_pointer_increment().into()),
            Mnemonic::Pop if instruction.op0_kind() == OpKind::Register => {
                Some(instruction.stack_pointer_increment().into())
            }
            Mnemonic::Sub if instruction.op0_register() == Register::RSP => of_immediate().map(|by| -by),
            Mnemonic::Add if instruction.op0_register() == Register::RSP => of_immediate(),
            Mnemonic::Lea if instruction.op0_register() == Register::RSP => {
                let is_own = instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
                is_own.then_some(instruction.memory_displacement64() as i64)
            }
            _ => Some(0),
        };
        let Some(by) = by else { return Step::Reaches };
        let is_write = |access: OpAccess| {
            !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
        };
        let info = self.factory.info(&instruction);
        let moves_stack = info
            .used_registers()
            .iter()
            .any(|used| used.register().full_register() == Register::RSP && is_write(used.access()));
        if by != 0 || moves_stack {
            return if by != 0 { Step::Keeps(by) } else { Step::Reaches };
        }
        let mut step = Step::Keeps(0);
        for used in info.used_memory().iter().filter(|used| is_write(used.access())) {
            let start = used.displacement() as i64;
            let bytes = start..start + used.memory_size().size() as i64;
            match used.base() {
                Register::RSP if bytes.is_empty() || used.index() != Register::None => return Step::Reaches,
                Register::RSP if slot.overlaps(slot.base, &bytes) => return Step::Reaches,
                Register::RSP | Register::None | Register::RIP => {}
                _ => step = Step::MayReach,
            }
        }
        step
    }

    /// Whether an instruction may store to bytes with a fixed address, or gets an address from which they can be
    /// reached.
    pub(super) fn may_store_to(&mut self, image: &Image<'_>, address: u64, bytes: &Range<u64>) -> bool {
        let Some(instruction) = instruction_at(image, address) else { return true };
        let leads_there = |address: u64| bytes.contains(&address) || is_data(image, address);
        let is_immediate = |n: u32| !matches!(instruction.op_kind(n), OpKind::Register | OpKind::Memory);
        let mut immediates = (0..instruction.op_count()).filter(|&n| is_immediate(n));
        if immediates.any(|n| instruction.try_immediate(n).is_ok_and(leads_there)) {
            return true;
        }
        if instruction.mnemonic() == Mnemonic::Lea {
            return leads_there(instruction.memory_displacement64());
        }
        self.factory.info(&instruction).used_memory().iter().any(|used| {
            let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
            let is_fixed =
                matches!(used.base(), Register::None | Register::RIP | Register::EIP) && used.index() == Register::None;
            let (start, size) = (used.displacement(), used.memory_size().size() as u64);
            let overlaps = start < bytes.end && bytes.start < start.saturating_add(size);
            // An array's element may be anywhere in it.
            !is_read && if is_fixed { overlaps } else { leads_there(start) }
        })
    }

    /// How many of a register's lowest bytes an instruction reads.
    pub(super) fn read_bytes(&mut self, image: &Image<'_>, address: u64, register: u16) -> u8 {
        let Some(instruction) = instruction_at(image, address) else { return 8 };
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {}
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                let is_target = instruction.op0_kind() == OpKind::Register
                    && dwarf_register(instruction.op0_register()) == Some(register);
                return if is_target || argument_registers(Machine::X86_64).contains(&register) { 8 } else { 0 };
            }
            _ => return 0,
        }
        // A no-op has an address.
        if instruction.mnemonic() == Mnemonic::Nop {
            return 0;
        }
        // A mask lets less through, and so does a shift to the left.
        let masked = match (instruction.mnemonic(), instruction.op_count()) {
            (Mnemonic::And | Mnemonic::Test, 2) if instruction.op0_kind() == OpKind::Register => {
                let is_immediate = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
                is_immediate.then(|| mask_bytes(instruction.immediate(1)))
            }
            (Mnemonic::Shl, 2) if instruction.op0_kind() == OpKind::Register => {
                let size = instruction.op0_register().size() as u8;
                (instruction.op1_kind() == OpKind::Immediate8)
                    .then(|| shifted_bytes(size, instruction.immediate(1)))
                    .flatten()
            }
            _ => None,
        };
        let is_read = |access: OpAccess| {
            matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
        };
        let info = self.factory.info(&instruction);
        let reads = info.used_registers().iter().filter(|used| is_read(used.access()));
        let its = reads.filter(|used| dwarf_register(used.register()) == Some(register));
        let bytes = its.map(|used| used.register().size().min(8) as u8).max().unwrap_or(0);
        masked.map_or(bytes, |masked| bytes.min(masked))
    }

    /// Whether an instruction makes a new value in a register.
    pub(super) fn makes(&mut self, image: &Image<'_>, address: u64, register: u16) -> bool {
        let Some(instruction) = instruction_at(image, address) else { return false };
        if instruction.flow_control() != FlowControl::Next
            || !self.at(image, address).is_some_and(|effect| effect.writes.contains(register))
        {
            return false;
        }
        let is_frame = |base: Register| matches!(base.full_register(), Register::RSP | Register::RBP);
        use Mnemonic as M;
        match instruction.mnemonic() {
            M::Mov | M::Movzx | M::Movsx | M::Movsxd => {
                instruction.op1_kind() == OpKind::Memory && !is_frame(instruction.memory_base())
            }
            M::Lea => instruction.memory_base().full_register() != Register::RSP,
            M::Cwde | M::Cdqe | M::Cdq | M::Cqo | M::Cbw | M::Push | M::Pop | M::Xchg => false,
            // Zero, ...
            M::Xor | M::Sub if instruction.op1_kind() == OpKind::Register => {
                instruction.op0_register() != instruction.op1_register()
            }
            // ... or the same value in fewer bits.
            M::And if instruction.op1_kind() != OpKind::Register && instruction.op1_kind() != OpKind::Memory => {
                !matches!(instruction.immediate(1), 1 | 0xff | 0xffff)
            }
            _ => true,
        }
    }

    /// What an instruction has to do with `rax`.
    pub(super) fn result_at(&mut self, image: &Image<'_>, address: u64) -> Result {
        let Some(instruction) = instruction_at(image, address) else { return Result::Over };
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                return Result::Untouched(instruction.near_branch_target());
            }
            _ => return Result::Over,
        }
        // A no-op of many bytes has an address, of `rax` mostly.
        if instruction.mnemonic() == Mnemonic::Nop {
            return Result::Untouched(instruction.next_ip());
        }
        let is_rax = |register: Register| register.full_register() == Register::RAX;
        if !self.factory.info(&instruction).used_registers().iter().any(|used| is_rax(used.register())) {
            return Result::Untouched(instruction.next_ip());
        }
        let registers = |first: u32| {
            (first..instruction.op_count())
                .filter(|&n| instruction.op_kind(n) == OpKind::Register)
                .any(|n| is_rax(instruction.op_register(n)))
        };
        let in_address = is_rax(instruction.memory_base()) || is_rax(instruction.memory_index());
        use Mnemonic as M;
        let is_read = match instruction.mnemonic() {
            M::Test | M::Cmp | M::Bt => registers(0) || in_address,
            M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Lea => registers(1) || in_address,
            // None makes a value of nothing.
            M::Inc | M::Dec | M::Neg => instruction.op0_kind() == OpKind::Register,
            M::Add | M::Sub if instruction.op1_kind() != OpKind::Register && !in_address => registers(0),
            M::Cdqe | M::Cwde | M::Cdq | M::Cqo => true,
            // A source that is not the destination too: `sbb %eax, %eax` and the like make a value of nothing.
            M::Add | M::Sub | M::And | M::Or | M::Xor | M::Imul => {
                let to_itself = instruction.op0_kind() == OpKind::Register && is_rax(instruction.op0_register());
                !to_itself && (registers(1) || in_address)
            }
            _ => false,
        };
        if is_read { Result::Read } else { Result::Over }
    }
}

/// What comes after a loop, if it does nothing but store constants in the frame, until a register that it counts has
/// the value of a constant. `instructions` are those of the loop, without the conditional jump back at `jump`.
pub(super) fn end_of_clearing(image: &Image<'_>, instructions: impl Iterator<Item = u64>, jump: u64) -> Option<u64> {
    use Mnemonic as M;
    let is_constant = |kind: OpKind| !matches!(kind, OpKind::Register | OpKind::Memory);
    let (mut stores, mut compared) = (false, None);
    for at in instructions {
        let it = instruction_at(image, at)?;
        let memory = (0..it.op_count()).any(|nth| it.op_kind(nth) == OpKind::Memory);
        compared = (it.mnemonic() == M::Cmp && is_constant(it.op1_kind())).then(|| it.op0_register());
        match it.mnemonic() {
            M::Mov if memory && it.op0_kind() == OpKind::Memory => {
                let in_frame = it.memory_base() == Register::RSP && it.segment_prefix() == Register::None;
                if !in_frame || !is_constant(it.op1_kind()) {
                    return None;
                }
                stores = true;
            }
            M::Lea => {}
            M::Mov | M::Add | M::Sub | M::Inc | M::Dec | M::Cmp if !memory && is_plain(&it) => {}
            _ => return None,
        }
    }
    let jump = instruction_at(image, jump)?;
    let is_counted = compared.is_some_and(|register| register.is_gpr());
    (stores && is_counted && jump.flow_control() == FlowControl::ConditionalBranch).then(|| jump.next_ip())
}

/// Whether the instructions at two addresses do the same, with whichever registers. One store may be of a register and
/// the other of a constant.
pub(super) fn is_alike(image: &Image<'_>, one: u64, other: u64) -> bool {
    let (Some(one), Some(other)) = (instruction_at(image, one), instruction_at(image, other)) else { return false };
    let is_store = |it: &Instruction| it.mnemonic() == Mnemonic::Mov && it.op0_kind() == OpKind::Memory;
    if is_store(&one)
        && is_store(&other)
        && (one.op1_kind() == OpKind::Register) != (other.op1_kind() == OpKind::Register)
    {
        let place =
            |it: &Instruction| (it.memory_size().size(), it.memory_displacement64(), it.is_ip_rel_memory_operand());
        return place(&one) == place(&other);
    }
    let is_immediate = |n: u32| !matches!(one.op_kind(n), OpKind::Register | OpKind::Memory);
    one.code() == other.code()
        && (0..one.op_count()).all(|n| one.op_kind(n) == other.op_kind(n))
        && one.memory_displacement64() == other.memory_displacement64()
        && one.near_branch_target() == other.near_branch_target()
        && (0..one.op_count())
            .filter(|&n| is_immediate(n))
            .all(|n| one.try_immediate(n).ok() == other.try_immediate(n).ok())
}

/// What the instruction at one address is beside that at another one, and the lengths of both; `None` if they do
/// something else.
pub(super) fn beside(image: &Image<'_>, one: u64, other: u64) -> Option<(Beside, (u64, u64))> {
    let (one, other) = (instruction_at(image, one)?, instruction_at(image, other)?);
    let is_branch = |it: &Instruction| it.op_count() == 1 && it.op0_kind() == OpKind::NearBranch64;
    let beside = if is_branch(&one) && is_branch(&other) && one.mnemonic() == other.mnemonic() {
        Beside::Leads(one.near_branch_target(), other.near_branch_target())
    } else if one == other {
        // An address relative to the next instruction's is compared as the address that it is.
        Beside::Same
    } else {
        return None;
    };
    Some((beside, (one.len() as u64, other.len() as u64)))
}

/// The branch of a `test %reg, %reg` and the `je` or `jne` after it.
pub(super) fn zero_branch(image: &Image<'_>, test: u64, branch: u64) -> Option<ZeroBranch> {
    let (test, branch) = (instruction_at(image, test)?, instruction_at(image, branch)?);
    let register = test.op0_register();
    let size = match test.code() {
        Code::Test_rm64_r64 => 8,
        Code::Test_rm32_r32 => 4,
        _ => return None,
    };
    if test.op0_kind() != OpKind::Register || register != test.op1_register() || test.next_ip() != branch.ip() {
        return None;
    }
    let not_zero = match branch.mnemonic() {
        Mnemonic::Je => branch.next_ip(),
        Mnemonic::Jne => branch.near_branch_target(),
        _ => return None,
    };
    Some(ZeroBranch { register: dwarf_register(register)?, size, not_zero })
}

/// Whether an instruction is `endbr64`.
pub(super) fn is_landing_pad(image: &Image<'_>, address: u64) -> bool {
    instruction_at(image, address).is_some_and(|instruction| instruction.mnemonic() == Mnemonic::Endbr64)
}

/// The registers of `mov %reg, %reg`, of 64 bits: destination and source.
pub(super) fn register_copy(image: &Image<'_>, address: u64) -> Option<(u16, u16)> {
    let instruction = instruction_at(image, address)?;
    let is_copy = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64)
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register;
    if !is_copy {
        return None;
    }
    Some((dwarf_register(instruction.op0_register())?, dwarf_register(instruction.op1_register())?))
}

/// What an instruction does to a register alone, if this is all that it does.
pub(super) fn in_place(image: &Image<'_>, address: u64, register: u16) -> Option<InPlace> {
    let instruction = instruction_at(image, address)?;
    let is_it = |one: Register| dwarf_register(one.full_register()) == Some(register);
    if instruction.op0_kind() != OpKind::Register || !is_it(instruction.op0_register()) {
        return None;
    }
    let is_immediate = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
    match instruction.mnemonic() {
        Mnemonic::Inc => Some(InPlace::Adds(1)),
        Mnemonic::Dec => Some(InPlace::Adds(-1)),
        Mnemonic::Add if is_immediate => Some(InPlace::Adds(instruction.immediate(1).cast_signed())),
        Mnemonic::Sub if is_immediate => Some(InPlace::Adds(instruction.immediate(1).cast_signed().wrapping_neg())),
        Mnemonic::Lea if instruction.memory_index() == Register::None && is_it(instruction.memory_base()) => {
            Some(InPlace::Adds(instruction.memory_displacement64().cast_signed()))
        }
        Mnemonic::Not => Some(InPlace::Inverts),
        Mnemonic::Neg => Some(InPlace::Negates),
        _ => None,
    }
}

/// Whom the `call` before an address calls.
pub(super) fn call_target(image: &Image<'_>, returns_to: u64) -> Option<u64> {
    const CALL: u8 = 0xe8;
    let bytes = image.bytes(returns_to.checked_sub(5)?..returns_to)?;
    let [CALL, distance @ ..] = *bytes.first_chunk::<5>()? else { return None };
    Some(returns_to.wrapping_add_signed(i32::from_le_bytes(distance).into()))
}

/// The instruction at an address; `None` if there is none.
pub(crate) fn instruction_at(image: &Image<'_>, address: u64) -> Option<Instruction> {
    let end = image.section_end(address).min(address.checked_add(LONGEST)?);
    let bytes = image.bytes(address..end)?;
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (instruction.code() != Code::INVALID).then_some(instruction)
}

/// arch/x86/kernel/kprobes/core.c `can_probe`, `prepare_emulation`, `__copy_instruction`.
pub(super) fn refusal(image: &Image<'_>, address: u64) -> Option<Unprobeable> {
    let Some(instruction) = instruction_at(image, address) else { return Some(Unprobeable::NotAnInstruction) };
    match instruction.flow_control() {
        // ud0, ud1, ud2, int3, int n, int1.
        FlowControl::Exception | FlowControl::Interrupt => return Some(Unprobeable::Bug),
        FlowControl::Return if instruction.mnemonic() != Mnemonic::Ret => return Some(Unprobeable::Unsteppable),
        _ => {}
    }
    let is_call_or_jump = instruction.is_call_far_indirect()
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_near_indirect()
        || instruction.is_jmp_near_indirect();
    // Far branches, and those through memory, are not emulated.
    if is_call_or_jump && (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory) {
        return Some(Unprobeable::Unsteppable);
    }
    // Interrupts are masked after `mov %reg, %ss`.
    if instruction.mnemonic() == Mnemonic::Mov && instruction.op0_register() == Register::SS {
        return Some(Unprobeable::Unsteppable);
    }
    is_cfi_check(image, address, &instruction).then_some(Unprobeable::CfiPreamble)
}

/// Whether an instruction is one of the two that hold the expected type of an indirect call:
/// `movl $hash, %r10d; addl -4(%reg), %r10d; je 1f; ud2; 1:`. The trap decodes them.
fn is_cfi_check(image: &Image<'_>, address: u64, instruction: &Instruction) -> bool {
    let traps = &image.tables().kcfi_traps;
    let to_trap = match instruction.code() {
        Code::Mov_r32_imm32 if instruction.op0_register() == Register::R10D => 12,
        Code::Add_r32_rm32 => 6,
        _ => return false,
    };
    traps.binary_search(&address.wrapping_add(to_trap)).is_ok()
}

/// The DWARF number of the full register that holds a general purpose register (psABI for AMD64, figure 3.36).
fn dwarf_register(register: Register) -> Option<u16> {
    const NUMBERS: [(Register, u16); 16] = [
        (Register::RAX, 0),
        (Register::RDX, 1),
        (Register::RCX, 2),
        (Register::RBX, 3),
        (Register::RSI, 4),
        (Register::RDI, 5),
        (Register::RBP, 6),
        (Register::RSP, 7),
        (Register::R8, 8),
        (Register::R9, 9),
        (Register::R10, 10),
        (Register::R11, 11),
        (Register::R12, 12),
        (Register::R13, 13),
        (Register::R14, 14),
        (Register::R15, 15),
    ];
    let full = register.full_register();
    NUMBERS.iter().find(|(register, _)| *register == full).map(|&(_, number)| number)
}

/// Whether an instruction only computes, loads and stores: no transfer of control, no locked access, nothing that
/// reads or changes the state of the machine.
fn is_plain(instruction: &Instruction) -> bool {
    if instruction.has_lock_prefix() || instruction.has_rep_prefix() || instruction.has_repne_prefix() {
        return false;
    }
    let operands = || (0..instruction.op_count()).map(|n| instruction.op_kind(n));
    // Control, debug and segment registers are operands of mov, push and pop too.
    let general_only = (0..instruction.op_count())
        .filter(|&n| instruction.op_kind(n) == OpKind::Register)
        .all(|n| instruction.op_register(n).is_gpr());
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Nop | M::Endbr64 => true,
        // With memory it is locked without saying so.
        M::Xchg => general_only && operands().all(|kind| kind == OpKind::Register),
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Movbe | M::Lea | M::Push | M::Pop => general_only,
        M::Xor | M::Or | M::And | M::Add | M::Adc | M::Sub | M::Sbb | M::Inc | M::Dec | M::Neg | M::Not => general_only,
        M::Imul | M::Mul | M::Mulx | M::Shl | M::Shr | M::Sar | M::Sal | M::Rol | M::Ror | M::Shld | M::Shrd => {
            general_only
        }
        M::Shlx | M::Shrx | M::Sarx | M::Rorx | M::Andn | M::Bextr | M::Blsr | M::Blsi | M::Blsmsk | M::Bzhi => {
            general_only
        }
        M::Test | M::Cmp | M::Bt | M::Bts | M::Btr | M::Btc | M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt | M::Popcnt => {
            general_only
        }
        M::Bswap | M::Cwde | M::Cdqe | M::Cdq | M::Cqo | M::Cbw => true,
        M::Cmova | M::Cmovae | M::Cmovb | M::Cmovbe | M::Cmove | M::Cmovg | M::Cmovge | M::Cmovl => general_only,
        M::Cmovle | M::Cmovne | M::Cmovno | M::Cmovnp | M::Cmovns | M::Cmovo | M::Cmovp | M::Cmovs => general_only,
        M::Seta | M::Setae | M::Setb | M::Setbe | M::Sete | M::Setg | M::Setge | M::Setl => general_only,
        M::Setle | M::Setne | M::Setno | M::Setnp | M::Setns | M::Seto | M::Setp | M::Sets => general_only,
        _ => false,
    }
}

/// Whether an instruction takes an address in the frame.
pub(super) fn takes_frame_address(image: &Image<'_>, address: u64) -> bool {
    let Some(instruction) = instruction_at(image, address) else { return true };
    let is_stack = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
    };
    if instruction.mnemonic() == Mnemonic::Lea {
        return instruction.memory_base() == Register::RSP && !is_stack(0);
    }
    let is_moved =
        matches!(instruction.mnemonic(), Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Mov | Mnemonic::Pop);
    (0..instruction.op_count()).any(|operand| is_stack(operand) && !(operand == 0 && is_moved))
}
