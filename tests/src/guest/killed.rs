// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Processes that are killed while they attach and detach, and what is left of them: nothing that fires, definitions
//! that the next process removes, and everybody else's probes as they were.
//!
//! The moments are random numbers from a seed, spread over a time in which about half of the processes come to have
//! attached; how long that is depends on the machine and on how many there are at once, so it follows what is seen. A
//! process that is killed here attaches and detaches without end. Meanwhile, and after each, this process makes calls
//! that hit one of the sites; two probes of "somebody else" stand on that very site, an event of tracefs and a perf
//! kprobe, and must count every one of these calls, no more and no less.
//!
//! The suite kills [`KILLS`] processes; `ci/soak --kills N` as many as it is told, with another seed each time.

use crate::guest::calls::{fork, syscall};
use crate::guest::case::{Case, Failure, number};
use crate::guest::inventory::Inventory;
use crate::measure::cost::perf;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use siteseer::{Attach, AttachOptions, Link, Policy, Target};
use siteseer_bpf_progs::COST;
use siteseer_sites::SiteKind;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&Target) -> Result<String, Failure>| Case {
        name: format!("killed::{name}"),
        run: Box::new(move |target| Ok(run(target)?.into())),
    };
    vec![
        case("at_any_moment", at_any_moment),
        case("a_child_keeps_what_its_parent_attached", a_child_keeps_what_its_parent_attached),
        case("in_another_pid_namespace", in_another_pid_namespace),
    ]
}

/// Functions with a few sites each, of several location prototypes; the first one's is hit.
const FUNCTIONS: [&str; 3] = ["ksys_semget", "__bpf_copy_key", "setfl"];
/// How many processes are killed.
const KILLS: u64 = 200;
/// How many are killed instead.
pub const COUNT: &str = "SITESEER_KILLS";
/// The seed of the moments.
pub const SEED: &str = "SITESEER_KILLS_SEED";
/// A round has up to so many processes at once: most of the time that attaching takes is waiting for the kernel, and
/// they wait together.
const AT_ONCE: usize = 4;
/// Calls while the processes are there, and calls after they are killed.
const CALLS: u64 = 3;

/// The moments are not later than this, however slow the machine is.
const LONGEST: Duration = Duration::from_secs(30);

/// How long after a kill the program may run. What removes definitions is a process that begins with copies of the
/// descriptors, and closes them first.
const GONE: Duration = Duration::from_secs(1);
/// After every so many rounds it is looked for what the kernel has.
const LOOKED: usize = 10;
/// How long after it the kernel may have its programs, links, maps and armed kprobes: it frees them later.
const FREED: Duration = Duration::from_secs(30);

const LISTING: &str = "/sys/kernel/tracing/kprobe_events";

pub(crate) fn load() -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(COST)?;
    // What others are there for some kernels do not take: arm64's lets no function have the registers whole (Linux
    // 6.12).
    for mut program in open.progs_mut() {
        let wanted = program.name() == "read0";
        program.set_autoload(wanted);
    }
    Ok(open.load()?)
}

/// The counters of cost.bpf.c.
pub(crate) fn counters(object: &Object) -> Result<Vec<u8>, Failure> {
    let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).ok_or("no .bss")?;
    Ok(bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default())
}

fn attach(target: &Target, object: &Object) -> Result<Link, Failure> {
    let program = object.progs().find(|program| program.name() == "read0").ok_or("no program read0")?;
    let options = AttachOptions::default().policy(Policy::BestEffort).all_prototypes(true).bulk_from(1);
    let options = FUNCTIONS.iter().fold(options, |options, function| options.function(*function));
    Ok(Attach::with(target, options).attach(&program)?)
}

/// Makes calls that hit the first function's inlined copy.
pub(crate) fn call(times: u64) -> io::Result<()> {
    for _ in 0..times {
        syscall(libc::SYS_semget, [libc::IPC_PRIVATE as u64, 0, 0, 0, 0, 0]).map_or_else(
            // No semaphores: EINVAL.
            |error| if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) },
            |_| Err(io::ErrorKind::Other.into()),
        )?;
    }
    Ok(())
}

/// Lines of the kernel's list of probes that siteseer wrote.
fn left() -> io::Result<usize> {
    Ok(fs::read_to_string(LISTING)?.lines().filter(|line| line.starts_with("p:siteseer_")).count())
}

