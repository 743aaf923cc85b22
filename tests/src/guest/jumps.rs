// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Sites where another tool had a kprobe a moment ago.
//!
//! On x86 the kernel replaces a kprobe's `int3` by a jump, if it can (CONFIG_OPTPROBES). When the kprobe is removed,
//! the jump stays in the text until the kernel's optimizer has run, and no list has it meanwhile. The optimizer is a
//! thread here: it has to run on the second processor, which a thread of the real-time class keeps busy.

use crate::guest::case::{Case, Failure, case};
use crate::guest::faults::keep_to;
use crate::guest::removal;
use crate::measure::cost::perf;
use object::NativeEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use siteseer::Target;
use siteseer::internals::section::Wanted;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    // Proves S2.18.
    vec![case("jumps", "of_removed_kprobes_are_known", removed)]
}

/// A function with one site, where a kprobe can be optimised.
const FUNCTION: &str = "setfl";
/// How often a jump has to be there.
const FOUND: usize = 3;
/// How often it is tried.
const TRIED: usize = 30;
/// What the kernel calls its thread.
const OPTIMIZER: &str = "kprobe-optimizer";
/// Where it is held, and where this goes on.
const SECOND: usize = 1;
const FIRST: usize = 0;
/// How long it is held at most.
const HELD: Duration = Duration::from_secs(20);
/// How much of each second, in nanoseconds, the ordinary class has on the second processor in any case.
const ORDINARY: &str = "/sys/kernel/debug/sched/fair_server/cpu1/runtime";
/// How long a kprobe may take to be optimised, and its jump to go.
const PATIENCE: Duration = Duration::from_secs(300);

/// The kernel's text as it is, by /proc/kcore.
struct Text {
    file: File,
    /// Addresses, sizes, and offsets in the file.
    segments: Vec<(u64, u64, u64)>,
}

impl Text {
    fn open() -> Result<Text, Failure> {
        let file = File::open("/proc/kcore")?;
        let mut head = Vec::new();
        (&file).take(1 << 16).read_to_end(&mut head)?;
        let endian = NativeEndian;
        let segments = FileHeader64::<NativeEndian>::parse(&*head)?.program_headers(endian, &*head)?;
        let segments = segments.iter().filter(|one| one.p_type(endian) == PT_LOAD);
        let segments = segments.map(|one| (one.p_vaddr(endian), one.p_memsz(endian), one.p_offset(endian))).collect();
        Ok(Text { file, segments })
    }

    /// As many bytes as a jump has.
    fn read(&self, address: u64) -> io::Result<[u8; 5]> {
        let place = |&(start, size, offset): &(u64, u64, u64)| {
            let at = address.checked_sub(start).filter(|at| *at < size)?;
            at.checked_add(offset)
        };
        let place = self.segments.iter().find_map(place).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = [0; 5];
        self.file.read_exact_at(&mut bytes, place)?;
        Ok(bytes)
    }

