// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Printing trees of calls ([`crate::trace::tree`]): what was called in what, with arguments, return values and times.

use super::{Call, Printed, Printer, arguments, monotonic, place_of};
use crate::Failure;
use crate::output::tell;
use crate::trace::programs::Programs;
use crate::trace::tree::{self, Tree, Trees};
use crate::trace::{Traced, latency};
use libbpf_rs::{MapCore, MapFlags};
use siteseer::internals::path::shown;
use siteseer::{AttachError, Link, Outcome, SiteReport};
use siteseer_bpf_progs::trace::{Record, UNPLACED_REASONS};
use std::collections::HashSet;
use std::fmt::Write as _;

/// A call that has others under it: its beginning, and its return.
const ENTERS: &str = "→";
const LEAVES: &str = "←";
/// A call without others under it.
const LEAF: &str = "↔";
/// A call with a return that is not seen.
const NO_RETURN: &str = "•";
/// A call of a doubtful tree.
const DOUBTFUL: &str = "?";

/// Why calls are in no tree, in the order of the program's numbers.
const UNPLACED: [&str; UNPLACED_REASONS] = [
    "calls left out: more threads were in traced calls than there is room for",
    "returns left out: their calls began before, or the kernel skipped the program there",
];

/// The first kernel that counts the programs that it skips at kprobes.
const COUNTS_AT_KPROBES: (u32, u32) = (6, 7);

/// Whether the kernel of a release counts them.
fn counts_at_kprobes(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= COUNTS_AT_KPROBES
}

/// Where a link's program runs, if every program that the kernel skips there is counted.
fn counted(traced: &Traced<'_>, at_kprobes: bool) -> HashSet<u64> {
    let is_counted = |site: &&SiteReport| match site.outcome {
        Outcome::Attached { mechanism, .. } => at_kprobes || mechanism.probe().is_tracing(),
        _ => false,
    };
    traced.link.report().attached().filter(is_counted).map(|site| site.address).collect()
}

impl Printed<'_> {
    /// Where calls are seen when they begin and when they return, and it will be known if one of them is skipped.
    fn followed(&self, at_kprobes: bool) -> HashSet<u64> {
        match (&self.entries, &self.returns) {
            (Some((entries, _)), Some((returns, _))) => &counted(entries, at_kprobes) & &counted(returns, at_kprobes),
            _ => HashSet::new(),
        }
    }
}

impl Printer<'_, '_> {
    /// Lets the programs send records: everything is attached.
    pub(super) fn begin_trees(&mut self, programs: &Programs) -> Result<(), Failure> {
        let returning = programs.shared_map("returning")?;
        let at_kprobes = counts_at_kprobes(&nix::sys::utsname::uname()?.release().to_string_lossy());
        let followed: HashSet<u64> = self.functions.iter().flat_map(|function| function.followed(at_kprobes)).collect();
        for address in &followed {
            returning.update(&address.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY)?;
        }
        let seen: HashSet<u64> = self.functions.iter().flat_map(|function| function.followed(true)).collect();
        if followed.len() < seen.len() {
            tell!(
                "note: this kernel does not count the programs that it skips at kprobes: at {} of {} sites with returns, \
                 calls are in the trees without what they call",
                seen.len() - followed.len(),
                seen.len()
            );
        }
        self.looked = monotonic()?;
        self.skipped = self.missed()?;
        programs.shared_map("is_ready")?.update(&0u32.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY)?;
        Ok(())
    }

    fn missed(&self) -> Result<u64, AttachError> {
        let links = self.functions.iter().flat_map(Printed::links).map(|traced| &traced.link);
        links.map(Link::missed).sum()
    }

    /// Prints the trees that are complete.
    pub(super) fn print_trees(&mut self, programs: &Programs) -> Result<(), Failure> {
        if !self.trees.as_ref().is_some_and(Trees::are_complete) {
            return Ok(());
        }
        self.look_for_skipped(programs)?;
        self.print_complete();
        Ok(())
    }

