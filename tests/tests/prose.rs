// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The rules of CONTRIBUTING.md's section "Language", as far as a pattern can check them.
//!
//! The patterns are applied to the pages, and to the comments and string literals of the sources. In scripts and
//! configuration files every word counts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that a rule forbids.
struct Pattern {
    /// Each is searched for as it is here, in lower case, between the borders of words.
    words: &'static [&'static str],
    /// A match after one of these is not a finding.
    not_after: &'static [&'static str],
    /// A match before one of these is not a finding.
    not_before: &'static [&'static str],
    /// The rule, in the words of CONTRIBUTING.md.
    rule: &'static str,
    /// What to write instead.
    write: &'static str,
}

/// A pattern without exceptions.
const fn always(words: &'static [&'static str], rule: &'static str, write: &'static str) -> Pattern {
    Pattern { words, not_after: &[], not_before: &[], rule, write }
}

const ORDER: &str = "**Subject, verb, object, in this order.**";
const ACTOR: &str = "**Name the actor.**";
const OF_WHICH: &str = "**Avoid \"of which\" and \"whose\".**";
const AFTER: &str = "**\"After\", not \"behind\"**";
const REQUIRES: &str = "**\"Requires\" or \"needs\", not \"takes\"**";
const IS_NOT_A: &str = "**\"Is not a\", not \"is no\".**";
const CONCRETE: &str = "**A concrete verb, not \"have\", \"be\" or \"come\".**";
const HOW: &str = "**\"How\", \"where\" and \"which\", not \"by what\" and \"what becomes of\".**";
const ONE_WORD: &str = "**One word for one thing.**";
const POSITIVE: &str = "Prefer the positive form";

const PATTERNS: &[Pattern] = &[
    always(&[". whose", ": whose", "; whose", "¶ whose"], ORDER, "begin with the subject"),
    Pattern {
        words: &[". of", "; of"],
        // "...": a message with a part that varies.
        not_after: &[".."],
        not_before: &["course", "these"],
        rule: ORDER,
        write: "begin with the subject: \"For a ..., it ...\"",
    },
    always(&["in vain"], ACTOR, "say what was tried and that nothing was found"),
    always(&["of which", ", whose"], OF_WHICH, "begin a new sentence, or write \"with\" or \"for which\""),
    always(&["behind"], AFTER, "\"after\" or \"past\"; for what a handle refers to, \"refers to\" or \"stands for\""),
    always(&["in front of"], AFTER, "\"before\""),
    always(&["takes cap_", "takes root", "take root", "takes privileges"], REQUIRES, "\"requires\""),
    Pattern {
        words: &["is no", "are no", "was no", "were no", "be no"],
        not_after: &["there", "there can", "there must", "there may", "there will", "there would"],
        not_before: &["longer", "more", "less", "fewer", "larger", "smaller", "later", "better", "worse"],
        rule: IS_NOT_A,
        write: "\"is not a\"",
    },
    always(
        &["is had", "are had", "was had", "were had", "be had"],
        CONCRETE,
        "\"comes from\", \"is available\", \"is read\"",
    ),
    always(&["has of"], CONCRETE, "\"stores for\", \"lists for\", \"provides for\""),
    always(&["that is there", "that are there"], CONCRETE, "\"that exists\", \"that is present\""),
    always(&["by what"], HOW, "\"how\", \"by which\", or the noun that is meant"),
    always(&["becomes of", "became of", "become of"], HOW, "\"what happens to\", \"the outcome of\""),
    always(
        &[
            "site data are",
            "site data were",
            "site data have",
            "site data do",
            "site data say",
            "site data come",
            "are no site data",
            "debug information are",
            "debug information do",
        ],
        ONE_WORD,
        "the singular",
    ),
    always(&["without a word"], ONE_WORD, "\"silently\""),
    always(&["anew"], ONE_WORD, "\"again\""),
    always(&["bear", "bears", "bore", "borne"], ONE_WORD, "\"have\": a symbol has a name"),
    always(&["but for"], ONE_WORD, "\"except\""),
    always(&["nobody who"], POSITIVE, "\"only ... can\""),
];

/// Phrases that stay, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("behind a guard", "the guard is a branch, and what it keeps from running is behind it"),
    ("behind the guard", "as above"),
    ("behind a *guard*", "as above, where the word is introduced"),
    ("the guard behind which", "as above"),
    ("leaves nothing behind", "to leave behind: to let remain"),
    ("nothing is left behind", "as above"),
    ("never left behind", "as above"),
    ("missed returns leave behind", "as above"),
    ("lags behind", "to be late"),
];

