// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BPF instructions: what a program uses is found out, and trampolines to it are generated for parameters that the
//! input chooses. All jumps of what is generated land in it.
#![no_main]

use siteseer::internals::insn::Insn;
use siteseer::internals::program::{FuncInfo, UserProgram, analyse};
use siteseer::internals::trampoline::{KernelIds, Kfunc, OwnMap, Parameter, Probe, Spec, generate};
use siteseer_sites::Machine;
use siteseer_sites::location::{Computed, Located, Location, Missing, Op};

const PROBES: [Probe; 8] = [
    Probe::Kprobe,
    Probe::KprobeMulti,
    Probe::Fentry,
    Probe::Fexit,
    Probe::TracingMulti,
    Probe::TracingMultiExit,
    Probe::Kretprobe,
    Probe::Session,
];

fn location(kind: u8, register: u8, number: u8) -> Location {
    let register = u16::from(register);
    match kind % 6 {
        0 => Location::Constant(u64::from(number) << 40 | u64::from(number)),
        1 => Location::Register(register),
        2 => Location::RegisterPair(register, u16::from(number)),
        3 => Location::Memory(register, i32::from(number) - 128),
        4 => Location::RegisterOffset(register, i32::from(number) << 20),
        _ => {
            let slot: Box<[Op]> = [Op::Register(register), Op::Constant(number.into()), Op::Add, Op::Load(4)].into();
            Location::Computed(Computed { slots: vec![slot; usize::from(number % 4)].into() })
        }
    }
}

/// Whether all jumps and calls land on instructions.
fn lands(insns: &[Insn]) -> bool {
    let mut at = 0;
    while let Some(insn) = insns.get(at) {
        let distance = if insn.is_jump() {
            insn.jump_distance()
        } else if insn.is_subprogram_call() || insn.is_subprogram_address() {
            insn.imm
        } else {
            0
        };
        let target = at as i64 + 1 + i64::from(distance);
        if target < 0 || target as usize > insns.len() {
            return false;
        }
        at += if insn.is_load64() { 2 } else { 1 };
    }
    at == insns.len()
}

siteseer_fuzz::target!(|data| {
    let Some(([choice, count, split], rest)) = data.split_first_chunk() else { return };
    let Some((parameters, code)) = rest.split_at_checked(usize::from(count % 7) * 4) else { return };
    let parameters: Vec<Parameter> = parameters
        .chunks_exact(4)
        .map(|bytes| {
            let (size, signed) = (u32::from(bytes[1] % 33), bytes[1] & 64 != 0);
            let argument = match bytes[0] {
                255 => Err(Missing::OptimisedOut.into()),
                kind => Ok(Located::certain(size, signed, location(kind, bytes[2], bytes[3]))),
            };
            Parameter { size, argument, typed: (bytes[1] & 128 != 0).then_some(7), foreign: bytes[0] & 128 != 0 }
        })
        .collect();
    let probe = PROBES[usize::from(*choice) % PROBES.len()];
    let machine = if choice & 64 == 0 { Machine::X86_64 } else { Machine::Aarch64 };
    let insns = code.chunks_exact(8).filter_map(|bytes| Some(Insn::from_bytes(bytes.try_into().ok()?)));
    let insns: Vec<Insn> = insns.collect();
    let func_info = vec![FuncInfo { insn_off: 0, type_id: 1 }, FuncInfo { insn_off: u32::from(*split), type_id: 2 }];
    let program =
        UserProgram { name: "program".to_owned(), insns, func_info, exit: probe.is_exit(), ..UserProgram::default() };
    let Ok(uses) = analyse(&program) else { return };
    let kfunc = |id| Some(Kfunc { id, takes_context: choice & 32 != 0 });
    let spec = Spec {
        machine,
        probe,
        parameters: &parameters,
        ret: parameters.last().filter(|_| choice & 16 != 0),
        inline: choice & 8 != 0,
        cookie: 0x1234_5678_9abc,
        displacement: 0x1000_0000,
        kernel: KernelIds {
            rdonly_cast: Some(4242),
            session_is_return: kfunc(4243),
            session_cookie: kfunc(4244),
            private_stack: false,
            unplaced: false,
        },
    };
    let _ = (spec.outline(&uses), spec.key(&uses));
    if let Ok(image) = generate(&program, &uses, &spec) {
        assert!(lands(&image.insns), "{}", image.listing());
        let loads = |&(at, _): &(usize, OwnMap)| image.insns.get(at).is_some_and(|insn| insn.is_load64());
        assert!(image.maps.iter().all(loads), "{:?}\n{}", image.maps, image.listing());
        assert!(image.stack <= 512, "the kernel's limit");
    }
});
