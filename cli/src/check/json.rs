// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `siteseer check --json` prints. docs/check.md describes it: what is there stays, more may be added.

use super::{Asker, Results, Subject, Unchecked};
use serde_json::{Value, json};
use siteseer::InTheWay;
use siteseer::internals::check::{Answer, Outlook, PrototypeCounts};
use siteseer_sites::Machine;

/// The name of the format, with its version.
const SCHEMA: &str = "siteseer-check/1";

pub(super) fn all(results: &Results<'_>) -> Value {
    let functions = results.subjects.iter().zip(&results.answers);
    json!({
        "schema": SCHEMA,
        "deny": results.deny.0.iter().map(|rule| rule.key()).collect::<Vec<_>>(),
        "denied": results.denied(),
        "kernels": results.kernels.iter().map(|kernel| json!({
            "name": kernel.name,
            "file": kernel.file.to_string_lossy(),
            "build_id": kernel.build_id.to_string(),
            "machine": machine(kernel.machine),
        })).collect::<Vec<_>>(),
        "functions": functions.map(|(subject, answers)| function(results, subject, answers)).collect::<Vec<_>>(),
        "unchecked": results.unchecked.iter().map(unchecked).collect::<Vec<_>>(),
    })
}

pub(crate) fn machine(machine: Machine) -> &'static str {
    match machine {
        Machine::X86_64 => "x86_64",
        Machine::Aarch64 => "aarch64",
    }
}

fn unchecked(unchecked: &Unchecked) -> Value {
    let Unchecked { object, program, section } = unchecked;
    json!({ "object": object.to_string_lossy(), "program": program, "section": section })
}

fn function(results: &Results<'_>, subject: &Subject, answers: &[Answer]) -> Value {
    let program = subject.asker.program().map(|(object, program, section)| {
        let ours = matches!(subject.asker, Asker::Program { .. });
        json!({ "object": object.to_string_lossy(), "program": program, "section": section, "by_siteseer": ours })
    });
    let kernels = answers.iter().zip(results.kernels);
    json!({
        "function": subject.wanted.function,
        "module": subject.wanted.module,
        "program": program,
        "kernels": kernels.map(|(found, kernel)| answer(results, &kernel.name, found)).collect::<Vec<_>>(),
    })
}

fn answer(results: &Results<'_>, kernel: &str, answer: &Answer) -> Value {
    json!({
        "kernel": kernel,
        "shape": answer.shape.key(),
        "bodies": answer.bodies,
        "clones": answer.clones,
        "inlined": answer.inlined,
        "dead": answer.dead,
        "unprobeable": answer.unprobeable,
        "changed_signatures": answer.changed_signatures,
        "prototypes": answer.prototypes.iter().map(prototype).collect::<Vec<_>>(),
        "programs": answer.outlooks.iter().map(outlook).collect::<Vec<_>>(),
        "findings": answer.findings.iter().map(|finding| json!({
            "rule": finding.rule.key(),
            "denied": results.deny.has(finding.rule),
            "message": finding.message,
        })).collect::<Vec<_>>(),
    })
}

fn prototype(prototype: &PrototypeCounts) -> Value {
    json!({
        "text": prototype.text,
        "sites": prototype.sites,
        "complete": prototype.complete,
        "arguments": prototype.arguments.iter().map(|argument| json!({
            "name": argument.name,
            "type": argument.type_name,
            "located": argument.located,
            "certain": argument.certain,
            "missing": argument.missing,
        })).collect::<Vec<_>>(),
    })
}

fn outlook(outlook: &Outlook) -> Value {
    json!({
        "section": outlook.form.kind.word(),
        "sleepable": outlook.form.sleepable,
        "prototype": outlook.prototype,
        "sites": outlook.sites,
        "attached": outlook.attached,
        "mechanisms": outlook.mechanisms,
        "complete": outlook.is_complete(),
        "refusal": outlook.refusal,
        "in_the_way": outlook.in_the_way.iter().map(in_the_way).collect::<Vec<_>>(),
    })
}

fn in_the_way(site: &InTheWay) -> Value {
    json!({
        "kind": site.kind.word(),
        "module": site.module.as_deref(),
        "symbol": site.symbol,
        "offset": site.offset,
        "file": site.source.as_ref().map(|place| &place.file),
        "line": site.source.as_ref().map(|place| place.line),
        "reason": site.reason.key(),
        "why": site.reason.to_string(),
    })
}
