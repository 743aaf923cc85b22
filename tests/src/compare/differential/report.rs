// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What came out, for people and for machines.

use super::class::Class;
use super::compare::{Comparison, Disagreement};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// All comparisons of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// A comparison per function.
    pub comparisons: Vec<Comparison>,
}

impl Report {
    /// The disagreements, each with its function.
    pub fn disagreements(&self) -> impl Iterator<Item = (&str, &Disagreement)> {
        self.comparisons.iter().flat_map(|comparison| {
            comparison.disagreements.iter().map(|disagreement| (comparison.function.as_str(), disagreement))
        })
    }

    /// How many disagreements are of a class.
    pub fn count(&self, class: Class) -> usize {
        self.disagreements().filter(|(_, disagreement)| disagreement.class == class).count()
    }

    /// How many arguments both have at the same location, or both say are not there.
    pub fn agreements(&self) -> usize {
        self.comparisons.iter().map(|comparison| comparison.arguments + comparison.missing).sum()
    }

    /// The disagreements of some classes, a paragraph each.
    pub fn list(&self, of: impl Fn(Class) -> bool) -> String {
        let mut text = String::new();
        for (function, disagreement) in self.disagreements().filter(|(_, disagreement)| of(disagreement.class)) {
            let Disagreement { class, address, parameter, ours, perf, dwarf } = disagreement;
            let parameter = parameter.as_deref().map_or_else(String::new, |name| format!(", {name}"));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}: {function} at {address:#x}{parameter}\n    ours:  {ours}\n    perf:  {perf}\n    DWARF: {dwarf}",
                class.key()
            );
        }
        text
    }

    /// The whole as JSON. Addresses are text in hexadecimal: JSON's numbers do not hold them.
    pub fn json(&self) -> serde_json::Value {
        let function = |comparison: &Comparison| {
            let disagreement = |disagreement: &Disagreement| {
                serde_json::json!({
                    "class": disagreement.class.key(),
                    "address": format!("{:#x}", disagreement.address),
                    "parameter": disagreement.parameter,
                    "ours": disagreement.ours,
                    "perf": disagreement.perf,
                    "dwarf": disagreement.dwarf,
                })
            };
            serde_json::json!({
                "function": comparison.function,
                "sites": comparison.sites,
                "arguments": comparison.arguments,
                "missing": comparison.missing,
                "disagreements": comparison.disagreements.iter().map(disagreement).collect::<Vec<_>>(),
                "refusals": comparison.refusals.iter().map(|refusal| serde_json::json!({
                    "parameters": refusal.parameters,
                    "message": refusal.message,
                })).collect::<Vec<_>>(),
            })
        };
        let classes: BTreeMap<&str, usize> =
            Class::ALL.into_iter().map(|class| (class.key(), self.count(class))).collect();
        serde_json::json!({
            "classes": classes,
            "functions": self.comparisons.iter().map(function).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&Comparison) -> usize| self.comparisons.iter().map(of).sum::<usize>();
        let answered = self.comparisons.iter().filter(|comparison| comparison.refusals.is_empty()).count();
        // The first question is for everything, the second for the places alone.
        let not_at_all = self.comparisons.iter().filter(|comparison| {
            comparison.refusals.iter().any(|refusal| refusal.parameters.is_empty())
                || (comparison.sites == 0 && !comparison.refusals.is_empty())
        });
        let not_at_all = not_at_all.count();
        let functions = self.comparisons.len();
        writeln!(f, "functions           {functions:>7}")?;
        writeln!(f, "  answered in full  {answered:>7}")?;
        writeln!(f, "  answered in part  {:>7}", functions - answered - not_at_all)?;
        writeln!(f, "  refused by perf   {not_at_all:>7}")?;
        writeln!(f, "sites of both       {:>7}", sum(|comparison| comparison.sites))?;
        writeln!(f, "arguments alike     {:>7}", sum(|comparison| comparison.arguments))?;
        writeln!(f, "  both have none    {:>7}", sum(|comparison| comparison.missing))?;
        for class in Class::ALL {
            let count = self.count(class);
            if count > 0 {
                writeln!(f, "{:<20}{count:>7}  {class}", class.key())?;
            }
        }
        let mut refusals: BTreeMap<&str, usize> = BTreeMap::new();
        for refusal in self.comparisons.iter().flat_map(|comparison| &comparison.refusals) {
            *refusals.entry(&refusal.message).or_default() += 1;
        }
        for (message, count) in refusals {
            writeln!(f, "perf refuses        {count:>7}  {message}")?;
        }
        Ok(())
    }
}
