// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What was seen against what must come out.

use super::case_file::{CaseFile, Event, Expect, Outcome, Unsupported, Value};
use super::family::Family;
use super::job::{Attached, Attempted, Observation, Refused, Sent};
use super::limits::{InWay, limit};
use super::plant;
use crate::guest::known::Judged;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How a case ended on a kernel, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exercised, and everything holds.
    Pass,
    /// The compiler did not do it, or the kernel is not one for the case.
    NotExercised,
    /// A limit of the kernel or of the debug information is in the way.
    Unsupported,
    /// It fails, and what is wrong is known ([`crate::guest::known`]).
    Known,
    /// Anything else.
    Fail,
}

impl Status {
    /// All, in the order of a legend.
    pub const ALL: [Status; 5] = [Status::Pass, Status::NotExercised, Status::Unsupported, Status::Known, Status::Fail];

    /// What it is called.
    pub fn word(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::NotExercised => "not exercised",
            Status::Unsupported => "unsupported",
            Status::Known => "fail (known)",
            Status::Fail => "fail",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The outcome of a case on a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How it ended.
    pub status: Status,
    /// What holds; or why not, in lines.
    pub detail: String,
}

impl Verdict {
    /// A verdict.
    pub fn new(status: Status, detail: impl Into<String>) -> Verdict {
        Verdict { status, detail: detail.into() }
    }

    /// Whether it failed.
    pub fn is_failure(&self) -> bool {
        self.status == Status::Fail
    }

    /// The verdict, given what is known about the case.
    pub fn judged(self, by: Judged) -> Verdict {
        match by {
            Judged::AsItIs => self,
            Judged::Known(wrong) => Verdict::new(Status::Known, format!("{wrong}\n{}", self.detail)),
            Judged::Outdated(wrong) => Verdict::new(
                Status::Fail,
                format!("it ended with: {}; remove its line from tests/src/guest/known.rs: {wrong}", self.status),
            ),
        }
    }
}

/// An expectation with the addresses of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The events, or the keys of the reasons for a refusal.
    pub outcome: Result<Vec<Sent>, BTreeSet<String>>,
    /// What may be in the way.
    pub unsupported: Option<Unsupported>,
    /// Sites that are attached, by kind.
    pub sites: Option<BTreeMap<String, usize>>,
    /// Sites that are not, by reason.
    pub skipped: Option<BTreeMap<String, usize>>,
    /// Reasons for which some are not, however many and whatever else there is.
    pub skipped_for: Vec<String>,
}

/// Whether an expectation holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It does.
    Holds,
    /// What it allows to be in the way is.
    Unsupported(String),
    /// It does not.
    Fails(String),
}

/// The expectations of a case that are for a kernel, in their order.
pub fn expectations(case: &CaseFile, family: &Family) -> Vec<Expect> {
    case.expect.iter().flat_map(|expect| expect.on(family)).collect()
}

/// Judges what was seen of a case that is exercised. With `planted`, its first expectation is made wrong first.
pub fn judge(case: &CaseFile, family: &Family, seen: &Observation, planted: bool) -> Verdict {
    if let Some(why) = &seen.broken {
        return Verdict::new(Status::Fail, why.clone());
    }
    let expectations = expectations(case, family);
    if expectations.is_empty() {
        return Verdict::new(Status::Fail, format!("the case does not say what must come out on {family}"));
    }
    if seen.attempts.len() != expectations.len() {
        return Verdict::new(
            Status::Fail,
            format!("{} of {} attempts were made", seen.attempts.len(), expectations.len()),
        );
    }
    let (mut status, mut failed, mut details, mut good) = (Status::Pass, Vec::new(), Vec::new(), Vec::new());
    for (nth, (expect, attempted)) in expectations.iter().zip(&seen.attempts).enumerate() {
        let held = Wanted::of(expect, &seen.addresses).map_or_else(Held::Fails, |mut wanted| {
            if planted && nth == 0 {
                plant::first(&mut wanted);
            }
            match hold(&wanted, attempted, case.any_process) {
                Held::Fails(why) => Held::Fails(why),
                held => match plant::accepted(&wanted, attempted, case.any_process, &held) {
                    Some(wrong) => Held::Fails(format!("the comparison accepts a wrong expectation: {wrong}")),
                    None => held,
                },
            }
        });
        let label = expect.label();
        match held {
            Held::Holds => good.push(label),
            Held::Unsupported(why) => {
                status = status.max(Status::Unsupported);
                details.push(format!("{label}: {why}"));
            }
            Held::Fails(why) => {
                status = Status::Fail;
                failed.push(format!("{label}: {why}"));
            }
        }
    }
    if status == Status::Pass || !good.is_empty() {
        details.push(format!("{} as expected: {}", good.len(), good.join(", ")));
    }
    // What fails comes first: tables have room for one line.
    failed.extend(details);
    Verdict::new(status, failed.join("\n"))
}