    fn wait_until(&self, address: u64, what: &str, holds: impl Fn([u8; 5]) -> bool) -> Result<(), Failure> {
        let begin = Instant::now();
        while !holds(self.read(address)?) {
            if begin.elapsed() > PATIENCE {
                return Err(format!("{what}, and did not in {PATIENCE:?}: {:02x?}", self.read(address)?).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

fn is_jump(bytes: [u8; 5]) -> bool {
    bytes[0] == 0xe9
}

/// Whether the kernel's list has a kprobe at an address.
fn is_listed(address: u64) -> io::Result<bool> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list")?;
    let at = format!("{address:016x}");
    Ok(list.lines().any(|line| line.starts_with(&at)))
}

/// The kernel's thread that optimises kprobes, and undoes it.
fn optimizer() -> Result<libc::pid_t, Failure> {
    let processes = procfs::process::all_processes()?;
    let mut stats = processes.filter_map(|process| process.ok()?.stat().ok());
    let thread = stats.find(|stat| stat.comm == OPTIMIZER).ok_or("the kernel has no thread that optimises kprobes")?;
    Ok(thread.pid)
}

/// Keeps the second processor busy with a thread that comes before all of the ordinary class, until it is dropped.
struct Hold {
    ordinary: String,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Hold {
    fn begin() -> io::Result<Hold> {
        let ordinary = fs::read_to_string(ORDINARY)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let (holds, held) = mpsc::channel();
        let run = move || -> io::Result<()> {
            keep_to(0, SECOND)?;
            let parameters = libc::sched_param { sched_priority: 1 };
            // SAFETY: the structure lives through the call.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let begin = Instant::now();
            // Nobody may wait for it any more.
            let _ = holds.send(());
            while !ends.load(Ordering::Relaxed) && begin.elapsed() < HELD {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let hold = Hold { ordinary, is_over, thread: Some(thread::Builder::new().spawn(run)?) };
        fs::write(ORDINARY, "0")?;
        match held.recv() {
            Ok(()) => Ok(hold),
            // It has ended, with an error.
            Err(_) => Err(hold.end().err().unwrap_or_else(|| io::Error::other("the thread did not hold a processor"))),
        }
    }

    /// Ends it.
    fn end(mut self) -> io::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(end)) => end,
            Some(Err(_)) => Err(io::Error::other("the thread that held a processor panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // If it cannot be written back, it stays 0 until the guest ends.
        let _ = fs::write(ORDINARY, self.ordinary.trim());
    }
}

/// Whether the function's only site can be attached to, and where it is.
fn ask(target: &Target) -> Result<u64, Failure> {
    let wanted = [Wanted { module: Some("vmlinux".to_owned()), function: Some(FUNCTION.to_owned()) }];
    let functions = target.functions(&wanted)?;
    let mut sites = functions.iter().flat_map(|function| &function.candidates).filter(|site| site.described);
    let (Some(site), None) = (sites.next(), sites.next()) else { return Err("setfl() has not one site".into()) };
    match &site.obstacle {
        None => Ok(site.address),
        Some(reason) => Err(format!("{}+{:#x}: {reason}", site.symbol, site.offset()).into()),
    }
}

fn removed(target: &Target) -> Result<String, Failure> {
    removal::wait()?;
    // In a thread of its own, which is kept to a processor.
    let run =
        || keep_to(0, FIRST).map_err(Failure::from).and_then(|()| removals(target)).map_err(|why| why.to_string());
    thread::scope(|scope| {
        let there = thread::Builder::new().spawn_scoped(scope, run).map_err(Failure::from)?;
        there.join().map_err(|_| "it panicked")?.map_err(Failure::from)
    })
}

fn removals(target: &Target) -> Result<String, Failure> {
    // It stays there until the processor goes off.
    keep_to(optimizer()?, SECOND)?;
    let text = Text::open()?;
    let address = ask(target)?;
    let whole = text.read(address)?;
    // Whether a jump that is in no list was there before and after the question.
    let try_once = || -> Result<bool, Failure> {
        let kprobe = perf::counting_kprobe(address)?;
        text.wait_until(address, "the kprobe was to become a jump", is_jump)?;
        drop(kprobe);
        // Closing waits for the second processor, so that is held from here on. The optimizer runs some ticks later.
        let hold = Hold::begin()?;
        let before = text.read(address)?;
        let was_there = is_jump(before) && !is_listed(address)?;
        // Else the optimizer has begun. If it was stopped while it writes, its breakpoint stays until the hold ends.
        let answer = if was_there { ask(target).map(drop) } else { Ok(()) };
        let after = text.read(address)?;
        hold.end()?;
        answer.map_err(|why| format!("a removed kprobe's jump ({before:02x?}, then {after:02x?}): {why}"))?;
        text.wait_until(address, "the text was to be whole again", |bytes| bytes == whole)?;
        Ok(was_there && is_jump(after))
    };
    let mut found = 0;
    for tries in 1..=TRIED {
        found += usize::from(try_once()?);
        if found == FOUND {
            return Ok(format!("the jump of a removed kprobe was known {found} times, in {tries} removals"));
        }
    }
    Err(format!("in {TRIED} removals a jump stayed {found} times").into())
}
