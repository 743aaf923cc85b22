// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Generated programs before the kernel's verifier, and run by it: one of each probe at a return and of type TRACING.
//!
//! `getpgid()` looks its argument up by `find_task_by_vpid()`, and `kill()` calls `check_kill_permission()`, each once.
//! The programs are loaded and attached by bare system calls here, so that what fails is the trampoline.

use crate::guest::calls::syscall;
use crate::guest::case::{Capability, Case, Failure, case, choose, need};
use crate::guest::shape::{Place, Shape, site};
use libbpf_rs::libbpf_sys as sys;
use siteseer::Target;
use siteseer::internals::insn::{Alu, Cond, Insn, Width, pseudo};
use siteseer::internals::program::{UserProgram, analyse};
use siteseer::internals::trampoline::{KernelIds, Kfunc, OwnMap, Parameter, Probe, Spec, generate};
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, Kind};
use siteseer_sites::location::{Located, Location};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("trampolines", name, run);
    vec![
        case("session", |target| shown(target, Probe::Session, signals)),
        case("tracing_multi_exit", |target| shown(target, Probe::TracingMultiExit, signals)),
        case("tracing_multi", |target| shown(target, Probe::TracingMulti, signals)),
        case("fexit", |target| shown(target, Probe::Fexit, signals)),
        case("kretprobe_multi", |target| shown_by_tasks(target, Probe::Kretprobe)),
        case("typed_return_of_a_session", |target| shown_by_tasks(target, Probe::Session)),
        case("typed_return_of_tracing_multi", |target| shown_by_tasks(target, Probe::TracingMultiExit)),
        case("more_stack_than_512_with_private_stacks", |target| {
            need(target, Capability::PrivateStack)?;
            shown(target, Probe::Session, private_stack)
        }),
    ]
}

/// Where `getpgid()` calls `find_task_by_vpid()`: a link that is optimised as a whole may inline it.
fn shown_by_tasks(target: &Target, probe: Probe) -> Result<String, Failure> {
    let elsewhere = site(Place::Inline).called_by("do_getpgid").attachable_or_not();
    choose(target, &[Shape::new("find_task_by_vpid", [site(Place::Body)]).and_no(elsewhere)], Shape::clone)?;
    shown(target, probe, tasks)
}

struct Facts {
    btf: Vec<u8>,
}

impl Facts {
    fn read() -> Result<Facts, Failure> {
        Ok(Facts { btf: fs::read("/sys/kernel/btf/vmlinux")? })
    }

    fn btf(&self) -> Result<Btf<'_>, Failure> {
        Ok(Btf::parse(&self.btf)?)
    }

    fn func(&self, name: &str) -> Result<u32, Failure> {
        Ok(self.btf()?.find(Kind::Func, name).ok_or_else(|| format!("no FUNC {name}"))?.id())
    }

    fn kfunc(&self, name: &str) -> Result<Kfunc, Failure> {
        let btf = self.btf()?;
        let func = btf.find(Kind::Func, name).ok_or_else(|| format!("no FUNC {name}"))?;
        let prototype = func.target().and_then(|id| btf.ty(id)).ok_or("no prototype")?;
        Ok(Kfunc { id: func.id(), takes_context: prototype.params().len() == 1 })
    }

    fn structure(&self, name: &str) -> Result<u32, Failure> {
        Ok(self.btf()?.find(Kind::Struct, name).ok_or_else(|| format!("no struct {name}"))?.id())
    }

    fn offset(&self, structure: &str, member: &str) -> Result<i16, Failure> {
        let btf = self.btf()?;
        let ty = btf.find(Kind::Struct, structure).ok_or("no such struct")?;
        let found = ty.members().find(|m| m.name == member).ok_or("no such member")?;
        Ok(i16::try_from(found.bit_offset / 8)?)
    }

    fn attach_type(&self, name: &str) -> Result<u32, Failure> {
        let btf = self.btf()?;
        let ty = btf.find(Kind::Enum, "bpf_attach_type").ok_or("no enum bpf_attach_type")?;
        let found = ty.enumerators().find(|e| e.name == name).ok_or_else(|| format!("no {name}"))?;
        Ok(u32::try_from(found.value)?)
    }

    fn ids(&self) -> Result<KernelIds, Failure> {
        Ok(KernelIds {
            rdonly_cast: Some(self.func("bpf_rdonly_cast")?),
            session_is_return: self.kfunc("bpf_session_is_return").ok(),
            session_cookie: self.kfunc("bpf_session_cookie").ok(),
            private_stack: false,
            unplaced: false,
        })
    }
}