/// Pages that a program writes: its source is checked instead. CHANGELOG.md quotes what earlier releases printed.
const NOT_WRITTEN_HERE: &[&str] = &[
    "CHANGELOG.md",
    "docs/before-and-after.md",
    "docs/census.md",
    "docs/compared.md",
    "docs/conformance.md",
    "docs/performance.md",
    "tests/tests/prose.rs",
];

/// Ends a paragraph. No pattern goes over it, except those that are about the beginning of one.
const BREAK: &str = "¶";

/// Words with the lines that they are on, joined by single spaces.
#[derive(Default)]
struct Prose {
    /// In lower case.
    text: String,
    /// Where each word begins, and its line, counted from 1.
    words: Vec<(usize, usize)>,
}

impl Prose {
    fn add(&mut self, line: usize, text: &str) {
        for word in text.split_whitespace() {
            self.words.push((self.text.len(), line));
            self.text.push_str(&word.to_ascii_lowercase());
            self.text.push(' ');
        }
    }

    fn end_paragraph(&mut self, line: usize) {
        if !self.text.ends_with("¶ ") {
            self.add(line, BREAK);
        }
    }

    fn line_of(&self, at: usize) -> usize {
        let next = self.words.partition_point(|(begin, _)| *begin <= at);
        self.words[next.saturating_sub(1)].1
    }
}

/// What is written in a Markdown page, except code blocks and blocks between `<!-- name: -->` and `<!-- :name -->`.
fn page(text: &str) -> Prose {
    let mut prose = Prose::default();
    let (mut in_code, mut is_generated, mut is_quoted) = (false, false, false);
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.starts_with("```") {
            in_code = !in_code;
        } else if content.starts_with("<!--") {
            is_generated = content.ends_with(": -->");
        } else if content.starts_with("## ") {
            // CONTRIBUTING.md quotes what it forbids.
            is_quoted = content == "## Language";
        }
        if in_code || is_generated || is_quoted || content.is_empty() || content.starts_with(['#', '`']) {
            prose.end_paragraph(line);
        }
        if !in_code && !is_generated && !is_quoted {
            prose.add(line, content);
        }
    }
    prose
}

/// All words of a script or a configuration file.
fn script(text: &str) -> Prose {
    let mut prose = Prose::default();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        let comment = content.trim_start_matches('#');
        if comment.is_empty() || comment.len() == content.len() {
            prose.end_paragraph(line);
        }
        prose.add(line, comment);
    }
    prose
}

/// Reads the comments and the string literals of Rust or C.
struct Source<'a> {
    rest: &'a str,
    line: usize,
    prose: Prose,
}

impl<'a> Source<'a> {
    /// Takes so many bytes.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    /// Takes up to the end of `until`, or everything.
    fn take_through(&mut self, until: &str) -> &'a str {
        let bytes = self.rest.find(until).map_or(self.rest.len(), |at| at + until.len());
        self.take(bytes)
    }

    /// Adds lines of a comment. An empty one ends a paragraph.
    fn comment(&mut self, first: usize, text: &str) {
        for (line, content) in (first..).zip(text.lines()) {
            let content = content.trim().trim_start_matches(['/', '*', '!']).trim_end_matches("*/").trim();
            if content.is_empty() {
                self.prose.end_paragraph(line);
            }
            self.prose.add(line, content);
        }
    }

    /// Adds a literal, from its first quotation mark on.
    fn string(&mut self) {
        let mut end = 1;
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, char)) = chars.next() {
            end = at + 1 + char.len_utf8();
            match char {
                '\\' => drop(chars.next()),
                '"' => break,
                _ => {}
            }
        }
        let first = self.line;
        let literal = self.take(end).trim_matches('"').replace("\\n", " ").replace("\\\"", "\"");
        self.prose.end_paragraph(first);
        for (line, content) in (first..).zip(literal.lines()) {
            self.prose.add(line, content.trim_end_matches('\\'));
        }
        self.prose.end_paragraph(self.line);
    }

    /// The number of `#` of a raw string that begins here.
    fn hashes(&self) -> Option<usize> {
        let after = self.rest.strip_prefix('r')?;
        let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
        after[hashes..].starts_with('"').then_some(hashes)
    }

    /// Takes what is next. `in_word`: whether a letter came just before, which then belongs to a name.
    fn step(&mut self, in_word: bool) {
        let line = self.line;
        if self.rest.starts_with("//") {
            let text = self.take_through("\n");
            self.comment(line, text);
        } else if self.rest.starts_with("/*") {
            let text = self.take_through("*/");
            self.comment(line, text);
            self.prose.end_paragraph(self.line);
        } else if self.rest.starts_with('"') {
            self.string();
        } else if let Some(hashes) = self.hashes().filter(|_| !in_word) {
            self.take(2 + hashes);
            let text = self.take_through(&format!("\"{}", "#".repeat(hashes)));
            self.prose.end_paragraph(line);
            for (line, content) in (line..).zip(text.lines()) {
                self.prose.add(line, content);
            }
            self.prose.end_paragraph(self.line);
        } else if self.rest.starts_with('\'') {
            // A character, or a lifetime.
            let mut chars = self.rest.char_indices().skip(1);
            let is_escape = chars.next().is_some_and(|(_, char)| char == '\\');
            let closes = chars.next().is_some_and(|(_, char)| char == '\'');
            match is_escape {
                true => {
                    self.take(3.min(self.rest.len()));
                    self.take_through("'");
                }
                false if closes => drop(self.take_through("'").len() + self.take_through("'").len()),
                false => drop(self.take(1)),
            }
        } else {
            let char = self.rest.chars().next().map_or(1, char::len_utf8);
            let code = self.take(char);
            if !code.trim().is_empty() {
                self.prose.end_paragraph(line);
            }
        }
    }
}

