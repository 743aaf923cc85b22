// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The pages of docs/, README.md and the manual pages against the sources: what can be printed is explained, what can
//! be called is listed, what is referred to is there.

mod crates;
mod faults;
mod figures;
mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files of a folder with this ending, folders below it too.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Text in one line, without what markdown adds.
fn plain(text: &str) -> String {
    text.replace(['`', '*'], "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The string literal that a text begins with, unescaped, and what follows it.
fn literal(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    let mut value = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 2..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                // The line break and the indentation after it are not in the string.
                '\n' => {
                    let rest = text[1..].get(chars.offset()..)?;
                    let indent = rest.len() - rest.trim_start().len();
                    for _ in 0..indent {
                        chars.next();
                    }
                }
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// The longest parts of a message between its fields that have words to look for.
fn parts(message: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in message.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                parts.push(String::new());
            }
            c if depth == 0 => parts.last_mut().expect("there is one").push(c),
            _ => {}
        }
    }
    // A part of a few letters (": ", " at ") could be found anywhere.
    let edges: &[char] = &[' ', ':', ',', ';', '(', ')'];
    let trimmed = parts.iter().flat_map(|part| part.split('\n')).map(|part| plain(part).trim_matches(edges).to_owned());
    trimmed.filter(|part| part.len() >= 10).collect()
}

/// The messages of the library's errors and refusals: what `#[error("...")]` has.
fn errors() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in files(&root().join("loader/src"), ".rs") {
        let text = read(&path);
        for after in text.split("#[error(").skip(1) {
            if let Some((message, _)) = literal(after.trim_start()) {
                found.push((path.display().to_string(), message));
            }
        }
    }
    found
}

/// The sentences of an enumeration that implements `Display` by hand: the literals of that implementation.
fn sentences(file: &str, of: &str) -> Vec<(String, String)> {
    let text = read(&root().join(file));
    let head = format!("impl fmt::Display for {of} {{");
    let body = text.split_once(&head).unwrap_or_else(|| panic!("{file}: no {head}")).1;
    let mut body = body.split_once("\n}").map_or(body, |(body, _)| body);
    let mut found = Vec::new();
    while let Some(at) = body.find('"') {
        let Some((message, rest)) = literal(&body[at..]) else { break };
        found.push((file.to_owned(), message));
        body = rest;
    }
    assert!(found.len() > 5, "{file}: {of} has only {} sentences", found.len());
    found
}

#[test]
fn every_message_is_explained() {
    let page = plain(&read(&root().join("docs/troubleshooting.md")));
    let mut messages = errors();
    assert!(messages.len() > 60, "only {} messages were found", messages.len());
    messages.extend(sentences("loader/src/site/reason.rs", "Reason"));
    messages.extend(sentences("sites/src/location.rs", "Missing"));
    messages.extend(sentences("sites/src/doubt.rs", "Doubt"));
    messages.extend(sentences("sites/src/site.rs", "Unprobeable"));
    let mut missing = BTreeSet::new();
    for (file, message) in messages {
        missing.extend(
            parts(&message).into_iter().filter(|part| !page.contains(part)).map(|part| format!("{file}: {part}")),
        );
    }
    let missing: Vec<String> = missing.into_iter().collect();
    assert!(missing.is_empty(), "not in docs/troubleshooting.md:\n{}", missing.join("\n"));
}

