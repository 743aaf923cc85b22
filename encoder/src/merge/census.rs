// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What was encoded, in numbers.
//!
//! Two totals anchor the census: every `DW_TAG_inlined_subroutine` with an address is a site, and every formal
//! parameter of its abstract function is an argument, also those that the copy does not mention. Each argument is
//! either located, under exactly one kind, or unavailable, under exactly one reason, and the sums add up. A located one
//! is either certain, or doubtful under exactly one reason. Some copies are counted though they are in no set, because
//! the body goes on there instead of starting (see `split`). Out-of-line sites are counted apart: most functions have
//! one, and it is an entry only if its name does not tell.

pub use crate::unit::exits::ExitCensus;
use crate::unit::rescue::Refused;
pub use crate::unit::rescue::RefusedAtEntry;
use siteseer_sites::location::{Located, Location, LocationKind, Missing};
use siteseer_sites::{Argument, Doubt, Marks, SiteKind, SiteSet, Unprobeable};
use std::collections::BTreeMap;
use std::fmt;

pub use crate::unit::entry_census::EntryCensus;

/// What was encoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Distinct functions that have sites.
    pub functions: u64,
    /// Distinct location prototypes.
    pub prototypes: u64,
    /// Inline sites.
    pub sites: SiteCensus,
    /// Arguments of inline sites.
    pub arguments: ArgumentCensus,
    /// Sites out of line.
    pub out_of_line: OutOfLineCensus,
    /// What the debug information says of where inlined copies are entered, and what was found.
    pub entries: EntryCensus,
    /// How control leaves inlined copies, if that was asked for.
    pub exits: ExitCensus,
}

/// Inline sites.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteCensus {
    /// All of them.
    pub total: u64,
    /// Those that are in no set: the body does not start there, it is the rest of a function that was split.
    pub rests: u64,
    /// Those that have all their arguments located, or none at all to locate.
    pub all_arguments: u64,
    /// Those of them with arguments that are all certain.
    pub all_certain: u64,
    /// Those that can be probed.
    pub probeable: u64,
    /// The others, by reason.
    pub unprobeable: BTreeMap<Unprobeable, u64>,
    /// Those in code that no longer runs once the kernel is up.
    pub dead: u64,
    /// Those with a probe that was moved forward.
    pub moved: u64,
    /// Those with a probe before the entry, where an instruction stands that cannot be probed.
    pub moved_back: u64,
    /// Those with an instruction at the entry, or where the arguments are, that cannot be probed; by reason. They are
    /// probed next to it, or they are among the unprobeable.
    pub refused_at_entry: BTreeMap<Unprobeable, RefusedAtEntry>,
    /// Those that may be hit more than once a call.
    pub may_repeat: u64,
    /// Those with an entry that the debug information does not tell for certain.
    pub entry_uncertain: u64,
    /// Those that may miss some calls, because control may come in past the entry.
    pub may_miss: u64,
    /// Those with an argument that is located one view after the entry.
    pub late_view: u64,
    /// Inlined copies that are not sites: their address is not in the image's text.
    pub outside_text: u64,
    /// Inlined copies that are not sites: the function that they are copies of cannot be read.
    pub without_origin: u64,
    /// Inlined copies that are not sites: nothing is left of them except a jump to where another copy of the same
    /// function begins. Their calls are seen there.
    pub merged: u64,
}

/// Arguments of inline sites.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArgumentCensus {
    /// All of them.
    pub total: u64,
    /// Those for which the debug information has any location at the entry; entry values and implicit pointers aside.
    pub usable: u64,
    /// Those of them that are located.
    pub located_of_usable: u64,
    /// All that are located.
    pub located: u64,
    /// Those of them with a location that is certain.
    pub certain: u64,
    /// The other located ones, by the reason for the doubt.
    pub doubtful: BTreeMap<Doubt, u64>,
    /// Those of them that are located because the probe was moved, or because they are located after the branch that
    /// the body begins with.
    pub gained_by_moving: u64,
    /// The located ones by kind.
    pub by_location: BTreeMap<LocationKind, u64>,
    /// The computed ones by shape, most frequent first.
    pub computed_shapes: Vec<(String, u64)>,
    /// Those without a location, by reason.
    pub unavailable: BTreeMap<Missing, u64>,
}

