// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Snapshots of a case's plans, for each compiler, link mode, architecture and version of Linux: a change of what is
//! attached, or of where arguments are found, is seen even where the values come out right. One file has those of all
//! families ([`PlansFile`]).
//!
//! They hold neither addresses nor offsets, nor the hashes that ThinLTO puts into names. Which mechanism reaches a site
//! is the kernel's, and of kernels that one compiler made it may differ: they hold whether it is attached. What the
//! kernel's own image has for a function differs between versions: they hold that there is something.

use super::case_file::{CaseFile, Expect};
use super::family::Family;
use super::job::{Attempted, SiteLine};
use super::plans_file::PlansFile;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// The plans of a case as text.
pub fn text(expectations: &[Expect], attempts: &[Attempted]) -> String {
    let mut text = String::new();
    for (expect, attempted) in expectations.iter().zip(attempts) {
        match attempted {
            Attempted::Attached(seen) => {
                let _ = writeln!(text, "{}:", expect.label());
                // Those of one function, in the order of what they are rather than of addresses.
                let mut lines: Vec<&SiteLine> = seen.plan.iter().filter(|line| !line.in_image).collect();
                lines.sort();
                if lines.len() < seen.plan.len() {
                    text.push_str("  in the kernel's image\n");
                }
                lines.into_iter().for_each(|line| site(&mut text, line));
            }
            Attempted::Refused(refused) => {
                let keys: BTreeSet<&str> = refused.reasons.iter().map(|reason| reason.key.as_str()).collect();
                let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
                let _ = writeln!(text, "{}: refused ({keys})", expect.label());
            }
            Attempted::Error(_) => {
                let _ = writeln!(text, "{}: an error", expect.label());
            }
        }
    }
    text
}

fn site(text: &mut String, line: &SiteLine) {
    let is_attached = !line.outcome.starts_with("not attached");
    let outcome = if is_attached { "attached" } else { &line.outcome };
    let symbol = without_hash(&line.symbol);
    let _ = writeln!(text, "  {} {} in {symbol} ({}): {outcome}", line.kind, line.function, line.source);
    for argument in &line.arguments {
        let _ = writeln!(text, "    {}", without_address(argument));
    }
}

/// `counter = 0xffffffffc0123030`, the address of something of the kernel's or of a module's, with the address
/// replaced: it is another one at each boot.
fn without_address(argument: &str) -> String {
    const MARK: &str = "0xffff";
    let Some((before, rest)) = argument.split_once(MARK) else { return argument.to_owned() };
    let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    if end < 12 { argument.to_owned() } else { format!("{before}ADDRESS{}", &rest[end..]) }
}

/// `foo.llvm.1234567` with the hash replaced.
fn without_hash(symbol: &str) -> String {
    const MARK: &str = ".llvm.";
    let Some((name, rest)) = symbol.split_once(MARK) else { return symbol.to_owned() };
    format!("{name}{MARK}HASH{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// The name of a case's file of plans, without its extension.
const FILE: &str = "plans";

/// How plans compare with those of the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// They are the same, or the file has them now (`INSTA_UPDATE`).
    Same,
    /// The file has none for the family.
    NotRecorded,
}

/// Compares a case's plans with the snapshot for a kernel's compiler. `INSTA_UPDATE` says what happens to a difference.
///
/// # Errors
/// A sentence, if they differ or the file cannot be read.
pub fn check(case: &CaseFile, family: &Family, text: &str) -> Result<Compared, String> {
    // Kernels are judged side by side, and each writes the file of all.
    static FILES: Mutex<()> = Mutex::new(());
    let _lock = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = case.folder.join(FILE).with_extension("snap");
    let recorded = match std::fs::read_to_string(&path) {
        Ok(content) => PlansFile::parse(&content),
        Err(error) if error.kind() == ErrorKind::NotFound => PlansFile::default(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    if !recorded.has(&family.name()) && std::env::var_os("INSTA_UPDATE").is_none_or(|update| update != "always") {
        return Ok(Compared::NotRecorded);
    }
    let all = recorded.with(family.name(), text.to_owned()).to_string();
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(&case.folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let compared = settings.bind(|| catch_unwind(AssertUnwindSafe(|| insta::assert_snapshot!(FILE, all))));
    compared.map(|()| Compared::Same).map_err(|_| {
        format!(
            "the plans are not those of {} in {FILE}.snap (INSTA_UPDATE=always ci/matrix accepts them):\n{text}",
            family.name()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_left_out() {
        assert_eq!(without_hash("foo.llvm.8123456789"), "foo.llvm.HASH");
        assert_eq!(without_hash("foo.llvm.812.cold"), "foo.llvm.HASH.cold");
        assert_eq!(without_hash("foo.isra.0"), "foo.isra.0");
    }

    #[test]
    fn addresses_are_left_out() {
        assert_eq!(without_address("counter = 0xffffffffc011e030"), "counter = ADDRESS");
        assert_eq!(without_address("counter = 0xffff80007a0b1000 + 8"), "counter = ADDRESS + 8");
        assert_eq!(without_address("mask = 0xffff"), "mask = 0xffff");
        assert_eq!(without_address("a = rdi"), "a = rdi");
    }

    #[test]
    fn neither_addresses_nor_mechanisms() {
        let line = |symbol: &str, outcome: &str| SiteLine {
            function: "foo".to_owned(),
            kind: "inline".to_owned(),
            in_image: false,
            symbol: symbol.to_owned(),
            source: "calls.c:7".to_owned(),
            outcome: outcome.to_owned(),
            arguments: vec!["a = rdi".to_owned()],
        };
        let mut text = String::new();
        site(&mut text, &line("bar.llvm.77", "kprobe"));
        site(&mut text, &line("bar", "not attached: why"));
        assert_eq!(
            text,
            "  inline foo in bar.llvm.HASH (calls.c:7): attached\n    a = rdi\n  inline foo in bar (calls.c:7): not \
             attached: why\n    a = rdi\n"
        );
    }
}
