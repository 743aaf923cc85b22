// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The outcome of every site: for people, and as data.
//!
//! The short form (`{}`) counts: one line for what is attached, one per reason for what is not. The long form
//! ([`Report::long`]) lists every site.

use crate::plan::mechanism::Mechanism;
use crate::plan::{Decision, Plan, Policy};
use crate::site::bpf::BpfSite;
use crate::site::candidate::Place;
use crate::site::live_patch::Concern;
use crate::site::reason::Reason;
use crate::site::shown::{InModule, Slots};
use crate::site::unavailable::DoubtfulArgument;
use siteseer_sites::location::Argument;
use siteseer_sites::site::{Marks, SiteKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The outcome of a site: exactly one of two. No third one will be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The program runs there.
    Attached {
        /// By this mechanism.
        mechanism: Mechanism,
        /// Number of the trampoline.
        trampoline: usize,
    },
    /// It does not.
    Skipped(Reason),
}

/// One site of a report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SiteReport {
    /// The site's number in this report: what `siteseer_site()` tells the program.
    pub id: u32,
    /// The site's number in the site data, if it is from there.
    pub index: Option<u32>,
    /// The module that it is in; `None` for the kernel's image.
    pub module: Option<Arc<str>>,
    /// What it is.
    pub kind: SiteKind,
    /// Run-time address of the probe.
    pub address: u64,
    /// Link-time address of the probe.
    pub link_address: u64,
    /// The symbol that holds it.
    pub symbol: String,
    /// Bytes from the symbol to the probe.
    pub offset: u64,
    /// Where it was called (inline site) or declared.
    pub source: Option<Place>,
    /// The function's prototype here: an index into [`FunctionReport::prototypes`].
    pub prototype: usize,
    /// One per parameter of that prototype.
    pub arguments: Vec<Argument>,
    /// Whether hits may outnumber calls there.
    pub may_repeat: bool,
    /// Whether some calls may not be seen there.
    pub may_miss: bool,
    /// What the program reads there from doubtful locations; empty unless doubt was accepted.
    #[doc(hidden)]
    pub doubtful: Vec<DoubtfulArgument>,
    /// What it is in a BPF program, if it is in one.
    #[doc(hidden)]
    pub bpf: Option<BpfSite>,
    /// How a live patch concerns it.
    #[doc(hidden)]
    pub live_patch: Option<Concern>,
    /// The outcome of it.
    pub outcome: Outcome,
}

/// One function of a report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FunctionReport {
    /// Its name.
    pub name: String,
    /// The prototypes that functions of the name have.
    #[doc(hidden)]
    pub prototypes: Vec<crate::target::function::Prototype>,
    /// Functions of the name that are not meant, by the program's statement or the file.
    #[doc(hidden)]
    pub left_out: Vec<crate::target::function::LeftOut>,
    /// Its sites.
    pub sites: Vec<SiteReport>,
}

/// The outcome of every site of every function.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The policy.
    pub policy: Policy,
    /// The functions.
    pub functions: Vec<FunctionReport>,
    /// How many ways there are in which arguments are gathered.
    pub trampolines: usize,
    /// How many programs were generated for them.
    pub programs: usize,
    /// What else is to be known: sentences for people.
    pub notes: Vec<String>,
}

