// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Names of sections and patterns for functions: the input's first line is the pattern or section, the others are
//! matched with it.
#![no_main]

use siteseer::internals::pattern::{Glob, Pattern};
use siteseer::internals::section::{Plain, Section, Wanted};

siteseer_fuzz::target!(|data| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let _ = (Section::parse(first).is_ok(), Plain::parse(first).is_some(), Wanted::parse(first).is_ok());
    if let Ok(glob) = Glob::new(first) {
        let prefix = glob.prefix();
        for line in rest.lines().take(64) {
            let matches = glob.matches(line);
            assert!(!matches || line.starts_with(&prefix), "what a glob matches begins with its prefix");
            assert!(!glob.is_literal() || matches == (line == prefix), "a glob without wildcards is its text");
        }
    }
    if let Ok(pattern) = first.parse::<Pattern>() {
        for line in rest.lines().take(64) {
            let _ = (pattern.in_module(line), pattern.in_file(line), pattern.function().matches(line));
        }
        let _ = (pattern.is_name(), pattern.is_all(), pattern.has_file(), pattern.module().is_some());
    }
});