    /// Prints what is left, as far as it goes.
    pub(super) fn end_trees(&mut self, programs: &Programs) -> Result<(), Failure> {
        let Some(trees) = &mut self.trees else { return Ok(()) };
        trees.end(self.unread == 0);
        self.look_for_skipped(programs)?;
        self.print_complete();
        Ok(())
    }

    /// Whatever the kernel skipped before now: threads may be in other calls than it seems.
    pub(super) fn look_for_skipped(&mut self, programs: &Programs) -> Result<(), Failure> {
        if self.trees.is_none() {
            return Ok(());
        }
        // Before the kernel is asked, and after all else: no skipped program is between two times.
        let now = monotonic()?;
        let missed = self.missed()?;
        if missed > self.skipped {
            let threads = programs.shared_map("trees")?;
            for thread in threads.keys().collect::<Vec<_>>() {
                // A thread that is in no call any more has removed itself.
                let _ = threads.delete(&thread);
            }
            let until = monotonic()?;
            if let Some(trees) = &mut self.trees {
                trees.doubt(self.looked, until);
            }
        }
        (self.skipped, self.looked) = (missed, now);
        Ok(())
    }

    fn print_complete(&mut self) {
        let complete = self.trees.as_mut().map_or(Vec::new(), Trees::take_complete);
        for tree in complete {
            if self.is_done() {
                return;
            }
            match self.is_wanted(&tree) {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    self.undecided += u64::from(tree.doubt.is_some());
                    continue;
                }
            }
            let text = if self.arguments.json { self.tree_json(&tree).to_string() } else { self.tree_text(&tree) };
            self.out.line(&text);
            self.printed += 1;
        }
    }

    /// Whether the condition is true of the outermost call.
    fn is_wanted(&self, tree: &Tree) -> Option<bool> {
        let Some(filter) = self.filter else { return Some(true) };
        let outermost = tree.outermost()?;
        let record = whole(outermost);
        let call = self.call(&record, outermost.end.is_some())?;
        filter.holds(&|field| self.field(&call, field))
    }

    /// A line for the thread, and one or two for each call.
    fn tree_text(&self, tree: &Tree) -> String {
        let Some(first) = tree.calls.first() else { return String::new() };
        let begin = &first.begin;
        let seconds = begin.time.saturating_sub(self.begin) as f64 / 1e9;
        let task = format!("{}/{}", begin.comm, begin.pid);
        let count = match tree.calls.len() {
            1 => "1 call".to_owned(),
            count => format!("{count} calls"),
        };
        let mut text = format!("{seconds:>12.6} {:>3} {task:<22} {count}", begin.cpu);
        if let Some(doubt) = tree.doubt {
            let _ = write!(text, ", without their callers: {doubt}");
        }
        let mut around: Vec<&tree::Call> = Vec::new();
        for (nth, call) in tree.calls.iter().enumerate() {
            while let Some(open) = around.pop_if(|open| open.depth >= call.depth) {
                self.leave(&mut text, open);
            }
            let has_calls = tree.calls.get(nth + 1).is_some_and(|next| next.parent == Some(nth));
            self.enter(&mut text, call, has_calls, tree.doubt.is_some());
            if has_calls {
                around.push(call);
            }
        }
        while let Some(open) = around.pop() {
            if open.depth == 0 && tree.more > 0 {
                let _ = write!(text, "\n\t    ... {} more records left out", tree.more);
            }
            self.leave(&mut text, open);
        }
        text
    }

    fn enter(&self, text: &mut String, call: &tree::Call, has_calls: bool, is_doubtful: bool) {
        let record = whole(call);
        let Some(known) = self.call(&record, !has_calls && call.end.is_some()) else { return };
        let mark = match (is_doubtful, call.returns(), has_calls) {
            (true, ..) => DOUBTFUL,
            (false, false, _) => NO_RETURN,
            (false, true, true) => ENTERS,
            (false, true, false) => LEAF,
        };
        let returned = match has_calls || is_doubtful {
            true => String::new(),
            false => outcome(call, &known),
        };
        let indent = "    ".repeat(call.depth);
        let (name, place) = (shown(&known.function.name), place_of(&known));
        let (arguments, members) = (arguments(&known), self.members(&known));
        let _ = write!(text, "\n\t{indent}{mark} {name}({arguments}){returned}{members}  {place}");
    }

    fn leave(&self, text: &mut String, call: &tree::Call) {
        let record = whole(call);
        let Some(known) = self.call(&record, call.end.is_some()) else { return };
        let indent = "    ".repeat(call.depth);
        let _ = write!(text, "\n\t{indent}{LEAVES} {}{}", shown(&known.function.name), outcome(call, &known));
    }

    /// One object: the calls are a list in their order, each with its depth and the number of its caller.
    fn tree_json(&self, tree: &Tree) -> serde_json::Value {
        let calls = tree.calls.iter().map(|call| {
            let record = whole(call);
            let Some(known) = self.call(&record, call.end.is_some()) else { return serde_json::Value::Null };
            let mut json = self.json(&known);
            json["depth"] = tree.doubt.is_none().then_some(call.depth).into();
            json["parent"] = call.parent.into();
            json["latency"] = took(call).into();
            json
        });
        let calls: Vec<serde_json::Value> = calls.collect();
        let first = tree.calls.first().map(|call| &call.begin);
        serde_json::json!({
            "time": first.map(|first| first.time),
            "comm": first.map(|first| &first.comm),
            "pid": first.map(|first| first.tgid),
            "tid": first.map(|first| first.pid),
            "calls": calls,
            "left_out": tree.more,
            "doubt": tree.doubt.map(|doubt| doubt.to_string()),
        })
    }
}

