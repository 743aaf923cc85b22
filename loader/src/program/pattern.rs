// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Patterns that stand for functions: `vfs_*`, `@read_write.c`, `ext4:*`, `nf_conntrack:nf_ct_*@nf_conntrack_core.c`.
//!
//! A pattern is `[MODULE:][FUNCTION][@FILE]`, with at least one of the three parts. MODULE and FUNCTION are globs: `*`
//! is any text, `?` any character, `[a-z]` one of some and `[!a-z]` one of the others. A module without a function,
//! `ext4:`, is all of the module's. A function of Rust goes by its path, `core::slice::iter::Iter::next`, with or
//! without what [`path::short`] leaves out; so does all that is written below a path: `core::slice::iter`. FILE is the
//! end of a source file's path, component by component, each of them a glob: `@file.c`, `@fs/*.c`.

use crate::program::path;
use crate::program::section::kernel_name;
use std::fmt;
use std::str::FromStr;

/// A text with `*`, `?` and classes of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Any text.
    Any,
    /// Any character.
    One,
    /// This character.
    Is(char),
    /// A character in one of these ranges, or in none of them.
    Class { ranges: Vec<(char, char)>, negated: bool },
}

impl Part {
    fn holds(&self, c: char) -> bool {
        match self {
            Part::Any | Part::One => true,
            Part::Is(wanted) => *wanted == c,
            Part::Class { ranges, negated } => ranges.iter().any(|&(low, high)| (low..=high).contains(&c)) != *negated,
        }
    }
}

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// There is nothing in it, or nothing after the `@`.
    #[error("\"{0}\" names no function: a pattern is [MODULE:][FUNCTION][@FILE]")]
    Empty(String),
    /// A class of characters does not end.
    #[error("\"{0}\" has a [ without a ]")]
    Class(String),
    /// A character that stands in no name.
    #[error("\"{text}\" has {character:?}, which is in no function's name")]
    Character {
        /// The pattern.
        text: String,
        /// The character.
        character: char,
    },
}

impl Glob {
    /// Reads a glob.
    ///
    /// # Errors
    /// [`PatternError::Class`].
    pub fn new(text: &str) -> Result<Glob, PatternError> {
        let unended = || PatternError::Class(text.to_owned());
        let mut parts = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let part = match c {
                '*' => Part::Any,
                '?' => Part::One,
                '[' => {
                    let negated = rest.next_if(|&c| c == '!' || c == '^').is_some();
                    let mut ranges = Vec::new();
                    loop {
                        let low = rest.next().ok_or_else(unended)?;
                        // A bracket that comes first is one of the characters.
                        if low == ']' && !ranges.is_empty() {
                            break;
                        }
                        let mut ahead = rest.clone();
                        let high = match (ahead.next(), ahead.next()) {
                            (Some('-'), Some(high)) if high != ']' => {
                                rest = ahead;
                                high
                            }
                            _ => low,
                        };
                        ranges.push((low, high));
                    }
                    Part::Class { ranges, negated }
                }
                c => Part::Is(c),
            };
            // Several stars are one.
            if !(part == Part::Any && parts.last() == Some(&Part::Any)) {
                parts.push(part);
            }
        }
        Ok(Glob { text: text.to_owned(), parts })
    }

    /// Whether all of a text is what the glob says.
    pub fn matches(&self, text: &str) -> bool {
        // After a star the shortest text is tried first. Only the last star may have to take more: what an earlier one
        // takes does not matter as long as what is between matches.
        let (mut at, mut rest) = (0, text.chars());
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if self.parts.get(at) == Some(&Part::Any) {
                at += 1;
                star = Some((at, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (self.parts.get(at), ahead.next()) {
                (None, None) => return true,
                (Some(part), Some(c)) if part.holds(c) => {
                    at += 1;
                    rest = ahead;
                }
                _ => {
                    let Some((after, taken)) = &mut star else { return false };
                    if taken.next().is_none() {
                        return false;
                    }
                    (at, rest) = (*after, taken.clone());
                }
            }
        }
    }

    /// Whether it stands for one text, which is its own.
    pub fn is_literal(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Is(_)))
    }

    /// What every text begins with for which it stands.
    pub fn prefix(&self) -> String {
        self.parts.iter().map_while(|part| if let Part::Is(c) = part { Some(*c) } else { None }).collect()
    }

    /// Whether it stands for any text.
    fn is_any(&self) -> bool {
        self.parts == [Part::Any]
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What stands for functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    module: Option<Glob>,
    function: Glob,
    /// Whether the function is the path of one of Rust.
    is_path: bool,
    /// The components of the path's end.
    file: Option<Vec<Glob>>,
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        let empty = || PatternError::Empty(text.to_owned());
        let (names, file) = match text.split_once('@') {
            Some((names, file)) => (names, Some(file)),
            None => (text, None),
        };
        let (module, function) = match separator(names) {
            Some(at) => (Some(&names[..at]), &names[at + 1..]),
            None => (None, names),
        };
        let is_path = function.contains("::");
        if module.is_some_and(str::is_empty) || (module.is_none() && file.is_none() && function.is_empty()) {
            return Err(empty());
        }
        let in_names = |c: char| c.is_ascii_alphanumeric() || "_.$*?[]!^-".contains(c);
        // A path has types in it, as Rust writes them.
        let in_function = |c: char| in_names(c) || (is_path && ":<>{}#&(), '=+;".contains(c));
        let of_module = module.unwrap_or_default().chars().find(|&c| !in_names(c));
        if let Some(character) = of_module.or_else(|| function.chars().find(|&c| !in_function(c))) {
            return Err(PatternError::Character { text: text.to_owned(), character });
        }
        // A colon alone ends a module's name, and there is one module.
        if separator(function).is_some() {
            return Err(PatternError::Character { text: text.to_owned(), character: ':' });
        }
        let whole = |_| PatternError::Class(text.to_owned());
        let components = |file: &str| -> Result<Vec<Glob>, PatternError> {
            let words = file.split('/').filter(|word| !matches!(*word, "" | "."));
            let globs = words.map(Glob::new).collect::<Result<Vec<_>, _>>().map_err(whole)?;
            if globs.is_empty() { Err(empty()) } else { Ok(globs) }
        };
        Ok(Pattern {
            text: text.to_owned(),
            module: module.map(|module| Glob::new(&kernel_name_of(module))).transpose().map_err(whole)?,
            function: Glob::new(if function.is_empty() { "*" } else { function }).map_err(whole)?,
            is_path,
            file: file.map(components).transpose()?,
        })
    }
}