/// The comments and string literals of a source.
fn source(text: &str) -> Prose {
    let mut source = Source { rest: text, line: 1, prose: Prose::default() };
    let mut in_word = false;
    while let Some(next) = source.rest.chars().next() {
        source.step(in_word);
        in_word = next.is_alphanumeric() || next == '_';
    }
    source.prose
}

/// Whether a match is between the borders of words.
fn is_whole(text: &str, begin: usize, end: usize) -> bool {
    let is_inside = |char: char| char.is_alphanumeric() || char == '_';
    let joins = |before: Option<char>, after: Option<char>| {
        before.is_some_and(is_inside) && after.is_some_and(|after| is_inside(after) || after == '-')
    };
    let part = &text[begin..end];
    !joins(text[..begin].chars().next_back(), part.chars().next())
        && (part.ends_with('_') || !joins(part.chars().next_back(), text[end..].chars().next()))
}

/// Something that a rule forbids: its line, its words, the pattern.
struct Finding<'p> {
    line: usize,
    words: String,
    pattern: &'p Pattern,
}

/// Applies the patterns. The phrases that were needed are noted in `used`.
fn findings(prose: &Prose, used: &mut BTreeSet<&'static str>) -> Vec<Finding<'static>> {
    let text = prose.text.as_str();
    let mut found = Vec::new();
    for pattern in PATTERNS {
        for words in pattern.words {
            for (begin, _) in text.match_indices(words) {
                let end = begin + words.len();
                let (before, after) = (text[..begin].trim_end(), text[end..].trim_start());
                let is_exception = pattern.not_after.iter().any(|word| before.ends_with(word))
                    || pattern.not_before.iter().any(|word| after.starts_with(word));
                if is_exception || !is_whole(text, begin, end) {
                    continue;
                }
                let around = |phrase: &str| {
                    let least = begin.saturating_sub(phrase.len());
                    text.match_indices(phrase).any(|(at, _)| at >= least && at <= begin && end <= at + phrase.len())
                };
                if let Some((phrase, _)) = ALLOWED.iter().find(|(phrase, _)| around(phrase)) {
                    used.insert(phrase);
                    continue;
                }
                let letter = begin + words.find(char::is_alphabetic).unwrap_or(0);
                found.push(Finding { line: prose.line_of(letter), words: (*words).to_owned(), pattern });
            }
        }
    }
    found.sort_by_key(|finding| finding.line);
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below a folder, except what builds leave and what is hidden.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // What builds leave is beside a manifest; a folder of sources may have that name too.
        let is_of_builds = name == "target" && folder.join("Cargo.toml").is_file();
        if kind.is_dir() && !name.starts_with('.') && !is_of_builds {
            files(&path, found);
        } else if kind.is_file() && !name.starts_with('.') {
            found.push(path);
        }
    }
}