/// What a program of this probe shows, where the kernel has what it takes.
fn shown(target: &Target, probe: Probe, show: fn(&Facts, Probe) -> Result<String, Failure>) -> Result<String, Failure> {
    // Their programs follow typed pointers.
    need(target, Capability::RdonlyCast)?;
    need(
        target,
        match probe {
            Probe::Fexit => Capability::Fentry,
            Probe::Kretprobe => Capability::KprobeMulti,
            Probe::TracingMulti | Probe::TracingMultiExit => Capability::TracingMulti,
            _ => Capability::KprobeSession,
        },
    )?;
    show(&Facts::read()?, probe)
}

fn opened(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just given.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn map(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let opts = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    // SAFETY: the name and the options live through the call.
    opened(unsafe { sys::bpf_map_create(kind, c"trampolines".as_ptr(), key, value, entries, &opts) })
}

fn first<const N: usize>(map: &OwnedFd) -> Result<[u64; N], Failure> {
    let mut value = [0u64; N];
    let key = 0u32;
    // SAFETY: key and value have the map's sizes.
    let result =
        unsafe { sys::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), value.as_mut_ptr().cast()) };
    if result != 0 { Err(io::Error::last_os_error().into()) } else { Ok(value) }
}

/// Loads the program that runs `insns` for a probe, and attaches it to a function.
fn attach(
    facts: &Facts,
    function: &str,
    probe: Probe,
    parameters: &[Parameter],
    ret: &Parameter,
    kernel: KernelIds,
    insns: Vec<Insn>,
) -> Result<(OwnedFd, OwnedFd), Failure> {
    let program = UserProgram { name: "user".to_owned(), insns, exit: probe.is_exit(), ..UserProgram::default() };
    let uses = analyse(&program)?;
    let faults = map(sys::BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0)?;
    let spec = Spec {
        machine: MACHINE,
        probe,
        parameters,
        ret: Some(ret),
        inline: false,
        cookie: 77,
        displacement: 0,
        kernel,
    };
    let image = generate(&program, &uses, &spec)?;
    let saved = image.saved.map(|saved| {
        let no_prealloc = 1;
        map(sys::BPF_MAP_TYPE_HASH, saved.key_size, saved.value_size, saved.max_entries, no_prealloc)
    });
    let saved = saved.transpose()?;
    let insns = image.with_maps(|map| match map {
        OwnMap::Sites => -1,
        OwnMap::Faults => faults.as_raw_fd(),
        OwnMap::Saved => saved.as_ref().map_or(-1, AsRawFd::as_raw_fd),
    });
    let attach_type = match probe {
        Probe::Fexit => sys::BPF_TRACE_FEXIT,
        Probe::TracingMulti => facts.attach_type("BPF_TRACE_FENTRY_MULTI")?,
        Probe::TracingMultiExit => facts.attach_type("BPF_TRACE_FEXIT_MULTI")?,
        Probe::Session => facts.attach_type("BPF_TRACE_KPROBE_SESSION")?,
        _ => sys::BPF_TRACE_KPROBE_MULTI,
    };
    let kind = if probe.is_tracing() { sys::BPF_PROG_TYPE_TRACING } else { sys::BPF_PROG_TYPE_KPROBE };
    let func = facts.func(function)?;
    let mut log = vec![0u8; 1 << 20];
    let mut opts = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        expected_attach_type: attach_type,
        attach_btf_id: if probe == Probe::Fexit { func } else { 0 },
        log_level: 1,
        log_buf: log.as_mut_ptr().cast(),
        log_size: log.len() as u32,
        ..Default::default()
    };
    // SAFETY: every pointer has the length that goes with it, and lives through the call.
    let loaded = opened(unsafe {
        sys::bpf_prog_load(
            kind,
            c"trampoline".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr().cast(),
            insns.len() as sys::size_t,
            &mut opts,
        )
    });
    let loaded = loaded.map_err(|error| {
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        format!("load: {error}\n{}", String::from_utf8_lossy(&log[..end]))
    })?;
    let link = match probe {
        Probe::TracingMulti | Probe::TracingMultiExit => {
            // link_create: prog_fd, target_fd, attach_type, flags, ids, cookies, cnt.
            let ids = [func];
            let mut attr = [0u32; 16];
            attr[0] = loaded.as_raw_fd() as u32;
            attr[2] = attach_type;
            let address = ids.as_ptr() as u64;
            (attr[4], attr[5], attr[8]) = (address as u32, (address >> 32) as u32, 1);
            let link_create = 28;
            let link = syscall(libc::SYS_bpf, [link_create, attr.as_ptr() as u64, size_of_val(&attr) as u64, 0, 0, 0]);
            opened(i32::try_from(link.map_err(|error| format!("link: {error}"))?)?)
        }
        Probe::Fexit => {
            let opts = sys::bpf_link_create_opts {
                sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
                ..Default::default()
            };
            // SAFETY: the options live through the call.
            opened(unsafe { sys::bpf_link_create(loaded.as_raw_fd(), 0, attach_type, &opts) })
        }
        _ => {
            let name = std::ffi::CString::new(function)?;
            let names = [name.as_ptr()];
            let mut opts = sys::bpf_link_create_opts {
                sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
                ..Default::default()
            };
            opts.__bindgen_anon_1.kprobe_multi.flags = u32::from(probe == Probe::Kretprobe);
            opts.__bindgen_anon_1.kprobe_multi.cnt = 1;
            let mut names = names;
            opts.__bindgen_anon_1.kprobe_multi.syms = names.as_mut_ptr();
            // SAFETY: names and options live through the call.
            opened(unsafe { sys::bpf_link_create(loaded.as_raw_fd(), 0, attach_type, &opts) })
        }
    };
    let link = link.map_err(|error| format!("link: {error}"))?;
    // The map of faults is kept by the program; it is looked at through a descriptor of its own.
    Ok((link, faults))
}