/// Where the colon is that ends a module's name: paths have two together.
fn separator(names: &str) -> Option<usize> {
    let bytes = names.as_bytes();
    let is_colon = |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b':');
    let mut colons = (0..bytes.len()).filter(|&at| is_colon(Some(at)));
    colons.find(|&at| !is_colon(at.checked_sub(1)) && !is_colon(at.checked_add(1)))
}

/// A module's name as the kernel has it. The dash of a class stays.
fn kernel_name_of(module: &str) -> String {
    if module.contains('[') { module.to_owned() } else { kernel_name(module) }
}

impl Pattern {
    /// Whether it may stand for functions of a module; the image is `vmlinux`.
    pub fn in_module(&self, module: &str) -> bool {
        self.module.as_ref().is_none_or(|glob| glob.matches(module))
    }

    /// The module, or those, that it names.
    pub fn module(&self) -> Option<&Glob> {
        self.module.as_ref()
    }

    /// The functions' names. For paths, see [`Pattern::is_of`].
    pub fn function(&self) -> &Glob {
        &self.function
    }

    /// Whether the pattern matches a function, by its name as symbols and site data spell it.
    pub fn is_of(&self, name: &str) -> bool {
        if !self.is_path {
            return self.function.matches(name);
        }
        let Some(full) = path::full(name) else { return false };
        let short = path::short(&full);
        // The brackets of a type are not a class of characters.
        let wanted = self.function.text.as_str();
        let is_below =
            |path: &str| path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        [full, short].iter().any(|path| is_below(path) || self.function.matches(path))
    }

    /// What the names of all functions begin with that it may mean.
    pub fn prefix(&self) -> String {
        if self.is_path { path::MANGLED.to_owned() } else { self.function.prefix() }
    }

    /// Whether it asks for functions of a source file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether a source file is one of those that it means; any is if it names none.
    pub fn in_file(&self, path: &str) -> bool {
        let Some(wanted) = &self.file else { return true };
        let mut components = path.split('/').rev().filter(|word| !matches!(*word, "" | "."));
        wanted.iter().rev().all(|glob| components.next().is_some_and(|component| glob.matches(component)))
    }

    /// Whether it is a function's name, or `module:function`: it stands for one name, whatever else there is. A path
    /// stands for all instances of what is generic.
    pub fn is_name(&self) -> bool {
        !self.is_path
            && self.file.is_none()
            && self.function.is_literal()
            && self.module.as_ref().is_none_or(Glob::is_literal)
    }

