// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The figures as a page for people, and its plots.

use super::Figures;
use super::commands::{Comparison, Summary, median};
use crate::guest::starts;
use crate::measure::cost::Figure;
use crate::measure::cost::attach::{Attaching, Way};
use crate::measure::cost::hits::Hit;
use siteseer_plot::{self as plot, Bar, Series};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# What it costs

`ci/bench --update-docs` writes this page, from one run. Every figure stands beside that of what one would use without
siteseer.
";

const COMMANDS: &str = "\
Whole processes, in turn; median, range, CPU time and the most memory. *Times as fast* is the median of the pairs of runs,
and not the ratio of the two medians.
";

const HITS: &str = "\
Instructions of the guest, kernel and BPF together, that one hit adds to a system call. They are counted by QEMU
(`-icount shift=0`, one CPU: an instruction is a nanosecond of the guest's time) and repeat exactly. All programs count the
call and add up the arguments that they read. *By hand* is a kprobe program that reads the registers itself, on a perf
kprobe at the same address; *interpreter* looks a specification up in a map and follows it, as libbpf's USDT support
does; the part that is BPF is what is more than with a program that returns at once. siteseer has a kprobe at every copy of the
function, the others have one: where kprobes are not optimised (arm64) each hit goes through a list of those that there are
(`get_kprobe()` in kernel/kprobes.c), and that counts as siteseer's.
";

const OVERHEAD: &str = "\
`write()` of 512 bytes to /dev/null with a program on `vfs_write` that reads nothing: what the system call takes more,
in instructions. The arm64 proposal to run BPF trampolines on fprobe gave, in time and for its own benchmark, 28.6% for
direct calls, 66.8% for kprobes, 62.6% for fprobe and 34.1% for fprobe optimised.
";

const ATTACHING: &str = "\
Seconds of the guest's time at one instruction a nanosecond, two CPUs; timers and grace periods take as long as anywhere.
*Loop* is one perf kprobe and one link per site, closed one after the other; *each* is siteseer with the same, closed by
32 threads (`AttachOptions::bulk(false)`); *siteseer* is what it does by itself; *registration alone* is the kernel's part in each
of them: writing the same probes to tracefs, with nothing attached. Medians.
";

const LIMIT: &str = "\
What is left of the time to attach is the kernel's registration of a kprobe, the same for every way to one: it decodes the
whole function that holds the site (`can_optimize()`, arch/x86/kernel/kprobes/opt.c), looks each instruction of it up
among the probes there are, and goes through the tables of static branches, static calls and bugs from end to end, twice
(`check_kprobe_address_safe()` in kernel/kprobes.c, `copy_optimized_instructions()`). The loop waits besides, for the jump
optimizer's grace periods, and how often differs from run to run.
";

const PROGRAMS: &str = "\
With all of the function's arguments read; one program for each location prototype, and as few programs as there can be
(`AttachOptions::share_beyond(1)`). Left to itself siteseer shares programs beyond 128 location prototypes.
";

const STARTS: &str = "\
From a tool's start until its programs are attached, in the guest's time as above: `fentry` programs at functions that have one
body, where siteseer has nothing to add. Each start is a process of its own; median.
";

const STARTUP: &str = "\
The steps of a tool that traces `__bpf_copy_key`, in the guest's time as above, beside what the kernel takes to write its
tables as text.
";

fn seconds(value: f64) -> String {
    if value < 0.1 { format!("{:.2} ms", value * 1000.0) } else { format!("{value:.2} s") }
}

/// The page, in Markdown.
pub fn page(all: &[Figures]) -> String {
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, all, "Sites", "", census);
    section(&mut page, all, "Commands", COMMANDS, commands);
    section(&mut page, all, "A hit", HITS, hits);
    overhead(&mut page, all);
    section(&mut page, all, "Attaching and detaching", ATTACHING, attaching);
    let _ = writeln!(page, "\n{LIMIT}");
    section(&mut page, all, "Programs", PROGRAMS, programs);
    let started: Vec<Figures> = all.iter().filter(|figures| !figures.startup.is_empty()).cloned().collect();
    section(&mut page, &started, "From start to first event", STARTUP, startup);
    let started: Vec<Figures> = all.iter().filter(|figures| !figures.starts.is_empty()).cloned().collect();
    section(&mut page, &started, "Starts beside plain libbpf", STARTS, |page, figures| {
        page.push_str(&starts::table(&figures.starts));
    });
    let notes = |figures: &Figures| -> Vec<String> {
        let note = |figure: &Figure| if let Figure::Note(note) = figure { Some(format!("- {note}")) } else { None };
        figures.guest.iter().filter_map(note).collect()
    };
    if all.iter().any(|figures| !notes(figures).is_empty()) {
        page.push_str("\n## What could not be measured\n");
        for figures in all.iter().filter(|figures| !notes(figures).is_empty()) {
            let _ = writeln!(page, "\n{}:\n\n{}", figures.kernel, notes(figures).join("\n"));
        }
    }
    page
}