/// The prose of a file; `None` for a kind of file that has none.
fn read(path: &Path) -> Option<Prose> {
    let reader = match path.extension().map(|extension| extension.to_str().unwrap_or_default()) {
        Some("md") => page,
        Some("rs" | "c" | "h") => source,
        Some("sh" | "toml" | "mk" | "config" | "awk") => script,
        None if path.parent().is_some_and(|folder| folder.ends_with("ci")) => script,
        _ => return None,
    };
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(reader(&text))
}

#[test]
fn the_prose_follows_the_rules() {
    let root = root();
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.sort();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&root).expect("it was found there").to_string_lossy().into_owned();
        if NOT_WRITTEN_HERE.contains(&name.as_str()) {
            continue;
        }
        let Some(prose) = read(&path) else { continue };
        wrong.extend(findings(&prose, &mut used).into_iter().map(|finding| {
            let Pattern { rule, write, .. } = finding.pattern;
            format!("{name}:{}: \"{}\": {rule} Write {write}.", finding.line, finding.words)
        }));
    }
    let unused = ALLOWED.iter().filter(|(phrase, _)| !used.contains(phrase));
    wrong.extend(unused.map(|(phrase, _)| format!("nothing needs \"{phrase}\": remove it from ALLOWED")));
    assert!(wrong.is_empty(), "CONTRIBUTING.md, \"Language\":\n{}", wrong.join("\n"));
}

/// rustfmt leaves comments alone.
#[test]
fn comments_are_as_narrow_as_code() {
    const WIDTH: usize = 120;
    let root = root();
    let format = fs::read_to_string(root.join("rustfmt.toml")).expect("the format of sources");
    assert!(format.contains(&format!("max_width = {WIDTH}\n")), "{format}");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut wide = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start();
            // The row of a table is one line.
            let is_row = comment.trim_start_matches(['/', '!']).trim_start().starts_with('|');
            if comment.starts_with("//") && !is_row && line.chars().count() > WIDTH {
                let name = path.strip_prefix(&root).unwrap_or(&path);
                wide.push(format!("{}:{number}: {} columns", name.display(), line.chars().count()));
            }
        }
    }
    assert!(wide.is_empty(), "comments are at most {WIDTH} columns wide:\n{}", wide.join("\n"));
}

#[test]
fn the_rules_are_those_of_contributing() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it is there");
    for pattern in PATTERNS {
        assert!(text.contains(pattern.rule), "CONTRIBUTING.md has no rule {}", pattern.rule);
    }
}

#[test]
fn every_pattern_finds_its_words() {
    for pattern in PATTERNS {
        for words in pattern.words {
            let mut prose = Prose::default();
            let line = format!("First {words}{} it.", if words.ends_with('_') { "BPF" } else { "" });
            prose.add(7, &line);
            let found = findings(&prose, &mut BTreeSet::new());
            let is_found = |finding: &Finding<'_>| finding.line == 7 && finding.words == **words;
            assert!(found.iter().any(is_found), "{words}");
        }
    }
}

/// The lines of what is found in a text.
fn lines(prose: &Prose) -> Vec<usize> {
    findings(prose, &mut BTreeSet::new()).iter().map(|finding| finding.line).collect()
}

#[test]
fn comments_and_literals_are_read_and_code_is_not() {
    let text = "let behind = 'b'; // What is\n// behind it.\n/* no\n * more behind */ fn f<'a>() -> &'a str {\n\
                \"a \\\"b\\\" behind \\\n   anew\"; r#\"it is no \"reason\"\"#; '\"'; behind(\"x\");\n}\n// It is\n\nfn g() {}\n// no type.\n";
    assert_eq!(lines(&source(text)), [2, 4, 5, 6, 6]);
}

#[test]
fn pages_are_read_without_code_and_generated_blocks() {
    let text = "It is\nno reason.\n\n```\nbehind\n```\n<!-- x: -->\nbehind\n<!-- :x -->\nThere is no reason; it is no longer.\n\
                ## Language\nbehind\n## Licence\nbehind\n";
    assert_eq!(lines(&page(text)), [1, 14]);
}

#[test]
fn scripts_are_read_as_a_whole() {
    assert_eq!(lines(&script("# What became\n# of it.\n\necho \"made anew\" # behind\nbehind=1\n")), [1, 4, 4, 5]);
}

#[test]
fn allowed_phrases_are_not_found() {
    let mut prose = Prose::default();
    prose.add(1, "It runs behind the guard, and an error leaves nothing behind. Renew whosever name is not anewer.");
    assert_eq!(lines(&prose), [0; 0]);
}
