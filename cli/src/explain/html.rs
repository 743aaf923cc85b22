// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer explain --html`: the same explanation as a page: a graph of the sites in their callers, a table of the
//! arguments' places, the machine code around each site, what can be attached and why not.

use super::code::{is_register, registers};
use super::listing::{Listed, MOST, Row};
use crate::page::{page, plural};
use crate::sites::{location, notes};
use maud::{Markup, html};
use siteseer::internals::explain::{Explanation, Verdict};
use siteseer::internals::function::{Candidate, Parameter};
use siteseer::internals::plan::{Decision, PlannedSite};
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;
use siteseer_sites::site::SiteKind;

/// A page of explanations. `listed` is the machine code of each one's sites, if it is at hand.
pub(super) fn text(explanations: &[Explanation], listed: Option<&[Vec<Listed>]>, machine: Machine) -> String {
    let name = explanations.first().map_or("", |one| one.function.name.as_str());
    let content = html! {
        @for (nth, one) in explanations.iter().enumerate() {
            (explained(one, listed.and_then(|listed| listed.get(nth)).map(Vec::as_slice), machine))
        }
        p.quiet { "Made by siteseer explain. Addresses are those of the image." }
    };
    page(&format!("{name}: where its body starts"), &content)
}

fn explained(explanation: &Explanation, listed: Option<&[Listed]>, machine: Machine) -> Markup {
    let function = &explanation.function;
    let prototype = function.prototypes.first();
    let declared = prototype.map_or(&[][..], |prototype| &prototype.declared);
    let of = |kind| function.candidates.iter().filter(|site| site.kind == kind).count();
    html! {
        h1 { code { (function.name) } }
        @if let Some(prototype) = prototype { p.code { (prototype.text) } }
        @if !declared.is_empty() {
            p { "Declared in " @for (nth, place) in declared.iter().enumerate() {
                @if nth > 0 { ", " }
                code { (place.file) ":" (place.line) }
            } }
        }
        p { "In " (explanation.kernel) "." }
        h2 { "Where its body starts" }
        p {
            (plural(function.candidates.len(), "place", "places")) ": "
            (plural(of(SiteKind::Body), "body", "bodies")) ", "
            (plural(of(SiteKind::Clone), "clone", "clones")) ", "
            (plural(of(SiteKind::Inline), "inlined copy", "inlined copies")) "."
        }
        (graph(explanation))
        h2 { "Where its arguments are" }
        (arguments(explanation, machine))
        h2 { "Machine code" }
        (machine_code(explanation, listed, machine))
        h2 { "What can be attached" }
        @for verdict in &explanation.verdicts { (attachable(explanation, verdict)) }
        @if !explanation.notes.is_empty() {
            h2 { "Notes" }
            ul { @for note in &explanation.notes { li { (note) } } }
        }
    }
}

/// Height of a row of the graph, and where its columns are.
const ROW: usize = 30;
const LEFT: usize = 300;
const WIDTH: usize = 900;

/// How many sites the graph shows; the table has all.
const SHOWN: usize = 60;

/// What stands at a site, and whether a program runs there.
fn decided(explanation: &Explanation) -> Vec<(&Candidate, Option<&PlannedSite>)> {
    let plan = explanation.verdicts.first().and_then(|verdict| verdict.plan.as_ref().ok());
    let planned = |site: &Candidate| {
        let mut sites = plan.iter().flat_map(|plan| &plan.sites);
        let same = |planned: &&PlannedSite| {
            planned.site.link_address == site.link_address && planned.site.module == site.module
        };
        sites.find(same)
    };
    explanation.function.candidates.iter().map(|site| (site, planned(site))).collect()
}

fn is_attached(planned: Option<&PlannedSite>) -> bool {
    planned.is_some_and(|planned| matches!(planned.decision, Decision::Attach { .. }))
}

