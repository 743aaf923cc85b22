// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Threads that lead through as much of the kernel as they can, while its text has breakpoints.

use crate::guest::calls::in_child;
use crate::guest::case::Failure;
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder};
use siteseer_bpf_progs::ARMED;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What is done between two turns.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes that are sent and written.
const BYTES: usize = 3 * 4096;
/// Files of a folder that are read.
const FILES: usize = 64;
/// How much of a file is read.
const MOST: u64 = 64 << 10;

type Work = fn(u64) -> Result<(), Failure>;

/// What is done, each by a thread. A turn has a number, which is in the names of what it makes.
const WORKS: [(&str, Work); 9] = [
    ("processes", processes),
    ("files", files),
    ("sockets", sockets),
    ("memory", memory),
    ("waiting", waiting),
    ("queues", queues),
    ("tables", tables),
    ("programs", programs),
    ("namespaces", namespaces),
];

/// The threads.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Result<u64, String>>)>,
}

impl Load {
    pub(super) fn begin() -> io::Result<Load> {
        let mut load = Load { is_over: Arc::default(), threads: Vec::new() };
        for (what, work) in WORKS {
            let is_over = Arc::clone(&load.is_over);
            let turns = move || {
                let mut turn = 0;
                while !is_over.load(Ordering::Relaxed) {
                    work(turn).map_err(|error| error.to_string())?;
                    turn += 1;
                    thread::sleep(PAUSE);
                }
                Ok(turn)
            };
            load.threads.push((what, thread::Builder::new().name(what.to_owned()).spawn(turns)?));
        }
        Ok(load)
    }

    /// Ends it. Gives how many turns each thread made.
    pub(super) fn end(self) -> Result<Vec<(String, u64)>, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut turns = Vec::new();
        for (what, thread) in self.threads {
            let made = thread.join().map_err(|_| format!("{what}: it panicked"))?;
            turns.push((what.to_owned(), made.map_err(|why| format!("{what}: {why}"))?));
        }
        Ok(turns)
    }
}

/// The C library's result of a call.
fn done(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks, executes, waits, signals.
fn processes(_: u64) -> Result<(), Failure> {
    in_child(|| Ok(()))?;
    // It says that it does not know what to do.
    let status = Command::new("/proc/self/exe").arg("nothing").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() {
        return Err("a program that does nothing has done something".into());
    }
    let mut child =
        Command::new("/proc/self/exe").arg("nothing").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Makes, writes, maps, renames, links and removes files.
fn files(turn: u64) -> Result<(), Failure> {
    let folder = format!("/tmp/load-{turn}");
    fs::create_dir(&folder)?;
    let path = |name: &str| format!("{folder}/{name}");
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path("one"))?;
    file.write_all(&[7; BYTES])?;
    file.sync_all()?;
    file.read_exact_at(&mut [0; BYTES], 0)?;
    // SAFETY: the file has this length, and nothing else refers to the mapping.
    unsafe {
        let shared = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if shared == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        shared.cast::<u8>().write_volatile(1);
        done(libc::msync(shared, BYTES, libc::MS_SYNC))?;
        done(libc::munmap(shared, BYTES))?;
    }
    file.set_len(100)?;
    fs::rename(path("one"), path("two"))?;
    fs::hard_link(path("two"), path("three"))?;
    std::os::unix::fs::symlink(path("two"), path("four"))?;
    fs::set_permissions(path("two"), fs::Permissions::from_mode(0o600))?;
    fs::copy(path("four"), path("five"))?;
    for entry in fs::read_dir(&folder)? {
        entry?.metadata()?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Sends bytes by each kind of socket.
fn sockets(_: u64) -> Result<(), Failure> {
    let (mut left, mut right) = UnixStream::pair()?;
    exchange(&mut left, &mut right)?;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address)?;
        let mut left = TcpStream::connect(listener.local_addr()?)?;
        let (mut right, _) = listener.accept()?;
        left.set_nodelay(true)?;
        exchange(&mut left, &mut right)?;
        let (one, other) = (UdpSocket::bind(address)?, UdpSocket::bind(address)?);
        one.send_to(&[3; 100], other.local_addr()?)?;
        other.set_read_timeout(Some(Duration::from_secs(10)))?;
        other.recv_from(&mut [0; 100])?;
    }
    Ok(())
}

fn exchange(left: &mut (impl Read + Write), right: &mut (impl Read + Write)) -> io::Result<()> {
    left.write_all(&[1; BYTES])?;
    right.read_exact(&mut [0; BYTES])?;
    right.write_all(&[2; 10])?;
    left.read_exact(&mut [0; 10])
}

/// Maps, protects, moves and unmaps memory.
fn memory(_: u64) -> Result<(), Failure> {
    let (protection, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let length = 64 * 4096;
    // SAFETY: a mapping of this function alone, which it is written to only while it is there.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), length, protection, private, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        for page in (0..length).step_by(4096) {
            start.cast::<u8>().add(page).write_volatile(1);
        }
        done(libc::mprotect(start, length / 2, libc::PROT_READ))?;
        done(libc::mprotect(start, length / 2, protection))?;
        done(libc::madvise(start, length, libc::MADV_DONTNEED))?;
        let moved = libc::mremap(start, length, 2 * length, libc::MREMAP_MAYMOVE);
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        done(libc::mlock(moved, length))?;
        done(libc::munmap(moved, 2 * length))?;
    }
    Ok(())
}

