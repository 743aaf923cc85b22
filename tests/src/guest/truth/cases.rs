// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which functions are called how, and what must be seen.
//!
//! Each case makes system calls. Their way into the function is known from the kernel's source. The case uses arguments
//! that are chosen to be told apart from anything else, and states for each call the site that it must be seen at (kind
//! and containing symbol) and every argument. Pointers into the kernel are checked against an oracle: a plain libbpf
//! program on another function of the same path, which gets the same pointer in its ordinary arguments.

use super::{Calls, Truth, Value};
use crate::entry;
use crate::guest::calls::{chmod, open, syscall, syscall32};
use libbpf_rs::{ObjectBuilder, ProgramInput};
use siteseer_bpf_progs::BLOOM;
use siteseer_sites::SiteKind::{Body, Clone, Inline};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use Value::{Address, Is, Masked, Oracle};
use siteseer_bpf_progs::oracle::Oracle::{FcntlFile, Pipe, PollEndTime, SeqFile, SeqIndex};

/// All cases.
pub(super) const TRUTHS: &[Truth] = &[
    Truth { function: "__bpf_copy_key", shows: "fully inlined; registers, computed", asks: false, calls: bpf_copy_key },
    Truth {
        function: "___bpf_copy_key",
        shows: "fully inlined; structure by value in pieces",
        asks: false,
        calls: bpf_copy_key_struct,
    },
    Truth {
        function: "strncpy_from_bpfptr",
        shows: "clang: an argument removed under the same name, notrace",
        asks: false,
        calls: bpf_program_licence,
    },
    Truth { function: "ns_capable", shows: "body and inlined copies", asks: false, calls: ns_capable },
    Truth {
        function: "jhash",
        shows: "bodies and clones that cannot be probed, inlined copies",
        asks: false,
        calls: jhash,
    },
    Truth { function: "ksys_shmget", shows: "body and two inlined copies; memory", asks: false, calls: ksys_shmget },
    Truth { function: "ksys_semget", shows: "body and two inlined copies; registers", asks: false, calls: ksys_semget },
    Truth { function: "ksys_msgget", shows: "body and two inlined copies; registers", asks: false, calls: ksys_msgget },
    Truth {
        function: "kill_something_info",
        shows: ".constprop clone; constant",
        asks: false,
        calls: kill_something_info,
    },
    Truth { function: "ksys_semctl", shows: ".constprop clone; constant", asks: false, calls: ksys_semctl },
    Truth { function: "apply_mlockall_flags", shows: ".isra clone", asks: false, calls: apply_mlockall_flags },
    Truth { function: "c_start", shows: "three bodies of one name", asks: true, calls: c_start },
    Truth { function: "setfl", shows: "fully inlined; registers", asks: true, calls: setfl },
    Truth { function: "pipe_set_size", shows: "fully inlined; registers", asks: true, calls: pipe_set_size },
    Truth { function: "do_getpgid", shows: "body and inlined copy; constant", asks: false, calls: do_getpgid },
    Truth {
        function: "timespec64_to_ktime",
        shows: "fully inlined; register pairs",
        asks: false,
        calls: timespec64_to_ktime,
    },
    Truth {
        function: "shmem_kernel_file_setup",
        shows: "inlined copy; address constant",
        asks: false,
        calls: shmem_kernel_file_setup,
    },
    Truth {
        function: "poll_select_set_timeout",
        shows: "inlined copies; register plus offset",
        asks: true,
        calls: poll_select_set_timeout,
    },
    Truth { function: "uid_hash_find", shows: ".isra clone that lost a parameter", asks: false, calls: uid_hash_find },
    Truth {
        function: "do_execveat_common",
        shows: ".isra clone that lost two structures; stack",
        asks: false,
        calls: do_execveat_common,
    },
    Truth {
        function: "do_mmap",
        shows: "body whose debug information has a home in the frame for a structure in a register",
        asks: false,
        calls: do_mmap,
    },
];

