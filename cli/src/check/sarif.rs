// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `siteseer check --sarif` prints: each finding is a result (SARIF 2.1.0, OASIS). One of a denied rule is an
//! error, any other a note. Its place is the BPF object whose program asks, or else the kernel's site file; the
//! function and the kernel are its logical places.

use super::{Results, Subject};
use crate::kernels::Kernel;
use serde_json::{Value, json};
use siteseer::internals::check::{Finding, Rule};
use std::path::Path;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

pub(super) fn log(results: &Results<'_>) -> Value {
    let level = |rule: Rule| if results.deny.has(rule) { "error" } else { "note" };
    let rules = Rule::ALL.map(|rule| {
        json!({
            "id": rule.key(),
            "shortDescription": { "text": rule.describe() },
            "defaultConfiguration": { "level": level(rule) },
        })
    });
    let mut found = Vec::new();
    for (subject, answers) in results.subjects.iter().zip(&results.answers) {
        for (kernel, answer) in results.kernels.iter().zip(answers) {
            let of = answer.findings.iter().map(|finding| result(subject, kernel, finding, level(finding.rule)));
            found.extend(of);
        }
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "siteseer", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": found,
        }],
    })
}

fn result(subject: &Subject, kernel: &Kernel, finding: &Finding, level: &str) -> Value {
    let name = subject.name();
    let program = subject.asker.program();
    let by = program.map(|(_, program, section)| format!(" (program {program}, SEC(\"{section}\"))"));
    let text =
        format!("{name} on {}{}: {}: {}", kernel.name, by.unwrap_or_default(), finding.rule.key(), finding.message);
    let file = program.map_or(kernel.file.as_path(), |(object, ..)| object);
    json!({
        "ruleId": finding.rule.key(),
        "ruleIndex": Rule::ALL.iter().position(|rule| *rule == finding.rule),
        "level": level,
        "message": { "text": text },
        "locations": [{
            "physicalLocation": { "artifactLocation": { "uri": uri(file) } },
            "logicalLocations": [
                { "name": name, "kind": "function" },
                { "name": kernel.name, "kind": "namespace" },
            ],
        }],
    })
}

/// A path as a reference of a URI (RFC 3986): a relative one stays relative.
fn uri(path: &Path) -> String {
    let mut text = if path.is_absolute() { "file://".to_owned() } else { String::new() };
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' | b'+' => text.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_references() {
        assert_eq!(uri(Path::new("out/a b.bpf.o")), "out/a%20b.bpf.o");
        assert_eq!(uri(Path::new("/x/6.1%.sites")), "file:///x/6.1%25.sites");
        assert_eq!(uri(Path::new("a:b/ü")), "a%3Ab/%C3%BC");
    }
}
