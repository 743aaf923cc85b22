// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--count`, `--hist` and `--top`: calls are counted in the kernel, by function and by something else of each call.
//!
//! Every call that the program sees comes into a number. If there are more keys than the kernel's map has room for, the
//! calls of the others are counted together, and that is said.

use super::histogram::{self, Bucket};
use super::live::{self, Numbers};
use super::members::Member;
use super::pace::{Pace, stop_on_signals};
use super::plot;
use super::print::place;
use super::programs::{Constants, Embedded, Programs, calls, counter, filter_constants, member_constants, word};
use super::stacks::{self, Callers};
use super::{Traced, Tracing, tell_of, tell_of_losses};
use crate::Failure;
use crate::filter::Type;
use crate::output::{Unwritten, keep, tell};
use crate::symbolise::trace::Frame;
use libbpf_rs::{MapCore, MapFlags};
use siteseer::internals::function::Function;
use siteseer_bpf_progs::COUNT;
use siteseer_bpf_progs::count::{self, By};
use siteseer_plot::Bar;
use siteseer_sites::access::Path;
use siteseer_sites::btf;
use siteseer_sites::with_causes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

const TASKS: Embedded = Embedded { elf: COUNT, program: "count" };
const ARGUMENTS: Embedded = Embedded { elf: COUNT, program: "count_arguments" };
const STACKS: Embedded = Embedded { elf: COUNT, program: "count_stacks" };

/// What calls are counted by, besides the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key<'a> {
    Function,
    Site,
    Pid,
    Tid,
    Cpu,
    Comm,
    Stack,
    Argument(&'a str),
    Histogram(&'a str),
}

impl<'a> Key<'a> {
    pub(super) fn parse(text: Option<&'a str>) -> Key<'a> {
        match text {
            None | Some("function") => Key::Function,
            Some("site") => Key::Site,
            Some("pid") => Key::Pid,
            Some("tid") => Key::Tid,
            Some("cpu") => Key::Cpu,
            Some("comm") => Key::Comm,
            Some("stack") => Key::Stack,
            Some(argument) => Key::Argument(argument),
        }
    }

    fn by(self) -> By {
        match self {
            Key::Function => By::Function,
            Key::Site => By::Site,
            Key::Pid => By::Tgid,
            Key::Tid => By::Pid,
            Key::Cpu => By::Cpu,
            Key::Comm => By::Comm,
            Key::Stack => By::Stack,
            Key::Argument(_) => By::Argument,
            Key::Histogram(_) => By::Histogram,
        }
    }

    pub(super) fn argument(self) -> Option<&'a str> {
        match self {
            Key::Argument(name) | Key::Histogram(name) => Some(name),
            _ => None,
        }
    }

    /// What the column is called.
    fn word(self) -> &'a str {
        match self {
            Key::Function => "function",
            Key::Site => "site",
            Key::Pid => "pid",
            Key::Tid => "tid",
            Key::Cpu => "cpu",
            Key::Comm => "comm",
            Key::Stack => "stack",
            Key::Argument(name) | Key::Histogram(name) => name,
        }
    }
}

/// A function to count the calls of.
struct Counted<'t> {
    function: &'t Function,
    members: &'t [Member],
    traced: Traced<'t>,
    program: usize,
}

/// A parameter's number by which the program finds none.
const NOWHERE: u32 = 31;

