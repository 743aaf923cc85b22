// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer clean`: removes what processes that were killed have left in the kernel.

use crate::Failure;
use clap::Args;
use std::io::{self, Write};

/// Remove the definitions of tracefs events that killed processes have left (requires root)
///
/// They have no effect. siteseer also removes them when it next attaches a program.
#[derive(Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    let removed = siteseer::clean()?;
    writeln!(io::stdout(), "{removed} {} removed", if removed == 1 { "definition" } else { "definitions" })?;
    Ok(())
}