/// What a site lacks, and another kernel's may have.
fn missing(value: Value) -> Value {
    Value::Missing(Box::new(value))
}

/// How often each call is made: a count that comes out right by accident would be wrong for the others.
const TIMES: u64 = 3;

/// `bpf()` commands and attributes, include/uapi/linux/bpf.h.
const BPF_MAP_CREATE: u64 = 0;
const BPF_MAP_LOOKUP_ELEM: u64 = 1;
const BPF_MAP_UPDATE_ELEM: u64 = 2;
const BPF_MAP_DELETE_ELEM: u64 = 3;
const BPF_MAP_GET_NEXT_KEY: u64 = 4;
const BPF_MAP_LOOKUP_AND_DELETE_ELEM: u64 = 21;
const BPF_MAP_TYPE_HASH: u32 = 1;

fn bpf(command: u64, attributes: &[u8]) -> io::Result<i64> {
    syscall(libc::SYS_bpf, [command, attributes.as_ptr() as u64, attributes.len() as u64, 0, 0, 0])
}

fn hash_map(key_size: u32) -> io::Result<OwnedFd> {
    let words = [BPF_MAP_TYPE_HASH, key_size, 4, 16, 0];
    let attributes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let fd = bpf(BPF_MAP_CREATE, &attributes)?;
    // SAFETY: The kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn map_element(command: u64, map: &OwnedFd, key: *const u8, value: *mut u32) -> io::Result<i64> {
    let mut attributes = [0u8; 32];
    attributes[..4].copy_from_slice(&(map.as_raw_fd() as u32).to_le_bytes());
    attributes[8..16].copy_from_slice(&(key as u64).to_le_bytes());
    if !value.is_null() {
        attributes[16..24].copy_from_slice(&(value as u64).to_le_bytes());
    }
    bpf(command, &attributes)
}

fn bpf_copy_key(calls: &mut Calls<'_>) -> io::Result<()> {
    for key_size in [4u32, 7, 24] {
        let map = hash_map(key_size)?;
        let key = vec![0x5au8; key_size as usize];
        let mut value = 7u32;
        calls.expect(Inline, "map_lookup_elem", vec![Is(key.as_ptr() as u64), Is(u64::from(key_size))]);
        // The map is empty: ENOENT.
        let _ = map_element(BPF_MAP_LOOKUP_ELEM, &map, key.as_ptr(), &raw mut value);
        let mut next = vec![0u8; key_size as usize];
        let by_next = vec![Is(key.as_ptr() as u64), Is(u64::from(key_size))];
        calls.expect(Inline, "__sys_bpf", by_next).called_by("map_get_next_key");
        let _ = map_element(BPF_MAP_GET_NEXT_KEY, &map, key.as_ptr(), next.as_mut_ptr().cast());
        let by_both = vec![Is(key.as_ptr() as u64), Is(u64::from(key_size))];
        calls.expect(Inline, "__sys_bpf", by_both).called_by("map_lookup_and_delete_elem");
        let _ = map_element(BPF_MAP_LOOKUP_AND_DELETE_ELEM, &map, key.as_ptr(), &raw mut value);
    }
    Ok(())
}

fn bpf_copy_key_struct(calls: &mut Calls<'_>) -> io::Result<()> {
    for key_size in [4u32, 7, 24] {
        let map = hash_map(key_size)?;
        let key = vec![0x5au8; key_size as usize];
        let mut value = 7u32;
        let ways = [
            (BPF_MAP_UPDATE_ELEM, "map_update_elem", &raw mut value),
            (BPF_MAP_DELETE_ELEM, "map_delete_elem", std::ptr::null_mut()),
        ];
        for (command, within, value) in ways {
            // bpfptr_t: the user's pointer, then is_kernel in one bit.
            let pointer = Value::Slots(vec![Is(key.as_ptr() as u64), Masked { value: 0, mask: 1 }]);
            calls.expect(Inline, within, vec![pointer, Is(u64::from(key_size))]);
            map_element(command, &map, key.as_ptr(), value)?;
        }
    }
    Ok(())
}