/// A heading, what is to be known, and what there is of each kernel.
fn section(page: &mut String, all: &[Figures], title: &str, text: &str, of: fn(&mut String, &Figures)) {
    let _ = write!(page, "\n## {title}\n");
    if !text.is_empty() {
        let _ = write!(page, "\n{text}");
    }
    for figures in all {
        let _ = write!(page, "\n### {}\n\n", figures.kernel);
        of(page, figures);
    }
}

fn census(page: &mut String, figures: &Figures) {
    let number = |path: &str| figures.census.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    let (total, all) = (number("/sites/total"), number("/sites/all_arguments"));
    let (arguments, located) = (number("/arguments/total"), number("/arguments/located"));
    let (usable, of_usable) = (number("/arguments/usable"), number("/arguments/located_of_usable"));
    let (inline, ext) = (figures.bytes.0 as f64, figures.bytes.1 as f64);
    let _ = writeln!(page, "| | | |\n|---|---:|---:|");
    let _ = writeln!(page, "| inline sites | {total} | with all arguments: {all} ({:.1}%) |", 100.0 * all / total);
    let _ = writeln!(page, "| arguments | {arguments} | located: {located} ({:.1}%) |", 100.0 * located / arguments);
    let _ = writeln!(
        page,
        "| usable by DWARF | {usable} | of these located: {of_usable} ({:.2}%) |",
        100.0 * of_usable / usable
    );
    let _ = writeln!(page, "| image | {} bytes | of it DWARF: {} bytes |", figures.image, figures.dwarf);
    let _ = writeln!(page, "| `.BTF.inline` | {inline} bytes | {:.1} a site |", inline / total);
    let _ = writeln!(page, "| `.BTF.inline.ext` | {ext} bytes | {:.1} a site |", ext / total);
}

fn commands(page: &mut String, figures: &Figures) {
    page.push_str("| job | by | wall | range | CPU | memory | times as fast |\n|---|---|---:|---:|---:|---:|---:|\n");
    for compared in &figures.commands {
        for (name, summary, ratio) in [
            ("siteseer", &compared.ours, format!("{:.1}", compared.times_faster)),
            (compared.theirs_name.as_str(), &compared.theirs, String::new()),
        ] {
            let _ = writeln!(
                page,
                "| {} | {name} | {} | {} to {} | {} | {:.0} MiB | {ratio} |",
                compared.job,
                seconds(summary.wall),
                seconds(summary.min),
                seconds(summary.max),
                seconds(summary.cpu),
                summary.peak_mib
            );
        }
    }
    let arch = &figures.arch;
    let _ = writeln!(page, "\n![Encoding](performance/encode-{arch}.svg)\n");
    let _ = writeln!(page, "![Looking a function up](performance/lookup-{arch}.svg)\n");
    let _ = writeln!(page, "![Memory](performance/memory-{arch}.svg)");
}

/// Bars of the commands for some jobs.
fn command_bars(figures: &Figures, is_wanted: impl Fn(&str) -> bool, value: impl Fn(&Summary) -> f64) -> Vec<Bar> {
    let wanted = figures.commands.iter().filter(|compared| is_wanted(&compared.job));
    let both = |compared: &Comparison| {
        let bar = |name: &str, summary| bar(&compared.job, name, value(summary));
        [bar("siteseer", &compared.ours), bar(&compared.theirs_name, &compared.theirs)]
    };
    wanted.flat_map(both).collect()
}

/// Ours stand out.
fn bar(group: &str, name: &str, value: f64) -> Bar {
    Bar { group: group.to_owned(), name: name.to_owned(), value, marked: name.contains("siteseer") }
}

fn all_hits(figures: &Figures) -> Vec<&Hit> {
    figures.guest.iter().filter_map(|figure| if let Figure::Hit(hit) = figure { Some(hit) } else { None }).collect()
}

fn hits(page: &mut String, figures: &Figures) {
    let all = all_hits(figures);
    page.push_str("| at | function | by | arguments | a hit | of it BPF |\n|---|---|---|---:|---:|---:|\n");
    for hit in &all {
        let program = hit.program.map_or_else(String::new, |program| format!("{program:.0}"));
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} | {:.0} | {program} |",
            hit.kind, hit.function, hit.way, hit.arguments, hit.hit
        );
    }
    let find = |way: &str| all.iter().find(|hit| hit.kind == "inline" && hit.arguments == 3 && hit.way == way);
    if let (Some(ours), Some(hand), Some(spec)) = (find("siteseer"), find("by hand"), find("interpreter")) {
        let _ = writeln!(
            page,
            "\nAt an inline site with three register arguments a hit takes {:.1}% more instructions than by hand; its BPF part \
             takes {:.1} times fewer than the interpreter's.",
            100.0 * (ours.hit / hand.hit - 1.0),
            spec.program.unwrap_or(f64::NAN) / ours.program.unwrap_or(f64::NAN)
        );
    }
    let arch = &figures.arch;
    let _ = writeln!(page, "\n![A hit at an inline site](performance/hits-{arch}.svg)\n");
    let _ = writeln!(page, "![A hit at an entry](performance/entries-{arch}.svg)");
}

