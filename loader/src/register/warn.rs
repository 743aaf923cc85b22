// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is said about programs that libbpf's calls attached, and that do not see all calls.

use super::RegisterError;
use crate::attach::AttachError;
use crate::plan::Policy;
use crate::plan::report::Report;
use crate::register::log::{LogLevel, say};
use crate::target::TargetError;
use siteseer_sites::with_causes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether it was said already why nothing can be planned in this process.
static SAID: AtomicBool = AtomicBool::new(false);

/// Says it again when it next happens.
pub(super) fn again() {
    SAID.store(false, Ordering::Relaxed);
}

/// A program that libbpf attached because siteseer cannot. What holds for all programs is said once.
pub(super) fn as_libbpf(name: &str, error: &RegisterError) {
    let why = with_causes(error);
    if !is_of_all(error) {
        say(
            LogLevel::Warn,
            format_args!(
                "prog '{name}': attached as plain libbpf does; calls of other copies of the function are not seen: {why}"
            ),
        );
    } else if SAID.swap(true, Ordering::Relaxed) {
        say(
            LogLevel::Info,
            format_args!("prog '{name}': attached as plain libbpf does, for the reason that was given"),
        );
    } else {
        say(
            LogLevel::Warn,
            format_args!(
                "prog '{name}' and those after it: attached as plain libbpf does; calls of copies that the compiler \
                 inlined or cloned are not seen: {why}"
            ),
        );
    }
}

/// Whether no program can be attached for that reason.
fn is_of_all(error: &RegisterError) -> bool {
    let error = match error {
        RegisterError::Earlier(_) => return true,
        RegisterError::Target(error) | RegisterError::Attach(AttachError::Target(error)) => error,
        _ => return false,
    };
    matches!(error, TargetError::Kernel(_) | TargetError::Symbols(_) | TargetError::Source(_))
}

/// A program that siteseer attached: as a warning if calls are missed that nobody asked for to be missed.
pub(super) fn of_what_is_missed(name: &str, report: &Report) {
    let mut missed = report.skipped().filter(|(_, reason)| !reason.is_dead()).peekable();
    if report.policy != Policy::AtLeastLibbpf || missed.peek().is_none() {
        say(LogLevel::Info, format_args!("prog '{name}': {report}"));
        return;
    }
    let mut hints: Vec<&str> = missed.filter_map(|(_, reason)| reason.advice()).collect();
    hints.sort_unstable();
    hints.dedup();
    let hints: String = hints.iter().map(|hint| format!("  hint: {hint}\n")).collect();
    say(
        LogLevel::Warn,
        format_args!("prog '{name}': attached, but not at all sites: not all calls are seen:\n{report}{hints}"),
    );
}