/// The words by which reports count reasons, from the source.
fn keys(file: &str) -> BTreeSet<String> {
    let text = read(&root().join(file));
    let body = text.split_once("pub fn key(").expect("a function key").1;
    let body = body.split_once("\n    }").map_or(body, |(body, _)| body);
    body.split("=> \"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

#[test]
fn every_reason_is_in_the_table() {
    let page = read(&root().join("docs/troubleshooting.md"));
    for file in ["loader/src/site/reason.rs", "sites/src/site.rs"] {
        let keys = keys(file);
        assert!(keys.len() > 8, "{file}: {keys:?}");
        let missing: Vec<&String> = keys.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
        assert!(missing.is_empty(), "{file}: not in docs/troubleshooting.md: {missing:?}");
    }
}

/// The codes of a site file are in the page as they are in the source.
#[test]
fn every_code_is_in_the_page_of_the_format() {
    use siteseer_sites::{Doubt, Missing, Unprobeable};
    let page = read(&root().join("docs/format.md"));
    let row = |code: u8, key: &str, sentence: String| format!("  | {code} | `{key}` | {sentence} |\n");
    let mut rows: Vec<String> = Missing::ALL.iter().map(|why| row(*why as u8, why.key(), why.to_string())).collect();
    rows.extend(Unprobeable::ALL.iter().map(|why| row(*why as u8, why.key(), why.to_string())));
    rows.extend(Doubt::ALL.iter().map(|why| row(*why as u8, why.key(), why.to_string())));
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/format.md:\n{missing:#?}");
}

/// The functions that siteseer.h declares.
fn functions_of_c() -> BTreeSet<String> {
    let header = read(&root().join("loader/include/siteseer.h"));
    let declarations = header.split("\nLIBSITESEER_API ").skip(1).filter_map(|text| text.split_once('('));
    declarations.filter_map(|(head, _)| Some(head.rsplit([' ', '*']).next()?.to_owned())).collect()
}

#[test]
fn the_manual_page_of_c_has_every_function() {
    let functions = functions_of_c();
    assert!(functions.len() > 20 && functions.contains("siteseer_register"), "{functions:?}");
    let page = read(&root().join("docs/man/siteseer.3"));
    let synopsis =
        page.split_once(".SH SYNOPSIS").expect("a synopsis").1.split_once(".SH DESCRIPTION").expect("its end").0;
    let words = synopsis.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '('));
    let listed: BTreeSet<String> = words
        .filter_map(|word| word.split_once('(').map(|(name, _)| name.to_owned()))
        .filter(|name| name.starts_with("siteseer_"))
        .collect();
    assert_eq!(listed, functions, "docs/man/siteseer.3 and siteseer.h");
    let output =
        Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(root().join("docs/man/siteseer.3")).output();
    let output = output.expect("groff (package groff-base)");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The pages.
fn pages() -> Vec<PathBuf> {
    let mut pages = files(&root().join("docs"), ".md");
    pages.extend(files(&root().join("examples"), ".md"));
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)));
    pages
}

/// A heading's name in links, as it is made of its text on the usual sites.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The files of the tree that a page links to.
fn linked(page: &Path) -> Vec<PathBuf> {
    let text = read(page);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link));
    let files = links.filter(|link| !link.contains("://")).map(|link| link.split('#').next().unwrap_or_default());
    let folder = page.parent().expect("a folder");
    files.filter(|file| !file.is_empty()).filter_map(|file| folder.join(file).canonicalize().ok()).collect()
}

/// The pages below a folder that nobody finds who begins at a page and follows links from page to page.
fn out_of_reach(first: &Path, folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut next) = (BTreeSet::new(), vec![first.canonicalize().expect("the first page")]);
    while let Some(page) = next.pop() {
        if found.insert(page.clone()) {
            next.extend(linked(&page).into_iter().filter(|file| file.extension().is_some_and(|end| end == "md")));
        }
    }
    let all = files(folder, ".md").into_iter();
    all.filter(|page| !found.contains(&page.canonicalize().expect("it was listed"))).collect()
}

#[test]
fn every_page_can_be_reached() {
    let docs = root().join("docs");
    assert_eq!(
        out_of_reach(&docs.join("README.md"), &docs),
        Vec::<PathBuf>::new(),
        "not reachable from docs/README.md"
    );
    // What users look for is in the list itself: it names every page of the folder, and every how-to.
    let listed = linked(&docs.join("README.md"));
    let mut direct: Vec<PathBuf> = fs::read_dir(&docs).expect("docs").flatten().map(|entry| entry.path()).collect();
    direct.extend(files(&docs.join("howto"), ".md"));
    direct.retain(|path| path.extension().is_some_and(|end| end == "md") && !path.ends_with("docs/README.md"));
    assert!(direct.len() > 20, "{direct:?}");
    direct.retain(|path| !listed.contains(&path.canonicalize().expect("it was listed")));
    assert!(direct.is_empty(), "docs/README.md does not list {direct:?}");
}

#[test]
fn a_page_without_links_to_it_is_found() {
    let folder = std::env::temp_dir().join(format!("siteseer-pages-{}", std::process::id()));
    fs::create_dir_all(folder.join("below")).expect("a folder");
    for (name, text) in [
        ("README.md", "[a](a.md#part), [web](https://example.org/c.md)"),
        ("a.md", "[b](below/b.md)"),
        ("below/b.md", "[back](../README.md)"),
        ("c.md", "[a](a.md)"),
    ] {
        fs::write(folder.join(name), text).expect("a page");
    }
    let missed = out_of_reach(&folder.join("README.md"), &folder);
    fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(missed, [folder.join("c.md")]);
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link)) {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            count += 1;
            let (file, place) = link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
            let target = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            if !target.exists() {
                wrong.push(format!("{}: {link}", page.display()));
            } else if let Some(place) = place {
                let text = read(&target);
                let headings = text
                    .lines()
                    .filter_map(|line| line.strip_prefix('#'))
                    .map(|line| anchor(line.trim_start_matches('#')));
                let is_anchor = text.contains(&format!("<a id=\"{place}\"></a>"));
                if !is_anchor && !headings.into_iter().any(|heading| heading == place) {
                    wrong.push(format!("{}: {link}: no such heading", page.display()));
                }
            }
        }
    }
    assert!(count > 30, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