impl Wanted {
    fn of(expect: &Expect, addresses: &BTreeMap<String, u64>) -> Result<Wanted, String> {
        let value = |value: &Value| match value {
            Value::Number(number) => Ok(Some(*number)),
            Value::Absent => Ok(None),
            Value::Address(symbol, offset) => match addresses.get(symbol) {
                Some(address) => Ok(Some(address.wrapping_add(*offset))),
                None => Err(format!("there is no symbol {symbol}, and its address is expected")),
            },
        };
        let event = |event: &Event| {
            let values = event.values.iter().map(value).collect::<Result<_, String>>()?;
            Ok(Sent { program: event.program.clone(), values })
        };
        Ok(Wanted {
            outcome: match &expect.outcome {
                Outcome::Events(events) => Ok(events.iter().map(event).collect::<Result<_, String>>()?),
                Outcome::Refused(reasons) => Err(reasons.iter().cloned().collect()),
            },
            unsupported: expect.unsupported.clone(),
            sites: expect.sites.clone(),
            skipped: expect.skipped.clone(),
            skipped_for: expect.skipped_for.clone(),
        })
    }
}

/// Whether an expectation holds.
pub fn hold(wanted: &Wanted, attempted: &Attempted, any_process: bool) -> Held {
    let result = match (attempted, &wanted.outcome) {
        (Attempted::Error(why), _) => Err(why.clone()),
        (Attempted::Attached(_), Ok(_)) if wanted.unsupported.as_ref().is_some_and(|limit| limit.is_required) => {
            Err("attached, and `doubtful` says that it is refused: nothing is in the way any more".to_owned())
        }
        (Attempted::Attached(seen), Ok(events)) => attached(wanted, events, seen, any_process),
        (Attempted::Attached(seen), Err(reasons)) => {
            Err(format!("attached, and should be refused ({}); seen: {}", list(reasons), events_text(&seen.events)))
        }
        (Attempted::Refused(refused), Err(reasons)) => refused_as(reasons, refused),
        (Attempted::Refused(refused), Ok(_)) => match unsupported(wanted.unsupported.as_ref(), refused) {
            Ok(why) => return Held::Unsupported(why),
            Err(why) => Err(why),
        },
    };
    result.map_or_else(Held::Fails, |()| Held::Holds)
}

fn attached(wanted: &Wanted, events: &[Sent], seen: &Attached, any_process: bool) -> Result<(), String> {
    same_events(events, &seen.events)?;
    if !seen.after.is_empty() {
        return Err(format!("sent after it was detached: {}", events_text(&seen.after)));
    }
    // Calls by others may come when the kernel runs no program; the case's own may not.
    let missed = if any_process { 0 } else { seen.missed };
    for (count, what) in [(seen.lost, "events found no room"), (seen.faults, "faults"), (missed, "calls missed")] {
        if count != 0 {
            return Err(format!("{count} {what}"));
        }
    }
    let counts = |what: &str, wanted: &Option<BTreeMap<String, usize>>, seen: &BTreeMap<String, usize>| {
        let Some(wanted) = wanted else { return Ok(()) };
        let wanted: BTreeMap<&String, usize> = wanted.iter().map(|(k, n)| (k, *n)).filter(|(_, n)| *n > 0).collect();
        let seen: BTreeMap<&String, usize> = seen.iter().map(|(k, n)| (k, *n)).filter(|(_, n)| *n > 0).collect();
        if wanted == seen { Ok(()) } else { Err(format!("{what}: expected {wanted:?}, there are {seen:?}")) }
    };
    counts("sites attached", &wanted.sites, &seen.sites)?;
    counts("sites skipped", &wanted.skipped, &seen.skipped)?;
    match wanted.skipped_for.iter().find(|&reason| !seen.skipped.contains_key(reason)) {
        Some(reason) => Err(format!("no site is skipped for {reason}; skipped: {:?}", seen.skipped)),
        None => Ok(()),
    }
}

