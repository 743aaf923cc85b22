// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sentences. Lines are wrapped at 100 columns; what belongs together is indented alike.

use super::{Explanation, Verdict, attached};
use crate::plan::{Decision, PlannedSite, Policy};
use crate::program::path::shown;
use crate::site::reason::{MissingArgument, Reason};
use crate::site::shown::InModule;
use crate::site::unavailable::Unavailable;
use crate::target::function::Candidate;
use siteseer_sites::site::SiteKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const WIDTH: usize = 100;
/// How many places of one kind are named.
const SHOWN: usize = 6;

/// Writes words, wrapped, after an indentation; `hang` is that of further lines.
fn wrap(f: &mut fmt::Formatter<'_>, indent: usize, hang: usize, text: &str) -> fmt::Result {
    let mut column = indent;
    write!(f, "{:indent$}", "")?;
    for (nth, word) in text.split(' ').enumerate() {
        let width = word.chars().count();
        if nth > 0 && column + 1 + width > WIDTH {
            write!(f, "\n{:hang$}", "")?;
            column = hang;
        } else if nth > 0 {
            f.write_str(" ")?;
            column += 1;
        }
        f.write_str(word)?;
        column += width;
    }
    writeln!(f)
}

/// `1 inlined copy`, `3 inlined copies`.
fn count(kind: SiteKind, count: usize) -> String {
    let word = match (kind, count) {
        (SiteKind::Body, 1) => "body",
        (SiteKind::Body, _) => "bodies",
        (SiteKind::Clone, 1) => "clone",
        (SiteKind::Clone, _) => "clones",
        (SiteKind::Inline, 1) => "inlined copy",
        (SiteKind::Inline, _) => "inlined copies",
    };
    format!("{count} {word}")
}

/// `1 body and 3 inlined copies`.
fn kinds<'a>(sites: impl Iterator<Item = &'a Candidate>) -> String {
    let mut counts: BTreeMap<SiteKind, usize> = BTreeMap::new();
    sites.for_each(|site| *counts.entry(site.kind).or_default() += 1);
    list(counts.into_iter().map(|(kind, number)| count(kind, number)).collect())
}

