// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer list`: the functions that a pattern stands for, and how many sites of each kind each function has.

use crate::Failure;
use crate::output::tell;
use crate::target::{self, About};
use clap::Args;
use siteseer::internals::path::{full, shown};
use siteseer::internals::pattern::Pattern;
use siteseer::internals::target::Listed;
use siteseer_sites::with_causes;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};

/// List functions by pattern, and how many sites each has: bodies, clones, inlined copies
///
/// Everything is read from the site data, which requires no privileges. Without --vmlinux and --sites, it is the site
/// data of the running kernel and its loaded modules.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to list: [MODULE:][FUNCTION][@FILE]. MODULE, FUNCTION and the parts of FILE may contain *, ? and [a-z].
    /// vfs_* selects by name, @read_write.c by source file, ext4: all functions of a module (vmlinux: those of the
    /// image), core::slice::iter what is written below that path in Rust
    #[arg(required = true, value_name = "PATTERN", add = crate::complete::functions())]
    patterns: Vec<Pattern>,
    /// Print only the names; those of Rust as their symbols have them
    #[arg(long, conflicts_with = "json")]
    names: bool,
    #[command(flatten)]
    about: About,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = arguments.about.described(&arguments.patterns)?;
    let found = target.list(&arguments.patterns)?;
    for (pattern, found) in arguments.patterns.iter().zip(&found) {
        if found.is_empty() {
            return Err(target::nothing(&target, pattern));
        }
    }
    let mut seen = HashSet::new();
    let mut listed: Vec<Listed> = found.into_iter().flatten().collect();
    // What two patterns stand for is listed once.
    listed.retain(|function| seen.insert((function.name.clone(), function.module.clone())));
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&listed.iter().map(json).collect::<Vec<_>>())?)
    } else if arguments.names {
        listed.iter().map(|function| format!("{}\n", name(function))).collect()
    } else {
        table(&listed)
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    let without: Vec<_> = target.modules().without_data().collect();
    if let Some((module, why)) = without.first() {
        let why = with_causes(why);
        let why = why.lines().next().unwrap_or_default().trim_end_matches("; tried:");
        tell!("not listed: functions in {} of the loaded modules ({module}: {why})", without.len());
    }
    Ok(())
}

/// `vfs_read`, `ext4:ext4_sync_file`.
fn name(function: &Listed) -> String {
    in_module(function, &function.name)
}

fn in_module(function: &Listed, name: &str) -> String {
    match &function.module {
        Some(module) => format!("{module}:{name}"),
        None => name.to_owned(),
    }
}

fn table(listed: &[Listed]) -> String {
    let mut text = format!("{:>6} {:>6} {:>7}  FUNCTION\n", "BODIES", "CLONES", "INLINED");
    let mut sum = Listed::default();
    for function in listed {
        let Listed { bodies, clones, inlined, unknown, unprobeable, .. } = *function;
        let _ = write!(text, "{bodies:>6} {clones:>6} {inlined:>7}  {}", in_module(function, &shown(&function.name)));
        let unknown_too = (unknown > 0).then(|| format!("{unknown} more of unknown kind"));
        let obstacles = (unprobeable > 0).then(|| format!("{unprobeable} cannot be probed"));
        let notes: Vec<String> = unknown_too.into_iter().chain(obstacles).collect();
        let _ = if notes.is_empty() { writeln!(text) } else { writeln!(text, "  ({})", notes.join(", ")) };
        sum.bodies += bodies;
        sum.clones += clones;
        sum.inlined += inlined;
        sum.unknown += unknown;
    }
    let plural = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let _ = writeln!(
        text,
        "{}, {}: {}, {}, {}",
        plural(listed.len(), "function", "functions"),
        plural(sum.sites(), "site", "sites"),
        plural(sum.bodies, "body", "bodies"),
        plural(sum.clones, "clone", "clones"),
        plural(sum.inlined, "inlined copy", "inlined copies"),
    );
    text
}

fn json(function: &Listed) -> serde_json::Value {
    let mut json = serde_json::json!({
        "function": function.name,
        "module": function.module.as_deref(),
        "sites": function.sites(),
        "bodies": function.bodies,
        "clones": function.clones,
        "inlined": function.inlined,
        "unknown": function.unknown,
        "unprobeable": function.unprobeable,
    });
    if let Some(path) = full(&function.name) {
        json["path"] = path.into();
    }
    json
}