    /// Whether it stands for all functions of what it names otherwise.
    pub fn is_all(&self) -> bool {
        self.function.is_any()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(glob: &str, text: &str) -> bool {
        Glob::new(glob).unwrap().matches(text)
    }

    #[test]
    fn globs() {
        assert!(glob("vfs_*", "vfs_read") && glob("vfs_*", "vfs_") && !glob("vfs_*", "do_vfs_read"));
        assert!(glob("*read*", "vfs_readv") && glob("*_read", "a_read_read") && !glob("*_read", "a_read_ready"));
        assert!(glob("a*b*c", "aXbYbZc") && !glob("a*b*c", "aXbYbZ") && glob("***", "") && !glob("", "x"));
        assert!(glob("kfree?", "kfree2") && !glob("kfree?", "kfree"));
        assert!(glob("x[0-9a]", "x7") && glob("x[0-9a]", "xa") && !glob("x[0-9a]", "xb"));
        assert!(glob("x[!0-9]", "xb") && !glob("x[!0-9]", "x7") && glob("x[]]", "x]") && glob("x[a-]", "x-"));
        assert_eq!(Glob::new("x[0-9"), Err(PatternError::Class("x[0-9".to_owned())));
        // The time is not exponential in the stars.
        assert!(!glob(&"a*".repeat(40), &"a".repeat(39).repeat(2)[..39]) && !glob(&"*a".repeat(40), &"ab".repeat(200)));
    }

    #[test]
    fn parts_of_a_pattern() {
        let parse = |text: &str| text.parse::<Pattern>().unwrap();
        let all = parse("ext4:");
        assert!(all.is_all() && all.in_module("ext4") && !all.in_module("xfs") && all.in_file("anything.c"));
        assert!(parse("nf-conntrack:x").in_module("nf_conntrack"));
        let file = parse("vfs_*@fs/read_write.c");
        assert!(file.function().matches("vfs_read") && file.in_module("any"));
        assert!(
            file.in_file("fs/read_write.c")
                && file.in_file("./fs/read_write.c")
                && file.in_file("/usr/src/fs/read_write.c")
        );
        assert!(
            !file.in_file("read_write.c") && !file.in_file("fs/xread_write.c") && !file.in_file("xfs/read_write.c")
        );
        assert!(parse("@net/*.c").in_file("net/socket.c") && !parse("@net/*.c").in_file("net/ipv4/tcp.c"));
        assert!(parse("vfs_read").is_name() && parse("vmlinux:vfs_read").is_name() && parse("foo.part.0").is_name());
        assert!(!parse("vfs_rea?").is_name() && !parse("vfs_read@x.c").is_name());
        assert_eq!(
            (parse("vfs_*").function().prefix(), parse("*x").function().prefix()),
            ("vfs_".into(), String::new())
        );
    }

    #[test]
    fn paths() {
        let from_errno = "_RNvMNtCsb5MLIFMWygY_6kernel5errorNtB2_5Error10from_errno";
        let parse = |text: &str| text.parse::<Pattern>().unwrap();
        for own in [
            "kernel::error::Error::from_errno",
            "kernel::error::Error",
            "kernel::error",
            "<kernel::error::Error>::from_errno",
            "kernel::*::from_*",
            "vmlinux:kernel::error",
            "*::from_errno",
        ] {
            assert!(parse(own).is_of(from_errno) && parse(own).in_module("vmlinux"), "{own}");
            assert!(!parse(own).is_of("from_errno") && !parse(own).is_of("kernel"), "{own}");
            assert_eq!((parse(own).is_name(), parse(own).prefix()), (false, "_R".to_owned()), "{own}");
        }
        for other in [
            "kernel::err",
            "kernel::error::Err",
            "error::Error",
            "kernel::error::Error::from_errno2",
            "::",
            "x:kernel::e?",
        ] {
            assert!(!parse(other).is_of(from_errno), "{other}");
        }
        let get = "_RINvMNtCs2lKf6AS60Zg_4core5sliceSh3getINtNtNtB5_3ops5range5RangejEEB5_";
        assert!(parse("<[u8]>::get::<core::ops::range::Range<usize>>").is_of(get) && parse("[u8]::get").is_of(get));
        assert!(!parse("ext4:a::b").in_module("vmlinux") && parse("ext4:a::b").in_module("ext4"));
        // The mangled name is a name as any other.
        assert!(parse(from_errno).is_name() && parse(from_errno).is_of(from_errno));
    }

    #[test]
    fn no_patterns() {
        for text in ["", "@", "@/", ":", ":foo"] {
            assert_eq!(text.parse::<Pattern>(), Err(PatternError::Empty(text.to_owned())), "{text}");
        }
        for text in ["a b", "foo(", "a:b:c", "a:b:c::d", "a<b:c::d", "c::d\"", "c::d/e"] {
            assert!(matches!(text.parse::<Pattern>(), Err(PatternError::Character { .. })), "{text}");
        }
        assert_eq!("m:[a@x.c".parse::<Pattern>(), Err(PatternError::Class("m:[a@x.c".to_owned())));
    }
}
