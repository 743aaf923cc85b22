// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/compared.md: each wish with the tools side by side, and what they counted of a million calls.

use super::cost::{BUSY, CALLS, WAYS};
use super::wishes::{Probe, WISHES, Wish};
use super::{Printed, Tool};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// What was run.
#[derive(Debug, Clone)]
pub struct Versions {
    /// The kernel.
    pub kernel: String,
    /// What each tool prints about itself.
    pub tools: Vec<String>,
}

/// What was printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// For the wishes.
    pub wishes: Vec<Printed>,
    /// For the million calls.
    pub costs: Vec<Printed>,
}

/// How many lines of an output are shown, and how much of each.
const LINES: usize = 16;
const WIDTH: usize = 160;

/// The whole page.
pub fn page(versions: &Versions, measured: &Measured) -> String {
    let mut text = format!(
        "# siteseer beside bpftrace, perf and retsnoop\n\n\
         What a user of bpftrace wishes for, done by each tool on the same calls. `ci/compared --docs docs/compared.md` writes\n\
         this page: it boots the kernel in a virtual machine, runs each command there, and compares the output with the known\n\
         number of calls.\n\n\
         - The kernel is Debian's {}.\n\
         - The tools call themselves {}. bpftrace and perf are those of Debian sid.\n\
         - retsnoop is not in Debian (`apt-cache policy retsnoop` finds nothing in sid and experimental). `ci/compared --retsnoop\n\
         \x20 BINARY` runs a static binary too. Its commands are listed here in any case.\n\
         - `calls` is the program that makes the calls, in a thread with the name `workload`.\n\
         - siteseer uses site data. `perf probe -k vmlinux` uses the kernel's image with DWARF: it was run outside of the virtual\n\
         \x20 machine with `-D`, and what it printed was written to `kprobe_events`.\n\
         - A command that missed something was run a second time, and the better result is here.\n\
         - Long outputs are cut.\n\n",
        versions.kernel,
        versions.tools.iter().map(|tool| format!("`{tool}`")).collect::<Vec<_>>().join(", "),
    );
    summary(&mut text, measured);
    for (nth, wish) in WISHES.iter().enumerate() {
        let _ = write!(text, "## {}. {}\n\n{}\n\n", nth + 1, wish.title, wish.task);
        for tool in Tool::ALL {
            section(&mut text, nth, wish, tool, measured);
        }
    }
    million(&mut text, measured);
    text
}

fn found(measured: &Measured, nth: usize, tool: Tool) -> Option<&Printed> {
    measured.wishes.iter().find(|printed| printed.wish == nth && printed.tool == Some(tool))
}

fn summary(text: &mut String, measured: &Measured) {
    text.push_str("What each tool reported, of what there was:\n\n| wish | siteseer | bpftrace | perf | retsnoop |\n|---|---|---|---|---|\n");
    for (nth, wish) in WISHES.iter().enumerate() {
        let _ = write!(text, "| {}. {} ", nth + 1, wish.title);
        for tool in Tool::ALL {
            let cell = found(measured, nth, tool).map_or_else(
                || "not run".to_owned(),
                |printed| format!("{} of {} {}", wish.seen(tool).count(&printed.output), wish.made, wish.unit),
            );
            let _ = write!(text, "| {cell} ");
        }
        text.push_str("|\n");
    }
    text.push('\n');
}

fn section(text: &mut String, nth: usize, wish: &Wish, tool: Tool, measured: &Measured) {
    let round = wish.round(nth, tool, Vec::new());
    let mut commands = round.before.clone();
    if let (Tool::Perf, Probe::Dwarf(definition)) = (tool, wish.perf.probe) {
        commands.push(format!("perf probe -k vmlinux '{definition}'"));
    }
    commands.push(round.command);
    commands.extend(round.after);
    let commands: String = commands.iter().map(|command| format!("# {command}\n")).collect();
    let Some(printed) = found(measured, nth, tool) else {
        let _ = write!(text, "```console\n{commands}```\n\n**{}**: not run here.\n\n", tool.name());
        return;
    };
    let _ = write!(text, "```console\n{commands}{}```\n\n", shown(printed));
    let seen = wish.seen(tool).count(&printed.output);
    let verdict = match wish.made.checked_sub(seen) {
        Some(0) => "nothing is missing".to_owned(),
        Some(missed) => format!("{missed} missing"),
        None => "more than there were".to_owned(),
    };
    let _ = write!(text, "**{}**: {seen} of {} {}; {verdict}.\n\n", tool.name(), wish.made, wish.unit);
}

/// What a command printed, without empty lines.
fn shown(printed: &Printed) -> String {
    let both = [&printed.messages, &printed.output];
    let lines: Vec<&str> =
        both.iter().flat_map(|text| text.lines()).map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let cut = |line: &&str| match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}...\n", &line[..end]),
        None => format!("{line}\n"),
    };
    let mut text: String = lines.iter().take(LINES).map(cut).collect();
    if lines.len() > LINES {
        let _ = writeln!(text, "({} more lines)", lines.len() - LINES);
    }
    text
}

fn million(text: &mut String, measured: &Measured) {
    let _ = write!(
        text,
        "## A million calls\n\n\
         A program calls a function {CALLS} times, and the tool counts the calls. The virtual machine counts instructions: \"more\"\n\
         is how many instructions each call takes more than without a tool. The median of batches of 1000 calls is printed. A guest's\n\
         instruction takes one nanosecond, which makes the calls of a second.\n\n"
    );
    for (nth, busy) in BUSY.iter().enumerate() {
        let _ = write!(
            text,
            "`{}`: {}.\n\n| command | calls counted | missing | instructions of a call | more | calls a second |\n|---|--:|--:|--:|--:|--:|\n",
            busy.function, busy.about
        );
        let mut without = None;
        for way in &WAYS {
            let command = way.of(busy);
            let Some(printed) = measured.costs.iter().find(|it| it.wish == nth && it.command == command) else {
                continue;
            };
            let seen = way.seen.count(&printed.output);
            let (counted, missing) = match way.tool {
                None => ("-".to_owned(), "-".to_owned()),
                Some(_) => (seen.to_string(), CALLS.saturating_sub(seen).to_string()),
            };
            let cost = printed.cost;
            without = without.or(cost);
            let more = cost.zip(without).map(|(cost, without)| cost - without);
            let number = |number: Option<f64>| number.map_or_else(|| "?".to_owned(), |number| format!("{number:.0}"));
            let _ = writeln!(
                text,
                "| `{command}` | {counted} | {missing} | {} | {} | {} |",
                number(cost),
                if way.tool.is_some() { number(more) } else { "-".to_owned() },
                number(cost.map(|cost| 1e9 / cost))
            );
        }
        text.push('\n');
    }
}