pub(super) fn run(tracing: &Tracing<'_, '_>, key: Key<'_>) -> Result<(), Failure> {
    let Tracing { arguments, target, functions, types, .. } = *tracing;
    check_argument(tracing, key)?;
    let mut programs = Programs::new(arguments.pid, functions.len());
    let mut counted: BTreeMap<u32, Counted<'_>> = BTreeMap::new();
    let read = || Callers::read(target, functions.iter().map(|function| function.function));
    let callers = (key == Key::Stack).then(read).transpose()?;
    for (function, members) in functions.iter().zip(tracing.members) {
        let mut constants = key_constants(tracing, function.function, members, key)?;
        let (filter, left) = filter_constants(tracing.filter.as_ref(), function.function, members, types, false);
        if let Some(why) = left {
            return Err(
                format!("--where: calls are counted in the kernel, which cannot decide this condition: {why}").into()
            );
        }
        constants.extend(filter);
        constants.extend(member_constants(members)?);
        let reads = key.argument().is_some() || tracing.filter.is_some();
        let embedded = match key {
            Key::Stack => STACKS,
            _ if reads => ARGUMENTS,
            _ => TASKS,
        };
        let program = programs.load(embedded, constants)?;
        let attach = arguments.attach(target, function, arguments.policy());
        match Traced::new(attach, &programs.program(program)?, members) {
            Ok(traced) => {
                counted
                    .insert(function.cookie as u32, Counted { function: function.function, members, traced, program });
            }
            Err(error) if function.chosen.is_name() => return Err(error.into()),
            Err(error) => tell!("not traced: {}: {}", function.function.name, with_causes(&error)),
        }
    }
    if counted.is_empty() {
        return Err("none of the functions can be traced".into());
    }
    tell_of(counted.values().map(|counted| counted.traced.link.report()));
    callers.as_ref().map_or(Ok(()), Callers::prepare)?;
    stop_on_signals()?;
    tell!("counting; ctrl-C ends it");
    // Whatever ends it, what was counted so far is printed.
    let waited = wait(tracing, &programs, &mut counted, key, callers.as_ref());
    let rows = rows(tracing, &programs, &counted, key, callers.as_ref())?;
    let sum: u64 = rows.iter().map(|row| row.count).sum();
    let written = keep(&text(tracing, &rows, key), "the counts");
    tell!("{sum} calls counted");
    let dropped = programs.sum("dropped")?;
    if dropped > 0 {
        tell!("{dropped} more calls counted, without their key: there were too many different keys");
    }
    tell_of_losses(counted.values().map(|counted| &counted.traced.link))?;
    let drawn = plot::write(arguments, &format!("Calls by {}", key.word()), &bars(&rows, key));
    waited.and(written.map_err(Failure::from)).and(drawn)
}

/// Until it is time to stop, or something fails.
fn wait(
    tracing: &Tracing<'_, '_>,
    programs: &Programs,
    counted: &mut BTreeMap<u32, Counted<'_>>,
    key: Key<'_>,
    callers: Option<&Callers<'_>>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let pace = Pace::new(tracing.arguments.duration.map(Duration::from_secs));
    while !pace.is_over() {
        thread::sleep(pace.begin());
        if pace.is_second_over() {
            for counted in counted.values_mut() {
                counted.traced.keep_up(&programs.program(counted.program)?)?;
            }
            if tracing.arguments.top {
                let rows = rows(tracing, programs, counted, key, callers)?;
                top(tracing, &rows, key, begin.elapsed()).map_err(Unwritten::of("the counts"))?;
            }
        }
    }
    Ok(())
}

/// Refuses an argument that no call has.
fn check_argument(tracing: &Tracing<'_, '_>, key: Key<'_>) -> Result<(), Failure> {
    // Paths to members were checked before.
    let Some(wanted) = key.argument().filter(|name| !Path::is_meant(name)) else { return Ok(()) };
    let prototypes = || tracing.functions.iter().flat_map(|function| &function.function.prototypes);
    let names = prototypes().flat_map(|prototype| prototype.parameters.iter().enumerate());
    let names: BTreeSet<String> = names.map(|(nth, parameter)| super::argument_name(nth, parameter)).collect();
    if names.contains(wanted) {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let others = match key {
        Key::Histogram(_) => String::new(),
        _ => "; calls are also counted by site, pid, tid, cpu, comm and stack".to_owned(),
    };
    Err(format!("no call has an argument {wanted}; there are: {}{others}", names.join(", ")).into())
}

/// The constants by which the program knows what to count by.
fn key_constants(
    tracing: &Tracing<'_, '_>,
    function: &Function,
    members: &[Member],
    key: Key<'_>,
) -> Result<Constants, Failure> {
    let mut constants = vec![word("count_by", key.by() as u32)];
    let member = members.iter().enumerate().find(|(_, member)| key.argument() == Some(&member.name));
    if let Some((nth, member)) = member {
        if member.is_text() {
            return Err(format!("{} is text: calls are counted by numbers", member.name).into());
        }
        let (bits, signed) = member.ty.number().ok_or_else(|| format!("{} is not a number", member.name))?;
        let nth = siteseer_bpf_progs::filter::PARAMETERS + nth;
        constants.extend([
            word("count_parameter", nth as u32),
            word("count_bits", bits),
            word("count_signed", signed.into()),
        ]);
    } else if let Some(name) = key.argument() {
        let found = calls(function, &[], tracing.types).argument(name)?;
        let (nth, bits, signed) = match &found {
            None => (NOWHERE, 64, false),
            Some((nth, ty)) => {
                let (bits, signed) = ty
                    .number()
                    .ok_or_else(|| format!("{}: {name} is a structure, which is not counted by", function.name))?;
                (*nth as u32, bits, signed)
            }
        };
        if found.is_some() && nth as usize >= siteseer_bpf_progs::filter::PARAMETERS {
            let most = siteseer_bpf_progs::filter::PARAMETERS;
            return Err(format!(
                "{}: {name} is beyond the {most} arguments that the kernel's program looks at",
                function.name
            )
            .into());
        }
        constants.extend([word("count_parameter", nth), word("count_bits", bits), word("count_signed", signed.into())]);
    }
    Ok(constants)
}

/// A number, and what it is of.
struct Row<'f> {
    function: &'f str,
    key: count::Key,
    /// The key's text; `None` where a call does not have what it is counted by.
    text: Option<String>,
    /// If calls are counted by stack: its functions, from the one that was called outwards.
    frames: Vec<Frame>,
    count: u64,
}