/// The call's beginning, with what it returned.
fn whole(call: &tree::Call) -> Record {
    let mut record = call.begin.clone();
    record.result = call.end.as_ref().and_then(|end| end.result);
    record
}

fn took(call: &tree::Call) -> Option<u64> {
    call.end.as_ref().map(|end| end.time.saturating_sub(call.begin.time))
}

/// ` = 0 took 12.3us`
fn outcome(call: &tree::Call, known: &Call<'_>) -> String {
    match (took(call), call.returns()) {
        (Some(took), _) => {
            let returned = known.returned.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{returned} took {}", latency::text(took))
        }
        (None, true) => " (return not seen)".to_owned(),
        (None, false) => String::new(),
    }
}

/// Says what was left out.
pub(super) fn losses(
    programs: &Programs,
    trees: &Trees,
    printed: u64,
    lost: u64,
    undecided: u64,
) -> Result<(), Failure> {
    tell!("{printed} trees printed, {lost} records lost because the buffer was full");
    if trees.dropped > 0 {
        tell!("{} trees left out because there was no room for them", trees.dropped);
    }
    if trees.beheaded > 0 {
        tell!("{} trees left out because the record of their beginning was lost", trees.beheaded);
    }
    if undecided > 0 {
        tell!("{undecided} doubtful trees left out because the condition could not be decided");
    }
    for (nth, why) in (0u32..).zip(UNPLACED) {
        let count = programs.sum_of("unplaced", nth)?;
        if count > 0 {
            tell!("{count} {why}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_count_what_they_skip() {
        let counting = ["6.7.0", "6.12.41+deb13-cloud-amd64", "7.3.4+deb13", "10.1"];
        assert!(counting.iter().all(|release| counts_at_kprobes(release)));
        let others = ["6.1.0-40-cloud-amd64", "6.6.99", "5.15", ""];
        assert!(!others.iter().any(|release| counts_at_kprobes(release)));
    }
}