/// Waits until a condition holds. It has to come true by itself, however long a busy machine takes.
fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begin = Instant::now();
    while !holds()? {
        if begin.elapsed() > Duration::from_secs(240) {
            return Err(format!("in four minutes it did not come to be that {what}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A forked process, killed when it is dropped.
struct Child(libc::pid_t);

impl Child {
    /// Forks. This process has one thread, so that the child may do whatever it likes.
    fn new(run: impl FnOnce()) -> io::Result<Child> {
        let process = fork(|| {
            run();
            1
        })?;
        Ok(Child(process))
    }

    /// Waits until it has ended by itself.
    fn wait(self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: a child of this process that has not been waited for.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        std::mem::forget(self);
        if waited < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Kills it. An error if it had ended by itself, or by another signal.
    fn kill(self) -> Result<(), Failure> {
        let status = self.end();
        std::mem::forget(self);
        if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL {
            Ok(())
        } else {
            Err(format!("a process ended before it was killed, with the status {status:#x}").into())
        }
    }

    fn end(&self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: a child of this process that has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, 0);
        }
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Somebody else's probes on a site.
struct Others {
    event: OwnedFd,
    kprobe: OwnedFd,
    calls: u64,
}

impl Others {
    fn new(symbol: &str, offset: u64, address: u64) -> Result<Others, Failure> {
        let mut file = OpenOptions::new().append(true).open(LISTING)?;
        file.write_all(format!("p:others/probe {symbol}+{offset}\n").as_bytes())?;
        let (event, kprobe) = (perf::counting_event("others/probe")?, perf::counting_kprobe(address)?);
        Ok(Others { event, kprobe, calls: 0 })
    }

    fn call(&mut self, times: u64) -> Result<(), Failure> {
        call(times)?;
        self.calls += times;
        let seen = (perf::count(&self.event)?, perf::count(&self.kprobe)?);
        if seen == (self.calls, self.calls) {
            Ok(())
        } else {
            Err(format!("{} calls, others' probes counted {seen:?}", self.calls).into())
        }
    }

    fn remove(self) -> io::Result<()> {
        drop(self.event);
        let mut file = OpenOptions::new().append(true).open(LISTING)?;
        file.write_all(b"-:others/probe\n")
    }
}

/// Numbers that are the same in every run (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// Numbers of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.max(1))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit.max(1)
    }
}

/// Waits until the kernel has no more programs, maps, links and armed kprobes than before. How long after the kill
/// that is.
fn freed(before: [usize; 4], killed: Instant) -> Result<Duration, Failure> {
    loop {
        let now = Inventory::armed()?;
        if now.iter().zip(before).all(|(now, before)| *now <= before) {
            return Ok(killed.elapsed());
        }
        if killed.elapsed() > FREED {
            return Err(format!("programs, maps, links, armed kprobes: {now:?}, {before:?} before").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

// Proves S13.7.
fn at_any_moment(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let begin = Instant::now();
    let link = attach(target, &object)?;
    let site = link
        .report()
        .attached()
        .find(|site| {
            site.kind == SiteKind::Inline && site.symbol.ends_with("_sys_semget") && !site.symbol.contains("ia32")
        })
        .ok_or("semget() has no inlined copy")?;
    let (symbol, offset, address) = (site.symbol.clone(), site.offset, site.address);
    let sites = link.report().attached().count();
    let before = counters(&object)?;
    call(1)?;
    if counters(&object)? == before {
        return Err("a call is not seen with the link".into());
    }
    link.detach();
    let cycle = begin.elapsed();
    let mut others = Others::new(&symbol, offset, address)?;
    let kills = number(COUNT)?.unwrap_or(KILLS);
    let seed = number(SEED)?.unwrap_or(0x5173_5ee7);
    let mut random = Random::new(seed);
    // Without what the kernel frees later of the link that was just detached.
    Inventory::settled()?;
    let armed = Inventory::armed()?;
    let mut longest = Duration::ZERO;
    let (mut killed, mut round) = (0, 0);
    let mut spread = cycle;
    let mut fired_before_the_kill = 0;
    while killed < kills {
        round += 1;
        let mut children = Vec::new();
        let at_once = 1 + round % AT_ONCE;
        for _ in 0..at_once {
            children.push(Child::new(|| {
                loop {
                    match attach(target, &object) {
                        Ok(link) => {
                            // Some of the moments are to find it attached.
                            std::thread::sleep(cycle / 4);
                            link.detach();
                        }
                        Err(error) => return eprintln!("a process that is to be killed cannot attach: {error}"),
                    }
                }
            })?);
        }
        let before = counters(&object)?;
        for child in children {
            // One after the other, so that the last of a round has had the time of an attachment and detachment.
            let moment = Duration::from_micros(random.below(spread.as_micros() as u64 * 3 / 2) / at_once as u64);
            std::thread::sleep(moment);
            others.call(CALLS)?;
            child.kill().map_err(|why| format!("seed {seed:#x}, round {round}: {why}"))?;
            killed += 1;
        }
        let after = counters(&object)?;
        let has_fired = before != after;
        fired_before_the_kill += usize::from(has_fired);
        spread = if has_fired { spread * 4 / 5 } else { (spread * 5 / 4).min(LONGEST) };
        let (killed_at, mut seen) = (Instant::now(), after);
        loop {
            others.call(CALLS)?;
            let now = counters(&object)?;
            if now == seen {
                break;
            }
            if killed_at.elapsed() > GONE {
                return Err(format!("round {round}: the program runs {GONE:?} after its process was killed").into());
            }
            seen = now;
        }
        // The kernel frees some of it when all processors have been somewhere else, which takes longer than the rest.
        if round % LOOKED == 0 {
            longest =
                longest.max(freed(armed, killed_at).map_err(|why| format!("seed {seed:#x}, round {round}: {why}"))?);
        }
    }
    if fired_before_the_kill == 0 {
        return Err(format!("no process was killed after it had attached, at moments of up to {spread:?}").into());
    }
    let stale = left()?;
    // The next start: it attaches, and what is left goes by itself.
    Child::new(|| {
        if let Ok(link) = attach(target, &object) {
            link.detach();
        }
    })?
    .wait()?;
    wait_until("nothing of the killed processes is defined", || Ok(left()? == 0))?;
    others.call(CALLS)?;
    let calls = others.calls;
    others.remove()?;
    Ok(format!(
        "{killed} processes killed in {round} rounds, {sites} sites each, seed {seed:#x}; {fired_before_the_kill} rounds fired \
         before; their programs, maps, links and armed kprobes were gone after {} ms at most; {stale} definitions left, none \
         after the next start; others' probes counted all {calls} calls",
        longest.as_millis()
    ))
}

fn a_child_keeps_what_its_parent_attached(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    siteseer::clean()?;
    let (reader, writer) = io::pipe()?;
    // A process that attaches, forks, and ends, as one does that becomes a daemon.
    let parent = Child::new(|| {
        let Ok(link) = attach(target, &object) else { return };
        // SAFETY: one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        let _ = (&writer).write_all(&child.to_ne_bytes());
        // Not detached: the child has it, too.
        std::mem::forget(link);
    })?;
    let mut pid = [0u8; 4];
    io::Read::read_exact(&mut (&reader), &mut pid)?;
    drop(parent);
    let child = Grandchild(libc::pid_t::from_ne_bytes(pid));
    let removed = siteseer::clean()?;
    let before = counters(&object)?;
    call(1)?;
    let fires = counters(&object)? != before;
    let defined = left()?;
    drop(child);
    if removed != 0 || !fires || defined == 0 {
        return Err(format!("removed {removed} events, fires: {fires}, {defined} definitions").into());
    }
    wait_until("the child's definitions can be removed", || {
        siteseer::clean()?;
        Ok(left()? == 0)
    })?;
    Ok(format!("its {defined} probes fired on after its parent had ended; removed after it had ended, too"))
}

/// A process of a container: it cannot be seen from here whether it lives, and here nobody would be left in the
/// container.
fn in_another_pid_namespace(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    siteseer::clean()?;
    let (reader, writer) = io::pipe()?;
    let outside = Child::new(|| {
        // SAFETY: one thread.
        let inside = unsafe {
            if libc::unshare(libc::CLONE_NEWPID) != 0 {
                return;
            }
            libc::fork()
        };
        if inside == 0 {
            let Ok(_link) = attach(target, &object) else { return };
            let _ = (&writer).write_all(b"!");
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        let _ = (&writer).write_all(&inside.to_ne_bytes());
        loop {
            // SAFETY: as above.
            unsafe { libc::pause() };
        }
    })?;
    // The number, and much later, when it has attached, a byte.
    let mut said = [0u8; 5];
    io::Read::read_exact(&mut (&reader), &mut said)?;
    let [number @ .., b'!'] = said else { return Err(format!("it said {said:?}").into()) };
    let inside = Grandchild(libc::pid_t::from_ne_bytes(number));
    let removed = siteseer::clean()?;
    let before = counters(&object)?;
    call(1)?;
    let fires = counters(&object)? != before;
    let defined = left()?;
    drop(inside);
    if removed != 0 || !fires || defined == 0 {
        return Err(format!("removed {removed} events of it, fires: {fires}, {defined} definitions").into());
    }
    wait_until("the definitions of the other namespace can be removed", || {
        siteseer::clean()?;
        Ok(left()? == 0)
    })?;
    drop(outside);
    let after = counters(&object)?;
    call(CALLS)?;
    if counters(&object)? != after {
        return Err("the program ran after its process was killed".into());
    }
    Ok(format!("its {defined} probes were let alone while it lived, and removed after it was killed"))
}

/// A process that is another's child, killed when it is dropped.
struct Grandchild(libc::pid_t);

impl Drop for Grandchild {
    fn drop(&mut self) {
        // SAFETY: the process waits for a signal and nothing else.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}