const BPF_PROG_LOAD: u64 = 5;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;

fn bpf_program_licence(calls: &mut Calls<'_>) -> io::Result<()> {
    // r0 = 0; exit
    let insns = [0xb7u64, 0x95];
    for licence in [c"GPL", c"", c"Dual BSD/GPL"] {
        // prog_type, insn_cnt, insns, license: the beginning of `union bpf_attr`.
        let mut attributes = [0u8; 72];
        attributes[0..4].copy_from_slice(&BPF_PROG_TYPE_SOCKET_FILTER.to_le_bytes());
        attributes[4..8].copy_from_slice(&2u32.to_le_bytes());
        attributes[8..16].copy_from_slice(&(insns.as_ptr() as u64).to_le_bytes());
        attributes[16..24].copy_from_slice(&(licence.as_ptr() as u64).to_le_bytes());
        // To a buffer on the kernel's stack.
        let to = Masked { value: 1 << 63, mask: 1 << 63 };
        let pointer = Value::Slots(vec![Is(licence.as_ptr() as u64), Masked { value: 0, mask: 1 }]);
        calls.expect(Inline, "bpf_prog_load", vec![to, missing(pointer), Is(127)]);
        let fd = bpf(BPF_PROG_LOAD, &attributes)?;
        // SAFETY: the kernel has just given us this descriptor.
        drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    }
    Ok(())
}

const CAP_DAC_READ_SEARCH: u64 = 2;
const CAP_SYS_CHROOT: u64 = 18;
const CAP_SYS_ADMIN: u64 = 21;

fn ns_capable(calls: &mut Calls<'_>) -> io::Result<()> {
    let root = CString::new("/")?;
    let nowhere = CString::new("/nowhere")?;
    // A new one each time: to open an old one for writing takes capabilities, too.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let path = format!("/tmp/secret{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    drop(File::create(&path)?);
    let secret = CString::new(path)?;
    chmod(&secret, 0)?;
    for _ in 0..TIMES {
        // fs/open.c is another file than kernel/capability.c: a real call.
        calls
            .expect(Body, "ns_capable", vec![Address("init_user_ns"), Is(CAP_SYS_CHROOT)])
            .called_by("__do_sys_chroot");
        syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0])?;
        // capable() is ns_capable(&init_user_ns, cap) in the same file; this copy has no trace of the constant.
        let by_capable = vec![missing(Address("init_user_ns")), Is(CAP_SYS_ADMIN)];
        calls.expect(Inline, "capable", by_capable).on_behalf_of("__do_sys_swapoff");
        let _ = syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]);
        // A file that its mode lets nobody read: generic_permission() asks capable_wrt_inode_uidgid().
        calls.expect(Inline, "capable_wrt_inode_uidgid", vec![Address("init_user_ns"), Is(CAP_DAC_READ_SEARCH)]);
        let fd = open(&secret)?;
        syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn jhash(calls: &mut Calls<'_>) -> io::Result<()> {
    // A value with a size that is not a multiple of 4 is hashed by jhash(), once for each hash function; others by
    // jhash2(). The seed is known at this copy's site only as what the enclosing function was called with.
    let object = ObjectBuilder::default().open_memory(BLOOM).and_then(|open| open.load()).map_err(io::Error::other)?;
    for (name, value_size, hashes) in [("push5", 5u8, 2), ("push7", 7, 3), ("push13", 13, 4)] {
        for seed in 0..hashes {
            let value = vec![0x40 + value_size; usize::from(value_size)];
            calls.expect(Inline, "hash", vec![Value::Memory(value), Is(u64::from(value_size)), missing(Is(seed))]);
        }
        let program = object.progs_mut().find(|program| program.name() == name).ok_or(io::ErrorKind::NotFound)?;
        let packet = [0u8; 64];
        let input = ProgramInput { data_in: Some(&packet), ..ProgramInput::default() };
        let output = program.test_run(input).map_err(io::Error::other)?;
        if output.return_value != 0 {
            return Err(io::Error::other(format!("{name} returned {}", output.return_value)));
        }
    }
    Ok(())
}