/// The numbers of calls, by key.
fn numbers(
    programs: &Programs,
    functions: impl Iterator<Item = u32>,
    key: Key<'_>,
) -> Result<Vec<(count::Key, u64)>, Failure> {
    let mut numbers = Vec::new();
    if key == Key::Function {
        for function in functions {
            numbers.push((count::Key::of(function), programs.sum_of("functions", function)?));
        }
        numbers.retain(|(_, count)| *count > 0);
        return Ok(numbers);
    }
    let map = programs.shared_map("counts")?;
    for bytes in map.keys() {
        let Some(found) = count::Key::parse(&bytes) else { continue };
        let per_cpu = map.lookup_percpu(&bytes, MapFlags::ANY)?.unwrap_or_default();
        numbers.push((found, per_cpu.iter().map(|bytes| counter(bytes)).sum()));
    }
    Ok(numbers)
}

/// All numbers, the greatest first.
fn rows<'f>(
    tracing: &Tracing<'_, '_>,
    programs: &Programs,
    counted: &BTreeMap<u32, Counted<'f>>,
    key: Key<'_>,
    callers: Option<&Callers<'_>>,
) -> Result<Vec<Row<'f>>, Failure> {
    let mut rows = Vec::new();
    for (found, count) in numbers(programs, counted.keys().copied(), key)? {
        let Some(of) = counted.get(&found.function) else { continue };
        let function = of.function.name.as_str();
        let frames = match callers {
            Some(callers) if !found.missing => frames(programs, of, &found, callers)?,
            _ => Vec::new(),
        };
        // Where the kernel finds wrong callers, stacks that differ in these alone are one.
        let is_same = |row: &&mut Row<'_>| {
            row.key.function == found.function && row.key.missing == found.missing && row.frames == frames
        };
        if callers.is_some()
            && let Some(row) = rows.iter_mut().find(is_same)
        {
            row.count += count;
            continue;
        }
        let text = describe(tracing, of, &found, key);
        rows.push(Row { function, key: found, text, frames, count });
    }
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    Ok(rows)
}

/// The functions of a stack that calls were counted by.
fn frames(
    programs: &Programs,
    of: &Counted<'_>,
    found: &count::Key,
    callers: &Callers<'_>,
) -> Result<Vec<Frame>, Failure> {
    let (id, stack) = found.stack();
    let Some(addresses) = programs.shared_map("stacks")?.lookup(&stack.to_ne_bytes(), MapFlags::ANY)? else {
        return Ok(Vec::new());
    };
    let mut sites = of.traced.link.report().functions.iter().flat_map(|function| &function.sites);
    let site = sites.find(|site| site.id == id);
    let address = site.map_or(0, |site| site.address);
    callers.frames(&of.function.name, (address, site), &count::frames(&addresses))
}