/// `a`, `a and b`, `a, b and c`.
fn list(mut words: Vec<String>) -> String {
    match words.pop() {
        None => "nothing".to_owned(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
    }
}

/// The first of many names, and how many more there are.
fn names(all: &[String]) -> String {
    let mut shown: Vec<String> = all.iter().take(SHOWN).cloned().collect();
    if all.len() > SHOWN {
        shown.push(format!("{} more", all.len() - SHOWN));
    }
    list(shown)
}

/// A sentence that stands by itself.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

impl Explanation {
    /// The function's declaration, and where it is from.
    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(prototype) = self.function.prototypes.first() else { return Ok(()) };
        let mut parameters: Vec<String> =
            prototype.parameters.iter().map(|parameter| declared(&parameter.type_name, &parameter.name)).collect();
        if prototype.variadic {
            parameters.push("...".to_owned());
        }
        let text = if prototype.func.is_some() {
            declared(&self.result, &format!("{}({})", shown(&self.function.name), parameters.join(", ")))
        } else {
            format!("{} (its prototype is not known)", shown(&self.function.name))
        };
        wrap(f, 0, 8, &text)?;
        let declared: Vec<String> =
            prototype.declared.iter().map(|place| format!("{}:{}", place.file, place.line)).collect();
        if !declared.is_empty() {
            wrap(f, 4, 4, &format!("declared in {}", names(&declared)))?;
        }
        wrap(f, 4, 4, &format!("in {}", self.kernel))
    }

    fn places(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sites = &self.function.candidates;
        let plural = if sites.len() == 1 { "place" } else { "places" };
        wrap(f, 0, 0, &format!("\nIts body starts at {} {plural}:", sites.len()))?;
        for kind in [SiteKind::Body, SiteKind::Clone, SiteKind::Inline] {
            let of: Vec<&Candidate> = sites.iter().filter(|site| site.kind == kind).collect();
            if of.is_empty() {
                continue;
            }
            let holders: BTreeSet<&str> = of.iter().map(|site| site.symbol.as_str()).collect();
            let holders: Vec<String> = holders.into_iter().map(str::to_owned).collect();
            let place = if kind == SiteKind::Inline { ", in " } else { ": " };
            wrap(f, 2, 4, &format!("{}{place}{}", count(kind, of.len()), names(&holders)))?;
        }
        if !sites.iter().any(|site| site.kind == SiteKind::Body) {
            wrap(
                f,
                2,
                4,
                "There is no symbol of this name: a kprobe or fentry program by the name alone finds nothing.",
            )?;
        } else if sites.iter().any(|site| site.kind != SiteKind::Body) {
            wrap(f, 2, 4, "A kprobe or fentry program on the symbol alone misses the calls of all others.")?;
        }
        Ok(())
    }

    /// Which argument is missing or doubtful where.
    fn arguments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(prototype) = self.function.prototypes.first().filter(|prototype| prototype.func.is_some()) else {
            return Ok(());
        };
        let sites: Vec<&Candidate> = self.function.candidates.iter().filter(|site| !is_dead(site)).collect();
        if prototype.parameters.is_empty() || sites.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nIts arguments there:")?;
        for (nth, parameter) in prototype.parameters.iter().enumerate() {
            let mut missing: BTreeMap<Unavailable, usize> = BTreeMap::new();
            for site in &sites {
                if let Err(why) = site.available(nth, false) {
                    *missing.entry(why).or_default() += 1;
                }
            }
            let lacking: usize = missing.values().sum();
            let text = if lacking == 0 {
                "everywhere".to_owned()
            } else {
                let why = missing.iter().map(|(why, count)| format!("{why} ({count})")).collect();
                let have = sites.len() - lacking;
                format!("at {have} of {} places; elsewhere: {}", sites.len(), list(why))
            };
            let name = if parameter.name.is_empty() { format!("argument {nth}") } else { parameter.name.clone() };
            wrap(f, 2, 6, &format!("{name}: {text}"))?;
        }
        Ok(())
    }

    /// Site by site: how, or why not.
    fn sites(&self, f: &mut fmt::Formatter<'_>, verdict: &Verdict) -> fmt::Result {
        let subject = match &self.program {
            Some(name) => format!("Program {name}, in SEC(\"{}\"),", verdict.form.kind),
            None => "A program that reads all arguments".to_owned(),
        };
        let plan = match &verdict.plan {
            Ok(plan) => plan,
            Err(why) => return wrap(f, 0, 2, &format!("\n{subject} cannot be attached: {why}")),
        };
        let mut by: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
        for site in &plan.sites {
            if let Decision::Attach { mechanism, .. } = &site.decision {
                by.entry(mechanism.word()).or_default().push(&site.site);
            }
        }
        if by.is_empty() {
            wrap(f, 0, 0, &format!("\n{subject} can run at none of these places:"))?;
        } else {
            wrap(f, 0, 0, &format!("\n{subject} can run"))?;
            for (mechanism, sites) in &by {
                wrap(f, 2, 4, &format!("at {}, by {mechanism}", kinds(sites.iter().copied())))?;
            }
            let (programs, ways) = (plan.programs.len(), plan.trampolines.len());
            if programs == ways && programs > 1 {
                let text = format!("as {programs} programs, one for each way in which arguments are passed there");
                wrap(f, 2, 4, &text)?;
            } else if ways > 1 {
                let text = format!(
                    "as {} for {ways} ways in which arguments are passed there",
                    if programs == 1 { "one program".to_owned() } else { format!("{programs} programs") }
                );
                wrap(f, 2, 4, &text)?;
            }
        }
        let mut groups: BTreeMap<String, Vec<&PlannedSite>> = BTreeMap::new();
        for site in &plan.sites {
            if let Decision::Skip(reason) = &site.decision {
                groups.entry(reason.to_string()).or_default().push(site);
            }
        }
        let mut groups: Vec<(String, Vec<&PlannedSite>)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, sites)| std::cmp::Reverse(sites.len()));
        if !by.is_empty() && !groups.is_empty() {
            writeln!(f, "and cannot run")?;
        }
        for (reason, sites) in groups {
            wrap(f, 2, 4, &format!("at {}: {reason}", kinds(sites.iter().map(|site| &site.site))))?;
            wrap(f, 6, 6, &places(&sites))?;
        }
        Ok(())
    }

    /// What each section's default policy makes of it.
    fn verdicts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrap(f, 0, 0, "\nBy siteseer's own calls, if nothing is said of the policy,")?;
        for verdict in &self.verdicts {
            let section = format!("SEC(\"{}/{}\")", verdict.form.kind, self.function.name);
            wrap(f, 2, 4, &format!("{section} {}", outcome(verdict)))?;
        }
        Ok(())
    }

    /// What the user can do.
    fn advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut advice: Vec<String> = Vec::new();
        for verdict in &self.verdicts {
            let Ok(plan) = &verdict.plan else { continue };
            if verdict.policy == Policy::Complete && !verdict.in_the_way.is_empty() && attached(plan) > 0 {
                advice.push(format!(
                    "with the policy best_effort, {} is attached at {} of {} places, and the others are reported",
                    verdict.form.kind,
                    attached(plan),
                    plan.sites.len()
                ));
            }
        }
        let mut lacking: BTreeSet<String> = BTreeSet::new();
        let mut doubtful: BTreeSet<String> = BTreeSet::new();
        for verdict in &self.verdicts {
            for reason in reasons(verdict) {
                match reason {
                    // Those that are about the policy have been said.
                    Reason::ExitOfInline | Reason::MayRepeat | Reason::MayMiss | Reason::TailCalled(_) => {}
                    Reason::MissingArguments(missing) => {
                        lacking.extend(missing.iter().map(named));
                        doubtful.extend(missing.iter().filter(|argument| argument.why.is_doubt()).map(named));
                    }
                    other => advice.extend(other.advice().map(str::to_owned)),
                }
            }
        }
        // There is no asking for a result that is gone.
        lacking.remove("the return value");
        if !lacking.is_empty() {
            advice.push(format!(
                "read {} by siteseer_arg() of siteseer.bpf.h, which tells the program when a place does not have it: then \
                 the program is attached there too",
                list(lacking.into_iter().collect())
            ));
        }
        if !doubtful.is_empty() {
            advice.push(format!(
                "accept doubt, by the option accept_doubt: then the program gets {} from doubtful locations too, and the values \
                 may be wrong there",
                list(doubtful.into_iter().collect())
            ));
        }
        let nowhere =
            self.verdicts.iter().filter_map(|verdict| verdict.plan.as_ref().ok()).all(|plan| attached(plan) == 0);
        if nowhere && advice.is_empty() {
            advice.push("trace functions that call it, or that it calls".to_owned());
        }
        let mut said: BTreeSet<String> = BTreeSet::new();
        advice.retain(|text| said.insert(text.clone()));
        if advice.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nWhat can be done:")?;
        advice.iter().try_for_each(|text| wrap(f, 2, 4, &format!("* {}", sentence(text))))
    }
}

