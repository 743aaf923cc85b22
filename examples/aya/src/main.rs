// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! opensnoop-aya: prints each open(2), openat(2) and creat(2).
//!
//! The BPF program is that of `examples/opensnoop`, compiled by `siteseer compile`. aya loads the object as any other.
//! What is of siteseer is the loop over the manifest's attachments: a program, a symbol and a distance each.

mod manifest;

use aya::maps::{Array, PerCpuArray, RingBuf};
use aya::programs::{FEntry, KProbe};
use aya::{Btf, Ebpf, EbpfLoader};
use clap::Parser;
use manifest::{Attachment, Manifest};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints each open(2), openat(2) and creat(2).
#[derive(Parser)]
struct Arguments {
    /// The object that `siteseer compile` wrote
    object: PathBuf,
    /// Its manifest
    manifest: PathBuf,
    /// Watch only this process
    #[arg(short, long, value_name = "PID", default_value_t = 0, hide_default_value = true)]
    pid: u32,
}

/// Set by the signal handler.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: nix::libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

fn stop_on_signals() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(stop), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: The handler only stores to an atomic.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Attaches a program to a place. The link is the program's, and ends with the object.
fn attach(ebpf: &mut Ebpf, attachment: &Attachment) -> Result<(), Box<dyn Error>> {
    let Attachment { program: name, mechanism, symbol, offset, .. } = attachment;
    if attachment.cookie()? != 0 {
        return Err(format!("{name} needs a cookie, which aya cannot give: compile it with --no-cookies").into());
    }
    let program = ebpf.program_mut(name).ok_or_else(|| format!("the object has no program {name}"))?;
    match mechanism.as_str() {
        "kprobe" => {
            let program: &mut KProbe = program.try_into()?;
            // A program may have many places.
            if program.fd().is_err() {
                program.load()?;
            }
            program.attach(symbol, *offset)?;
        }
        "fentry" => {
            let program: &mut FEntry = program.try_into()?;
            program.load(symbol, &Btf::from_sys_fs()?)?;
            program.attach()?;
        }
        other => return Err(format!("{name} is to be attached by {other}, which this program does not do").into()),
    }
    Ok(())
}

/// `struct opened` of opensnoop.h, as a line.
fn line(event: &[u8]) -> Option<String> {
    let word = |at: usize| event.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let text = |range: std::ops::Range<usize>| {
        let bytes = event.get(range)?;
        Some(String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next()?).into_owned())
    };
    Some(format!("{:<8} {:<16} {:08o} {}", word(0)?, text(8..24)?, word(4)?, text(24..280)?))
}

/// Prints what the buffer has.
fn print(opens: &mut RingBuf<&mut aya::maps::MapData>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    while let Some(event) = opens.next() {
        if let Some(line) = line(&event) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let object = fs::read(&arguments.object).map_err(|error| format!("{}: {error}", arguments.object.display()))?;
    let manifest = Manifest::read(&arguments.manifest, &object)?;
    for site in manifest.left_out.iter().filter(|site| !site.dead) {
        let place = format!("{}+{:#x}", site.holder, site.holder_offset);
        eprintln!("opensnoop-aya: calls of {} at {place} are not seen: {}", site.function, site.why);
    }
    let mut ebpf = EbpfLoader::new().override_global("only_pid", &arguments.pid, true).load(&object)?;
    for attachment in &manifest.attachments {
        attach(&mut ebpf, attachment)
            .map_err(|error| format!("{}+{:#x}: {error}", attachment.symbol, attachment.offset))?;
    }
    stop_on_signals()?;
    println!("{:<8} {:<16} {:<8} PATH", "PID", "COMM", "FLAGS");
    io::stdout().flush()?;
    let mut opens = RingBuf::try_from(ebpf.map_mut("opens").ok_or("no map opens")?)?;
    while !STOP.load(Ordering::Relaxed) {
        let mut wanted = [PollFd::new(opens.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wanted, PollTimeout::from(100u8)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        print(&mut opens)?;
    }
    print(&mut opens)?;
    // Calls that the buffer had no room for, and calls whose arguments could not be read.
    let lost: Array<_, u64> = Array::try_from(ebpf.map(".bss").ok_or("no map .bss")?)?;
    let mut lost = lost.get(&0, 0)?;
    if let Some(faults) = ebpf.map("siteseer_faults") {
        let faults: PerCpuArray<_, u64> = PerCpuArray::try_from(faults)?;
        lost += faults.get(&0, 0)?.iter().sum::<u64>();
    }
    if lost > 0 {
        eprintln!("opensnoop-aya: {lost} calls lost");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("opensnoop-aya: {error}");
            ExitCode::FAILURE
        }
    }
}
