// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What runs in the virtual machine: `siteseer-guest test [CASE...]`, `siteseer-guest suite`, `siteseer-guest cost [WHAT...]`, `siteseer-guest demo`,
//! `siteseer-guest reach`, or `siteseer-guest startup ROUNDS`; `siteseer-guest plain` and `siteseer-guest libbpf` are
//! what the first starts of its own.

use siteseer_conformance::{case, cost, demo, libbpf, reach, startup, suite, tools};
use std::io::Write;
use std::process::ExitCode;

fn run() -> Result<(), case::Failure> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    if command.as_deref() == Some("plain") {
        return tools::plain::run(&arguments.collect::<Vec<String>>());
    }
    if command.as_deref() == Some("libbpf") {
        return libbpf::run(&arguments.collect::<Vec<String>>());
    }
    let mut results = siteseer_vmtest::guest::results()?;
    match command.as_deref() {
        Some("test") => {
            let names: Vec<String> = arguments.collect();
            case::run(&names, |verdict| {
                // A harness that no longer listens sees a case without a verdict, which is a failure there.
                let _ = serde_json::to_string(&verdict).map(|line| writeln!(results, "{line}"));
            })?;
            // Those of the conformance suite that the host has put here.
            suite::guest::run(&mut results)
        }
        Some("suite") => suite::guest::run(&mut results),
        Some("cost") => {
            let names: Vec<String> = arguments.collect();
            cost::run(&names, &mut results)
        }
        Some("demo") => demo::run(&mut results),
        Some("reach") => {
            siteseer::register_with(siteseer::register::Options::default().plan_at_load(false))?;
            let target = siteseer::Target::running(&siteseer::SourceOptions::default())?;
            write!(results, "{}", reach::print(&reach::measure(&target, reach::Extent::All)?))?;
            Ok(())
        }
        Some("startup") => startup::run(arguments.next().ok_or("how many rounds?")?.parse()?, &mut results),
        other => Err(format!("expected test, suite, cost, demo, reach or startup, not {other:?}").into()),
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
