// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether the compiler did to a module what a case is about.

use super::case_file::{CaseFile, Conditions};
use super::evidence::{Evidence, Instance};
use super::family::Family;
use super::patterns::meets;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a case has a meaning for a kernel at all.
///
/// # Errors
/// Why not, in the case's own words.
pub fn applies(case: &CaseFile, family: &Family) -> Result<(), String> {
    match case.not_for.iter().find(|entry| entry.on.holds(family)) {
        Some(entry) => Err(entry.because.clone()),
        None if !case.exercised.iter().any(|set| set.on.holds(family)) => {
            Err(format!("the case does not say what shows it on {family}"))
        }
        None => Ok(()),
    }
}

/// Whether a case is exercised by a module.
///
/// # Errors
/// What was found instead.
pub fn exercised(case: &CaseFile, family: &Family, evidence: &Evidence) -> Result<(), String> {
    applies(case, family)?;
    let mut unmet: BTreeSet<String> = BTreeSet::new();
    let mut functions: BTreeSet<&str> = BTreeSet::new();
    for set in case.exercised.iter().filter(|set| set.on.holds(family)) {
        let missing = missing(&set.conditions, evidence);
        if missing.is_empty() {
            return Ok(());
        }
        unmet.extend(missing);
        functions.extend(named(&set.conditions));
    }
    let found: Vec<String> = functions.into_iter().map(|function| evidence.describe(function)).collect();
    let unmet: Vec<String> = unmet.into_iter().collect();
    Err(format!("{}; found: {}", unmet.join("; "), found.join("; ")))
}

/// The functions that conditions speak of.
fn named(conditions: &Conditions) -> BTreeSet<&str> {
    let Conditions {
        symbols,
        no_symbols,
        inlined,
        not_inlined,
        located,
        not_located,
        same_entry,
        patched,
        changed,
        calls,
    } = conditions;
    let base = |pattern: &'_ String| -> usize { pattern.find(['.', '*', '?']).unwrap_or(pattern.len()) };
    let mut names: BTreeSet<&str> = BTreeSet::new();
    names.extend(symbols.iter().chain(no_symbols).filter_map(|pattern| pattern.get(..base(pattern))));
    names.extend(inlined.iter().chain(not_inlined).chain(patched).map(|copies| copies.function.as_str()));
    names.extend(located.iter().chain(not_located).map(|parameter| parameter.function.as_str()));
    names.extend(same_entry.iter().flat_map(|same| &same.functions).map(String::as_str));
    names.extend(changed.iter().map(String::as_str));
    names.extend(calls.iter().map(|calls| calls.function.as_str()));
    names.remove("");
    names
}

/// The conditions that do not hold, in words.
fn missing(conditions: &Conditions, evidence: &Evidence) -> Vec<String> {
    let mut missing = Vec::new();
    let mut unless = |holds: bool, text: String| {
        if !holds {
            missing.push(text);
        }
    };
    let symbol = |pattern: &String| evidence.symbols.iter().find(|symbol| meets(pattern, &symbol.name));
    for pattern in &conditions.symbols {
        unless(symbol(pattern).is_some(), format!("no symbol {pattern}"));
    }
    for pattern in &conditions.no_symbols {
        let found = symbol(pattern);
        unless(found.is_none(), format!("a symbol {}", found.map_or("", |symbol| &symbol.name)));
    }
    let all = |function: &str, into: &str| -> Vec<&Instance> {
        let inlined = evidence.instances.iter().filter(|instance| instance.inlined && instance.function == function);
        inlined.filter(|instance| meets(into, &instance.holder)).collect()
    };
    let copies = |function: &str, into: &str| all(function, into).len();
    for wanted in &conditions.inlined {
        let count = copies(&wanted.function, &wanted.into);
        let text = format!("{count} of {} copies of {} in {}", wanted.copies, wanted.function, wanted.into);
        unless(count >= wanted.copies, text);
    }
    for unwanted in &conditions.not_inlined {
        let count = copies(&unwanted.function, &unwanted.into);
        unless(count == 0, format!("{count} copies of {} in {}", unwanted.function, unwanted.into));
    }
    for (wanted, parameter) in located(conditions) {
        let (function, name) = (&parameter.function, &parameter.parameter);
        let known = evidence.parameters.get(function).is_some_and(|names| names.contains(name));
        unless(known, format!("{function} has no parameter {name}"));
        let mut instances = evidence.instances.iter().filter(|instance| instance.function == *function);
        let met = instances.any(|instance| {
            let presence = instance.parameters.get(name).copied().unwrap_or_default();
            meets(&parameter.within, &instance.holder) && if wanted { presence.at_entry } else { !presence.near }
        });
        let what = if wanted { "a location for" } else { "no location for" };
        unless(met, format!("no copy of {function} in {} has {what} {name}", parameter.within));
    }
    for same in &conditions.same_entry {
        let met =
            entries(evidence, &same.into).values().any(|at| same.functions.iter().all(|name| at.contains(&**name)));
        unless(met, format!("{} do not begin at one address in {}", same.functions.join(" and "), same.into));
    }
    for wanted in &conditions.patched {
        let copies = all(&wanted.function, &wanted.into);
        let count = copies.iter().filter(|copy| evidence.patched.contains(&copy.entry)).count();
        let (function, into, of) = (&wanted.function, &wanted.into, wanted.copies);
        let text = format!("{count} of {of} copies of {function} in {into} begin at a patched instruction");
        unless(count >= of, text);
    }
    for function in &conditions.changed {
        unless(evidence.changed.contains(function), format!("the signature of {function} is not said to be changed"));
    }
    for wanted in &conditions.calls {
        let calls = evidence.calls.iter().filter(|call| call.function == wanted.function);
        let count = calls.filter(|call| meets(&wanted.from, &call.holder)).count();
        let text = format!("{count} calls of {} from {}, not {}", wanted.function, wanted.from, wanted.count);
        unless(count == wanted.count, text);
    }
    missing
}

