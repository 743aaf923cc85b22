// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Runs images in rbpf, a user-space BPF machine, with helpers that stand for the kernel's.
//!
//! What the kernel keeps from one run to the next (a session's cookie, a map) is in [`Kernel`].
//!
//! rbpf lacks kfunc calls and atomic addition, and panics where negation overflows: single instructions that do
//! the same are put in their place. It does not destroy r1 to r5 at calls, so that is checked separately
//! ([`stale_register`]).

use super::super::*;
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Width, class, mode};
use siteseer_sites::machine::Register;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

const CAST: u32 = 0x7000_0000;
const COUNT: u32 = 0x7000_0001;
const IS_RETURN: u32 = 0x7000_0002;
const COOKIE: u32 = 0x7000_0003;
/// The kfuncs' ids and the maps' descriptors in [`spec`].
const CAST_ID: i32 = 4242;
const IS_RETURN_ID: i32 = 4243;
const COOKIE_ID: i32 = 4244;
const SAVED_MAP: u64 = 7;

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

/// What the kernel knows of a call, and keeps between its entry and its return.
#[derive(Debug, Clone, Default)]
pub(super) struct Kernel {
    /// Whether the program runs at the return.
    pub(super) at_return: bool,
    /// The session cookie of the call. Its address is what tells calls in flight apart.
    pub(super) cookie: Box<u64>,
    /// The map of saved arguments, and how many calls it has room for.
    pub(super) saved: BTreeMap<u64, Box<[u8]>>,
    pub(super) room: usize,
    pub(super) value_size: usize,
    /// The arguments and the return value as a BPF trampoline of the kernel's takes them from registers.
    pub(super) slots: Vec<u64>,
    pub(super) result: Option<u64>,
    /// Address of the function.
    pub(super) function: u64,
    /// The cookie of the link that runs the program.
    pub(super) link_cookie: u64,
}

struct World {
    memory: Memory,
    kernel: Kernel,
    trace: Trace,
    /// What helper 7 returns, one after the other.
    numbers: VecDeque<u64>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World {
        memory: Memory { seed: 0, absent: 0 },
        kernel: Kernel::default(),
        trace: Trace::default(),
        numbers: VecDeque::new(),
    });
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

fn saved_key(key: u64) -> u64 {
    // SAFETY: the keys of the map of saved arguments are u64s on the machine's stack.
    unsafe { (key as *const u64).read_unaligned() }
}

fn lookup(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    if map == SAVED_MAP {
        let element = |world: &World| world.kernel.saved.get(&saved_key(key)).map(|value| value.as_ptr() as u64);
        return WORLD.with_borrow(element).unwrap_or(0);
    }
    // SAFETY: keys are u64s or u32s on the machine's stack, which is larger than the read.
    let key = unsafe { (key as *const u32).read_unaligned() };
    WORLD.with_borrow_mut(|world| world.trace.keys.push(u64::from(key)));
    1
}

fn update(map: u64, key: u64, value: u64, _: u64, _: u64) -> u64 {
    assert_eq!(map, SAVED_MAP);
    WORLD.with_borrow_mut(|world| {
        let kernel = &mut world.kernel;
        let key = saved_key(key);
        if !kernel.saved.contains_key(&key) && kernel.saved.len() >= kernel.room {
            return -7i64 as u64;
        }
        let mut element = vec![0; kernel.value_size].into_boxed_slice();
        // SAFETY: the generated code passes a place in the machine's stack that is as large as the map's value; that it
        // is comes from the same layout, and is part of what is tested.
        unsafe { std::ptr::copy_nonoverlapping(value as *const u8, element.as_mut_ptr(), kernel.value_size) };
        kernel.saved.insert(key, element);
        0
    })
}

fn delete(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    assert_eq!(map, SAVED_MAP);
    let removed = WORLD.with_borrow_mut(|world| world.kernel.saved.remove(&saved_key(key)));
    if removed.is_some() { 0 } else { -2i64 as u64 }
}

fn give(value: Option<u64>, to: u64, error: i64) -> u64 {
    match value {
        Some(value) => {
            // SAFETY: the generated code passes the address of a word of the machine's stack.
            unsafe { (to as *mut u64).write_unaligned(value) };
            0
        }
        None => error as u64,
    }
}

