// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The host's apt sources (sources.list(5)), in both forms, to learn which Debian mirror this host uses.
//!
//! A host may have many sources: security updates, other vendors. What is wanted is the mirror of Debian itself, of any
//! suite, as all suites are on every mirror.

use std::{fs, path::Path};

/// One source: a mirror and how its signatures are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) uri: String,
    suites: Vec<String>,
    components: Vec<String>,
    /// The file with its keys, if the source names one.
    pub(crate) signed_by: Option<String>,
    pub(crate) trusted: bool,
}

impl Source {
    /// A mirror without further options.
    pub(crate) fn plain(uri: String) -> Source {
        Source { uri, suites: Vec::new(), components: Vec::new(), signed_by: None, trusted: false }
    }
}

/// Names under which Debian's own mirrors publish.
const SUITES: &[&str] = &[
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
];

/// The host's Debian mirror. `root` is `/` but in tests.
pub(crate) fn debian_mirror(root: &Path) -> Option<Source> {
    let mut sources = Vec::new();
    let directory = root.join("etc/apt");
    if let Ok(text) = fs::read_to_string(directory.join("sources.list")) {
        sources.extend(one_line(&text));
    }
    let mut files: Vec<_> = fs::read_dir(directory.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .collect();
    files.sort();
    for path in files {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(one_line(&text)),
            Some("sources") => sources.extend(deb822(&text)),
            _ => {}
        }
    }
    sources.retain(is_debian);
    // Others publish under Debian's suite names too; Debian's mirrors are the ones with this path.
    sources.sort_by_key(|source| !source.uri.trim_end_matches('/').ends_with("/debian"));
    sources.into_iter().next()
}

fn is_debian(source: &Source) -> bool {
    let is_suite = |name: &String| {
        let base = name.strip_suffix("-updates").or_else(|| name.strip_suffix("-backports")).unwrap_or(name);
        SUITES.contains(&base)
    };
    !source.uri.starts_with("cdrom:")
        && source.components.iter().any(|component| component == "main")
        && source.suites.iter().any(is_suite)
        && !source.uri.contains("debian-security")
}

/// `deb [option=value ...] URI suite component ...`
fn one_line(text: &str) -> Vec<Source> {
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next().unwrap_or_default().trim();
            let rest = line.strip_prefix("deb")?;
            let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
            let (options, rest) = match rest.strip_prefix('[') {
                Some(rest) => rest.split_once(']')?,
                None => ("", rest),
            };
            let option = |wanted: &str| {
                options
                    .split_whitespace()
                    .filter_map(|option| option.split_once('='))
                    .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                    .map(|(_, value)| value)
            };
            let mut words = rest.split_whitespace().map(str::to_owned);
            Some(Source {
                uri: words.next()?,
                suites: vec![words.next()?],
                components: words.collect(),
                signed_by: option("signed-by").and_then(key_file),
                trusted: option("trusted") == Some("yes"),
            })
        })
        .collect()
}

/// Paragraphs of `Field: value`, with continuation lines and comments.
fn deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(paragraph(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn paragraph(fields: &[(String, String)]) -> Vec<Source> {
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let words = |wanted| field(wanted).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if !words("types").iter().any(|kind| kind == "deb") || field("enabled").is_some_and(|value| value == "no") {
        return Vec::new();
    }
    words("uris")
        .into_iter()
        .map(|uri| Source {
            uri,
            suites: words("suites"),
            components: words("components"),
            signed_by: field("signed-by").and_then(key_file),
            trusted: field("trusted") == Some("yes"),
        })
        .collect()
}

/// Only a file can be named in turn; fingerprints and keys in the text leave it to the default.
fn key_file(value: &str) -> Option<String> {
    (value.starts_with('/') && !value.contains(['\n', ','])).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(files: &[(&str, &str)]) -> Option<Source> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join("etc/apt").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        debian_mirror(root.path())
    }

    #[test]
    fn the_one_line_form() {
        let found = mirror(&[(
            "sources.list",
            "# deb http://old.example/debian bookworm main\n\
             deb-src http://src.example/debian bookworm main\n\
             deb cdrom:[Debian]/ bookworm main\n\
             deb http://sec.example/debian-security bookworm-security main\n\
             deb [arch=amd64 Signed-By=/usr/share/keyrings/k.gpg] http://one.example/debian/ bookworm main contrib # c\n",
        )])
        .unwrap();
        assert_eq!(found.uri, "http://one.example/debian/");
        assert_eq!(found.signed_by.as_deref(), Some("/usr/share/keyrings/k.gpg"));
        assert!(!found.trusted);
    }

    #[test]
    fn the_deb822_form_with_comments_and_continuations() {
        let found = mirror(&[(
            "sources.list.d/debian.sources",
            "Types: deb\n# http://snapshot.example/\nURIs: http://two.example/debian\nSuites: trixie\n trixie-updates\n\
             Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n\
             Types: deb\nURIs: http://two.example/debian-security\nSuites: trixie-security\nComponents: main\n",
        )])
        .unwrap();
        assert_eq!((found.uri.as_str(), found.signed_by), ("http://two.example/debian", None));
        let off = "Types: deb\nEnabled: no\nURIs: http://x.example/debian\nSuites: sid\nComponents: main\n";
        assert_eq!(mirror(&[("sources.list.d/x.sources", off)]), None);
    }

    #[test]
    fn other_vendors_with_debians_suite_names_come_after_debian() {
        let found = mirror(&[
            ("sources.list.d/a.list", "deb https://apt.vendor.example bookworm main\n"),
            ("sources.list.d/b.list", "deb https://docker.example/linux/debian bookworm stable\n"),
            ("sources.list.d/z.list", "deb https://deb.example/debian bookworm main\n"),
        ]);
        assert_eq!(found.unwrap().uri, "https://deb.example/debian");
        assert_eq!(mirror(&[("sources.list.d/b.list", "deb https://u.example/ubuntu noble main\n")]), None);
        assert_eq!(mirror(&[]), None);
    }
}
