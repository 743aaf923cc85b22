// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Runs images in rbpf, a user-space BPF machine, with helpers that stand for the kernel's.
//!
//! rbpf lacks kfunc calls and atomic addition, and panics where negation overflows: single instructions that do
//! the same are put in their place. It does not destroy r1 to r5 at calls, so that is checked separately
//! ([`stale_register`]).

use super::super::*;
use crate::helper;
use crate::insn::{Alu, Width, class, mode};
use siteseer_sites::machine::Register;
use std::cell::RefCell;
use std::collections::VecDeque;

const CAST: u32 = 0x7000_0000;
const COUNT: u32 = 0x7000_0001;

/// Memory in which some pages cannot be read, and each byte is a function of its address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) seed: u64,
    /// One page in so many is absent; 0: none.
    pub(super) absent: u64,
}

impl Memory {
    fn mix(self, value: u64) -> u64 {
        let mut x = value ^ self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn read(self, address: u64, buffer: &mut [u8]) -> bool {
        for (offset, byte) in (0u64..).zip(buffer) {
            let at = address.wrapping_add(offset);
            if self.absent != 0 && self.mix(at >> 12).is_multiple_of(self.absent) {
                return false;
            }
            *byte = self.mix(at) as u8;
        }
        true
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Trace {
    /// Arguments of calls of helper 6.
    pub(super) recorded: Vec<(u64, u64)>,
    /// Lost calls counted.
    pub(super) lost: u64,
    /// Type ids of casts.
    pub(super) casts: Vec<u64>,
    /// Keys of map look-ups.
    pub(super) keys: Vec<u64>,
    /// What the program returned, or that it failed.
    pub(super) returned: Option<u64>,
}

struct World {
    memory: Memory,
    trace: Trace,
    /// What helper 7 returns, one after the other.
    numbers: VecDeque<u64>,
}

thread_local! {
    static WORLD: RefCell<World> = const {
        RefCell::new(World {
            memory: Memory { seed: 0, absent: 0 },
            trace: Trace { recorded: Vec::new(), lost: 0, casts: Vec::new(), keys: Vec::new(), returned: None },
            numbers: VecDeque::new(),
        })
    };
}

fn record(a: u64, b: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.trace.recorded.push((a, b)));
    0
}

fn number(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.numbers.pop_front().unwrap_or(0))
}

fn probe_read(to: u64, size: u64, from: u64, _: u64, _: u64) -> u64 {
    let mut buffer = vec![0; size as usize];
    let read = WORLD.with_borrow(|world| world.memory.read(from, &mut buffer));
    if !read {
        buffer.fill(0);
    }
    // SAFETY: the generated code passes a place in the machine's stack with room for `size` bytes; that it does is
    // part of what is tested, under rbpf's own bounds for all other accesses.
    unsafe { std::ptr::copy_nonoverlapping(buffer.as_ptr(), to as *mut u8, buffer.len()) };
    if read { 0 } else { -14i64 as u64 }
}

fn lookup(_: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: keys are u64s or u32s on the machine's stack, which is larger than the read.
    let key = unsafe { (key as *const u32).read_unaligned() };
    WORLD.with_borrow_mut(|world| world.trace.keys.push(u64::from(key)));
    1
}

fn cast(pointer: u64, type_id: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.trace.casts.push(type_id));
    pointer
}

fn count(_: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    // The instruction adds r1; rbpf passes r1 first.
    let _ = by;
    WORLD.with_borrow_mut(|world| world.trace.lost += 1);
    0
}