/// What a system call takes more, by mechanism and architecture.
fn overhead(page: &mut String, all: &[Figures]) {
    let _ = write!(page, "\n### Overhead\n\n{OVERHEAD}\n| by |");
    all.iter().for_each(|figures| page.push_str(&format!(" {} |", figures.arch)));
    let _ = writeln!(page, "\n|---|{}", "---:|".repeat(all.len()));
    let of = |figures: &Figures| -> Vec<(String, f64)> {
        let hits = all_hits(figures).into_iter().filter(|hit| hit.function == "vfs_write" && hit.arguments == 0);
        hits.map(|hit| (hit.way.clone(), 100.0 * hit.hit / hit.without)).collect()
    };
    let columns: Vec<Vec<(String, f64)>> = all.iter().map(of).collect();
    let mut ways: Vec<&String> = Vec::new();
    for (way, _) in columns.iter().flatten() {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    for way in ways {
        let cell = |column: &Vec<(String, f64)>| {
            let found = column.iter().find(|(its, _)| its == way);
            found.map_or_else(|| " |".to_owned(), |(_, overhead)| format!(" {overhead:.1}% |"))
        };
        let _ = writeln!(page, "| {way} |{}", columns.iter().map(cell).collect::<String>());
    }
}

/// Medians by function and way: sites, seconds to attach and to detach.
fn medians(figures: &Figures) -> BTreeMap<usize, (String, BTreeMap<Way, Attaching>)> {
    let mut runs: BTreeMap<(String, Way), Vec<&Attaching>> = BTreeMap::new();
    for figure in &figures.guest {
        if let Figure::Attach(run) = figure {
            runs.entry((run.function.clone(), run.way)).or_default().push(run);
        }
    }
    let mut all: BTreeMap<usize, (String, BTreeMap<Way, Attaching>)> = BTreeMap::new();
    for ((function, way), runs) in runs {
        let of = |value: fn(&Attaching) -> f64| median(runs.iter().map(|run| value(run)).collect());
        let Some(first) = runs.first() else { continue };
        let middle = Attaching {
            attach: of(|run| run.attach),
            detach: of(|run| run.detach),
            left: of(|run| run.left),
            ..(*first).clone()
        };
        // All ways of one function have one number of sites, except for what the kernel refuses.
        let sites = figures.guest.iter().filter_map(|figure| match figure {
            Figure::Attach(run) if run.function == function => Some(run.sites),
            _ => None,
        });
        let entry = all.entry(sites.max().unwrap_or(0)).or_insert_with(|| (function.clone(), BTreeMap::new()));
        entry.1.insert(way, middle);
    }
    all
}

fn attaching(page: &mut String, figures: &Figures) {
    page.push_str(
        "| sites | function | attach: loop | each | siteseer | times | registration alone | detach: loop | each | siteseer | times | files | removed after |\n\
         |---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (sites, (function, ways)) in medians(figures) {
        let time = |way: Way, value: fn(&Attaching) -> f64| ways.get(&way).map(value);
        let print = |value: Option<f64>| value.map_or_else(String::new, seconds);
        let ratio = |value: fn(&Attaching) -> f64| match (time(Way::Loop, value), time(Way::Bulk, value)) {
            (Some(plain), Some(ours)) => format!("{:.1}", plain / ours),
            _ => String::new(),
        };
        let _ = writeln!(
            page,
            "| {sites} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            function.split(' ').map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            print(time(Way::Loop, |run| run.attach)),
            print(time(Way::Each, |run| run.attach)),
            print(time(Way::Bulk, |run| run.attach)),
            ratio(|run| run.attach),
            print(time(Way::Registered, |run| run.attach)),
            print(time(Way::Loop, |run| run.detach)),
            print(time(Way::Each, |run| run.detach)),
            print(time(Way::Bulk, |run| run.detach)),
            ratio(|run| run.detach),
            ways.get(&Way::Bulk).map_or(0, |run| run.files),
            print(time(Way::Bulk, |run| run.left)),
        );
    }
    if let Some((sites, (_, ways))) = medians(figures).into_iter().rfind(|(_, (_, ways))| ways.contains_key(&Way::Loop))
        && let (Some(ours), Some(floor)) = (ways.get(&Way::Bulk), ways.get(&Way::Registered))
        && let (Some(plain), Some(armed)) = (ways.get(&Way::Loop), ways.get(&Way::Armed))
    {
        let _ = writeln!(
            page,
            "\nAt {sites} sites registration alone is {:.0}% of siteseer's time to attach: no way that takes kprobes could be more than \
             {:.1} times as fast as the loop. The same lines as siteseer's, by symbol, and opening the event, without a program, are {:.0}%.",
            100.0 * floor.attach / ours.attach,
            plain.attach / floor.attach,
            100.0 * armed.attach / ours.attach
        );
    }
    let arch = &figures.arch;
    let _ = writeln!(page, "\n![Attaching](performance/attach-{arch}.svg)\n");
    let _ = writeln!(page, "![Detaching](performance/detach-{arch}.svg)");
}

fn programs(page: &mut String, figures: &Figures) {
    page.push_str(
        "| function | sites | location prototypes | programs | loaded in | machine code | armed in | detached in | files |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for figure in &figures.guest {
        if let Figure::Programs(cost) = figure {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} | {} bytes | {} | {} | {} |",
                cost.function,
                cost.sites,
                cost.prototypes,
                cost.programs,
                seconds(cost.loading),
                cost.jited,
                seconds(cost.arming),
                seconds(cost.detach),
                cost.files
            );
        }
    }
    let prototypes = &figures.prototypes;
    let _ = writeln!(
        page,
        "\nOf {} functions with inline sites that have all their arguments, so many have more location prototypes than:\n",
        prototypes.functions
    );
    let bounds: Vec<String> = prototypes.above.iter().map(|(bound, _)| bound.to_string()).collect();
    let counts: Vec<String> = prototypes.above.iter().map(|(_, count)| count.to_string()).collect();
    let _ = writeln!(page, "| {} |\n|{}\n| {} |", bounds.join(" | "), "---:|".repeat(bounds.len()), counts.join(" | "));
    let most: Vec<String> = prototypes
        .most
        .iter()
        .map(|(name, sites, count)| format!("`{name}` ({count} prototypes at {sites} sites)"))
        .collect();
    let _ = writeln!(page, "\nThe most: {}.", most.join(", "));
}