fn same_events(wanted: &[Sent], seen: &[Sent]) -> Result<(), String> {
    if wanted == seen {
        return Ok(());
    }
    let at = wanted.iter().zip(seen).take_while(|(wanted, seen)| wanted == seen).count();
    let of =
        |events: &[Sent]| events.get(at).map_or("nothing".to_owned(), |event| events_text(std::slice::from_ref(event)));
    Err(format!(
        "{} calls expected, {} seen; call {}: expected {}, seen {}; all that was seen: {}",
        wanted.len(),
        seen.len(),
        at + 1,
        of(wanted),
        of(seen),
        events_text(seen)
    ))
}

fn refused_as(wanted: &BTreeSet<String>, refused: &Refused) -> Result<(), String> {
    let seen: BTreeSet<String> = refused.reasons.iter().map(|reason| reason.key.clone()).collect();
    if !refused.after.is_empty() {
        return Err(format!("refused, and yet sent: {}", events_text(&refused.after)));
    }
    if seen == *wanted {
        return Ok(());
    }
    Err(format!("refused for {}, and not for {}: {}", list(&seen), list(wanted), refused.text))
}

/// Whether a refusal is one that is allowed, and a limit; what to say about it.
fn unsupported(allowed: Option<&Unsupported>, refused: &Refused) -> Result<String, String> {
    let Some(Unsupported { reasons, because, .. }) = allowed else { return Err(format!("refused: {}", refused.text)) };
    let is_allowed = |reason: &InWay| reason.is_limit && reasons.contains(&reason.key);
    if let Some(other) = refused.reasons.iter().find(|reason| !is_allowed(reason)) {
        let why = if other.is_limit { "which is not expected" } else { "which is not a limit of others" };
        return Err(format!("refused for {}, {why}: {}", other.key, refused.text));
    }
    if !refused.after.is_empty() {
        return Err(format!("refused, and yet sent: {}", events_text(&refused.after)));
    }
    let limits: BTreeSet<String> =
        refused.reasons.iter().filter_map(|reason| limit(&reason.key)).map(|limit| limit.to_string()).collect();
    let keys: BTreeSet<String> = refused.reasons.iter().map(|reason| reason.key.clone()).collect();
    Ok(format!("{because} ({}: {})", list(&limits), list(&keys)))
}