/// Sites out of line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutOfLineCensus {
    /// Bodies that have an entry because their name alone cannot tell.
    pub bodies: u64,
    /// Clones.
    pub clones: u64,
    /// Those of both with a signature that the compiler changed.
    pub signature_changed: u64,
    /// Those of them that are known to return what the function does.
    pub return_kept: u64,
    /// Arguments of both.
    pub arguments: u64,
    /// Those that are located.
    pub located: u64,
    /// Those of them with a location that is certain.
    pub certain: u64,
    /// The other located ones, by the reason for the doubt.
    pub doubtful: BTreeMap<Doubt, u64>,
    /// Those without a location, by reason.
    pub unavailable: BTreeMap<Missing, u64>,
}

/// What the sites themselves do not tell.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) rests: u64,
    pub(crate) outside_text: u64,
    pub(crate) without_origin: u64,
    pub(crate) merged: u64,
    pub(crate) usable: u64,
    pub(crate) located_of_usable: u64,
    pub(crate) gained_by_moving: u64,
    pub(crate) entries: EntryCensus,
    pub(crate) refused: Refused,
    pub(crate) exits: ExitCensus,
}

impl Counts {
    pub(crate) fn plus(self, other: Counts) -> Counts {
        Counts {
            rests: self.rests + other.rests,
            outside_text: self.outside_text + other.outside_text,
            without_origin: self.without_origin + other.without_origin,
            merged: self.merged + other.merged,
            usable: self.usable + other.usable,
            located_of_usable: self.located_of_usable + other.located_of_usable,
            gained_by_moving: self.gained_by_moving + other.gained_by_moving,
            entries: self.entries.plus(other.entries),
            refused: self.refused.plus(other.refused),
            exits: self.exits.plus(other.exits),
        }
    }
}

impl Census {
    /// Counts a set.
    pub(crate) fn take(set: &SiteSet, counts: Counts) -> Census {
        let mut census = Census {
            functions: set.functions.len() as u64,
            prototypes: set.prototypes.len() as u64,
            entries: counts.entries,
            exits: counts.exits,
            ..Census::default()
        };
        let uses = census.count_sites(set, counts);
        census.count_arguments(set, counts, uses);
        census
    }

    /// Counts the sites. Returns how many inline and out-of-line sites have each location prototype.
    fn count_sites(&mut self, set: &SiteSet, counts: Counts) -> Vec<(u64, u64)> {
        let mut uses = vec![(0u64, 0u64); set.prototypes.len()];
        let (sites, out_of_line) = (&mut self.sites, &mut self.out_of_line);
        sites.rests = counts.rests;
        sites.outside_text = counts.outside_text;
        sites.without_origin = counts.without_origin;
        sites.merged = counts.merged;
        sites.refused_at_entry = counts.refused.by_reason().collect();
        for site in &set.sites {
            let uses = &mut uses[site.prototype as usize];
            match site.kind {
                SiteKind::Inline => uses.0 += 1,
                SiteKind::Body => out_of_line.bodies += 1,
                SiteKind::Clone => out_of_line.clones += 1,
            }
            if site.kind != SiteKind::Inline {
                uses.1 += 1;
                out_of_line.signature_changed += u64::from(site.marks.contains(Marks::SIGNATURE_CHANGED));
                out_of_line.return_kept += u64::from(site.marks.contains(Marks::RETURN_KEPT));
                continue;
            }
            sites.total += 1;
            match site.unprobeable {
                None => sites.probeable += 1,
                Some(reason) => {
                    *sites.unprobeable.entry(reason).or_default() += 1;
                    sites.dead += u64::from(reason.is_dead());
                }
            }
            let is_back = site.marks.contains(Marks::MOVED_BACK);
            sites.moved += u64::from(site.moved > 0 && !is_back);
            sites.moved_back += u64::from(is_back);
            sites.may_repeat += u64::from(site.marks.contains(Marks::MAY_REPEAT));
            sites.entry_uncertain += u64::from(site.marks.contains(Marks::ENTRY_UNCERTAIN));
            sites.may_miss += u64::from(site.marks.contains(Marks::MAY_MISS));
            sites.late_view += u64::from(site.marks.contains(Marks::LATE_VIEW));
        }
        uses
    }

