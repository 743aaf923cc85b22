// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Stacks in the output of other programs, line by line, and places as users type them, for `siteseer where`.
#![no_main]

// The command's own modules.
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../src/symbolise"]
mod symbolise {
    mod query;
    mod stack;

    pub(crate) fn read(line: &str) {
        if let Some(found) = stack::frame(line) {
            assert!(line.starts_with(found.indent) && line.contains(found.digits), "parts of the line");
            let _ = found.query.to_string();
        }
        if let Ok(query) = line.parse::<query::Query>() {
            let shown = query.to_string();
            assert!(shown.parse::<query::Query>().is_ok(), "{line:?} is shown as {shown:?}, which is not a place");
        }
    }
}

siteseer_fuzz::target!(|data| {
    let text = String::from_utf8_lossy(data);
    text.lines().take(256).for_each(symbolise::read);
});