/// Code that stores r7, r8 and r9 in element 0 of a map, and counts.
fn report(map: &OwnedFd) -> Vec<Insn> {
    let mut code = vec![Insn::store_imm(Width::W, 10, -4, 0), Insn::mov(2, 10)];
    code.push(Insn::alu_imm(Alu::Add, 2, -4));
    code.extend(Insn::load64(1, pseudo::MAP_FD, map.as_raw_fd() as u64));
    code.extend([Insn::call(1), Insn::jump_if_imm(Cond::Eq, 0, 0, 5)]);
    code.extend((0..3).map(|n| Insn::store(Width::D, 0, 8 * n, 7 + n as u8)));
    code.extend([Insn::mov_imm(1, 1), Insn::atomic_add(0, 24, 1)]);
    code
}

#[cfg(target_arch = "aarch64")]
const MACHINE: Machine = Machine::Aarch64;
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: Machine = Machine::X86_64;

/// The registers of the first three arguments, and that of the return value.
fn registers() -> ([u16; 3], u16) {
    match MACHINE {
        Machine::X86_64 => ([5, 4, 1], 0),
        Machine::Aarch64 => ([0, 1, 2], 0),
    }
}

fn parameter(size: u32, signed: bool, register: u16, typed: Option<u32>) -> Parameter {
    Parameter {
        size,
        argument: Ok(Located::certain(size, signed, Location::Register(register))),
        typed,
        foreign: false,
    }
}

fn getpgid(pid: u32) -> Result<(), Failure> {
    syscall(libc::SYS_getpgid, [u64::from(pid), 0, 0, 0, 0, 0])?;
    Ok(())
}

/// `int check_kill_permission(int sig, struct kernel_siginfo *info, struct task_struct *t)`.
fn signal_parameters(facts: &Facts) -> Result<[Parameter; 3], Failure> {
    let ([sig, info, task], _) = registers();
    Ok([
        parameter(4, true, sig, None),
        parameter(8, false, info, Some(facts.structure("kernel_siginfo")?)),
        parameter(8, false, task, Some(facts.structure("task_struct")?)),
    ])
}

/// The signal 0 is sent to this process: all goes its way as for another signal, and nothing arrives.
fn signal(pid: u32) -> Result<(), Failure> {
    syscall(libc::SYS_kill, [u64::from(pid), 0, 0, 0, 0, 0])?;
    Ok(())
}

/// All arguments, one of them followed over two steps, and the return value.
fn signals(facts: &Facts, probe: Probe) -> Result<String, Failure> {
    let pid = std::process::id();
    let parameters = signal_parameters(facts)?;
    let ret = parameter(4, true, registers().1, None);
    let seen = map(sys::BPF_MAP_TYPE_ARRAY, 4, 32, 1, 0)?;
    let mut insns = vec![
        Insn::mov(6, 1),
        Insn::load(Width::D, 7, 6, 16),
        Insn::load(Width::W, 7, 7, facts.offset("task_struct", "tgid")?),
        Insn::jump_if_imm(Cond::Ne, 7, pid as i32, 0),
        Insn::load(Width::D, 8, 6, 8),
        Insn::load(Width::D, 8, 6, 16),
        Insn::load(Width::D, 8, 8, facts.offset("task_struct", "group_leader")?),
        Insn::load(Width::W, 8, 8, facts.offset("task_struct", "pid")?),
        // The signal is 0, and so is what is returned: the added numbers tell both from a value that is not there.
        Insn::load(Width::D, 9, 6, 0),
        if probe.is_exit() { Insn::load(Width::D, 1, 6, 24) } else { Insn::mov_imm(1, 0) },
        Insn::alu(Alu::Add, 9, 1),
        Insn::alu_imm(Alu::Add, 9, 5),
    ];
    insns.extend(report(&seen));
    insns[3].off = (insns.len() - 4) as i16;
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    let (link, faults) = attach(facts, "check_kill_permission", probe, &parameters, &ret, facts.ids()?, insns)?;
    for _ in 0..10 {
        signal(pid)?;
    }
    let [tgid, leader, zero, count] = first(&seen)?;
    drop(link);
    signal(pid)?;
    let after = first::<4>(&seen)?[3];
    let [lost] = first(&faults)?;
    let detail = format!("to {tgid} of {pid}, led by {leader}, {zero} for 5, {count} hits, then {after}, {lost} lost");
    let itself = u64::from(pid);
    let right = (tgid, leader, zero, count, after, lost) == (itself, itself, 5, 10, 10, 0);
    if right { Ok(detail) } else { Err(detail.into()) }
}

