// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Configuration fragments, and whether Kconfig took them.
//!
//! A fragment is in the form of a `.config`: `CONFIG_X=y`, `CONFIG_X=8`, `# CONFIG_X is not set`. Kconfig silently
//! drops what it does not know and what lacks a dependency (Documentation/kbuild/kconfig.rst), and a kernel without an
//! option that it was thought to have is a riddle later. So what it made is compared with what was asked for.

use std::{collections::BTreeMap, fmt};

/// The configuration is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A line of a fragment is neither an option nor a comment.
    #[error("configuration fragment {fragment}, line {number}: {line:?} sets no option")]
    Line {
        /// The fragment.
        fragment: String,
        /// Counted from 1.
        number: usize,
        /// The line.
        line: String,
    },
    /// Two fragments want different things.
    #[error("configuration fragments {first} and {second} differ about {option}")]
    Contradiction {
        /// The option.
        option: String,
        /// A fragment that sets it.
        first: String,
        /// Another, or the same.
        second: String,
    },
    /// Kconfig made something else of options.
    #[error("the configuration did not come out as its fragments say:{}", lines(.0))]
    Lost(Vec<Lost>),
}

/// An option that did not come out as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The option, with `CONFIG_`.
    pub option: String,
    /// What the fragment says; `n` if it is not set.
    pub wanted: String,
    /// What Kconfig made of it; none if it does not mention it.
    pub found: Option<String>,
    /// The fragment.
    pub fragment: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { option, wanted, found, fragment } = self;
        write!(f, "{option}={wanted} ({fragment}): ")?;
        match found.as_deref() {
            Some("n") => write!(f, "it is not set"),
            Some(found) => write!(f, "it is {found}"),
            None => write!(f, "this kernel has no such option, or what it depends on is not set"),
        }
    }
}

fn lines(lost: &[Lost]) -> String {
    lost.iter().map(|lost| format!("\n  {lost}")).collect()
}

/// Reads a `.config` or a fragment: options and their values. The error is the number of the line that is wrong.
fn parse(text: &str) -> Result<BTreeMap<&str, &str>, (usize, &str)> {
    let is_option = |name: &str| {
        name.strip_prefix("CONFIG_").is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    };
    let mut options = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let unset = line.strip_prefix("# ").and_then(|rest| rest.strip_suffix(" is not set"));
        match unset.filter(|name| is_option(name)) {
            Some(name) => drop(options.insert(name, "n")),
            None if line.is_empty() || line.starts_with('#') => {}
            None => match line.split_once('=') {
                Some((name, value)) if is_option(name) && !value.is_empty() => drop(options.insert(name, value)),
                _ => return Err((index + 1, line)),
            },
        }
    }
    Ok(options)
}

/// What the fragments, each with its name, ask for together: option, value, and the fragment that says so.
fn merge(fragments: &[(String, String)]) -> Result<BTreeMap<&str, (&str, &str)>, ConfigError> {
    let mut merged: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for (fragment, text) in fragments {
        let options = parse(text).map_err(|(number, line)| ConfigError::Line {
            fragment: fragment.clone(),
            number,
            line: line.to_owned(),
        })?;
        for (option, value) in options {
            match merged.insert(option, (value, fragment)) {
                Some((earlier, first)) if earlier != value => {
                    return Err(ConfigError::Contradiction {
                        option: option.to_owned(),
                        first: first.to_owned(),
                        second: fragment.clone(),
                    });
                }
                _ => {}
            }
        }
    }
    Ok(merged)
}

/// The text that Kconfig is given (`KCONFIG_ALLCONFIG`).
pub(crate) fn joined(fragments: &[(String, String)]) -> Result<String, ConfigError> {
    let merged = merge(fragments)?;
    let line = |(option, (value, _)): (&&str, &(&str, &str))| match *value {
        "n" => format!("# {option} is not set\n"),
        value => format!("{option}={value}\n"),
    };
    Ok(merged.iter().map(line).collect())
}

/// Compares the fragments with the `.config` that came of them.
pub(crate) fn check(fragments: &[(String, String)], config: &str) -> Result<(), ConfigError> {
    let found = parse(config).map_err(|(number, line)| ConfigError::Line {
        fragment: ".config".to_owned(),
        number,
        line: line.to_owned(),
    })?;
    let lost: Vec<Lost> = merge(fragments)?
        .into_iter()
        // What is not set may as well not be mentioned.
        .filter(|(option, (value, _))| found.get(option).copied().unwrap_or("n") != *value)
        .map(|(option, (value, fragment))| Lost {
            option: option.to_owned(),
            wanted: value.to_owned(),
            found: found.get(option).map(|found| (*found).to_owned()),
            fragment: fragment.to_owned(),
        })
        .collect();
    if lost.is_empty() { Ok(()) } else { Err(ConfigError::Lost(lost)) }
}

/// Whether a line of a kernel's configuration switches its own site data on.
pub(crate) fn is_inline_option(line: &str) -> bool {
    matches!(line.strip_prefix("CONFIG_DEBUG_INFO_BTF_INLINE="), Some("y" | "m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn what_kconfig_took_is_right() {
        let fragments = fragments(&[
            ("vm", "# Why.\n\nCONFIG_SMP=y\nCONFIG_NR_CPUS=8\nCONFIG_NAME=\"a b\"\n"),
            ("arch", "# CONFIG_OLD is not set\n# CONFIG_GONE is not set\nCONFIG_SMP=y\n"),
        ]);
        let config = "#\n# Automatically generated\n#\nCONFIG_SMP=y\nCONFIG_NR_CPUS=8\nCONFIG_NAME=\"a b\"\n\
                      # CONFIG_OLD is not set\nCONFIG_MORE=m\n";
        check(&fragments, config).unwrap();
        let text = joined(&fragments).unwrap();
        assert!(text.contains("# CONFIG_OLD is not set\n") && text.contains("CONFIG_NR_CPUS=8\n"), "{text}");
    }

    #[test]
    fn each_option_that_did_not_stick_is_named_with_its_fragment() {
        let fragments =
            fragments(&[("vm", "CONFIG_A=y\nCONFIG_B=y\n"), ("arch", "CONFIG_C=8\n# CONFIG_D is not set\n")]);
        let config = "# CONFIG_A is not set\nCONFIG_C=64\nCONFIG_D=m\n";
        let error = check(&fragments, config).unwrap_err();
        let ConfigError::Lost(lost) = &error else { panic!("{error}") };
        let words: Vec<_> = lost.iter().map(|lost| (lost.option.as_str(), lost.found.as_deref())).collect();
        let wanted = [("CONFIG_A", Some("n")), ("CONFIG_B", None), ("CONFIG_C", Some("64")), ("CONFIG_D", Some("m"))];
        assert_eq!(words, wanted);
        let text = error.to_string();
        assert!(text.contains("CONFIG_B=y (vm)") && text.contains("CONFIG_C=8 (arch): it is 64"), "{text}");
    }

    #[test]
    fn fragments_that_contradict_each_other_or_hold_no_option_are_errors() {
        let error = joined(&fragments(&[("a", "CONFIG_X=y\n"), ("b", "# CONFIG_X is not set\n")])).unwrap_err();
        assert!(matches!(error, ConfigError::Contradiction { .. }), "{error}");
        for line in ["CONFIG_X", "X=y", "CONFIG_X=", "CONFIG_=y", "config X", "CONFIG_X Y=y"] {
            let error = joined(&fragments(&[("a", &format!("# ok\n{line}\n"))])).unwrap_err();
            assert!(matches!(error, ConfigError::Line { number: 2, .. }), "{line}: {error}");
        }
    }
}