/// What calls were counted by, in words.
fn describe(tracing: &Tracing<'_, '_>, of: &Counted<'_>, found: &count::Key, key: Key<'_>) -> Option<String> {
    if found.missing {
        return None;
    }
    Some(match key {
        Key::Function | Key::Stack => String::new(),
        Key::Pid | Key::Tid | Key::Cpu | Key::Histogram(_) => found.value.to_string(),
        Key::Comm => found.comm.clone(),
        Key::Site => {
            let sites = of.traced.link.report().functions.iter().flat_map(|function| &function.sites);
            let mut sites = sites.filter(|site| u64::from(site.id) == found.value);
            sites.next().map_or_else(|| "a site that is not known".to_owned(), place)
        }
        Key::Argument(name) if Path::is_meant(name) => {
            let mut members = of.members.iter().filter(|member| member.name == name);
            members.next()?.describe(found.value, None, tracing.types)
        }
        Key::Argument(name) => {
            // Where the argument is not the same in all functions of the name, it is refused before.
            let prototype = of.function.prototypes.first()?;
            let parameters = prototype.parameters.iter().enumerate();
            let mut named = parameters.filter(|(nth, parameter)| super::argument_name(*nth, parameter) == name);
            let (_, parameter) = named.next()?;
            let btf = tracing.types.of(prototype.module.as_deref());
            match (btf, Type::of(parameter, btf)) {
                (Some(btf), ty) if ty != Type::Whole => btf::format_value(btf, parameter.ty, &[found.value]),
                _ => format!("{:#x}", found.value),
            }
        }
    })
}

