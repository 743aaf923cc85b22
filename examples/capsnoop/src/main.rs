// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! capsnoop: prints each capability that the kernel asks for, and where it asks.
//!
//! An application of libbpf-rs with a skeleton by libbpf-cargo. It opens, loads and attaches the skeleton as ever; what
//! is of siteseer is [`siteseer::register`] before, and [`Attached::of`] the skeleton's link: its typed report says
//! which site a number that the BPF program sends is.

mod skeleton {
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks, missing_docs, unreachable_pub, rust_2018_idioms)] // generated
    include!(concat!(env!("OUT_DIR"), "/capsnoop.skel.rs"));
}

use clap::Parser;
use libbpf_rs::RingBufferBuilder;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use siteseer::sites::with_causes;
use siteseer::{Attached, Report, SiteReport};
use skeleton::CapsnoopSkelBuilder;
use std::error::Error;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Prints each capability that the kernel asks for, and where it asks.
#[derive(Parser)]
struct Arguments {
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

/// `struct asked` of capsnoop.bpf.c.
struct Asked {
    pid: u32,
    site: u32,
    cap: i32,
    /// `None` if the site does not have the namespace.
    level: Option<i32>,
    comm: String,
}

impl Asked {
    fn parse(data: &[u8]) -> Option<Asked> {
        let word = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let comm = data.get(16..32)?;
        let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
        Some(Asked {
            pid: word(0)?,
            site: word(4)?,
            cap: word(8)? as i32,
            level: Some(word(12)? as i32).filter(|&level| level >= 0),
            comm: String::from_utf8_lossy(&comm[..end]).into_owned(),
        })
    }
}

/// A line of output.
fn line(asked: &Asked, report: &Report) -> String {
    let level = asked.level.map_or_else(|| "?".to_owned(), |level| level.to_string());
    let place = |site: &SiteReport| format!("{} {}+{:#x}", site.kind, site.symbol, site.offset);
    let place = report.site(asked.site).map_or_else(|| format!("site {}", asked.site), place);
    format!("{:<8} {:<16} {:>3} {level:>5} {place}", asked.pid, asked.comm, asked.cap)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    siteseer::register()?; // before the skeleton is opened
    let mut storage = MaybeUninit::uninit();
    let mut open = CapsnoopSkelBuilder::default().open(&mut storage)?;
    open.maps.rodata_data.as_mut().ok_or("no read-only data")?.only_pid = arguments.pid;
    let mut skeleton = open.load()?;
    skeleton.attach()?;
    // Programs that siteseer has nothing to add to have a link of libbpf's own. This one asks for its site.
    let attached = skeleton.links.capable.as_ref().and_then(Attached::of).ok_or("not attached by siteseer")?;
    print!("{}", attached.report());

    stop_on_signals()?;
    let mut failure = None;
    let consumed;
    {
        let mut print = |data: &[u8]| {
            let written = Asked::parse(data)
                .map_or(Ok(()), |asked| writeln!(io::stdout(), "{}", line(&asked, attached.report())));
            written.map_or_else(
                |error| {
                    failure = Some(error);
                    -1
                },
                |()| 0,
            )
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&skeleton.maps.asked, &mut print)?;
        let ring = builder.build()?;
        println!("{:<8} {:<16} {:>3} {:>5} SITE", "PID", "COMM", "CAP", "LEVEL");
        while !STOP.load(Ordering::Relaxed) {
            io::stdout().flush()?;
            // An interrupted poll is a signal, which the loop's condition sees; what the callback failed with is kept
            // by it.
            if ring.poll(Duration::from_millis(100)).is_err() && !STOP.load(Ordering::Relaxed) {
                break;
            }
        }
        // What came in before the signal, and was not read yet.
        consumed = ring.consume();
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    consumed?;
    io::stdout().flush()?;
    let lost = skeleton.maps.bss_data.as_ref().map_or(0, |data| data.lost);
    if lost > 0 {
        eprintln!("capsnoop: {lost} calls lost");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capsnoop: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
