// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a shell offers where a function's name is to be typed: the names in the site data.
//!
//! The shell asks the tool itself (`siteseer generate bash`). Site data that the command line names before are taken,
//! else those of the running kernel; never DWARF, which takes seconds to read.

use clap_complete::{ArgValueCompleter, CompletionCandidate};
use siteseer::internals::path;
use siteseer::internals::pattern::Pattern;
use siteseer::internals::source::SiteData;
use siteseer::internals::target::Listed;
use siteseer::{Dwarf, SourceOptions, Target};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variable by which a shell asks.
pub(crate) const VARIABLE: &str = "SITESEER_COMPLETE";

/// Completes names of functions.
pub(crate) fn functions() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let begun = begun.to_str().unwrap_or_default();
        names(begun, sites_named(env::args_os())).into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The file that `--sites` names among the words of a command line.
fn sites_named(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = words.skip_while(|word| word != "--").skip(1);
    while let Some(word) = words.next() {
        if word == "--sites" {
            return words.next().map(PathBuf::from);
        }
        if let Some(file) = word.to_str().and_then(|word| word.strip_prefix("--sites=")) {
            return Some(file.into());
        }
    }
    None
}

/// Names that begin with the given text. There are none without site data: a shell cannot show an error.
fn names(begun: &str, sites: Option<PathBuf>) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    // A list of all functions is of no use to anybody.
    if begun.is_empty() || !begun.chars().all(is_name) {
        return Vec::new();
    }
    // Functions of Rust go by their paths.
    let patterns = [format!("{begun}*"), format!("{begun}*::*")].map(|pattern| pattern.parse::<Pattern>());
    let [Ok(by_name), Ok(by_path)] = patterns else { return Vec::new() };
    let module = by_name.module().map(ToString::to_string);
    let named = |listed: Listed| {
        let name = match path::full(&listed.name) {
            Some(full) if !begun.contains(path::MANGLED) => path::short(&full),
            _ => listed.name,
        };
        // A shell has other uses for the characters of closures and slices.
        let name = Some(name).filter(|name| name.chars().all(is_name))?;
        Some(module.as_ref().map_or_else(|| name.clone(), |module| format!("{module}:{name}")))
    };
    let found = target(sites.as_deref()).and_then(|target| target.list(&[by_name, by_path]).ok()).unwrap_or_default();
    let mut names: Vec<String> = found.into_iter().flatten().filter_map(named).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn target(sites: Option<&Path>) -> Option<Target> {
    match sites {
        Some(path) => Target::image(SiteData::open(path, None, false).ok()?).ok(),
        None => Target::described(&SourceOptions::default().dwarf(Dwarf::Never)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_data_on_the_command_line() {
        let named = |line: &str| sites_named(line.split(' ').map(OsString::from));
        assert_eq!(named("siteseer -- siteseer list --sites a.sites vfs"), Some("a.sites".into()));
        assert_eq!(named("siteseer -- siteseer list --sites=b.sites vfs"), Some("b.sites".into()));
        assert_eq!(named("siteseer -- siteseer list vfs"), None);
        assert_eq!(named("siteseer --sites x"), None);
    }

    #[test]
    fn what_begins_no_name_has_no_completions() {
        for text in ["", "vfs_*", "@file.c", "a b"] {
            assert!(names(text, Some("/nonexistent".into())).is_empty());
        }
    }
}