/// Why sites are not attached.
fn reasons(verdict: &Verdict) -> impl Iterator<Item = &Reason> {
    let sites = verdict.plan.iter().flat_map(|plan| &plan.sites);
    sites.filter_map(|site| match &site.decision {
        Decision::Skip(reason) => Some(reason),
        Decision::Attach { .. } => None,
    })
}

/// Whether a site's code never runs.
fn is_dead(site: &Candidate) -> bool {
    site.obstacle.as_ref().is_some_and(Reason::is_dead)
}

/// `caller+0x12 (file.c:34)`.
fn place(site: &Candidate) -> String {
    let mut text = format!("{}+{:#x}{}", site.symbol, site.offset(), InModule(site.module.as_deref()));
    if let (SiteKind::Inline, Some(place)) = (site.kind, &site.source) {
        text.push_str(&format!(" ({}:{})", place.file, place.line));
    }
    text
}

/// A type and what is of that type, as C has them.
fn declared(type_name: &str, name: &str) -> String {
    let space = if type_name.ends_with('*') || name.is_empty() || type_name.is_empty() { "" } else { " " };
    format!("{type_name}{space}{name}")
}

/// The places of sites, each once.
fn places(sites: &[&PlannedSite]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for site in sites {
        let place = place(&site.site);
        match counts.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => counts.push((place, 1)),
        }
    }
    let counted = |(place, count): &(String, usize)| {
        if *count == 1 { place.clone() } else { format!("{place} ({count} of that name)") }
    };
    names(&counts.iter().map(counted).collect::<Vec<_>>())
}

