// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What runs in the virtual machine: `siteseer-guest test [CASE...]`, `siteseer-guest suite`, `siteseer-guest cost
//! [WHAT...]`, `siteseer-guest demo`, `siteseer-guest examples [NAME...]`, `siteseer-guest clients`, `siteseer-guest
//! compared`, `siteseer-guest reach`, `siteseer-guest startup ROUNDS`, `siteseer-guest starts ROUNDS`, `siteseer-guest
//! armed [FIRST END]`, or `siteseer-guest planted WHAT`; `siteseer-guest plain`, `siteseer-guest libbpf` and
//! `siteseer-guest start` are what the others start of their own.

use siteseer_conformance::compare::{clients, compared, reach};
use siteseer_conformance::guest::{case, demo, examples, libbpf, starts, tools};
use siteseer_conformance::measure::{armed, cost, startup};
use siteseer_conformance::suite;
use siteseer_sites::with_causes;
use std::io::Write;
use std::process::ExitCode;

fn run() -> Result<(), case::Failure> {
    let mut arguments = std::env::args();
    if arguments.next().is_some_and(|name| compared::work::is_meant(&name)) {
        return compared::work::run(&arguments.collect::<Vec<String>>());
    }
    let command = arguments.next();
    if command.as_deref() == Some("plain") {
        return tools::plain::run(&arguments.collect::<Vec<String>>());
    }
    if command.as_deref() == Some("libbpf") {
        return libbpf::run(&arguments.collect::<Vec<String>>());
    }
    if command.as_deref() == Some("start") {
        let [with, programs] = arguments.collect::<Vec<String>>().try_into().map_err(|_| "start what?")?;
        return starts::tool(&with, programs.parse()?);
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
        Some("examples") => {
            let names: Vec<String> = arguments.collect();
            examples::run(&names, &mut results)
        }
        Some("clients") => clients::guest::run(&mut results),
        Some("reach") => {
            siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
            let target = siteseer::Target::running(&siteseer::SourceOptions::default())?;
            write!(results, "{}", reach::print(&reach::measure(&target, reach::Extent::All)?))?;
            Ok(())
        }
        Some("compared") => compared::guest::run(&mut results),
        Some("startup") => startup::run(arguments.next().ok_or("how many rounds?")?.parse()?, &mut results),
        Some("starts") => starts::run(arguments.next().ok_or("how many rounds?")?.parse()?, &mut results),
        Some("armed") => {
            let range = match arguments.collect::<Vec<String>>().as_slice() {
                [] => None,
                [first, end] => Some(first.parse()?..end.parse()?),
                other => return Err(format!("expected FIRST END, not {other:?}").into()),
            };
            armed::run(range, &mut results)
        }
        Some("planted") => armed::plant::run(arguments.next().as_deref()),
        other => {
            let known =
                "test, suite, cost, demo, examples, clients, compared, reach, startup, starts, armed or planted";
            Err(format!("expected {known}, not {other:?}").into())
        }
    }
}

fn main() -> ExitCode {
    siteseer_vmtest::guest::main(|| match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("siteseer-guest: {}", with_causes(&*failure));
            ExitCode::FAILURE
        }
    })
}