/// The function on the left, each symbol that holds a site on the right.
fn graph(explanation: &Explanation) -> Markup {
    let sites = decided(explanation);
    let shown = sites.get(..SHOWN).unwrap_or(&sites);
    let height = shown.len().max(1) * ROW + 20;
    let middle = height / 2;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height) role="img"
            aria-label=(format!("{} and the functions that hold its sites", explanation.function.name)) {
            @for (nth, (site, planned)) in shown.iter().enumerate() {
                @let y = 10 + nth * ROW + ROW / 2;
                @let skipped = if is_attached(*planned) { "" } else { " skipped" };
                path class=(format!("edge{skipped}"))
                    d=(format!("M {LEFT} {middle} C {} {middle}, {} {y}, {} {y}", LEFT + 60, LEFT + 40, LEFT + 100)) {}
                rect class=(format!("{}{skipped}", kind_class(site.kind))) x=(LEFT + 100) y=(y - 11) rx="4"
                    width=(WIDTH - LEFT - 110) height="22" { title { (title(site, *planned)) } }
                text x=(LEFT + 108) y=(y + 4) { (holder(site)) }
            }
            rect.center x="10" y=(middle - 14) rx="4" width=(LEFT - 10) height="28" {}
            text.center-text x="20" y=(middle + 4) { (short(&explanation.function.name, 36)) }
        }
        @if sites.len() > shown.len() {
            p { (sites.len() - shown.len()) " more places are in the table below." }
        }
        p.quiet { "Green: bodies. Blue: clones. Orange: inlined copies in their callers. A dashed frame: no program that reads all \
                   arguments can run there." }
    }
}

/// A name, cut if it is too long for its box.
fn short(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

fn kind_class(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::Body => "body",
        SiteKind::Clone => "clone",
        SiteKind::Inline => "inline",
    }
}

/// `capable+0x9  kernel/capability.c:415`
fn holder(site: &Candidate) -> String {
    let source = site.source.as_ref().map(|place| format!("  {}:{}", place.file, place.line));
    short(&format!("{}+{:#x}{}", site.symbol, site.offset(), source.unwrap_or_default()), 66)
}

fn title(site: &Candidate, planned: Option<&PlannedSite>) -> String {
    let outcome = match planned.map(|planned| &planned.decision) {
        Some(Decision::Attach { mechanism, .. }) => format!("a program can run here, by {}", mechanism.word()),
        Some(Decision::Skip(reason)) => reason.to_string(),
        None => "not decided".to_owned(),
    };
    format!("{} at {:#x}: {outcome}", site.kind, site.link_address)
}

/// Each argument at each site, with everything else that the reader should know about the site.
fn arguments(explanation: &Explanation, machine: Machine) -> Markup {
    let Some(prototype) = explanation.function.prototypes.first() else { return html! {} };
    html! {
        table {
            thead { tr {
                th { "Site" } th { "Source" }
                @for (nth, parameter) in prototype.parameters.iter().enumerate() {
                    th { code { @if parameter.name.is_empty() { "argument " (nth) } @else { (parameter.name) } }
                         " " span.quiet { (parameter.type_name) } }
                }
                th { "Marks" } th { "Program" }
            } }
            tbody {
                @for (site, planned) in decided(explanation) {
                    tr {
                        td { code { (site.symbol) "+" (format!("{:#x}", site.offset())) } " "
                             span.quiet { (site.kind.to_string()) " " (format!("{:#x}", site.link_address)) } }
                        td { @if let Some(place) = &site.source { code { (place.file) ":" (place.line) } } }
                        @for nth in 0..prototype.parameters.len() {
                            @let argument = site.arguments.get(nth);
                            @let class = if argument.is_some_and(Result::is_ok) { "code" } else { "code no" };
                            td class=(class) { (location(argument, machine)) }
                        }
                        td { (notes(site).join("; ")) }
                        (outcome(planned))
                    }
                }
            }
        }
    }
}

fn outcome(planned: Option<&PlannedSite>) -> Markup {
    match planned.map(|planned| &planned.decision) {
        Some(Decision::Attach { mechanism, .. }) => html! { td.yes { "runs, by " (mechanism.word()) } },
        Some(Decision::Skip(reason)) => html! { td.no { (reason.to_string()) } },
        None => html! { td.no { "cannot be attached" } },
    }
}

/// An argument's name, its place, whether it has one, and the registers that its value is computed from.
struct Badge {
    name: String,
    place: String,
    is_there: bool,
    registers: Vec<Register>,
}

fn badges(explanation: &Explanation, site: &Candidate, machine: Machine) -> Vec<Badge> {
    let prototype = explanation.function.prototypes.get(site.prototype);
    let parameters = prototype.map_or(&[][..], |prototype| &prototype.parameters);
    let badge = |(nth, parameter): (usize, &Parameter)| {
        let argument = site.arguments.get(nth);
        let name = if parameter.name.is_empty() { format!("argument {nth}") } else { parameter.name.clone() };
        let located = argument.and_then(|argument| argument.as_ref().ok());
        Badge {
            name,
            place: location(argument, machine),
            is_there: located.is_some(),
            registers: located.map(|located| registers(&located.at)).unwrap_or_default(),
        }
    };
    parameters.iter().enumerate().map(badge).collect()
}