/// Reasons that have commas in them.
fn why_list(why: BTreeSet<String>) -> String {
    why.into_iter().collect::<Vec<_>>().join("; ")
}

/// What happens to a program under the policy of its section.
fn outcome(verdict: &Verdict) -> String {
    let plan = match &verdict.plan {
        Ok(plan) => plan,
        Err(why) => return format!("is refused: {why}"),
    };
    let (have, all) = (attached(plan), plan.sites.len());
    let dead = reasons(verdict).filter(|reason| reason.is_dead()).count();
    if have == 0 {
        let why: BTreeSet<String> = plan.sites.iter().map(why_in_short).collect();
        return format!("is refused, because there is no place where it can run: {}", why_list(why));
    }
    if !verdict.in_the_way.is_empty() {
        let in_the_way = verdict.in_the_way.iter().filter_map(|&index| plan.sites.get(index));
        let why: BTreeSet<String> = in_the_way.map(why_in_short).collect();
        return format!(
            "is refused, because its policy is complete and {} in the way: {}",
            match verdict.in_the_way.len() {
                1 => "1 place is".to_owned(),
                many => format!("{many} places are"),
            },
            why_list(why)
        );
    }
    if have == all {
        return match all {
            1 => "is attached at the only place".to_owned(),
            all => format!("is attached at all {all} places"),
        };
    }
    if have + dead == all {
        return format!("is attached at all {have} places that can still run");
    }
    format!("is attached at {have} of {all} places, and reports the others")
}

/// An argument's name, or its number.
fn named(missing: &MissingArgument) -> String {
    if missing.name.is_empty() { format!("argument {}", missing.index) } else { missing.name.clone() }
}

/// The kind of a reason, without what is particular to the site.
fn why_in_short(site: &PlannedSite) -> String {
    match &site.decision {
        // In the way of `complete` alone.
        Decision::Attach { .. } => "hits may outnumber calls, or calls are not seen".to_owned(),
        Decision::Skip(Reason::MissingArguments(missing)) => {
            format!("{} missing there", list(missing.iter().map(named).collect()))
        }
        Decision::Skip(reason) => reason.to_string(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(f)?;
        self.places(f)?;
        self.arguments(f)?;
        if let Some(first) = self.verdicts.first() {
            self.sites(f, first)?;
        }
        self.verdicts(f)?;
        self.advice(f)?;
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| wrap(f, 0, 6, &format!("Note: {}", sentence(note.trim_end_matches('.')))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Wrapped(&'static str);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            wrap(f, 2, 4, self.0)
        }
    }

    #[test]
    fn lines_are_wrapped() {
        const LONG: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
                            sixteen seventeen";
        let text = Wrapped(LONG).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().collect::<Vec<_>>().join(" "), LONG);
        assert!(text.lines().nth(1).unwrap().starts_with("    "), "{text}");
    }

    #[test]
    fn lists() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(list(words(&["a"])), "a");
        assert_eq!(list(words(&["a", "b", "c"])), "a, b and c");
        let many: Vec<String> = (0..9).map(|nth| nth.to_string()).collect();
        assert_eq!(names(&many), "0, 1, 2, 3, 4, 5 and 3 more");
        assert_eq!(sentence("write it"), "Write it.");
    }
}
