// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer sites`: every site of a function.

use crate::Failure;
use crate::target::{self, About};
use clap::Args;
use siteseer::internals::function::{Candidate, Function};
use siteseer::internals::path::{full, shown};
use siteseer::internals::pattern::Pattern;
use siteseer_sites::Machine;
use siteseer_sites::location::{Argument, Located};
use siteseer_sites::site::{Marks, SiteKind};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Print every site of a function: where its body starts, and where its arguments are there
///
/// Without --vmlinux and --sites, the kernel is the running one, with its loaded modules. Addresses are those of the
/// image (link time); those in a module are placeholders, section by section.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The function's name in the source, or a pattern as for `siteseer list`; module:FUNC selects that of one module,
    /// vmlinux:FUNC that of the image
    #[arg(add = crate::complete::functions())]
    function: Pattern,
    #[command(flatten)]
    about: About,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many functions are printed at once.
const MOST: usize = 4096;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = arguments.about.target(std::slice::from_ref(&arguments.function))?;
    let chosen = target::choose(&target, std::slice::from_ref(&arguments.function), MOST)?;
    let functions = target::functions(&target, &chosen)?;
    let machine = target.machine();
    for note in target.notes_of_data() {
        eprintln!("note: {note}");
    }
    let mut stdout = io::stdout().lock();
    if arguments.json {
        // One function is an object, as it has always been; a pattern's are a list.
        let mut all: Vec<serde_json::Value> = functions.iter().map(|function| json(function, machine)).collect();
        let json = if arguments.function.is_name() { all.pop().unwrap_or_default() } else { all.into() };
        writeln!(stdout, "{}", serde_json::to_string_pretty(&json)?)?;
        return Ok(());
    }
    for function in &functions {
        for candidate in &function.candidates {
            writeln!(stdout, "{}", line(function, candidate, machine))?;
        }
        write!(stdout, "{}", counts(function))?;
    }
    Ok(())
}

/// One site in the shape of pfunct's listing: `address [caller+offset] fn(type name [location], ...)`, then what else
/// is known.
fn line(function: &Function, site: &Candidate, machine: Machine) -> String {
    let prototype = &function.prototypes[site.prototype];
    let mut parameters: Vec<String> = Vec::new();
    for (nth, parameter) in prototype.parameters.iter().enumerate() {
        let declared = declaration(&parameter.type_name, &parameter.name);
        parameters.push(format!("{declared} [{}]", location(site.arguments.get(nth), machine)));
    }
    if prototype.variadic {
        parameters.push("...".to_owned());
    }
    let mut text = format!(
        "{:016x} {}[{}+{:#x}] {}({})  {}",
        site.link_address,
        site.module.as_ref().map(|module| format!("[{module}] ")).unwrap_or_default(),
        site.symbol,
        site.offset(),
        shown(&function.name),
        parameters.join(", "),
        site.kind
    );
    if let Some(place) = &site.source {
        text.push_str(&format!(" {}:{}", place.file, place.line));
    }
    for note in notes(site) {
        text.push_str(&format!("; {note}"));
    }
    text
}

/// Where an argument is, or why that is not known.
pub(crate) fn location(argument: Option<&Argument>, machine: Machine) -> String {
    match argument {
        Some(Ok(located)) => match located.doubt {
            None => located.display(machine).to_string(),
            Some(doubt) => format!("doubtful: {}: {doubt}", located.display(machine)),
        },
        Some(Err(missing)) => format!("none: {missing}"),
        None => "none".to_owned(),
    }
}

/// A type and a name as C has them: `const char *name`, `int cap`.
fn declaration(type_name: &str, name: &str) -> String {
    let space = if type_name.ends_with('*') || name.is_empty() { "" } else { " " };
    format!("{type_name}{space}{name}")
}

/// What the marks say for which `complete` refuses a site.
const MARKED: [(Marks, &str); 3] = [
    (Marks::ENTRY_UNCERTAIN, "may not be where it is entered"),
    (Marks::MAY_REPEAT, "may repeat within one call"),
    (Marks::MAY_MISS, "may be passed by"),
];

