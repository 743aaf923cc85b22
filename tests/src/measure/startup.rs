// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From start to first event: what a tracing tool's user waits for, step by step, in the guest.
//!
//! Each step is done again in every round, and each round's times are a line of the results: `{"step": seconds, ...}`.
//! What the kernel takes to write its tables as text is beside what they cost us: no reader can be faster than that.

use crate::guest::case::Failure;
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, RingBufferBuilder};
use siteseer::internals::symbols;
use siteseer::{Attach, AttachOptions, Policy, SourceOptions, Target};
use siteseer_bpf_progs::trace::Function;
use siteseer_bpf_progs::{TRACE, set_constant};
use std::cell::Cell;
use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

/// The function that is traced: it has inlined copies alone.
pub const FUNCTION: &str = "__bpf_copy_key";

/// The kernel's tables: what it takes to have them as text.
const TABLES: [&str; 4] = [
    "/proc/kallsyms",
    "/sys/kernel/tracing/available_filter_functions_addrs",
    "/sys/kernel/debug/kprobes/blacklist",
    "/sys/kernel/btf/vmlinux",
];

/// Measures so many rounds; a line of JSON for each goes to `results`.
///
/// # Errors
/// If the kernel cannot be traced.
pub fn run(rounds: usize, results: &mut impl Write) -> Result<(), Failure> {
    siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
    for _ in 0..rounds {
        let mut times = serde_json::Map::new();
        let mut note = |step: &str, begin: Instant| {
            times.insert(step.to_owned(), begin.elapsed().as_secs_f64().into());
        };
        for table in TABLES {
            let begin = Instant::now();
            black_box(fs::read(table).map_err(|error| format!("{table}: {error}"))?);
            note(&format!("read {table}"), begin);
        }
        let kallsyms = fs::read(TABLES[0])?;
        let begin = Instant::now();
        black_box(symbols::Symbols::parse(&kallsyms));
        note("parse /proc/kallsyms", begin);
        drop(kallsyms);
        let begin = Instant::now();
        black_box(symbols::running()?);
        note("symbols::running", begin);
        let begin = Instant::now();
        black_box(siteseer::internals::kernel::Kernel::running()?);
        note("Kernel::running", begin);
        first_event(&mut note)?;
        writeln!(results, "{}", serde_json::Value::Object(times))?;
    }
    Ok(())
}

/// Everything that a tool does from its start to the first event.
fn first_event(note: &mut impl FnMut(&str, Instant)) -> Result<(), Failure> {
    let start = Instant::now();
    let target = Target::running(&SourceOptions::default())?;
    note("Target::running", start);
    let begin = Instant::now();
    black_box(target.function(FUNCTION)?);
    note("Target::function", begin);
    let begin = Instant::now();
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(TRACE)?;
    set_constant(&mut open, TRACE, "only_tgid", std::process::id())?;
    let object = open.load()?;
    note("load the program", begin);
    let map = |name: &str| object.maps().find(|map| map.name() == name).ok_or("a map is not there");
    map("functions")?.update(&0u32.to_ne_bytes(), &Function::default().to_bytes(), MapFlags::ANY)?;
    let seen = Cell::new(false);
    let buffer = map("records")?;
    let mut builder = RingBufferBuilder::new();
    builder.add(&buffer, |_| {
        seen.set(true);
        0
    })?;
    let ring = builder.build()?;
    let begin = Instant::now();
    let program = object.progs().next().ok_or("no program")?;
    let link = Attach::with(&target, AttachOptions::default().function(FUNCTION).policy(Policy::BestEffort))
        .attach(&program)?;
    note("attach", begin);
    // The call that is the event: asking for the key after the first. On every kernel, all calls of it run the copy.
    let _ = map("functions")?.keys().nth(1);
    ring.consume()?;
    if !seen.get() {
        return Err("attached, called, and no event".into());
    }
    note("start to first event", start);
    let begin = Instant::now();
    link.detach();
    note("detach", begin);
    Ok(())
}