/// The instructions around each site, with what holds the arguments, beside the source lines.
fn machine_code(explanation: &Explanation, listed: Option<&[Listed]>, machine: Machine) -> Markup {
    let Some(listed) = listed else {
        return html! { p.quiet {
            "No machine code was at hand: add " code { "--image VMLINUX" } ", the image with the same build id, or use "
            code { "--vmlinux" } "."
        } };
    };
    let sites = &explanation.function.candidates;
    let has_lines = listed.iter().flatten().flatten().any(|row| row.line.is_some());
    let syntax = match machine {
        Machine::X86_64 => "in Intel syntax, ",
        Machine::Aarch64 => "",
    };
    html! {
        p.quiet { "The instructions are " (syntax) "as they are in the image: the kernel patches some of them at run time. \
                   The marked instruction of each table is the one at the site's address. The labels say where each \
                   argument is before this instruction runs. The registers of the labels are highlighted in all \
                   instructions; after an instruction that writes one, it holds something else."
            @if !has_lines { " The image has no debug information, so source lines are not known." }
        }
        @for (site, rows) in sites.iter().zip(listed) {
            h3 { code { (site.symbol) "+" (format!("{:#x}", site.offset())) } " " span.quiet { (site.kind.to_string()) } }
            @match rows {
                Err(why) => p.quiet { (why) },
                Ok(rows) => (listing(site, rows, &badges(explanation, site, machine), machine)),
            }
        }
        @if sites.len() > MOST {
            p { (plural(sites.len() - MOST, "more place is", "more places are")) " left out here." }
        }
    }
}

fn listing(site: &Candidate, rows: &[Row], badges: &[Badge], machine: Machine) -> Markup {
    let mut last = None;
    html! {
        table.listing { tbody {
            @for row in rows {
                tr class=[row.is_site.then_some("here")] {
                    td.code { span.quiet { (format!("{:x}", row.address)) } }
                    td.code { (site.symbol) "+" (format!("{:#x}", row.offset)) }
                    td.code {
                        (emphasised(&row.text, badges, machine))
                        @if let Some(target) = &row.target { " " span.quiet { "<" (target) ">" } }
                        @if row.is_site { @for badge in badges {
                            " " span class=(if badge.is_there { "badge" } else { "badge no" }) {
                                (badge.name) @if badge.is_there { " = " } @else { ": " } (badge.place)
                            }
                        } }
                    }
                    td {
                        @if let Some(line) = &row.line {
                            code { (line.file) ":" (line.line) }
                            @let is_new = last.replace(line) != Some(line);
                            @if (is_new || row.is_site) && let Some(source) = &row.source {
                                div.code.quiet { (source) }
                            }
                        }
                    }
                }
            }
        } }
    }
}

/// An instruction with the registers that arguments are in.
fn emphasised(text: &str, badges: &[Badge], machine: Machine) -> Markup {
    let mut words: Vec<&str> = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    let holds = |word: &str| -> Vec<&str> {
        let of = |badge: &&Badge| badge.registers.iter().any(|register| is_register(machine, word, *register));
        badges.iter().filter(of).map(|badge| badge.name.as_str()).collect()
    };
    html! {
        @for word in words {
            @let names = holds(word);
            @if names.is_empty() { (word) } @else { mark title=(names.join(", ")) { (word) } }
        }
    }
}

/// The outcome for one kind of program under its section's own policy.
fn attachable(explanation: &Explanation, verdict: &Verdict) -> Markup {
    let section = format!("SEC(\"{}/{}\")", verdict.form.kind, explanation.function.name);
    let class = if verdict.is_attached() { "yes" } else { "no" };
    let attached = |sites: &[PlannedSite]| sites.iter().filter(|site| is_attached(Some(site))).count();
    html! {
        p { code { (section) } " with the policy " code { (verdict.policy.to_string()) } ": "
            span class=(class) {
                @match &verdict.plan {
                    Err(why) => { "refused: " (why) }
                    Ok(plan) if verdict.is_attached() => {
                        "attached at " (attached(&plan.sites)) " of " (plural(plan.sites.len(), "place", "places"))
                    }
                    Ok(plan) => {
                        "refused: it can run at " (attached(&plan.sites)) " of " (plural(plan.sites.len(), "place", "places"))
                    }
                }
            }
        }
        @if let Ok(plan) = &verdict.plan {
            @let skipped: Vec<(&PlannedSite, String)> = plan.sites.iter().filter_map(|site| match &site.decision {
                Decision::Skip(reason) => Some((site, reason.to_string())),
                Decision::Attach { .. } => None,
            }).collect();
            @if !skipped.is_empty() {
                ul { @for (site, reason) in skipped {
                    li { code { (holder(&site.site)) } ": " (reason) }
                } }
            }
        }
    }
}
