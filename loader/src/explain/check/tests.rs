// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
use super::*;
use crate::site::reason::MissingArgument;
use crate::site::unavailable::Unavailable;
use siteseer_sites::location::Missing;
use siteseer_sites::site::Unprobeable;

fn of(shape: Shape, types: &[&str]) -> Answer {
    let mut answer = Answer::without_function(shape, Rule::Missing, String::new());
    answer.findings.clear();
    answer.prototypes = types
        .iter()
        .map(|&types| PrototypeCounts {
            text: format!("text of {types}"),
            types: types.to_owned(),
            sites: 1,
            complete: 1,
            arguments: Vec::new(),
        })
        .collect();
    answer
}

fn rules(first: &Answer, other: &Answer) -> Vec<Rule> {
    compare(first, other).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn answers_differ_by_prototype_and_shape() {
    let plain = of(Shape::Plain, &["int (int)"]);
    assert!(rules(&plain, &plain).is_empty());
    assert_eq!(rules(&plain, &of(Shape::Cloned, &["int (int)"])), [Rule::Shape]);
    assert_eq!(rules(&plain, &of(Shape::Plain, &["int (long)"])), [Rule::Prototype]);
    assert_eq!(rules(&plain, &of(Shape::Plain, &["int (int)", "int (long)"])), [Rule::Prototype]);
    assert_eq!(rules(&plain, &of(Shape::WhollyInlined, &["void (int)"])), [Rule::Prototype, Rule::Shape]);
    // What is not known is not said to differ.
    assert!(rules(&plain, &of(Shape::Plain, &["?"])).is_empty());
    assert!(rules(&plain, &of(Shape::Missing, &[])).is_empty());
    assert!(rules(&of(Shape::NoData, &[]), &plain).is_empty());
    let message = &compare(&plain, &of(Shape::Plain, &["int (long)"]))[0].message;
    assert_eq!(message, "it was text of int (int), and is text of int (long)");
}

/// What a program meets if some sites are skipped and some are in the way.
fn meets(attached: usize, skipped: &[Reason], in_the_way: &[Reason]) -> Outlook {
    let site = |reason: &Reason| InTheWay {
        module: None,
        kind: SiteKind::Inline,
        symbol: "caller".to_owned(),
        offset: 8,
        source: None,
        reason: reason.clone(),
    };
    Outlook {
        form: Form { kind: Kind::Fentry, sleepable: false },
        prototype: None,
        sites: attached + skipped.len(),
        attached,
        mechanisms: BTreeMap::new(),
        refusal: None,
        skipped: skipped.iter().map(site).collect(),
        in_the_way: in_the_way.iter().map(site).collect(),
    }
}

fn found(outlooks: Vec<Outlook>) -> Vec<(Rule, String)> {
    let mut answer = Answer { outlooks, ..of(Shape::Plain, &["int (int)"]) };
    about_programs(&mut answer);
    answer.findings.into_iter().map(|finding| (finding.rule, finding.message)).collect()
}

#[test]
fn what_is_found_about_programs() {
    let missing = Reason::MissingArguments(vec![MissingArgument {
        index: 0,
        name: "a".to_owned(),
        why: Unavailable::Missing(Missing::OptimisedOut),
    }]);
    assert!(found(vec![meets(2, &[], &[])]).is_empty());
    assert_eq!(
        found(vec![meets(2, std::slice::from_ref(&missing), &[missing.clone(), Reason::MayMiss, missing.clone()])]),
        [
            (
                Rule::Incomplete,
                "at 2 sites: a: optimised out; at 1 site: control may come into it by another way than its entry: some \
                 calls may not be seen"
                    .to_owned()
            ),
            (Rule::Arguments, "at 1 site: a: optimised out".to_owned()),
        ]
    );
    // If no site of a function runs any more, nothing is in the way, and nothing can be attached.
    let dead = Reason::Unprobeable(Unprobeable::Init);
    let refused = found(vec![meets(0, std::slice::from_ref(&dead), &[])]);
    assert_eq!(refused, [(Rule::Refused, format!("at 1 site: {dead}"))]);
    // A program that does not fit says so itself.
    let unfit = Outlook { refusal: Some("it does not fit".to_owned()), ..meets(0, &[], &[]) };
    assert_eq!(found(vec![unfit]), [(Rule::Refused, "it does not fit".to_owned())]);
    // Who asked about a name is told of the entry.
    let at = |kind| Outlook { form: Form { kind, sleepable: false }, ..meets(1, &[], &[Reason::ExitOfInline]) };
    assert_eq!(found(vec![meets(1, &[], &[]), at(Kind::Fexit)]), []);
    assert_eq!(found(vec![at(Kind::Fexit)])[0].0, Rule::Incomplete);
}

#[test]
fn keys_and_sentences_are_each_rules_own() {
    let keys: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.key()).collect();
    let sentences: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.describe()).collect();
    assert_eq!((keys.len(), sentences.len()), (Rule::ALL.len(), Rule::ALL.len()));
    assert!(keys.iter().all(|key| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')), "{keys:?}");
}
