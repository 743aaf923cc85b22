// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--latency`: how long calls take, from their beginning to their return.
//!
//! One program is at the beginning and one at the return. They are kept to the sites that both reach: an inlined copy
//! has no return. The kernel counts the times by powers of two, so that no call is lost for want of room in a buffer.
//! With `--returns` the calls are printed ([`super::print`]), each with its time.

use super::histogram::{self, Bucket};
use super::live::{self, Numbers};
use super::pace::{Pace, stop_on_signals};
use super::plot;
use super::programs::{Constants, Embedded, Programs, filter_constants, member_constants};
use super::{Arguments, Traceable, Traced, Tracing, tell_of, tell_of_losses};
use crate::Failure;
use crate::output::{Unwritten, keep, tell};
use libbpf_rs::{MapCore, MapFlags};
use siteseer::{Attach, AttachError, Link, Policy};
use siteseer_bpf_progs::LATENCY;
use siteseer_bpf_progs::latency::{Latencies, UNTIMED_REASONS};
use siteseer_sites::{Machine, with_causes};
use std::thread;
use std::time::{Duration, Instant};

const BEGIN: Embedded = Embedded { elf: LATENCY, program: "begin" };
const BEGIN_WANTED: Embedded = Embedded { elf: LATENCY, program: "begin_wanted" };
const FINISH: Embedded = Embedded { elf: LATENCY, program: "finish" };

/// Why calls have no time, in the order of the program's numbers.
const UNTIMED: [&str; UNTIMED_REASONS] = [
    "more threads were in traced calls than there is room for",
    "more than 32 traced calls were in each other",
    "their beginning was not seen, or it is not certain which one it was",
];

/// A function whose calls are timed.
struct Timed<'t> {
    name: &'t str,
    cookie: u32,
    begins: (Traced<'t>, usize),
    returns: (Traced<'t>, usize),
}

impl Timed<'_> {
    fn links(&self) -> impl Iterator<Item = &Link> {
        [&self.returns.0.link, &self.begins.0.link].into_iter()
    }
}

pub(super) fn run(tracing: &Tracing<'_, '_>) -> Result<(), Failure> {
    let Tracing { arguments, functions, types, .. } = *tracing;
    let mut programs = Programs::new(arguments.pid, functions.len());
    let mut timed = Vec::new();
    for (function, members) in functions.iter().zip(tracing.members) {
        check(tracing, function)?;
        let (mut constants, left) = filter_constants(tracing.filter.as_ref(), function.function, members, types, false);
        if let Some(why) = left {
            return Err(
                format!("--where: calls are timed in the kernel, which cannot decide this condition: {why}").into()
            );
        }
        constants.extend(member_constants(members)?);
        match time(tracing, function, constants, &mut programs) {
            Ok(one) => timed.push(one),
            Err(error) if function.chosen.is_name() => return Err(error),
            Err(error) => tell!("not timed: {}: {}", function.function.name, with_causes(&*error)),
        }
    }
    if timed.is_empty() {
        return Err("none of the functions can be timed".into());
    }
    tell_of(timed.iter().map(|timed| timed.returns.0.link.report()));
    for one in &timed {
        tell_of_sites(one.name, &one.begins.0.link);
    }
    stop_on_signals()?;
    tell!("timing; ctrl-C ends it");
    // Whatever ends it, what was counted so far is printed.
    let waited = wait(arguments, &programs, &mut timed);
    let (mut text, mut bars) = (String::new(), Vec::new());
    for one in &timed {
        let latencies = latencies(&programs, one.cookie)?;
        bars.extend(plot::histogram(one.name, &rows(&latencies)));
        if arguments.json {
            text.push_str(&format!("{}\n", json(one.name, &latencies)));
        } else {
            text.push_str(&histogram(one.name, &latencies));
        }
    }
    let written = keep(&text, "the times");
    tell_untimed(&programs)?;
    let missed = timed.iter().flat_map(Timed::links).map(Link::missed).sum::<Result<u64, _>>()?;
    tell_of_losses(timed.iter().flat_map(Timed::links))?;
    tell_of_doubt(missed);
    let drawn = plot::write(arguments, "How long calls take, in nanoseconds", &bars);
    waited.and(written.map_err(Failure::from)).and(drawn)
}

