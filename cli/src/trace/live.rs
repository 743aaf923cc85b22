// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--top`: numbers that are printed every second while calls are counted.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// The numbers so far.
pub(super) enum Numbers {
    /// For people.
    Text(String),
    /// For programs, a row each.
    Json(Vec<serde_json::Value>),
}

/// Prints them, in place of those before on a terminal.
pub(super) fn print(numbers: &Numbers, calls: u64, after: Duration) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let clear = if stdout.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    stdout.write_all(text(numbers, calls, after, clear).as_bytes())?;
    stdout.flush()
}

fn text(numbers: &Numbers, calls: u64, after: Duration, clear: &str) -> String {
    let seconds = after.as_secs();
    match numbers {
        Numbers::Json(rows) => format!("{}\n", serde_json::json!({ "seconds": seconds, "top": rows })),
        Numbers::Text(text) => {
            let rate = calls as f64 / after.as_secs_f64().max(0.001);
            format!("{clear}{seconds} s, {calls} calls, {rate:.0} a second\n{text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_so_far() {
        let after = Duration::from_millis(2_000);
        let table = Numbers::Text("the table\n".to_owned());
        assert_eq!(text(&table, 10, after, ""), "2 s, 10 calls, 5 a second\nthe table\n");
        let rows = Numbers::Json(vec![serde_json::json!({ "count": 10 })]);
        assert_eq!(text(&rows, 10, after, "\x1b[H"), "{\"seconds\":2,\"top\":[{\"count\":10}]}\n");
    }
}