/// `struct task_struct *find_task_by_vpid(pid_t vnr)`: the return value is followed.
fn tasks(facts: &Facts, probe: Probe) -> Result<String, Failure> {
    let pid = std::process::id();
    let parameters = [parameter(4, true, registers().0[0], None)];
    let ret = parameter(8, false, registers().1, Some(facts.structure("task_struct")?));
    let seen = map(sys::BPF_MAP_TYPE_ARRAY, 4, 32, 1, 0)?;
    let mut insns = vec![
        Insn::mov(6, 1),
        if probe == Probe::Kretprobe { Insn::mov_imm(7, 0) } else { Insn::load(Width::D, 7, 6, 0) },
        Insn::load(Width::D, 8, 6, 8),
        Insn::load(Width::W, 9, 8, facts.offset("task_struct", "tgid")?),
        Insn::load(Width::W, 8, 8, facts.offset("task_struct", "pid")?),
    ];
    insns.extend(report(&seen));
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    let (_link, faults) = attach(facts, "find_task_by_vpid", probe, &parameters, &ret, facts.ids()?, insns)?;
    for _ in 0..10 {
        getpgid(pid)?;
    }
    let [nr, found, tgid, count] = first(&seen)?;
    let [lost] = first(&faults)?;
    let detail = format!("asked {nr} of {pid}, found {found} of process {tgid}, {count} hits, {lost} lost");
    let asked = probe == Probe::Kretprobe || nr == u64::from(pid);
    let right = asked && found == u64::from(pid) && tgid == found && count == 10 && lost == 0;
    if right { Ok(detail) } else { Err(detail.into()) }
}

/// Frames of 64 bytes and more have stacks of their own.
fn private_stack(facts: &Facts, probe: Probe) -> Result<String, Failure> {
    let pid = std::process::id();
    let parameters = signal_parameters(facts)?;
    let ret = parameter(4, true, registers().1, None);
    let seen = map(sys::BPF_MAP_TYPE_ARRAY, 4, 32, 1, 0)?;
    let mut insns = vec![
        Insn::mov(6, 1),
        Insn::load(Width::D, 7, 6, 16),
        Insn::load(Width::W, 7, 7, facts.offset("task_struct", "tgid")?),
        Insn::jump_if_imm(Cond::Ne, 7, pid as i32, 0),
        Insn::store(Width::D, 10, -496, 7),
        Insn::load(Width::D, 8, 6, 8),
        Insn::load(Width::D, 8, 6, 16),
        Insn::load(Width::D, 8, 8, facts.offset("task_struct", "group_leader")?),
        Insn::load(Width::W, 8, 8, facts.offset("task_struct", "pid")?),
        Insn::mov_imm(9, 0),
    ];
    insns.extend(report(&seen));
    insns[3].off = (insns.len() - 4) as i16;
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    let with = |private_stack: bool| {
        let kernel = KernelIds { private_stack, ..facts.ids()? };
        attach(facts, "check_kill_permission", probe, &parameters, &ret, kernel, insns.clone())
    };
    let refused = with(false).err().map(|error| error.to_string()).unwrap_or_default();
    if !refused.starts_with("stack: ") {
        return Err(format!("not refused without private stacks: {refused}").into());
    }
    let _link = with(true)?;
    for _ in 0..10 {
        signal(pid)?;
    }
    let [tgid, leader, _, count] = first(&seen)?;
    let detail = format!("to {tgid} of {pid}, led by {leader}, {count} hits");
    if (tgid, leader, count) == (u64::from(pid), u64::from(pid), 10) { Ok(detail) } else { Err(detail.into()) }
}