/// Until it is time to stop, or something fails.
fn wait(arguments: &Arguments, programs: &Programs, timed: &mut [Timed<'_>]) -> Result<(), Failure> {
    let begin = Instant::now();
    let pace = Pace::new(arguments.duration.map(Duration::from_secs));
    while !pace.is_over() {
        thread::sleep(pace.begin());
        if pace.is_second_over() {
            for one in &mut *timed {
                for (traced, program) in [&mut one.returns, &mut one.begins] {
                    traced.keep_up(&programs.program(*program)?)?;
                }
            }
            if arguments.top {
                let so_far = timed.iter().map(|one| Ok((one.name, latencies(programs, one.cookie)?)));
                let so_far = so_far.collect::<Result<Vec<_>, Failure>>()?;
                let calls = so_far.iter().flat_map(|(_, latencies)| latencies.counts).sum();
                let numbers = match arguments.json {
                    true => Numbers::Json(so_far.iter().map(|(name, latencies)| json(name, latencies)).collect()),
                    false => Numbers::Text(so_far.iter().map(|(name, latencies)| histogram(name, latencies)).collect()),
                };
                live::print(&numbers, calls, begin.elapsed()).map_err(Unwritten::of("the times"))?;
            }
        }
    }
    Ok(())
}

/// Refuses a function that does not return where it was called.
pub(super) fn check(tracing: &Tracing<'_, '_>, function: &Traceable<'_>) -> Result<(), Failure> {
    let name = &function.function.name;
    if tracing.target.machine() == Machine::X86_64 && name == "__switch_to" {
        return Err(format!(
            "{name} is called by one thread and returns to another: its calls cannot be followed to their return"
        )
        .into());
    }
    Ok(())
}

/// Attaches to the two ends of a function's calls.
fn time<'t>(
    tracing: &Tracing<'t, '_>,
    function: &Traceable<'t>,
    constants: Constants,
    programs: &mut Programs,
) -> Result<Timed<'t>, Failure> {
    let Tracing { arguments, target, .. } = *tracing;
    let policy = arguments.policy();
    let finish = programs.load(FINISH, Constants::new())?;
    // First the returns: a call between the two has no beginning, which shows. The reverse would be a beginning that
    // stays.
    let attach = arguments.attach(target, function, policy);
    let returns = Traced::new(attach, &programs.program(finish)?, &[])?.staying(NOT_TIMED);
    let begins = begins(tracing, function, constants, programs, &returns.link, FINISH.program)?;
    let name = &function.function.name;
    Ok(Timed { name, cookie: function.cookie as u32, begins, returns: (returns, finish) })
}

const NOT_TIMED: &str = "not timed";

/// Attaches to the beginnings of the calls whose returns a link sees.
fn begins<'t>(
    tracing: &Tracing<'t, '_>,
    function: &Traceable<'t>,
    constants: Constants,
    programs: &mut Programs,
    returns: &Link,
    program_of_returns: &str,
) -> Result<(Traced<'t>, usize), Failure> {
    let program = if constants.is_empty() { BEGIN } else { BEGIN_WANTED };
    let nth = programs.load(program, constants)?;
    let attach = tracing.arguments.attach(tracing.target, function, Policy::BestEffort);
    let attach: Attach<'t> = attach.kept_to(program_of_returns, returns);
    let traced = Traced::new(attach, &programs.program(nth)?, &[]);
    Ok((traced.map_err(|error: AttachError| Failure::from(error))?.staying(NOT_TIMED), nth))
}

/// The same for calls that are printed. Those of a function that a pattern stands for may have no time.
pub(super) fn begins_of<'t>(
    tracing: &Tracing<'t, '_>,
    function: &Traceable<'t>,
    programs: &mut Programs,
    returns: &Link,
    program_of_returns: &str,
) -> Result<Option<(Traced<'t>, usize)>, Failure> {
    let begins = check(tracing, function)
        .and_then(|()| begins(tracing, function, Constants::new(), programs, returns, program_of_returns));
    match begins {
        Ok(begins) => Ok(Some(begins)),
        Err(error) if function.chosen.is_name() => Err(error),
        Err(error) => {
            tell!("not timed: {}: {}", function.function.name, with_causes(&*error));
            Ok(None)
        }
    }
}