/// The parameters that are to be located, and those that are not.
fn located(conditions: &Conditions) -> impl Iterator<Item = (bool, &super::case_file::Parameter)> {
    let wanted = conditions.located.iter().map(|parameter| (true, parameter));
    wanted.chain(conditions.not_located.iter().map(|parameter| (false, parameter)))
}

/// Which functions' copies begin where.
fn entries<'e>(evidence: &'e Evidence, into: &str) -> BTreeMap<u64, BTreeSet<&'e str>> {
    let mut entries: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let held = |instance: &&Instance| instance.inlined && meets(into, &instance.holder);
    for instance in evidence.instances.iter().filter(held) {
        entries.entry(instance.entry).or_default().insert(&instance.function);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::super::evidence::{Call, Presence, Symbol};
    use super::super::family::tests::gcc14;
    use super::*;
    use std::path::Path;

    fn instance(function: &str, inlined: bool, entry: u64, holder: &str, parameters: &[(&str, Presence)]) -> Instance {
        Instance {
            function: function.to_owned(),
            inlined,
            entry,
            holder: holder.to_owned(),
            parameters: parameters.iter().map(|(name, presence)| ((*name).to_owned(), *presence)).collect(),
        }
    }

    /// foo: a clone that lacks `gone`, and two copies in bar, one at the address of a copy of baz.
    fn evidence() -> Evidence {
        let here = Presence { at_entry: true, near: true };
        let near = Presence { at_entry: false, near: true };
        let symbol = |name: &str, address| Symbol { name: name.to_owned(), address, size: 16 };
        Evidence {
            symbols: vec![symbol("bar", 0), symbol("foo.isra.0", 16)],
            instances: vec![
                instance("foo", true, 0, "bar", &[("a", here), ("late", near)]),
                instance("baz", true, 0, "bar", &[]),
                instance("foo", true, 8, "bar", &[("a", here)]),
                instance("foo", false, 16, "foo.isra.0", &[("a", here)]),
            ],
            calls: vec![Call { function: "foo".to_owned(), holder: "bar".to_owned() }],
            patched: [8].into(),
            changed: ["foo".to_owned()].into(),
            parameters: [("foo".to_owned(), ["a", "late", "gone"].map(str::to_owned).into())].into(),
        }
    }

    fn holds(conditions: &str) -> Result<(), String> {
        let conditions: Conditions = toml::from_str(conditions).unwrap();
        let missing = missing(&conditions, &evidence());
        if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
    }

    #[test]
    fn each_condition_holds_and_fails() {
        for (good, bad, why) in [
            ("symbols = ['foo.isra.*', 'bar']", "symbols = ['foo']", "no symbol foo"),
            ("no_symbols = ['foo', 'foo.part.*']", "no_symbols = ['foo.*']", "a symbol foo.isra.0"),
            (
                "inlined = [{ function = 'foo', into = 'b*', copies = 2 }]",
                "inlined = [{ function = 'foo', into = 'bar', copies = 3 }]",
                "2 of 3 copies of foo in bar",
            ),
            (
                "not_inlined = [{ function = 'foo', into = 'qux' }]",
                "not_inlined = [{ function = 'foo', into = '*' }]",
                "2 copies of foo",
            ),
            (
                "located = [{ function = 'foo', parameter = 'a', in = 'foo.isra.*' }]",
                "located = [{ function = 'foo', parameter = 'late', in = '*' }]",
                "a location for late",
            ),
            (
                "not_located = [{ function = 'foo', parameter = 'gone', in = 'foo.isra.0' }]",
                "not_located = [{ function = 'foo', parameter = 'a', in = '*' }]",
                "no location for a",
            ),
            (
                "not_located = [{ function = 'foo', parameter = 'late', in = 'foo.isra.0' }]",
                "not_located = [{ function = 'foo', parameter = 'typo', in = '*' }]",
                "no parameter typo",
            ),
            (
                "same_entry = [{ functions = ['foo', 'baz'], into = 'bar' }]",
                "same_entry = [{ functions = ['foo', 'baz', 'qux'], into = 'bar' }]",
                "do not begin at one address",
            ),
            (
                "patched = [{ function = 'foo', into = 'bar' }]",
                "patched = [{ function = 'foo', into = 'bar', copies = 2 }]",
                "1 of 2 copies of foo in bar begin at a patched instruction",
            ),
            (
                "patched = [{ function = 'foo', into = 'b*' }]",
                "patched = [{ function = 'baz', into = 'bar' }]",
                "0 of 1 copies of baz",
            ),
            ("changed = ['foo']", "changed = ['bar']", "bar is not said"),
            (
                "calls = [{ function = 'foo', from = 'bar', count = 1 }]",
                "calls = [{ function = 'foo', from = '*', count = 0 }]",
                "1 calls of foo",
            ),
        ] {
            assert_eq!(holds(good), Ok(()), "{good}");
            let error = holds(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_not_exercised_says_what_was_found() {
        let mut case = CaseFile::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/selective_inlining")).unwrap();
        let why = exercised(&case, &gcc14(), &evidence()).unwrap_err();
        assert!(why.contains("no symbol book") && why.contains("book has no symbol, and no inlined copy"), "{why}");
        case.exercised[0].on = super::super::family::On::parse(&["clang".to_owned()]).unwrap();
        let why = applies(&case, &gcc14()).unwrap_err();
        assert!(why.contains("gcc 14"), "{why}");
        assert_eq!(evidence().describe("foo"), "foo has foo.isra.0, and inlined copies: 2 in bar");
    }
}
