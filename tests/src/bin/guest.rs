// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What runs in the virtual machine: `siteseer-guest test [CASE...]`, `siteseer-guest cost [WHAT...]`,
//! `siteseer-guest demo`, or `siteseer-guest startup ROUNDS`.

use siteseer_conformance::{case, cost, demo, startup};
use std::io::Write;
use std::process::ExitCode;

fn run() -> Result<(), case::Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut results = siteseer_vmtest::guest::results()?;
    match arguments.next().as_deref() {
        Some("test") => {
            let names: Vec<String> = arguments.collect();
            case::run(&names, |verdict| {
                // A harness that no longer listens sees a case without a verdict, which is a failure there.
                let _ = serde_json::to_string(&verdict).map(|line| writeln!(results, "{line}"));
            })
        }
        Some("cost") => {
            let names: Vec<String> = arguments.collect();
            cost::run(&names, &mut results)
        }
        Some("demo") => demo::run(&mut results),
        Some("startup") => startup::run(arguments.next().ok_or("how many rounds?")?.parse()?, &mut results),
        other => Err(format!("expected test, cost, demo or startup, not {other:?}").into()),
    }
}

fn main() -> ExitCode {
    siteseer_vmtest::guest::main(|| match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("siteseer-guest: {failure}");
            ExitCode::FAILURE
        }
    })
}