fn startup(page: &mut String, figures: &Figures) {
    page.push_str("| step | time |\n|---|---:|\n");
    for (step, time) in &figures.startup {
        let _ = writeln!(page, "| {step} | {} |", seconds(*time));
    }
}

/// The plots of one kernel: file name and content.
pub fn plots(figures: &Figures) -> Vec<(String, String)> {
    let all = medians(figures);
    let file = |name: &str| format!("{name}-{}.svg", figures.arch);
    let line = |name: &str, way: Way, value: fn(&Attaching) -> f64| Series {
        name: name.to_owned(),
        points: all.iter().filter_map(|(sites, (_, ways))| Some((*sites as f64, value(ways.get(&way)?)))).collect(),
    };
    let chart = |title: &str, value: fn(&Attaching) -> f64| {
        let series = [
            line("one perf kprobe and link per site", Way::Loop, value),
            line("siteseer, a perf kprobe per site", Way::Each, value),
            line("siteseer", Way::Bulk, value),
            line("registration alone", Way::Registered, value),
        ];
        plot::lines(title, "sites", "seconds", &series)
    };
    let bars = |inline: bool| -> Vec<Bar> {
        let hits = all_hits(figures).into_iter().filter(|hit| (hit.kind == "inline") == inline);
        let mut bars: Vec<(String, usize, Bar)> = hits
            .map(|hit| {
                let group = format!("{} {}, {} arguments read", hit.function, hit.kind, hit.arguments);
                (hit.function.clone(), hit.arguments, bar(&group, &hit.way, hit.hit))
            })
            .collect();
        bars.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        bars.into_iter().map(|(_, _, bar)| bar).collect()
    };
    let is_encoding = |job: &str| job.starts_with("encode");
    let mut memory = command_bars(figures, |_| true, |summary| summary.peak_mib);
    memory.push(bar("for comparison", "the image's DWARF", figures.dwarf as f64 / f64::from(1 << 20)));
    let encoding = command_bars(figures, is_encoding, |summary| summary.wall);
    let lookups = command_bars(figures, |job| !is_encoding(job), |summary| summary.wall * 1000.0);
    vec![
        (file("encode"), plot::bars("Encoding: whole processes", "s", &encoding)),
        (file("lookup"), plot::bars("Looking a function up: whole processes", "ms", &lookups)),
        (file("memory"), plot::bars("The most memory", "MiB", &memory)),
        (file("attach"), chart("Time to attach", |run| run.attach)),
        (file("detach"), chart("Time to detach", |run| run.detach)),
        (file("hits"), plot::bars("A hit at an inline site", "instructions", &bars(true))),
        (file("entries"), plot::bars("A hit at an entry", "instructions", &bars(false))),
    ]
}