/// Waits for pipes, timers, events, signals, and for nothing.
fn waiting(_: u64) -> Result<(), Failure> {
    let (mut reader, mut writer) = io::pipe()?;
    writer.write_all(&[1])?;
    // SAFETY: each structure lives through its call, and each descriptor is closed once.
    unsafe {
        let poll = done(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        done(libc::epoll_ctl(poll, libc::EPOLL_CTL_ADD, reader.as_raw_fd(), &raw mut event))?;
        done(libc::epoll_wait(poll, &raw mut event, 1, 1000))?;
        done(libc::close(poll))?;
        let timer = done(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC))?;
        let soon = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let setting = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: soon };
        done(libc::timerfd_settime(timer, 0, &raw const setting, std::ptr::null_mut()))?;
        let mut expired = 0u64;
        libc::read(timer, (&raw mut expired).cast(), 8);
        done(libc::close(timer))?;
        let events = done(libc::eventfd(1, libc::EFD_CLOEXEC))?;
        libc::read(events, (&raw mut expired).cast(), 8);
        done(libc::close(events))?;
        libc::sched_yield();
    }
    reader.read_exact(&mut [0])?;
    // A thread that is joined waits for a futex.
    thread::Builder::new().spawn(|| thread::sleep(Duration::from_micros(100)))?.join().map_err(|_| "it panicked")?;
    Ok(())
}

/// Semaphores, messages and shared memory of System V.
fn queues(_: u64) -> Result<(), Failure> {
    #[repr(C)]
    struct Message {
        kind: libc::c_long,
        text: [u8; 64],
    }
    let mut message = Message { kind: 1, text: [5; 64] };
    // SAFETY: what is attached is not used, and each structure lives through its call.
    unsafe {
        let semaphores = done(libc::semget(libc::IPC_PRIVATE, 1, 0o600))?;
        let mut operation = libc::sembuf { sem_num: 0, sem_op: 1, sem_flg: 0 };
        done(libc::semop(semaphores, &raw mut operation, 1))?;
        done(libc::semctl(semaphores, 0, libc::IPC_RMID))?;
        let queue = done(libc::msgget(libc::IPC_PRIVATE, 0o600))?;
        done(libc::msgsnd(queue, (&raw const message).cast(), 64, 0))?;
        libc::msgrcv(queue, (&raw mut message).cast(), 64, 1, 0);
        done(libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut()))?;
        let shared = done(libc::shmget(libc::IPC_PRIVATE, 8192, 0o600))?;
        let start = libc::shmat(shared, std::ptr::null(), 0);
        done(libc::shmctl(shared, libc::IPC_RMID, std::ptr::null_mut()))?;
        done(libc::shmdt(start))?;
    }
    Ok(())
}

/// Reads files of the kernel's own.
fn tables(turn: u64) -> Result<(), Failure> {
    const FOLDERS: [&str; 10] = [
        "/proc/self",
        "/proc",
        "/proc/1",
        "/proc/self/net",
        "/proc/sys/kernel",
        "/proc/sys/vm",
        "/proc/sys/net/ipv4",
        "/sys/kernel",
        "/sys/kernel/mm/transparent_hugepage",
        "/sys/devices/system/cpu/cpu0",
    ];
    // These wait, or are as large as memory.
    const NOT: [&str; 4] = ["kmsg", "kcore", "kpagecount", "mem"];
    let folder = Path::new(FOLDERS[turn as usize % FOLDERS.len()]);
    // A kernel need not have each of them.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.take(FILES).flatten() {
        let path = entry.path();
        if path.is_file() && !NOT.iter().any(|name| path.ends_with(name)) {
            // Some may not be read.
            let _ = File::open(&path).and_then(|file| io::copy(&mut file.take(MOST), &mut io::sink()));
        }
    }
    Ok(())
}

/// Loads a BPF program, uses its map, and frees both.
fn programs(turn: u64) -> Result<(), Failure> {
    let object = ObjectBuilder::default().open_memory(ARMED)?.load()?;
    let map = object.maps().find(|map| map.name() == "hits").ok_or("no map of hits")?;
    map.update(&0u32.to_ne_bytes(), &turn.to_ne_bytes(), MapFlags::ANY)?;
    if map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)? != Some(turn.to_ne_bytes().to_vec()) {
        return Err("a map has lost its value".into());
    }
    Ok(())
}

/// A process in namespaces of its own, with a file system of its own.
fn namespaces(_: u64) -> Result<(), Failure> {
    in_child(|| {
        let own = libc::CLONE_NEWNS | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC | libc::CLONE_NEWNET;
        // SAFETY: the strings live through the call.
        unsafe {
            done(libc::unshare(own))?;
            done(libc::mount(c"none".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()))?;
            done(libc::mkdir(c"/tmp/inside".as_ptr(), 0o700))?;
            done(libc::umount2(c"/tmp".as_ptr(), libc::MNT_DETACH))?;
        }
        Ok(())
    })?;
    let group = "/sys/fs/cgroup/load";
    fs::create_dir(group)?;
    fs::read_to_string(format!("{group}/cgroup.events"))?;
    fs::remove_dir(group)?;
    Ok(())
}