/// Says at how many of a function's sites calls are timed.
fn tell_of_sites(name: &str, begins: &Link) {
    let sites = begins.report().sites().count();
    let attached = begins.report().attached().count();
    if attached < sites {
        tell!("{name}: calls are timed at {attached} of {sites} sites; at the others no return is seen");
    }
}

/// Says how many calls have no time, and why.
pub(super) fn tell_untimed(programs: &Programs) -> Result<(), Failure> {
    for (nth, why) in (0u32..).zip(UNTIMED) {
        let count = programs.sum_of("untimed", nth)?;
        if count > 0 {
            tell!("{count} calls not timed: {why}");
        }
    }
    Ok(())
}

/// Says that times may be wrong, if the kernel did not run programs at one end of calls.
pub(super) fn tell_of_doubt(missed: u64) {
    if missed > 0 {
        tell!("where the kernel saw one end of such a call, the time of another call of that thread may be wrong");
    }
}

/// What was counted of a function.
fn latencies(programs: &Programs, cookie: u32) -> Result<Latencies, Failure> {
    let mut all = Latencies::default();
    let found = programs.shared_map("latencies")?.lookup_percpu(&cookie.to_ne_bytes(), MapFlags::ANY)?;
    for data in found.unwrap_or_default() {
        if !all.add(&data) {
            return Err("the kernel's program counts in another way".into());
        }
    }
    Ok(all)
}

fn rows(latencies: &Latencies) -> Vec<(Bucket, u64)> {
    let rows = (0u32..).zip(latencies.counts).filter(|&(_, count)| count > 0);
    rows.map(|(bits, count)| (Bucket::new(bits, false), count)).collect()
}

/// `vfs_read: 4 calls, average 1.4us, total 5.7us`, and a histogram in nanoseconds.
fn histogram(name: &str, latencies: &Latencies) -> String {
    let calls: u64 = latencies.counts.iter().sum();
    let Some(average) = latencies.sum.checked_div(calls) else { return format!("{name}: no calls\n") };
    let (average, total) = (text(average), text(latencies.sum));
    let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
    format!("{name}, nanoseconds: {calls}, average {average}, total {total}\n{}", histogram::text(&rows(latencies)))
}

fn json(name: &str, latencies: &Latencies) -> serde_json::Value {
    // JSON's numbers do not hold all of them.
    let row = |(bucket, count): (Bucket, u64)| {
        let (low, high) = bucket.range();
        serde_json::json!({ "low": low.to_string(), "high": high.to_string(), "count": count })
    };
    let rows: Vec<serde_json::Value> = rows(latencies).into_iter().map(row).collect();
    let calls: u64 = latencies.counts.iter().sum();
    serde_json::json!({
        "function": name,
        "unit": "ns",
        "calls": calls,
        "total": latencies.sum.to_string(),
        "histogram": rows,
    })
}

/// Nanoseconds as people write them: `812ns`, `12.3us`, `4.6ms`, `7.8s`.
pub(super) fn text(nanoseconds: u64) -> String {
    let (unit, scale) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds}ns"),
        // What would be rounded to a thousand of a unit is one of the next.
        1_000..999_950 => ("us", 1e3),
        999_950..999_950_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("{:.1}{unit}", nanoseconds as f64 / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let texts = [0, 999, 1_000, 12_345, 999_949, 999_950, 4_560_000, 999_950_000, 61_000_000_000].map(text);
        assert_eq!(texts, ["0ns", "999ns", "1.0us", "12.3us", "999.9us", "1.0ms", "4.6ms", "1.0s", "61.0s"]);
    }

    #[test]
    fn counted_times() {
        let mut latencies = Latencies::default();
        assert_eq!(histogram("vfs_read", &latencies), "vfs_read: no calls\n");
        latencies.sum = 5_000;
        latencies.counts[11] = 3;
        latencies.counts[12] = 1;
        let text = histogram("vfs_read", &latencies);
        assert!(text.starts_with("vfs_read, nanoseconds: 4 calls, average 1.2us, total 5.0us\n[1K, 2K) "), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        let json = json("vfs_read", &latencies);
        assert_eq!((json["calls"].as_u64(), json["total"].as_str()), (Some(4), Some("5000")));
        assert_eq!(json["histogram"][0].to_string(), r#"{"low":"1024","high":"2047","count":3}"#);
    }
}
