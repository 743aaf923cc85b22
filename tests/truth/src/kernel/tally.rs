// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What was found out about a kernel: counts by kind of site and form of location, and each thing that is not as it
//! should be.

use super::compare::Unconfirmed;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What values are counted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Key {
    /// `body`, `clone`, `inline`; `plain` for a body that the encoder says nothing about, since the calling convention
    /// does.
    pub(super) site: &'static str,
    /// The form of the location.
    pub(super) form: &'static str,
    /// Why the location is doubtful; `None` if it is certain.
    pub(super) doubt: Option<String>,
}

/// The outcome for values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Values {
    /// The argument.
    pub(super) right: u64,
    /// Something else.
    pub(super) wrong: u64,
    /// It cannot be told.
    pub(super) unconfirmed: BTreeMap<Unconfirmed, u64>,
    /// The compiler was not asked, or its answer is not understood.
    pub(super) untold: u64,
}

/// An argument that is wrong, or that cannot be confirmed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    /// What is wrong: `wrong`, or why it cannot be told.
    pub(super) kind: String,
    /// Why the location is doubtful; `None` if it is certain.
    pub(super) doubt: Option<String>,
    /// The kind of site.
    pub(super) site: &'static str,
    /// The site's address.
    pub(super) address: u64,
    /// The function.
    pub(super) function: String,
    /// The symbol that the site is in.
    pub(super) container: String,
    /// The argument's number, from 0.
    pub(super) argument: usize,
    /// The location, as the encoder has it.
    pub(super) location: String,
    /// The record's address.
    pub(super) record: u64,
    /// Its operands.
    pub(super) operands: String,
    /// The values that were read: the location's and the operands'.
    pub(super) values: Option<(String, String)>,
    /// The site's marks.
    pub(super) marks: Vec<&'static str>,
}

/// A record without a site, or a site without a record.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Unpaired {
    /// The kind of site, or `record` for a record.
    pub(super) site: &'static str,
    /// The address.
    pub(super) address: u64,
    /// The function.
    pub(super) function: String,
    /// The symbol.
    pub(super) container: String,
    /// How many sites the function has in that symbol.
    pub(super) sites: usize,
    /// How many records.
    pub(super) records: usize,
    /// Whether the symbol has a record of any function. What is compiled without the plugin has none.
    pub(super) in_recorded: bool,
    /// The marks of the function's sites in that symbol.
    pub(super) marks: Vec<&'static str>,
}

/// All of it.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Tally {
    /// How many sites there are, including those that the encoder says nothing about.
    pub(super) sites: u64,
    /// How many records.
    pub(super) records: u64,
    /// Of the sites, those with a record.
    pub(super) paired: u64,
    /// Of these, those with a record at their very address.
    pub(super) at_once: u64,
    /// Of the paired sites, those with a record at their address that is another site's: in a row of calls.
    pub(super) shifted: u64,
    /// How often sites or records at one address were paired the other way round, since more values are right by that.
    pub(super) exchanged: u64,
    /// Values by kind of site and form.
    #[serde(serialize_with = "as_rows")]
    pub(super) values: BTreeMap<Key, Values>,
    /// Arguments without a location where the compiler had one, by reason.
    pub(super) missing: BTreeMap<&'static str, u64>,
    /// Records that neither a site nor a mark tells about.
    pub(super) missed: Vec<Unpaired>,
    /// The same, if a site of the function in that symbol has a mark about it.
    pub(super) missed_marked: Vec<Unpaired>,
    /// Sites that no record tells about.
    pub(super) extra: Vec<Unpaired>,
    /// Wrong arguments, and those that cannot be confirmed.
    pub(super) findings: Vec<Finding>,
}

fn as_rows<S: serde::Serializer>(values: &BTreeMap<Key, Values>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'r> {
        #[serde(flatten)]
        key: &'r Key,
        #[serde(flatten)]
        values: &'r Values,
    }
    serializer.collect_seq(values.iter().map(|(key, values)| Row { key, values }))
}

impl Values {
    fn add(&mut self, other: &Values) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.untold += other.untold;
        for (why, count) in &other.unconfirmed {
            *self.unconfirmed.entry(*why).or_default() += count;
        }
    }

    /// Those that cannot be confirmed, for whatever reason.
    pub(super) fn all_unconfirmed(&self) -> u64 {
        self.unconfirmed.values().sum()
    }
}

impl Tally {
    /// Adds another one's counts.
    pub(super) fn add(&mut self, other: Tally) {
        self.sites += other.sites;
        self.records += other.records;
        self.paired += other.paired;
        self.at_once += other.at_once;
        self.shifted += other.shifted;
        self.exchanged += other.exchanged;
        for (key, values) in &other.values {
            self.values.entry(key.clone()).or_default().add(values);
        }
        for (reason, count) in other.missing {
            *self.missing.entry(reason).or_default() += count;
        }
        self.missed.extend(other.missed);
        self.missed_marked.extend(other.missed_marked);
        self.extra.extend(other.extra);
        self.findings.extend(other.findings);
    }

