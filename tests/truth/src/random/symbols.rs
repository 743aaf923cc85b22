// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which function and which variable of a program is where in an image.

use crate::random::program::Program;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::ops::Range;

/// Functions and variables of an image.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    functions: HashMap<u64, usize>,
    /// Sorted. A compiler may have made several of one variable, with something after a dot in their names.
    variables: Vec<(Range<u64>, String)>,
}

/// The name in the source, of a symbol's.
fn stem(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

impl Symbols {
    /// Those of an image.
    pub(crate) fn of(image: &object::File<'_>, program: &Program) -> Symbols {
        let mut symbols = Symbols::default();
        for symbol in image.symbols() {
            let Ok(name) = symbol.name() else { continue };
            match symbol.kind() {
                SymbolKind::Text => {
                    if let Some(function) = program.functions.iter().find(|function| function.name == name) {
                        symbols.functions.insert(symbol.address(), function.id);
                    }
                }
                SymbolKind::Data if symbol.size() > 0 => {
                    let range = symbol.address()..symbol.address() + symbol.size();
                    symbols.variables.push((range, stem(name).to_owned()));
                }
                _ => {}
            }
        }
        symbols.variables.sort_by_key(|(range, _)| range.start);
        symbols
    }

    /// The function that begins at an address.
    pub(crate) fn function(&self, address: u64) -> Option<usize> {
        self.functions.get(&address).copied()
    }

    /// The variable that an address is in: its name, its bytes, and how far into it the address is.
    pub(crate) fn variable(&self, address: u64) -> Option<(&str, u64, u64)> {
        let next = self.variables.partition_point(|(range, _)| range.start <= address);
        let (range, name) = self.variables[..next].last().filter(|(range, _)| range.contains(&address))?;
        Some((name, range.end - range.start, address - range.start))
    }

    /// Where a variable of that name and size is; `None` if the compiler removed it or took it apart.
    pub(crate) fn address(&self, name: &str, size: u64) -> Option<u64> {
        let mut found = self.variables.iter().filter(|(range, known)| known == name && range.end - range.start == size);
        found.next().filter(|_| found.next().is_none()).map(|(range, _)| range.start)
    }
}