    /// Counts the arguments; `uses` is by location prototype.
    fn count_arguments(&mut self, set: &SiteSet, counts: Counts, uses: Vec<(u64, u64)>) {
        let arguments = &mut self.arguments;
        arguments.usable = counts.usable;
        arguments.located_of_usable = counts.located_of_usable;
        arguments.gained_by_moving = counts.gained_by_moving;
        let mut shapes: BTreeMap<String, u64> = BTreeMap::new();
        for (prototype, (inline, out_of_line)) in set.prototypes.iter().zip(uses) {
            if prototype.iter().all(Result::is_ok) {
                self.sites.all_arguments += inline;
            }
            if prototype.iter().all(is_certain) {
                self.sites.all_certain += inline;
            }
            for argument in prototype {
                arguments.total += inline;
                self.out_of_line.arguments += out_of_line;
                match argument {
                    Ok(located) => {
                        self.out_of_line.located += out_of_line;
                        count_doubt(
                            located,
                            out_of_line,
                            &mut self.out_of_line.certain,
                            &mut self.out_of_line.doubtful,
                        );
                        if inline > 0 {
                            arguments.located += inline;
                            count_doubt(located, inline, &mut arguments.certain, &mut arguments.doubtful);
                            *arguments.by_location.entry(located.at.kind()).or_default() += inline;
                            if let Location::Computed(computed) = &located.at {
                                *shapes.entry(computed.shape()).or_default() += inline;
                            }
                        }
                    }
                    Err(reason) => {
                        if inline > 0 {
                            *arguments.unavailable.entry(*reason).or_default() += inline;
                        }
                        if out_of_line > 0 {
                            *self.out_of_line.unavailable.entry(*reason).or_default() += out_of_line;
                        }
                    }
                }
            }
        }
        arguments.computed_shapes = shapes.into_iter().collect();
        arguments.computed_shapes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
}

fn is_certain(argument: &Argument) -> bool {
    argument.as_ref().is_ok_and(Located::is_certain)
}

/// Counts a located argument as certain, or under the reason for its doubt.
fn count_doubt(located: &Located, uses: u64, certain: &mut u64, doubtful: &mut BTreeMap<Doubt, u64>) {
    match located.doubt {
        None => *certain += uses,
        Some(_) if uses == 0 => {}
        Some(doubt) => *doubtful.entry(doubt).or_default() += uses,
    }
}

/// Shapes of computed locations that the table shows; the rest is one line.
const SHAPES_SHOWN: usize = 20;

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Census { sites, arguments, out_of_line, exits, .. } = self;
        let mut table = Table { f, whole: sites.total };
        table.head("inline sites", sites.total)?;
        table.line("all arguments located", sites.all_arguments)?;
        table.line("all arguments certain", sites.all_certain)?;
        table.line("can be probed", sites.probeable)?;
        for (reason, count) in &sites.unprobeable {
            table.line(reason, *count)?;
        }
        table.line("no call: the rest of a split function", sites.rests)?;
        table.line("dead once the kernel is up", sites.dead)?;
        table.line("probe moved forward", sites.moved)?;
        table.line("probe moved back, before the entry", sites.moved_back)?;
        table.line("may be hit more than once a call", sites.may_repeat)?;
        table.line("entry uncertain", sites.entry_uncertain)?;
        table.line("may be passed by without a hit", sites.may_miss)?;
        table.line("an argument bound one view after the entry", sites.late_view)?;
        table.line("(left out: outside the image's text)", sites.outside_text)?;
        table.line("(left out: abstract function unreadable)", sites.without_origin)?;
        table.line("(left out: goes on in another copy at once)", sites.merged)?;
        for (reason, refused) in &sites.refused_at_entry {
            table.whole = refused.total;
            table.head(&format!("inline sites with an entry {reason}"), refused.total)?;
            table.line("probed after the instruction", refused.forward)?;
            table.line("probed before the instruction", refused.back)?;
            writeln!(table.f, "{:>10}          arguments lost by that", refused.arguments_lost)?;
        }
        table.whole = arguments.total;
        table.head("arguments of inline sites", arguments.total)?;
        table.line("usable: any location at the entry", arguments.usable)?;
        table.line("located, of the usable", arguments.located_of_usable)?;
        table.line("located", arguments.located)?;
        table.line("certain", arguments.certain)?;
        table.line("located by moving the probe, or past a first branch", arguments.gained_by_moving)?;
        table.head("located, by kind", arguments.located)?;
        for (kind, count) in &arguments.by_location {
            table.line(kind.key(), *count)?;
        }
        table.head("doubtful, by reason", arguments.located - arguments.certain)?;
        for (doubt, count) in &arguments.doubtful {
            table.line(doubt, *count)?;
        }
        table.head("unavailable, by reason", arguments.total - arguments.located)?;
        for (reason, count) in &arguments.unavailable {
            table.line(reason, *count)?;
        }
        let computed = arguments.by_location.get(&LocationKind::Computed).copied().unwrap_or(0);
        table.head("computed, by shape", computed)?;
        for (shape, count) in arguments.computed_shapes.iter().take(SHAPES_SHOWN) {
            table.line(shape, *count)?;
        }
        let rest: u64 = arguments.computed_shapes.iter().skip(SHAPES_SHOWN).map(|(_, count)| count).sum();
        if rest > 0 {
            table.line(&format_args!("{} other shapes", arguments.computed_shapes.len() - SHAPES_SHOWN), rest)?;
        }
        table.whole = out_of_line.bodies + out_of_line.clones;
        table.head("out-of-line sites that a name cannot tell", out_of_line.bodies + out_of_line.clones)?;
        table.line("bodies", out_of_line.bodies)?;
        table.line("clones", out_of_line.clones)?;
        table.line("signature changed", out_of_line.signature_changed)?;
        table.line("signature changed, return value kept", out_of_line.return_kept)?;
        table.whole = out_of_line.arguments;
        table.head("their arguments", out_of_line.arguments)?;
        table.line("located", out_of_line.located)?;
        table.line("certain", out_of_line.certain)?;
        for (doubt, count) in &out_of_line.doubtful {
            table.line(&format_args!("doubtful: {doubt}"), *count)?;
        }
        for (reason, count) in &out_of_line.unavailable {
            table.line(reason, *count)?;
        }
        if exits.copies > 0 {
            table.whole = exits.copies;
            table.head("inlined copies, by their returns", exits.copies)?;
            table.line("of functions that return a value", exits.with_value)?;
            table.line("all ways out known", exits.known)?;
            table.line("a probe on each way out", exits.probeable)?;
            table.line("and nothing to return: certain", exits.certain)?;
        }
        writeln!(f, "{:>10}  functions\n{:>10}  location prototypes", self.functions, self.prototypes)
    }
}