/// A key of System V objects that nothing else has.
const KEY: u64 = 0x5173_5ee7;

/// i386's numbers of the same calls, and of `ipc` with its sub-calls, arch/x86/entry/syscalls/syscall_32.tbl.
const IPC_32: u32 = 117;
const SEMGET_32: u32 = 393;
const SHMGET_32: u32 = 395;
const MSGGET_32: u32 = 399;
const IPC_SEMGET: u32 = 2;
const IPC_MSGGET: u32 = 13;
const IPC_SHMGET: u32 = 23;

/// Whether this machine's kernels have the 32-bit entry that these tests use.
const HAS_COMPAT: bool = cfg!(target_arch = "x86_64");

// Proves S4.3.
fn ksys_shmget(calls: &mut Calls<'_>) -> io::Result<()> {
    let flags = u64::from(0o600u32) | libc::IPC_CREAT as u64;
    for n in 0..TIMES {
        let (key, size) = (KEY + n, 4096 * (n + 1));
        let arguments = || vec![Is(key), Is(size), Is(flags)];
        calls.expect(Inline, entry!("shmget"), arguments()).called_by("__do_sys_shmget");
        let id = syscall(libc::SYS_shmget, [key, size, flags, 0, 0, 0])?;
        if HAS_COMPAT {
            calls.expect(Inline, "__ia32_sys_shmget", arguments()).called_by("__do_sys_shmget");
            syscall32(SHMGET_32, [key as u32, size as u32, flags as u32, 0, 0])?;
            calls.expect(Body, "ksys_shmget", arguments()).called_by("compat_ksys_ipc");
            syscall32(IPC_32, [IPC_SHMGET, key as u32, size as u32, flags as u32, 0])?;
        }
        syscall(libc::SYS_shmctl, [id as u64, libc::IPC_RMID as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// Flags of the mapping are an argument of their own since Linux 6.6, in a structure since 7.3: then there are nine.
fn do_mmap(calls: &mut Calls<'_>) -> io::Result<()> {
    let file = File::open(std::env::current_exe()?)?;
    // Of the kernel's half of the address space, however large that is.
    let pointer = || Masked { value: 0xff << 56, mask: 0xff << 56 };
    for n in 0..TIMES {
        let (bytes, at) = ((n + 2) * procfs::page_size(), n * procfs::page_size());
        let (protection, flags) = (libc::PROT_READ as u64, libc::MAP_PRIVATE as u64);
        let mut arguments = vec![pointer(), Is(0), Is(bytes), Is(protection), Is(flags)];
        arguments.extend((calls.parameters() > 8).then_some(Is(0)));
        arguments.extend([Is(n), pointer(), pointer()]);
        calls.expect(Body, "do_mmap", arguments);
        let mapped = syscall(libc::SYS_mmap, [0, bytes, protection, flags, file.as_raw_fd() as u64, at])?;
        syscall(libc::SYS_munmap, [mapped as u64, bytes, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn ksys_semget(calls: &mut Calls<'_>) -> io::Result<()> {
    let flags = u64::from(0o600u32) | libc::IPC_CREAT as u64;
    for n in 0..TIMES {
        let (key, count) = (KEY + n, n + 1);
        let arguments = || vec![Is(key), Is(count), Is(flags)];
        calls.expect(Inline, entry!("semget"), arguments()).called_by("__do_sys_semget");
        let id = syscall(libc::SYS_semget, [key, count, flags, 0, 0, 0])?;
        if HAS_COMPAT {
            calls.expect(Inline, "__ia32_sys_semget", arguments()).called_by("__do_sys_semget");
            syscall32(SEMGET_32, [key as u32, count as u32, flags as u32, 0, 0])?;
            calls.expect(Body, "ksys_semget", arguments()).called_by("compat_ksys_ipc");
            syscall32(IPC_32, [IPC_SEMGET, key as u32, count as u32, flags as u32, 0])?;
        }
        syscall(libc::SYS_semctl, [id as u64, 0, libc::IPC_RMID as u64, 0, 0, 0])?;
    }
    Ok(())
}

fn ksys_msgget(calls: &mut Calls<'_>) -> io::Result<()> {
    let flags = u64::from(0o600u32) | libc::IPC_CREAT as u64;
    for n in 0..TIMES {
        let key = KEY + n;
        let arguments = || vec![Is(key), Is(flags)];
        calls.expect(Inline, entry!("msgget"), arguments()).called_by("__do_sys_msgget");
        let id = syscall(libc::SYS_msgget, [key, flags, 0, 0, 0, 0])?;
        if HAS_COMPAT {
            calls.expect(Inline, "__ia32_sys_msgget", arguments()).called_by("__do_sys_msgget");
            syscall32(MSGGET_32, [key as u32, flags as u32, 0, 0, 0])?;
            calls.expect(Body, "ksys_msgget", arguments()).called_by("compat_ksys_ipc");
            syscall32(IPC_32, [IPC_MSGGET, key as u32, flags as u32, 0, 0])?;
        }
        syscall(libc::SYS_msgctl, [id as u64, libc::IPC_RMID as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn kill_something_info(calls: &mut Calls<'_>) -> io::Result<()> {
    let me = u64::from(std::process::id());
    for signal in [0, libc::SIGWINCH as u64, libc::SIGURG as u64] {
        // Both signals are ignored by default; 0 only asks. SEND_SIG_NOINFO is a null pointer, and the reason for the
        // clone; kernels before that pass a kernel_siginfo, which begins with the signal's number.
        let siginfo = Value::Memory(signal.to_le_bytes()[..usize::from(signal != 0)].to_vec());
        let info = if calls.is_always(1, 0) { Is(0) } else { siginfo };
        let arguments = vec![Is(signal), info, Is(me)];
        calls.expect(Clone, "kill_something_info.constprop.0", arguments).called_by("__do_sys_kill");
        syscall(libc::SYS_kill, [me, signal, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn apply_mlockall_flags(calls: &mut Calls<'_>) -> io::Result<()> {
    for flags in [libc::MCL_FUTURE as u64, (libc::MCL_FUTURE | libc::MCL_ONFAULT) as u64] {
        calls.expect(Clone, "apply_mlockall_flags.isra.0", vec![Is(flags)]).called_by("__do_sys_mlockall");
        syscall(libc::SYS_mlockall, [flags, 0, 0, 0, 0, 0])?;
        // munlockall() is the same function with no flags.
        calls.expect(Clone, "apply_mlockall_flags.isra.0", vec![Is(0)]).called_by("__do_sys_munlockall");
        syscall(libc::SYS_munlockall, [0; 6])?;
    }
    Ok(())
}

/// Marks the wide layout of the results, include/uapi/linux/ipc.h.
const IPC_64: u64 = 0x100;

fn ksys_semctl(calls: &mut Calls<'_>) -> io::Result<()> {
    let id = syscall(libc::SYS_semget, [libc::IPC_PRIVATE as u64, 4, 0o600, 0, 0, 0])? as u64;
    for (number, value) in [(0u64, 17u64), (3, 91)] {
        let command = libc::SETVAL as u64;
        let arguments = vec![Is(id), Is(number), Is(command), Is(value), Is(IPC_64)];
        calls.expect(Clone, "ksys_semctl.constprop.0", arguments).called_by("__do_sys_semctl");
        syscall(libc::SYS_semctl, [id, number, command, value, 0, 0])?;
    }
    let command = libc::IPC_RMID as u64;
    let arguments = vec![Is(id), Is(0), Is(command), Is(0), Is(IPC_64)];
    calls.expect(Clone, "ksys_semctl.constprop.0", arguments).called_by("__do_sys_semctl");
    syscall(libc::SYS_semctl, [id, 0, command, 0, 0, 0])?;
    Ok(())
}

// Proves S11.1.
fn c_start(calls: &mut Calls<'_>) -> io::Result<()> {
    // Each file has its own c_start(); one read of a new file calls it once. The x86 processors' c_next() calls it too,
    // after the first record: there it was inlined, after a change of the register that held the seq_file. The arm64
    // processors' does since 7.x.
    let processors_next = cfg!(target_arch = "x86_64") || calls.has_site(Inline, "c_next");
    for path in ["/proc/cpuinfo", "/proc/consoles", "/proc/crypto"] {
        // A kernel without that file has no third c_start() either.
        if path == "/proc/crypto" && calls.out_of_line() < 3 && !fs::exists(path)? {
            continue;
        }
        for _ in 0..TIMES {
            let file = File::open(path)?;
            let mut byte = 0u8;
            calls.expect(Body, "c_start", vec![Oracle(SeqFile), Oracle(SeqIndex)]);
            syscall(libc::SYS_read, [file.as_raw_fd() as u64, (&raw mut byte) as u64, 1, 0, 0, 0])?;
            calls.settle()?;
            if path == "/proc/cpuinfo" && processors_next {
                calls.expect(Inline, "c_next", vec![missing(Oracle(SeqFile)), Oracle(SeqIndex)]);
                calls.settle()?;
            }
        }
    }
    Ok(())
}

fn setfl(calls: &mut Calls<'_>) -> io::Result<()> {
    let file = File::open("/")?;
    let fd = file.as_raw_fd() as u64;
    for flags in [libc::O_NONBLOCK as u64, 0, libc::O_NOATIME as u64] {
        calls.expect(Inline, "do_fcntl", vec![Is(fd), Oracle(FcntlFile), Is(flags)]);
        syscall(libc::SYS_fcntl, [fd, libc::F_SETFL as u64, flags, 0, 0, 0])?;
        calls.settle()?;
    }
    Ok(())
}

fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut fds = [0i32; 2];
    syscall(libc::SYS_pipe2, [fds.as_mut_ptr() as u64, 0, 0, 0, 0, 0])?;
    // SAFETY: The kernel has just given us these descriptors.
    Ok(fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn pipe_set_size(calls: &mut Calls<'_>) -> io::Result<()> {
    let [reader, _writer] = pipe()?;
    for pages in [2u64, 4, 1] {
        let size = pages * procfs::page_size();
        calls.expect(Inline, "pipe_fcntl", vec![Oracle(Pipe), Is(size)]);
        syscall(libc::SYS_fcntl, [reader.as_raw_fd() as u64, libc::F_SETPIPE_SZ as u64, size, 0, 0, 0])?;
        calls.settle()?;
    }
    Ok(())
}

fn do_getpgid(calls: &mut Calls<'_>) -> io::Result<()> {
    let me = u64::from(std::process::id());
    for _ in 0..TIMES {
        for pid in [0, me, 1] {
            calls.expect(Body, "do_getpgid", vec![Is(pid)]).called_by("__do_sys_getpgid");
            syscall(libc::SYS_getpgid, [pid, 0, 0, 0, 0, 0])?;
        }
        // getpgrp() is do_getpgid(0).
        #[cfg(target_arch = "x86_64")]
        {
            calls.expect(Inline, "__do_sys_getpgrp", vec![Is(0)]);
            syscall(libc::SYS_getpgrp, [0; 6])?;
        }
    }
    Ok(())
}

fn timespec64_to_ktime(calls: &mut Calls<'_>) -> io::Result<()> {
    let fd = syscall(libc::SYS_timerfd_create, [libc::CLOCK_MONOTONIC as u64, 0, 0, 0, 0, 0])? as u64;
    for n in 0..TIMES as i64 {
        // Interval, then first expiration: struct itimerspec. timerfd_setup() converts the expiration first.
        let spec: [i64; 4] = [1000 + n, 111 + n, 2000 + n, 222 + n];
        let time = |at: usize| vec![Value::Slots(vec![Is(spec[at] as u64), Is(spec[at + 1] as u64)])];
        calls.expect(Inline, "do_timerfd_settime", time(2)).called_by("timerfd_setup");
        calls.expect(Inline, "do_timerfd_settime", time(0)).called_by("timerfd_setup");
        syscall(libc::SYS_timerfd_settime, [fd, 0, spec.as_ptr() as u64, 0, 0, 0])?;
    }
    syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    Ok(())
}

fn shmem_kernel_file_setup(calls: &mut Calls<'_>) -> io::Result<()> {
    for pages in [1u64, 3, 7] {
        // The flags have no location at this copy: VM_READ, VM_SHARED, VM_MAYREAD, VM_MAYWRITE, VM_MAYEXEC and
        // VM_MAYSHARE (include/linux/mm.h), as the mapping is readable and shared, and may become all of it.
        let vm_flags = 0xf9;
        let size = pages * procfs::page_size();
        let (protection, flags) = (libc::PROT_READ as u64, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64);
        let within = "shmem_zero_setup";
        calls.expect(Inline, within, vec![Value::Text("dev/zero"), Is(size), missing(Is(vm_flags))]);
        let at = syscall(libc::SYS_mmap, [0, size, protection, flags, u64::MAX, 0])?;
        syscall(libc::SYS_munmap, [at as u64, size, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn poll_select_set_timeout(calls: &mut Calls<'_>) -> io::Result<()> {
    for n in 0..TIMES {
        let timeout: [u64; 2] = [0, 1000 + n];
        let arguments = vec![Oracle(PollEndTime), Is(timeout[0]), Is(timeout[1])];
        calls.expect(Inline, entry!("ppoll"), arguments).called_by("__do_sys_ppoll");
        syscall(libc::SYS_ppoll, [0, 0, timeout.as_ptr() as u64, 0, 8, 0])?;
        calls.settle()?;
    }
    Ok(())
}

/// A value that nobody knows from outside.
fn any() -> Value {
    Masked { value: 0, mask: 0 }
}

fn uid_hash_find(calls: &mut Calls<'_>) -> io::Result<()> {
    for uid in [1234u64, 4321, 99] {
        // find_user(): the compiler put the table's address, the second parameter, into the clone.
        calls.expect(Clone, "uid_hash_find.isra.0", vec![Is(uid), missing(any())]).called_by("find_user");
        match syscall(libc::SYS_getpriority, [u64::from(libc::PRIO_USER), uid, 0, 0, 0, 0]) {
            // There is no such user.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            other => return Err(io::Error::other(format!("getpriority of user {uid} gave {other:?}"))),
        }
    }
    Ok(())
}

fn do_execveat_common(calls: &mut Calls<'_>) -> io::Result<()> {
    let nowhere = CString::new("/nowhere/to/be/found")?;
    let none = [0u64; 1];
    let (at, none) = (nowhere.as_ptr() as u64, none.as_ptr() as u64);
    let within = "do_execveat_common.isra.0";
    // The structure with the name is the kernel's; this much of every kernel address is the same, with five levels of
    // pages too.
    let kernel = Masked { value: 0xff << 56, mask: 0xff << 56 };
    for flags in [0u64, libc::AT_SYMLINK_NOFOLLOW as u64] {
        let arguments = vec![Is(77), kernel.clone(), missing(any()), missing(any()), Is(flags)];
        calls.expect(Clone, within, arguments);
        let by_descriptor = syscall(libc::SYS_execveat, [77, at, none, none, flags, 0]);
        let here = i64::from(libc::AT_FDCWD) as u64;
        calls.expect(Clone, within, vec![Is(here), kernel.clone(), missing(any()), missing(any()), Is(0)]);
        let plain = syscall(libc::SYS_execve, [at, none, none, 0, 0, 0]);
        for result in [by_descriptor, plain] {
            if result.as_ref().err().and_then(io::Error::raw_os_error) != Some(libc::ENOENT) {
                return Err(io::Error::other(format!("executing what is not there gave {result:?}")));
            }
        }
    }
    Ok(())
}