impl Report {
    /// The plan's decisions as outcomes.
    pub(crate) fn of(plan: &Plan) -> Report {
        let mut functions: Vec<FunctionReport> = plan
            .functions
            .iter()
            .map(|function| FunctionReport {
                name: function.name.clone(),
                prototypes: function.prototypes.clone(),
                left_out: function.left_out.clone(),
                sites: Vec::new(),
            })
            .collect();
        for (id, planned) in (plan.first_id..).zip(&plan.sites) {
            let site = &planned.site;
            let report = SiteReport {
                id,
                index: site.index,
                module: site.module.clone(),
                kind: site.kind,
                address: site.address,
                link_address: site.link_address,
                symbol: site.symbol.clone(),
                offset: site.offset(),
                source: site.source.clone(),
                prototype: site.prototype,
                arguments: site.arguments.clone(),
                may_repeat: site.marks.contains(Marks::MAY_REPEAT),
                may_miss: site.marks.contains(Marks::MAY_MISS),
                doubtful: planned.doubtful.clone(),
                bpf: site.bpf.clone(),
                live_patch: site.live_patch.clone(),
                outcome: match &planned.decision {
                    &Decision::Attach { mechanism, trampoline } => Outcome::Attached { mechanism, trampoline },
                    Decision::Skip(reason) => Outcome::Skipped(reason.clone()),
                },
            };
            if let Some(function) = functions.get_mut(planned.function) {
                function.sites.push(report);
            }
        }
        Report {
            policy: plan.policy,
            functions,
            trampolines: plan.trampolines.len(),
            programs: plan.programs.len(),
            notes: Vec::new(),
        }
    }

    /// Adds what was attached later.
    pub(crate) fn add(&mut self, added: &Report) {
        for function in &added.functions {
            let Some(known) = self.functions.iter_mut().find(|known| known.name == function.name) else { continue };
            let first = known.prototypes.len();
            known.prototypes.extend(function.prototypes.iter().cloned());
            for site in &function.sites {
                let mut site = site.clone();
                site.prototype += first;
                site.count_trampolines_from(self.trampolines);
                known.sites.push(site);
            }
        }
        self.trampolines += added.trampolines;
        self.programs += added.programs;
    }

    /// All sites.
    pub fn sites(&self) -> impl Iterator<Item = &SiteReport> {
        self.functions.iter().flat_map(|function| &function.sites)
    }

    /// The site of a number.
    pub fn site(&self, id: u32) -> Option<&SiteReport> {
        self.sites().find(|site| site.id == id)
    }

    /// The sites that the program runs at.
    pub fn attached(&self) -> impl Iterator<Item = &SiteReport> {
        self.sites().filter(|site| site.is_attached())
    }

    /// The sites that it does not run at, with the reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (&SiteReport, &Reason)> {
        self.sites().filter_map(|site| match &site.outcome {
            Outcome::Skipped(reason) => Some((site, reason)),
            Outcome::Attached { .. } => None,
        })
    }

    /// The report with every site on a line of its own.
    pub fn long(&self) -> impl fmt::Display + '_ {
        Long(self)
    }
}

impl SiteReport {
    /// Shifts the number of its trampoline.
    fn count_trampolines_from(&mut self, first: usize) {
        if let Outcome::Attached { trampoline, .. } = &mut self.outcome {
            *trampoline += first;
        }
    }

    /// Whether the program runs there.
    pub fn is_attached(&self) -> bool {
        matches!(self.outcome, Outcome::Attached { .. })
    }
}

impl fmt::Display for SiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:6} {}+{:#x}{}", self.kind.word(), self.symbol, self.offset, InModule(self.module.as_deref()))?;
        if let Some(place) = &self.source {
            write!(f, " ({}:{})", place.file, place.line)?;
        }
        match &self.outcome {
            Outcome::Attached { mechanism, .. } => {
                write!(f, ": {mechanism}")?;
                self.doubtful.iter().try_for_each(|argument| write!(f, "; {argument}"))
            }
            Outcome::Skipped(reason) => write!(f, ": not attached: {reason}"),
        }
    }
}