    /// The values of all keys: certain ones, or doubtful ones.
    pub(super) fn sum(&self, certain: bool) -> Values {
        let mut sum = Values::default();
        for (_, values) in self.values.iter().filter(|(key, _)| key.doubt.is_none() == certain) {
            sum.add(values);
        }
        sum
    }

    /// How many sites without a record are in symbols that have records.
    pub(super) fn extra_in_recorded(&self) -> u64 {
        self.extra.iter().filter(|site| site.in_recorded).count() as u64
    }

    /// Puts everything in an order that does not depend on the order of work.
    pub(super) fn sort(&mut self) {
        self.findings.sort_by(|a, b| {
            (&a.kind, &a.doubt, a.address, a.argument).cmp(&(&b.kind, &b.doubt, b.address, b.argument))
        });
        for unpaired in [&mut self.missed, &mut self.missed_marked, &mut self.extra] {
            unpaired.sort_by(|a, b| (a.address, &a.function).cmp(&(b.address, &b.function)));
        }
    }
}

fn row(f: &mut fmt::Formatter<'_>, site: &str, form: &str, doubt: &str, values: &Values) -> fmt::Result {
    writeln!(
        f,
        "{site:<8} {form:<16} {doubt:<16} {:>9} {:>9} {:>6} {:>11} {:>7}",
        values.right + values.wrong + values.all_unconfirmed(),
        values.right,
        values.wrong,
        values.all_unconfirmed(),
        values.untold,
    )
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} sites, {} records; {} pairs, {} at one address",
            self.sites, self.records, self.paired, self.at_once
        )?;
        writeln!(
            f,
            "records without a site: {}, and {} that a mark tells of",
            self.missed.len(),
            self.missed_marked.len()
        )?;
        writeln!(
            f,
            "sites without a record: {} where other records are, {} in symbols that have none",
            self.extra_in_recorded(),
            self.extra.len() as u64 - self.extra_in_recorded()
        )?;
        writeln!(
            f,
            "paired with a record after the next site's: {}; exchanged at one address, since more is right by that: {}",
            self.shifted, self.exchanged
        )?;
        let mut unmentioned: BTreeMap<&str, u64> = BTreeMap::new();
        for record in self.missed.iter().filter(|record| record.sites == 0) {
            *unmentioned.entry(&record.function).or_default() += 1;
        }
        let mut most: Vec<(&str, u64)> = unmentioned.iter().map(|(function, count)| (*function, *count)).collect();
        most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        writeln!(
            f,
            "of those without a site, {} are of functions that have no site in the same symbol; most often of",
            unmentioned.values().sum::<u64>()
        )?;
        for functions in most[..most.len().min(12)].chunks(4) {
            let words: Vec<String> =
                functions.iter().map(|(function, count)| format!("{function} ({count})")).collect();
            writeln!(f, "    {}", words.join(", "))?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<8} {:<16} {:<16} {:>9} {:>9} {:>6} {:>11} {:>7}",
            "site", "form", "doubt", "values", "right", "wrong", "unconfirmed", "untold"
        )?;
        for (key, values) in &self.values {
            row(f, key.site, key.form, key.doubt.as_deref().unwrap_or("-"), values)?;
        }
        for (word, certain) in [("certain", true), ("doubtful", false)] {
            row(f, "all", word, "", &self.sum(certain))?;
        }
        let mut reasons: BTreeMap<Unconfirmed, u64> = BTreeMap::new();
        for (why, count) in self.values.values().flat_map(|values| &values.unconfirmed) {
            *reasons.entry(*why).or_default() += count;
        }
        writeln!(f, "\nunconfirmed, by reason: {reasons:?}")?;
        writeln!(f, "no location, though the compiler has the value: {:?}", self.missing)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { kind, site, address, function, container, argument, location, record, operands, .. } = self;
        write!(
            f,
            "{kind}: {address:#x} {site} {function} in {container}, argument {argument}: {location}; {operands} at {record:#x}"
        )?;
        if let Some((ours, theirs)) = &self.values {
            write!(f, "; read {ours}, is {theirs}")?;
        }
        if let Some(doubt) = &self.doubt {
            write!(f, "; doubtful: {doubt}")?;
        }
        if !self.marks.is_empty() {
            write!(f, " [{}]", self.marks.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Unpaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unpaired { site, address, function, container, sites, records, marks, .. } = self;
        write!(f, "{address:#x} {site} {function} in {container} ({sites} sites, {records} records there)")?;
        if !marks.is_empty() {
            write!(f, " [{}]", marks.join(", "))?;
        }
        Ok(())
    }
}