/// Lines of a count, a share of the whole and a label.
struct Table<'f, 'b> {
    f: &'f mut fmt::Formatter<'b>,
    whole: u64,
}

impl Table<'_, '_> {
    fn head(&mut self, label: &str, count: u64) -> fmt::Result {
        writeln!(self.f, "{count:>10}          {label}")
    }

    fn line(&mut self, label: &(impl fmt::Display + ?Sized), count: u64) -> fmt::Result {
        let share = if self.whole == 0 { 0.0 } else { count as f64 * 100.0 / self.whole as f64 };
        writeln!(self.f, "{count:>10}  {share:>5.1}%    {label}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::btf::SplitBtf;
    use siteseer_sites::site::SourceLine;
    use siteseer_sites::{Machine, Site};

    fn site(kind: SiteKind, prototype: u32) -> Site {
        Site {
            function: 0,
            kind,
            address: 0,
            moved: 0,
            section: 0,
            prototype,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::default(),
            unprobeable: None,
        }
    }

    #[test]
    fn what_is_located_is_certain_or_doubtful() {
        let certain = || Located::certain(8, false, Location::Register(5));
        let prototypes: Vec<Box<[Argument]>> = vec![
            Box::new([Ok(certain()), Ok(certain())]),
            Box::new([Ok(certain()), Ok(certain().doubtful(Doubt::Constant))]),
            Box::new([Ok(certain().doubtful(Doubt::Stale)), Err(Missing::Empty)]),
        ];
        let kinds = [(SiteKind::Inline, 0), (SiteKind::Inline, 1), (SiteKind::Inline, 2), (SiteKind::Clone, 2)];
        let set = SiteSet {
            machine: Machine::X86_64,
            build_id: Vec::new(),
            base: 0,
            base_btf: Vec::new(),
            types: SplitBtf::standalone(),
            sections: Vec::new(),
            functions: Vec::new(),
            prototypes,
            containers: Vec::new(),
            files: Vec::new(),
            sites: kinds.into_iter().map(|(kind, prototype)| site(kind, prototype)).collect(),
            module: None,
        };
        let Census { sites, arguments, out_of_line, .. } = Census::take(&set, Counts::default());
        assert_eq!((sites.all_arguments, sites.all_certain), (2, 1));
        assert_eq!((arguments.total, arguments.located, arguments.certain), (6, 5, 3));
        assert_eq!(arguments.doubtful, BTreeMap::from([(Doubt::Constant, 1), (Doubt::Stale, 1)]));
        assert_eq!((out_of_line.located, out_of_line.certain), (1, 0));
        assert_eq!(out_of_line.doubtful, BTreeMap::from([(Doubt::Stale, 1)]));
    }
}