/// What a person should know of a site besides where it is.
pub(crate) fn notes(site: &Candidate) -> Vec<String> {
    let mut notes = Vec::new();
    if site.moved > 0 {
        let side = if site.marks.contains(Marks::MOVED_BACK) { "before" } else { "after" };
        notes.push(format!("probe {} bytes {side} the entry", site.moved));
    }
    let marked = MARKED.iter().filter(|(mark, _)| site.marks.contains(*mark));
    notes.extend(marked.map(|(_, what)| (*what).to_owned()));
    if site.marks.contains(Marks::SIGNATURE_CHANGED) {
        let returns = if site.marks.returns_value() { "" } else { ", return value not certain" };
        notes.push(format!("signature changed{returns}"));
    }
    if let Some(reason) = &site.obstacle {
        notes.push(format!("cannot be probed: {reason}"));
    }
    notes
}

/// How many there are of each kind, and how many cannot be probed, by reason.
fn counts(function: &Function) -> String {
    let of = |kind: SiteKind| function.candidates.iter().filter(|site| site.kind == kind).count();
    let plural = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let complete = function.candidates.iter().filter(|site| site.arguments.iter().all(Result::is_ok)).count();
    let is_certain = |argument: &Argument| argument.as_ref().is_ok_and(Located::is_certain);
    let certain = function.candidates.iter().filter(|site| site.arguments.iter().all(is_certain)).count();
    let mut text = format!(
        "{}: {}, {}, {}; all arguments at {complete} of {}{}\n",
        shown(&function.name),
        plural(of(SiteKind::Body), "body", "bodies"),
        plural(of(SiteKind::Clone), "clone", "clones"),
        plural(of(SiteKind::Inline), "inlined copy", "inlined copies"),
        plural(function.candidates.len(), "site", "sites"),
        if certain < complete { format!(", certain at {certain}") } else { String::new() },
    );
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for reason in function.candidates.iter().filter_map(|site| site.obstacle.as_ref()) {
        *reasons.entry(reason.to_string()).or_default() += 1;
    }
    for (reason, count) in reasons {
        text.push_str(&format!("  {count} cannot be probed: {reason}\n"));
    }
    // One that the image and modules have is one function, as far as anybody can tell.
    let mut different: Vec<(&str, usize)> = Vec::new();
    for (nth, prototype) in function.prototypes.iter().enumerate() {
        let count = function.candidates.iter().filter(|site| site.prototype == nth).count();
        match different.iter_mut().find(|(text, _)| *text == prototype.text) {
            Some((_, known)) => *known += count,
            None => different.push((&prototype.text, count)),
        }
    }
    if different.len() > 1 {
        text.push_str("  different functions of this name:\n");
        for (prototype, count) in different {
            text.push_str(&format!("    {prototype}  ({})\n", plural(count, "site", "sites")));
        }
    }
    text
}

/// The listing for machines. Addresses are text in hexadecimal: JSON's numbers do not hold them.
fn json(function: &Function, machine: Machine) -> serde_json::Value {
    let sites: Vec<serde_json::Value> = function
        .candidates
        .iter()
        .map(|site| {
            let prototype = &function.prototypes[site.prototype];
            let arguments: Vec<serde_json::Value> = prototype
                .parameters
                .iter()
                .enumerate()
                .map(|(nth, parameter)| {
                    let argument = site.arguments.get(nth);
                    serde_json::json!({
                        "name": parameter.name,
                        "type": parameter.type_name,
                        "location": argument.and_then(|a| a.as_ref().ok()).map(|l| l.display(machine).to_string()),
                        "certain": argument.and_then(|a| a.as_ref().ok()).map(Located::is_certain),
                        "doubt": argument.and_then(|a| a.as_ref().ok()?.doubt).map(|doubt| doubt.to_string()),
                        "reason": argument.and_then(|a| a.as_ref().err()).map(ToString::to_string),
                    })
                })
                .collect();
            serde_json::json!({
                "kind": site.kind.word(),
                "module": site.module.as_deref(),
                "address": format!("{:#x}", site.link_address),
                "symbol": site.symbol,
                "offset": site.offset(),
                "file": site.source.as_ref().map(|place| &place.file),
                "line": site.source.as_ref().map(|place| place.line),
                "arguments": arguments,
                "probeable": site.obstacle.is_none(),
                "reason": site.obstacle.as_ref().map(ToString::to_string),
                "notes": notes(site),
            })
        })
        .collect();
    let mut json = serde_json::json!({ "function": function.name });
    if let Some(path) = full(&function.name) {
        json["path"] = path.into();
    }
    json["sites"] = sites.into();
    json
}