fn list(words: &BTreeSet<String>) -> String {
    words.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Events for people: small numbers as signed, others in hexadecimal.
pub fn events_text(events: &[Sent]) -> String {
    const SHOWN: usize = 24;
    let value = |value: &Option<u64>| match value {
        None => "absent".to_owned(),
        Some(number) => {
            let signed = *number as i64;
            if (-0xffff..=0xffff_ffff).contains(&signed) { format!("{signed}") } else { format!("{number:#x}") }
        }
    };
    let event =
        |event: &Sent| format!("{}({})", event.program, event.values.iter().map(value).collect::<Vec<_>>().join(", "));
    if events.is_empty() {
        return "nothing".to_owned();
    }
    let mut text = events.iter().take(SHOWN).map(event).collect::<Vec<_>>().join(" ");
    if events.len() > SHOWN {
        text.push_str(&format!(" and {} more", events.len() - SHOWN));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_shown_and_a_line_too_many_fails() {
        let ended = |status| Verdict::new(status, "detail");
        assert_eq!(ended(Status::Fail).judged(Judged::Known("why")), Verdict::new(Status::Known, "why\ndetail"));
        for status in [Status::Pass, Status::NotExercised, Status::Unsupported] {
            assert!(!ended(status).is_failure());
            assert_eq!(ended(status).judged(Judged::AsItIs), ended(status));
            assert_eq!(ended(status).judged(Judged::Outdated("why")).status, Status::Fail);
        }
        assert!(ended(Status::Fail).is_failure());
        assert_eq!(ended(Status::Fail).judged(Judged::AsItIs), ended(Status::Fail));
    }

    pub(crate) fn sent(values: &[u64]) -> Sent {
        Sent { program: "p".to_owned(), values: values.iter().map(|&value| Some(value)).collect() }
    }

    pub(crate) fn seen(events: Vec<Sent>) -> Attached {
        Attached {
            events,
            after: Vec::new(),
            faults: 0,
            missed: 0,
            lost: 0,
            sites: [("body".to_owned(), 1)].into(),
            skipped: BTreeMap::new(),
            plan: Vec::new(),
        }
    }

    pub(crate) fn wanted(outcome: Result<Vec<Sent>, &[&str]>) -> Wanted {
        Wanted {
            outcome: outcome.map_err(|keys| keys.iter().map(|&key| key.to_owned()).collect()),
            unsupported: None,
            sites: None,
            skipped: None,
            skipped_for: Vec::new(),
        }
    }

    fn refused(reasons: &[(&str, bool)]) -> Attempted {
        let reason = |&(key, is_limit): &(&str, bool)| InWay { key: key.to_owned(), is_limit, text: String::new() };
        let reasons = reasons.iter().map(reason).collect();
        Attempted::Refused(Refused { reasons, text: "why".to_owned(), after: Vec::new() })
    }

    fn fails(wanted: &Wanted, attempted: &Attempted, why: &str) {
        match hold(wanted, attempted, false) {
            Held::Fails(text) => assert!(text.contains(why), "{text}"),
            other => panic!("{why}: {other:?}"),
        }
    }

    #[test]
    fn events_are_equal_in_order_and_count() {
        let want = wanted(Ok(vec![sent(&[1, 2]), sent(&[3, 4])]));
        let attached = |events| Attempted::Attached(seen(events));
        assert_eq!(hold(&want, &attached(vec![sent(&[1, 2]), sent(&[3, 4])]), false), Held::Holds);
        fails(
            &want,
            &attached(vec![sent(&[1, 2])]),
            "2 calls expected, 1 seen; call 2: expected p(3, 4), seen nothing",
        );
        fails(&want, &attached(vec![sent(&[3, 4]), sent(&[1, 2])]), "call 1");
        fails(&want, &attached(vec![sent(&[1, 2]), sent(&[3, u64::MAX])]), "p(3, -1)");
        fails(&want, &attached(vec![sent(&[1, 2]), sent(&[3, 4]), sent(&[5, 6])]), "3 seen");
    }

    #[test]
    fn what_is_beside_the_events_counts() {
        let mut want = wanted(Ok(vec![]));
        let with = |change: fn(&mut Attached)| {
            let mut seen = seen(vec![]);
            change(&mut seen);
            Attempted::Attached(seen)
        };
        fails(&want, &with(|seen| seen.after.push(sent(&[1]))), "after it was detached");
        fails(&want, &with(|seen| seen.lost = 1), "no room");
        fails(&want, &with(|seen| seen.faults = 1), "faults");
        fails(&want, &with(|seen| seen.missed = 1), "missed");
        assert_eq!(hold(&want, &with(|seen| seen.missed = 1), true), Held::Holds);
        want.sites = Some([("body".to_owned(), 1), ("clone".to_owned(), 0)].into());
        assert_eq!(hold(&want, &with(|_| ()), false), Held::Holds);
        fails(
            &want,
            &with(|seen| {
                seen.sites.insert("inline".to_owned(), 1);
            }),
            "sites attached",
        );
        want.skipped = Some(BTreeMap::new());
        fails(
            &want,
            &with(|seen| {
                seen.skipped.insert("notrace".to_owned(), 1);
            }),
            "sites skipped",
        );
        want.skipped = None;
        want.skipped_for = vec!["notrace".to_owned()];
        fails(&want, &with(|_| ()), "no site is skipped for notrace");
        let skipped = with(|seen| seen.skipped = [("notrace".to_owned(), 2), ("may_miss".to_owned(), 1)].into());
        assert_eq!(hold(&want, &skipped, false), Held::Holds);
        fails(&want, &Attempted::Error("ENOMEM".to_owned()), "ENOMEM");
    }

    #[test]
    fn a_refusal_is_right_for_its_reasons_only() {
        let want = wanted(Err(&["exit_of_inline"]));
        let right = refused(&[("exit_of_inline", true), ("exit_of_inline", true)]);
        assert_eq!(hold(&want, &right, false), Held::Holds);
        fails(&want, &refused(&[("exit_of_inline", true), ("notrace", true)]), "refused for exit_of_inline, notrace");
        fails(&want, &Attempted::Attached(seen(vec![])), "should be refused");
    }

    #[test]
    fn unsupported_is_a_limit_of_others_that_the_case_allows() {
        let mut want = wanted(Ok(vec![sent(&[1])]));
        fails(&want, &refused(&[("missing_arguments", true)]), "refused: why");
        want.unsupported = Some(Unsupported {
            reasons: vec!["missing_arguments".to_owned()],
            because: "it is gone".to_owned(),
            is_required: false,
        });
        match hold(&want, &refused(&[("missing_arguments", true)]), false) {
            Held::Unsupported(why) => {
                assert_eq!(why, "it is gone (the debug information: missing_arguments)");
            }
            other => panic!("{other:?}"),
        }
        fails(&want, &refused(&[("missing_arguments", false)]), "not a limit of others");
        fails(&want, &refused(&[("missing_arguments", true), ("notrace", true)]), "not expected");
        // It may not be in the way; one that is certain has to be.
        let attached = Attempted::Attached(seen(vec![sent(&[1])]));
        assert_eq!(hold(&want, &attached, false), Held::Holds);
        want.unsupported.as_mut().unwrap().is_required = true;
        fails(&want, &attached, "nothing is in the way");
        assert!(matches!(hold(&want, &refused(&[("missing_arguments", true)]), false), Held::Unsupported(_)));
    }

    /// What the guest tells about the case `complete_inlining` if all is well.
    fn complete_inlining() -> (CaseFile, Observation) {
        let case = CaseFile::read(&super::super::case_file::folder().join("complete_inlining")).unwrap();
        let attempt = |expect: &Expect| match &expect.outcome {
            Outcome::Events(_) => {
                let wanted = Wanted::of(expect, &BTreeMap::new()).unwrap();
                let mut seen = seen(wanted.outcome.unwrap());
                seen.sites = expect.sites.clone().unwrap_or_default();
                Attempted::Attached(seen)
            }
            Outcome::Refused(keys) => refused(&keys.iter().map(|key| (key.as_str(), true)).collect::<Vec<_>>()),
        };
        let family = super::super::family::tests::gcc14();
        let attempts = expectations(&case, &family).iter().map(attempt).collect();
        let suite = case.name.clone();
        (case, Observation { suite, broken: None, addresses: BTreeMap::new(), attempts, milliseconds: 1 })
    }

    #[test]
    fn a_planted_expectation_turns_a_case_red() {
        let family = super::super::family::tests::gcc14();
        let (case, observation) = complete_inlining();
        let verdict = judge(&case, &family, &observation, false);
        assert_eq!(verdict.status, Status::Pass, "{}", verdict.detail);
        let planted = judge(&case, &family, &observation, true);
        assert_eq!(planted.status, Status::Fail, "{}", planted.detail);
    }

    #[test]
    fn what_is_missing_is_no_pass() {
        let family = super::super::family::tests::gcc14();
        let (mut case, observation) = complete_inlining();
        let fewer = Observation { attempts: observation.attempts[1..].to_vec(), ..observation.clone() };
        assert_eq!(judge(&case, &family, &fewer, false).status, Status::Fail);
        let broken = Observation { broken: Some("ENOEXEC".to_owned()), ..observation.clone() };
        assert_eq!(judge(&case, &family, &broken, false), Verdict::new(Status::Fail, "ENOEXEC"));
        for expect in &mut case.expect {
            expect.on = super::super::family::On::parse(&["clang".to_owned()]).unwrap();
        }
        assert_eq!(judge(&case, &family, &observation, false).status, Status::Fail);
    }
}