/// `2 body, 1 clone, 11 inline`.
fn by_kind<'a>(sites: impl Iterator<Item = &'a SiteReport>) -> String {
    let mut counts: BTreeMap<SiteKind, usize> = BTreeMap::new();
    sites.for_each(|site| *counts.entry(site.kind).or_default() += 1);
    counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

impl FunctionReport {
    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attached: Vec<&SiteReport> = self.sites.iter().filter(|site| site.is_attached()).collect();
        write!(f, "{}: attached at {} of {} sites", self.name, attached.len(), self.sites.len())?;
        if !attached.is_empty() {
            let mechanisms: BTreeSet<&str> = attached
                .iter()
                .filter_map(|site| match site.outcome {
                    Outcome::Attached { mechanism, .. } => Some(mechanism.word()),
                    Outcome::Skipped(_) => None,
                })
                .collect();
            let mechanisms = mechanisms.into_iter().collect::<Vec<_>>().join(", ");
            write!(f, " ({}) by {mechanisms}", by_kind(attached.iter().copied()))?;
        }
        writeln!(f)
    }

    /// What is to be known about sites that are attached, besides their number: sentences for people.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = BTreeSet::new();
        let mut old: BTreeMap<(&str, bool), usize> = BTreeMap::new();
        for site in self.sites.iter().filter(|site| site.is_attached()) {
            if let Some(bpf) = &site.bpf {
                if !bpf.tail_slots.is_empty() {
                    let from = Slots(&bpf.tail_slots);
                    remarks.insert(format!("it is also entered by tail call, which is not seen: from {from}"));
                }
                if bpf.subprogram {
                    remarks.insert(
                        "a subprogram: copies that the compiler inlined in its BPF program are not known".to_owned(),
                    );
                }
            }
            match &site.live_patch {
                Some(Concern::Entry { patch }) => {
                    remarks.insert(format!(
                        "the live patch {patch} has replaced {}: calls are seen as they come in; what the compiler \
                         inlined into the new code is not covered",
                        site.symbol
                    ));
                }
                Some(Concern::OldBody { patch, dead }) => *old.entry((patch, *dead)).or_default() += 1,
                None => {}
            }
        }
        for ((patch, dead), count) in old {
            let runs = if dead { "does not run while it is enabled" } else { "may still run in some tasks" };
            remarks.insert(format!("{count} of them in code that the live patch {patch} has replaced, which {runs}"));
        }
        remarks.into_iter().collect()
    }

    /// What the program's statement, or the file, left out.
    fn others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.left_out.iter().try_for_each(|other| writeln!(f, "  another function of this name is not meant: {other}"))
    }

    fn reasons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: BTreeMap<String, Vec<&SiteReport>> = BTreeMap::new();
        for site in &self.sites {
            if let Outcome::Skipped(reason) = &site.outcome {
                groups.entry(reason.to_string()).or_default().push(site);
            }
        }
        let mut groups: Vec<(String, Vec<&SiteReport>)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, sites)| std::cmp::Reverse(sites.len()));
        for (reason, sites) in groups {
            writeln!(f, "  not at {}: {reason}", by_kind(sites.into_iter()))?;
        }
        let repeating = self.sites.iter().filter(|site| site.is_attached() && site.may_repeat).count();
        if repeating > 0 {
            writeln!(
                f,
                "  at {repeating} of them the entry is also reached by a loop inside: hits may outnumber calls"
            )?;
        }
        let passed_by = self.sites.iter().filter(|site| site.is_attached() && site.may_miss).count();
        if passed_by > 0 {
            writeln!(f, "  at {passed_by} of them control may come in past the entry: some calls may not be seen")?;
        }
        self.doubts(f)?;
        self.remarks().iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }

    /// What the program reads from doubtful locations, where it is attached.
    fn doubts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&DoubtfulArgument, usize> = BTreeMap::new();
        for argument in self.sites.iter().filter(|site| site.is_attached()).flat_map(|site| &site.doubtful) {
            *counts.entry(argument).or_default() += 1;
        }
        counts.iter().try_for_each(|(argument, count)| writeln!(f, "  at {count} of them {argument}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for function in &self.functions {
            function.summary(f)?;
            function.reasons(f)?;
            function.others(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

struct Long<'a>(&'a Report);

impl fmt::Display for Long<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for function in &self.0.functions {
            function.summary(f)?;
            function.sites.iter().try_for_each(|site| writeln!(f, "  {site}"))?;
            function.remarks().iter().try_for_each(|remark| writeln!(f, "  {remark}"))?;
            function.others(f)?;
        }
        self.0.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
