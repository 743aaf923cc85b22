// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A case's file of plans: a text for each family of kernels, and families that agree share one.
//!
//! ```text
//! == gcc12-x86_64-6.1, gcc14-x86_64-7.3
//! entry:
//!   inline book in deposit (calls.c:7): attached
//!
//! == gcc14-arm64-7.3
//! entry:
//!   ...
//! ```
//!
//! The texts have no empty lines, and no line of theirs begins with `==`.

use std::collections::BTreeMap;
use std::fmt;

/// Begins the heading of a text.
const HEADING: &str = "== ";

/// The texts, by the name of the family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlansFile(BTreeMap<String, String>);

impl PlansFile {
    /// Reads the content of a file. What precedes the first heading is not a part of it.
    pub fn parse(content: &str) -> PlansFile {
        let mut texts = BTreeMap::<String, String>::new();
        let mut families: Vec<&str> = Vec::new();
        for line in content.lines() {
            if let Some(heading) = line.strip_prefix(HEADING) {
                families = heading.split(", ").collect();
                texts.extend(families.iter().map(|&family| (family.to_owned(), String::new())));
            } else if !line.is_empty() {
                for &family in &families {
                    let text = texts.entry(family.to_owned()).or_default();
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        PlansFile(texts)
    }

    /// Whether there is a text for the family.
    pub fn has(&self, family: &str) -> bool {
        self.0.contains_key(family)
    }

    /// The same with another text for one family.
    pub fn with(mut self, family: String, text: String) -> PlansFile {
        self.0.insert(family, text);
        self
    }
}

impl fmt::Display for PlansFile {
    /// In the order of each text's first family.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for (family, text) in &self.0 {
            match groups.iter_mut().find(|(known, _)| known == text) {
                Some((_, families)) => families.push(family),
                None => groups.push((text, vec![family])),
            }
        }
        for (at, (text, families)) in groups.iter().enumerate() {
            let space = if at == 0 { "" } else { "\n" };
            write!(f, "{space}{HEADING}{}\n{text}", families.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "== arm, x86\nentry:\n  inline a in b\n\n== old\nentry: refused (why)\n";

    #[test]
    fn it_is_read_as_it_is_written() {
        let file = PlansFile::parse(FILE);
        assert_eq!(file.to_string(), FILE);
        assert!(file.has("x86") && file.has("old") && !file.has("new"));
        assert_eq!(PlansFile::parse(&format!("---\nsource: x\n---\n{FILE}")), file);
        assert_eq!(PlansFile::parse(""), PlansFile::default());
    }

    #[test]
    fn a_family_leaves_those_that_it_no_longer_agrees_with() {
        let changed = PlansFile::parse(FILE).with("arm".to_owned(), "entry: an error\n".to_owned());
        let text = "== arm\nentry: an error\n\n== old\nentry: refused (why)\n\n== x86\nentry:\n  inline a in b\n";
        assert_eq!(changed.to_string(), text);
        let again = changed.with("arm".to_owned(), "entry:\n  inline a in b\n".to_owned());
        assert_eq!(again.to_string(), FILE);
    }
}