fn text(tracing: &Tracing<'_, '_>, rows: &[Row<'_>], key: Key<'_>) -> String {
    match (tracing.arguments.json, key) {
        (true, _) => rows.iter().map(|row| format!("{}\n", json(row, key))).collect(),
        (false, Key::Histogram(name)) => histograms(rows, name),
        (false, _) => table(rows, key),
    }
}

fn table(rows: &[Row<'_>], key: Key<'_>) -> String {
    let width = rows.iter().map(|row| row.function.len()).chain(["FUNCTION".len()]).max().unwrap_or(0);
    let by = if matches!(key, Key::Function | Key::Stack) { String::new() } else { key.word().to_uppercase() };
    let mut text = format!("{:>12}  {:<width$}  {by}", "CALLS", "FUNCTION").trim_end().to_owned() + "\n";
    for row in rows {
        let key = row.text.as_deref().unwrap_or("?");
        let line = format!("{:>12}  {:<width$}  {key}", row.count, row.function);
        let _ = writeln!(text, "{}{}", line.trim_end(), stacks::text(&row.frames));
    }
    text
}

/// The rows of each function.
fn by_function<'r, 'f>(rows: &'r [Row<'f>]) -> BTreeMap<u32, Vec<&'r Row<'f>>> {
    let mut functions: BTreeMap<u32, Vec<&Row<'_>>> = BTreeMap::new();
    rows.iter().for_each(|row| functions.entry(row.key.function).or_default().push(row));
    functions
}

/// The numbers of a function's buckets, as far as calls have the argument.
fn buckets(rows: &[&Row<'_>]) -> Vec<(Bucket, u64)> {
    let mut numbers: Vec<(Bucket, u64)> =
        rows.iter().filter(|row| !row.key.missing).map(|row| (bucket(&row.key), row.count)).collect();
    numbers.sort_unstable();
    numbers
}

/// The numbers as a picture: a group of bars for each function.
fn bars(rows: &[Row<'_>], key: Key<'_>) -> Vec<Bar> {
    if key == Key::Function {
        return plot::numbers("", &rows.iter().map(|row| (row.function.to_owned(), row.count)).collect::<Vec<_>>());
    }
    let mut all = Vec::new();
    for rows in by_function(rows).values() {
        let name = rows.first().map_or("", |row| row.function);
        match key {
            Key::Histogram(argument) => {
                all.extend(plot::histogram(&format!("{name}: {argument}"), &buckets(rows)));
                let missing: u64 = rows.iter().filter(|row| row.key.missing).map(|row| row.count).sum();
                all.extend((missing > 0).then(|| plot::bar(&format!("{name}: {argument}"), "?", missing)));
            }
            _ => {
                let text = |row: &&Row<'_>| match key {
                    Key::Stack => row.frames.get(1).map_or_else(|| "?".to_owned(), |frame| frame.function.clone()),
                    _ => row.text.clone().unwrap_or_else(|| "?".to_owned()),
                };
                all.extend(plot::numbers(name, &rows.iter().map(|row| (text(row), row.count)).collect::<Vec<_>>()));
            }
        }
    }
    all
}

/// A histogram for each function.
fn histograms(rows: &[Row<'_>], argument: &str) -> String {
    let mut text = String::new();
    for rows in by_function(rows).values() {
        let numbers = buckets(rows);
        let name = rows.first().map_or("", |row| row.function);
        let _ = write!(text, "{name}: {argument}\n{}", histogram::text(&numbers));
        let missing: u64 = rows.iter().filter(|row| row.key.missing).map(|row| row.count).sum();
        if missing > 0 {
            let why = if Path::is_meant(argument) {
                "where it does not exist or cannot be read"
            } else {
                "at sites that do not have it"
            };
            let _ = writeln!(text, "{:<20} {missing:>10} {why}", "?");
        }
    }
    text
}

fn bucket(key: &count::Key) -> Bucket {
    Bucket::new(key.value.min(64) as u32, key.negative)
}

fn json(row: &Row<'_>, key: Key<'_>) -> serde_json::Value {
    let mut json = serde_json::json!({ "function": row.function });
    match key {
        Key::Function => {}
        Key::Stack => json["stack"] = (!row.key.missing).then(|| stacks::json(&row.frames)).into(),
        Key::Histogram(argument) => {
            json["argument"] = argument.into();
            // JSON's numbers do not hold all of them.
            let range = (!row.key.missing).then(|| bucket(&row.key).range());
            json["low"] = range.map(|(low, _)| low.to_string()).into();
            json["high"] = range.map(|(_, high)| high.to_string()).into();
        }
        _ => json[key.word()] = row.text.clone().into(),
    }
    json["count"] = row.count.into();
    json
}

/// How many numbers --top shows.
const SHOWN: usize = 20;

/// Prints the greatest numbers, or all of a histogram.
fn top(tracing: &Tracing<'_, '_>, rows: &[Row<'_>], key: Key<'_>, after: Duration) -> io::Result<()> {
    let shown = match key {
        Key::Histogram(_) => rows,
        _ => rows.get(..SHOWN).unwrap_or(rows),
    };
    let numbers = match (tracing.arguments.json, key) {
        (true, _) => Numbers::Json(shown.iter().map(|row| json(row, key)).collect()),
        (false, Key::Histogram(name)) => Numbers::Text(histograms(shown, name)),
        (false, _) => Numbers::Text(table(shown, key)),
    };
    live::print(&numbers, rows.iter().map(|row| row.count).sum(), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64, value: u64, missing: bool, text: Option<&str>) -> Row<'static> {
        let key = count::Key { function: 0, missing, negative: false, value, comm: String::new() };
        Row { function: "vfs_read", key, text: text.map(str::to_owned), frames: Vec::new(), count }
    }

    #[test]
    fn numbers_as_text() {
        let rows = [row(12, 0, false, Some("bash")), row(3, 0, false, Some("sh"))];
        assert_eq!(
            table(&rows, Key::Comm),
            "       CALLS  FUNCTION  COMM\n          12  vfs_read  bash\n           3  vfs_read  sh\n"
        );
        assert_eq!(
            table(&[row(12, 0, false, Some(""))], Key::Function),
            "       CALLS  FUNCTION\n          12  vfs_read\n"
        );
        assert_eq!(
            table(&[row(1, 0, true, None)], Key::Argument("x")).lines().last(),
            Some("           1  vfs_read  ?")
        );
        let text = histograms(&[row(2, 3, false, None), row(7, 0, true, None)], "count");
        assert!(text.starts_with("vfs_read: count\n[4, 8) "), "{text}");
        assert!(text.contains("?") && text.trim_end().ends_with("7 at sites that do not have it"), "{text}");
    }

    #[test]
    fn numbers_as_json() {
        assert_eq!(
            json(&row(2, 0, false, Some("sh")), Key::Comm).to_string(),
            r#"{"function":"vfs_read","comm":"sh","count":2}"#
        );
        assert_eq!(
            json(&row(2, 3, false, None), Key::Histogram("size")).to_string(),
            r#"{"function":"vfs_read","argument":"size","low":"4","high":"7","count":2}"#
        );
        assert_eq!(json(&row(2, 0, true, None), Key::Argument("size"))["size"], serde_json::Value::Null);
    }
}
