// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Wrong expectations, planted on purpose: a comparison that accepts one of them shows nothing.

use super::job::Attempted;
use super::judge::{Held, Wanted, hold};
use std::collections::BTreeMap;

/// A wrong expectation, and what is wrong with it.
type Wrong = (String, Wanted);

/// Whether any wrong expectation holds, and which. `held` is how the right one does.
pub fn accepted(wanted: &Wanted, attempted: &Attempted, any_process: bool, held: &Held) -> Option<String> {
    let wrong = match held {
        Held::Unsupported(_) => not_allowed(wanted),
        _ => wrong(wanted),
    };
    let fails = |wanted: &Wanted| matches!(hold(wanted, attempted, any_process), Held::Fails(_));
    wrong.into_iter().find(|(_, wanted)| !fails(wanted)).map(|(what, _)| what)
}

/// Makes an expectation wrong.
pub fn first(wanted: &mut Wanted) {
    if let Some((_, wrong)) = wrong(wanted).into_iter().next() {
        *wanted = wrong;
    }
}

/// An expectation in which what was in the way is not allowed.
fn not_allowed(wanted: &Wanted) -> Vec<Wrong> {
    vec![("a limit that is not allowed".to_owned(), Wanted { unsupported: None, ..wanted.clone() })]
}

/// Every way in which an expectation is made wrong: each value changed by one, or there where it is absent and the
/// other way round; each event left out; one added; unequal neighbours exchanged; each count changed; what is refused
/// attached, and the other way round.
fn wrong(wanted: &Wanted) -> Vec<Wrong> {
    let mut all: Vec<Wrong> = Vec::new();
    match &wanted.outcome {
        Ok(events) => {
            let mut add = |what: String, events| all.push((what, Wanted { outcome: Ok(events), ..wanted.clone() }));
            for (nth, event) in events.iter().enumerate() {
                for (at, value) in event.values.iter().enumerate() {
                    let others = match value {
                        Some(number) => vec![Some(number.wrapping_add(1)), Some(number.wrapping_sub(1)), None],
                        None => vec![Some(0)],
                    };
                    for other in others {
                        let mut events = events.clone();
                        events[nth].values[at] = other;
                        add(format!("call {}, value {}: {other:?} in place of {value:?}", nth + 1, at + 1), events);
                    }
                }
            }
            for nth in 0..events.len() {
                let mut without = events.clone();
                let event = without.remove(nth);
                add(format!("without call {}", nth + 1), without);
                let mut twice = events.clone();
                twice.insert(nth, event);
                add(format!("call {} twice", nth + 1), twice);
                let mut of_other = events.clone();
                of_other[nth].program.push('_');
                add(format!("call {} by another program", nth + 1), of_other);
            }
            for nth in 1..events.len() {
                if events[nth - 1] != events[nth] {
                    let mut exchanged = events.clone();
                    exchanged.swap(nth - 1, nth);
                    add(format!("calls {nth} and {} exchanged", nth + 1), exchanged);
                }
            }
            if events.is_empty() {
                let one = super::job::Sent { program: String::new(), values: Vec::new() };
                add("one call where there is none".to_owned(), vec![one]);
            }
            let refused = Wanted { outcome: Err(["notrace".to_owned()].into()), ..wanted.clone() };
            all.push(("a refusal".to_owned(), refused));
        }
        Err(reasons) => {
            for reason in reasons {
                let mut others = reasons.clone();
                others.remove(reason);
                others.insert(format!("not_{reason}"));
                all.push((format!("another reason than {reason}"), Wanted { outcome: Err(others), ..wanted.clone() }));
            }
            all.push(("no refusal".to_owned(), Wanted { outcome: Ok(Vec::new()), ..wanted.clone() }));
        }
    }
    if let Some(counts) = &wanted.sites {
        all.extend(
            counted(counts)
                .map(|counts| (format!("sites {counts:?}"), Wanted { sites: Some(counts), ..wanted.clone() })),
        );
    }
    if let Some(counts) = &wanted.skipped {
        all.extend(
            counted(counts)
                .map(|counts| (format!("skipped {counts:?}"), Wanted { skipped: Some(counts), ..wanted.clone() })),
        );
    }
    for nth in 0..wanted.skipped_for.len() {
        let mut skipped_for = wanted.skipped_for.clone();
        skipped_for[nth].insert_str(0, "not_");
        all.push((format!("skipped for {skipped_for:?}"), Wanted { skipped_for, ..wanted.clone() }));
    }
    all
}

/// Counts, each of them one more.
fn counted(counts: &BTreeMap<String, usize>) -> impl Iterator<Item = BTreeMap<String, usize>> + '_ {
    counts.keys().map(|key| {
        let mut counts = counts.clone();
        counts.entry(key.clone()).and_modify(|count| *count += 1);
        counts
    })
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::{seen, sent, wanted};
    use super::*;

    #[test]
    fn no_wrong_expectation_is_accepted() {
        let events = vec![sent(&[1, 2]), sent(&[1, 2]), sent(&[u64::MAX])];
        let mut right = wanted(Ok(events.clone()));
        right.sites = Some([("body".to_owned(), 1)].into());
        right.skipped = Some([("notrace".to_owned(), 1)].into());
        right.skipped_for = vec!["notrace".to_owned()];
        let mut seen = seen(events);
        seen.skipped = [("notrace".to_owned(), 1)].into();
        let attempted = Attempted::Attached(seen);
        let held = hold(&right, &attempted, false);
        assert_eq!(held, Held::Holds);
        assert_eq!(accepted(&right, &attempted, false, &held), None);
        // Values: 5 of 3 others each; calls: 3 of 3 changes; one pair of unequal neighbours; a refusal; two counts; a
        // reason.
        assert_eq!(wrong(&right).len(), 5 * 3 + 3 * 3 + 1 + 1 + 2 + 1);
        first(&mut right);
        assert!(matches!(hold(&right, &attempted, false), Held::Fails(_)));
    }

    #[test]
    fn an_expectation_of_nothing_can_be_wrong() {
        assert_eq!(wrong(&wanted(Ok(vec![]))).len(), 2);
        assert_eq!(wrong(&wanted(Err(&["notrace"]))).len(), 2);
    }

    #[test]
    fn a_comparison_that_is_too_lenient_is_found_out() {
        // Counts are not compared for a refusal, so that a wrong one is accepted there.
        let mut lenient = wanted(Err(&["notrace"]));
        lenient.sites = Some([("body".to_owned(), 1)].into());
        let reason = super::super::limits::InWay { key: "notrace".to_owned(), is_limit: true, text: String::new() };
        let refused = super::super::job::Refused { reasons: vec![reason], text: String::new(), after: Vec::new() };
        let attempted = Attempted::Refused(refused);
        let held = hold(&lenient, &attempted, false);
        assert!(accepted(&lenient, &attempted, false, &held).is_some());
    }
}
