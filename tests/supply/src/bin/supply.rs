// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prints the notices of what is linked, or a bill of materials: `ci/supply`.

use siteseer_supply::graph::Graph;
use siteseer_supply::{bill, notices};
use std::error::Error;
use std::io::{self, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let graph = Graph::read()?;
    let text = match std::env::args().nth(1).as_deref() {
        Some("notices") => notices::notices(&graph)?,
        Some("bill") => format!("{}\n", serde_json::to_string_pretty(&bill::bill(&graph)?)?),
        _ => return Err("usage: siteseer-supply notices|bill".into()),
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}