/// Runs instructions with a context, which is in r1.
pub(super) fn run(insns: &[Insn], context: &mut [u8], memory: Memory, numbers: &[u64]) -> Trace {
    WORLD.with_borrow_mut(|world| {
        *world = World { memory, trace: Trace::default(), numbers: numbers.iter().copied().collect() };
    });
    // rbpf's stack is zeroed; the kernel's is not.
    let garbage = (1..=32i16).map(|word| Insn::store_imm(Width::D, 10, -8 * word, 0x6b6b_6b6b));
    let insns: Vec<Insn> = garbage.chain(insns.iter().map(|insn| stand_in(*insn))).collect();
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
    let mut machine = match rbpf::EbpfVmRaw::new(Some(&bytes)) {
        Ok(machine) => machine,
        Err(error) => panic!("rbpf refuses the program: {error:?}\n{}", insn::listing(&insns)),
    };
    let helpers: [(u32, rbpf::Helper); 6] = [
        (6, record),
        (7, number),
        (helper::PROBE_READ_KERNEL, probe_read),
        (helper::MAP_LOOKUP_ELEM, lookup),
        (CAST, cast),
        (COUNT, count),
    ];
    for (id, function) in helpers {
        machine.register_helper(id, function).expect("rbpf takes any helper");
    }
    let returned = machine.execute_program(context).ok();
    WORLD.with_borrow_mut(|world| Trace { returned, ..std::mem::take(&mut world.trace) })
}

fn stand_in(insn: Insn) -> Insn {
    if insn.is_kfunc_call() {
        return Insn::call(CAST);
    }
    if insn.class() == class::STX && insn.mode() == mode::ATOMIC {
        return Insn::call(COUNT);
    }
    if insn.class() == class::ALU64 && insn.op() == Alu::Neg as u8 {
        return Insn::alu_imm(Alu::Mul, insn.dst(), -1);
    }
    insn
}

/// `struct pt_regs` of x86-64 with these registers (by DWARF number), hit by a kprobe at register 16's address.
pub(super) fn pt_regs(registers: &dyn Fn(Register) -> u64) -> Vec<u8> {
    let mut bytes = vec![0xa5; 168];
    let arch = crate::arch::Arch::of(Machine::X86_64);
    for register in 0..17 {
        let at = arch.register_offset(register).expect("a register") as usize;
        let bias = if register == 16 { 1 } else { 0 };
        bytes[at..at + 8].copy_from_slice(&registers(register).wrapping_add(bias).to_le_bytes());
    }
    bytes
}

/// The first instruction that reads a register which nothing wrote since the function's start or the last call, as the
/// verifier would find it.
pub(super) fn stale_register(insns: &[Insn], start: usize, end: usize) -> Option<usize> {
    let mut written: Vec<Option<u16>> = vec![None; insns.len() + 1];
    written[start] = Some(1 << 1 | 1 << 10);
    let mut changed = true;
    while changed {
        changed = false;
        let mut at = start;
        while at < end {
            let insn = insns[at];
            let width = if insn.is_load64() { 2 } else { 1 };
            if let Some(known) = written[at] {
                let (reads, writes, clobbers) = effects(insn);
                if reads & !known != 0 {
                    return Some(at);
                }
                let after = (known & !clobbers) | writes;
                let mut reach = |to: usize| {
                    let merged = written[to].map_or(after, |other| other & after);
                    if written[to] != Some(merged) {
                        written[to] = Some(merged);
                        changed = true;
                    }
                };
                if insn.is_jump() {
                    reach((at as i64 + 1 + i64::from(insn.jump_distance())) as usize);
                }
                if !insn.is_exit() && !insn.is_goto() {
                    reach(at + width);
                }
            }
            at += width;
        }
    }
    None
}

/// Registers read, written, destroyed.
fn effects(insn: Insn) -> (u16, u16, u16) {
    let (dst, src) = (1u16 << insn.dst(), 1u16 << insn.src());
    let operand = if insn.uses_source() { src } else { 0 };
    match insn.class() {
        class::ALU | class::ALU64 if insn.op() == Alu::Mov as u8 => (operand, dst, 0),
        class::ALU | class::ALU64 => (dst | operand, dst, 0),
        class::LD => (0, dst, 0),
        class::LDX => (src, dst, 0),
        class::ST => (dst, 0, 0),
        class::STX => (dst | src, 0, 0),
        _ if insn.is_exit() => (1, 0, 0),
        _ if insn.is_call() => {
            let arguments = match insn.helper() {
                Some(id) => helper::arguments(id),
                None if insn.is_kfunc_call() => 2,
                None => 1,
            };
            // bpf_trace_printk stands for recording two numbers.
            let arguments = if insn.helper() == Some(6) { 2 } else { arguments };
            ((2 << arguments) - 2, 1, 0b11_1110)
        }
        _ if insn.is_goto() => (0, 0, 0),
        _ => (dst | operand, 0, 0),
    }
}
