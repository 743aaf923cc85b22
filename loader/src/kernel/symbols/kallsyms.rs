// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `/proc/kallsyms`: lines of `ffffffff81001234 t name`, for a module's symbol with `<tab>[module]` after it.
//!
//! The kernel has 200,000 symbols and writes them as 10 MB of text, a page for each read; a third of them is text. The
//! table is parsed as it comes, a buffer at a time, and of a line only what is text is kept: the address, and the name
//! in one pool with all others. No symbol has an allocation of its own.

use super::lines::{address, each_line, read_lines};
use std::collections::HashMap;
use std::io::{self, Read};

/// A text symbol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) address: u64,
    name: u32,
    name_len: u16,
    /// Index among the names of modules plus one; 0 for the kernel's image.
    module: u16,
}

/// Text symbols, by address; symbols of one address in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Table {
    names: String,
    pub(super) entries: Vec<Entry>,
    modules: Vec<String>,
    /// For each of them, its number in [`Entry::module`].
    numbers: HashMap<String, u16>,
}

impl Table {
    /// Reads the kernel's table to its end.
    pub(super) fn read(kallsyms: impl Read) -> io::Result<Table> {
        let mut table = Table::default();
        read_lines(kallsyms, |line| table.line(line))?;
        Ok(table.sorted())
    }

    /// Parses the whole text.
    pub(super) fn parse(text: &[u8]) -> Table {
        let mut table = Table::default();
        each_line(text, |line| table.line(line));
        table.sorted()
    }

    /// The symbols of an image or module: (link-time address, name).
    pub(super) fn of_image<'n>(symbols: impl IntoIterator<Item = (u64, &'n str)>, module: Option<&str>) -> Table {
        let mut table = Table::default();
        let module = module.and_then(|module| table.module(module)).unwrap_or(0);
        symbols.into_iter().for_each(|(address, name)| table.add(address, name, module));
        table.sorted()
    }

    fn sorted(mut self) -> Table {
        // Stable: of several symbols at one address the kernel reports the first.
        if !self.entries.is_sorted_by_key(|entry| entry.address) {
            self.entries.sort_by_key(|entry| entry.address);
        }
        self.entries.shrink_to_fit();
        self
    }

    /// Adds the symbol of a line, if it is text. A line that is not what it should be is passed over.
    fn line(&mut self, line: &[u8]) {
        // Two thirds are not text: seen by one byte, where the address has all its digits.
        if line.get(16) == Some(&b' ') && !matches!(line.get(17), Some(b't' | b'T' | b'w' | b'W')) {
            return;
        }
        let Some((address, rest)) = address(line) else { return };
        let [b't' | b'T' | b'w' | b'W', b' ', name @ ..] = rest else { return };
        let name = name.trim_ascii_end();
        // Only a module's symbol is followed by a tab.
        let tab = if name.last() == Some(&b']') { name.iter().position(|&byte| byte == b'\t') } else { None };
        let (name, module) = match tab {
            Some(tab) => (&name[..tab], name[tab + 1..].trim_ascii()),
            None => (name, &[][..]),
        };
        let Ok(name) = std::str::from_utf8(name) else { return };
        let module = module.strip_prefix(b"[").unwrap_or(module);
        let module = module.strip_suffix(b"]").unwrap_or(module);
        let Some(module) = std::str::from_utf8(module).ok().and_then(|module| self.module(module)) else { return };
        // Marks of code and data within a module's functions, which the kernel passes over (`is_mapping_symbol()`,
        // include/linux/module_symbol.h).
        if module != 0 && (name.starts_with('$') || name.starts_with(".L") || name.starts_with("L0")) {
            return;
        }
        self.add(address, name, module);
    }

    /// The number of a module; `None` if there are too many.
    fn module(&mut self, name: &str) -> Option<u16> {
        if name.is_empty() {
            return Some(0);
        }
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u16::try_from(self.modules.len() + 1).ok()?;
        self.modules.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    fn add(&mut self, address: u64, name: &str, module: u16) {
        if name.is_empty() {
            return;
        }
        let (Ok(start), Ok(name_len)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else { return };
        self.names.push_str(name);
        self.entries.push(Entry { address, name: start, name_len, module });
    }

    pub(super) fn name(&self, entry: &Entry) -> &str {
        let start = entry.name as usize;
        self.names.get(start..start + usize::from(entry.name_len)).unwrap_or("")
    }

    pub(super) fn module_of(&self, entry: &Entry) -> Option<&str> {
        let index = usize::from(entry.module).checked_sub(1)?;
        self.modules.get(index).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(table: &Table) -> Vec<(u64, String, Option<String>)> {
        let tell =
            |entry: &Entry| (entry.address, table.name(entry).to_owned(), table.module_of(entry).map(str::to_owned));
        table.entries.iter().map(tell).collect()
    }

    #[test]
    fn what_is_not_a_text_symbol_is_passed_over() {
        let text = b"ffffffff81000000 T one\nrubbish\nffffffff81000010 D data\nxyz t bad\n12345678123456789 t long\n\
            ffffffff81000020 t \n 10 t space\nffffffff81000008 w two\t[mod]\r\n\nffffffff81000030 W last";
        let expected: Vec<(u64, String, Option<String>)> = vec![
            (0xffff_ffff_8100_0000, "one".into(), None),
            (0xffff_ffff_8100_0008, "two".into(), Some("mod".into())),
            (0xffff_ffff_8100_0030, "last".into(), None),
        ];
        assert_eq!(told(&Table::parse(text)), expected);
    }

    /// A search through all modules for each line took more than ten seconds.
    #[test]
    fn as_many_modules_as_have_numbers() {
        let text: String = (0..70_000).map(|nth| format!("1 t a\t[m{nth}]\n2 t b\t[m{nth}]\n")).collect();
        let table = Table::parse(text.as_bytes());
        assert_eq!((table.modules.len(), table.entries.len()), (65_535, 2 * 65_535));
        let last = table.entries.last().map(|entry| (table.name(entry), table.module_of(entry)));
        assert_eq!(last, Some(("b", Some("m65534"))));
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_is_parsed(
            lines in prop::collection::vec("(10|2f|ffffffff81000000|) ?[tTdw] [a-z.]{0,6}(\t\\[m[0-9]\\])?", 0..20),
        ) {
            let text = lines.join("\n");
            let table = Table::read(text.as_bytes()).unwrap();
            prop_assert_eq!(told(&table), told(&Table::parse(text.as_bytes())));
        }
    }
}