fn func_arg(_: u64, slot: u64, to: u64, _: u64, _: u64) -> u64 {
    give(WORLD.with_borrow(|world| world.kernel.slots.get(slot as u32 as usize).copied()), to, -22)
}

fn func_ret(_: u64, to: u64, _: u64, _: u64, _: u64) -> u64 {
    give(WORLD.with_borrow(|world| world.kernel.result), to, -95)
}

fn func_ip(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow(|world| world.kernel.function)
}

fn attach_cookie(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow(|world| world.kernel.link_cookie)
}

/// A bool in the low 8 bits of a register whose other bits mean nothing.
fn is_return(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    0x5555_5500 | WORLD.with_borrow(|world| u64::from(world.kernel.at_return))
}

fn cookie(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    WORLD.with_borrow(|world| std::ptr::from_ref::<u64>(&world.kernel.cookie) as u64)
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
    run_in(&mut Kernel::default(), insns, context, memory, numbers)
}

/// The same in a kernel that remembers.
pub(super) fn run_in(
    kernel: &mut Kernel,
    insns: &[Insn],
    context: &mut [u8],
    memory: Memory,
    numbers: &[u64],
) -> Trace {
    let cookie_address = std::ptr::from_ref::<u64>(&kernel.cookie) as u64;
    let elements = kernel.saved.values().map(|value| (value.as_ptr() as u64, value.len() as u64));
    // Only for a program that asks for it: to another it is memory out of bounds, wherever it happens to lie.
    let asks = insns.iter().any(|insn| insn.is_kfunc_call() && insn.imm == COOKIE_ID);
    let readable: Vec<(u64, u64)> = elements.chain(asks.then_some((cookie_address, 8))).collect();
    WORLD.with_borrow_mut(|world| {
        let numbers = numbers.iter().copied().collect();
        *world = World { memory, kernel: std::mem::take(kernel), trace: Trace::default(), numbers };
    });
    // rbpf's stack is zeroed; the kernel's is not.
    let garbage = (1..=32i16).map(|word| Insn::store_imm(Width::D, 10, -8 * word, 0x6b6b_6b6b));
    let insns: Vec<Insn> = garbage.chain(insns.iter().map(|insn| stand_in(*insn))).collect();
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
    let mut machine = match rbpf::EbpfVmRaw::new(Some(&bytes)) {
        Ok(machine) => machine,
        Err(error) => panic!("rbpf refuses the program: {error:?}\n{}", insn::listing(&insns)),
    };
    for (start, length) in readable {
        machine.register_allowed_memory(start..start + length);
    }
    let helpers: [(u32, rbpf::Helper); 14] = [
        (6, record),
        (7, number),
        (helper::PROBE_READ_KERNEL, probe_read),
        (helper::MAP_LOOKUP_ELEM, lookup),
        (helper::MAP_UPDATE_ELEM, update),
        (helper::MAP_DELETE_ELEM, delete),
        (helper::GET_FUNC_ARG, func_arg),
        (helper::GET_FUNC_RET, func_ret),
        (helper::GET_FUNC_IP, func_ip),
        (helper::GET_ATTACH_COOKIE, attach_cookie),
        (IS_RETURN, is_return),
        (COOKIE, cookie),
        (CAST, cast),
        (COUNT, count),
    ];
    for (id, function) in helpers {
        machine.register_helper(id, function).expect("rbpf takes any helper");
    }
    let returned = machine.execute_program(context).ok();
    WORLD.with_borrow_mut(|world| {
        *kernel = std::mem::take(&mut world.kernel);
        Trace { returned, ..std::mem::take(&mut world.trace) }
    })
}

fn stand_in(insn: Insn) -> Insn {
    if insn.is_kfunc_call() {
        return Insn::call(match insn.imm {
            IS_RETURN_ID => IS_RETURN,
            COOKIE_ID => COOKIE,
            _ => CAST,
        });
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
    let arch = crate::trampoline::arch::Arch::of(Machine::X86_64);
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
                None if insn.is_kfunc_call() && insn.imm == CAST_ID => 2,
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
