// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A part of the kernel's symbols: those of the site data that one lookup needs, each confirmed by the kernel.
//!
//! The kernel takes a second and more on a slow machine to write all its symbols as text, and a lookup needs a
//! handful. Site data has their names, the link-time addresses and what ftrace makes of them. For those the kernel
//! is asked one by one ([`super::ask`]): which symbol begins there, and how long it is. What it does not confirm is
//! not taken.

use super::{Symbols, Table};
use siteseer_sites::site::Unprobeable;
use std::collections::BTreeMap;

/// A symbol that site data and the kernel agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmed<'n> {
    /// Run-time address.
    pub(crate) address: u64,
    /// Bytes up to the next symbol, as the kernel says.
    pub(crate) size: u64,
    pub(crate) name: &'n str,
    /// Whether ftrace knows a patch site in it; `None` where that cannot be told.
    pub(crate) traceable: Option<bool>,
}

/// What is known about the symbols of a part, by address.
#[derive(Debug, Default)]
pub(super) struct Part {
    sizes: BTreeMap<u64, u64>,
    traceable: BTreeMap<u64, bool>,
}

impl Part {
    /// The symbol that holds an address: where it begins, and its size.
    pub(super) fn containing(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &size) = self.sizes.range(..=address).next_back()?;
        (address - start < size).then_some((start, size))
    }

    /// Whether ftrace knows the function that begins there.
    pub(super) fn traceable(&self, address: u64) -> Option<bool> {
        self.traceable.get(&address).copied()
    }
}

/// What the reason for which a symbol's first byte cannot be probed tells about ftrace; `None` where it tells nothing.
pub(crate) fn traceable(unprobeable: Option<Unprobeable>) -> Option<bool> {
    match unprobeable {
        None => Some(true),
        Some(
            Unprobeable::Init
            | Unprobeable::Exit
            | Unprobeable::Noinstr
            | Unprobeable::Entry
            | Unprobeable::Notrace
            | Unprobeable::CfiPreamble
            | Unprobeable::NotText
            | Unprobeable::Unplaced,
        ) => Some(false),
        Some(
            Unprobeable::Blacklisted
            | Unprobeable::JumpLabel
            | Unprobeable::StaticCall
            | Unprobeable::Bug
            | Unprobeable::NotAnInstruction
            | Unprobeable::Unsteppable,
        ) => None,
    }
}

impl Symbols {
    /// The symbols that were confirmed, of the image or of a module.
    pub(crate) fn of_part(confirmed: &[Confirmed<'_>], module: Option<&str>) -> Symbols {
        let mut part = Part::default();
        for symbol in confirmed {
            part.sizes.insert(symbol.address, symbol.size);
            if let Some(traceable) = symbol.traceable {
                part.traceable.insert(symbol.address, traceable);
            }
        }
        let symbols = confirmed.iter().map(|symbol| (symbol.address, symbol.name));
        Symbols { table: Table::of_image(symbols, module), part: Some(part), ..Symbols::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_answers_for_what_is_in_it() {
        let symbol = |address, size, name, traceable| Confirmed { address, size, name, traceable };
        let symbols = Symbols::of_part(
            &[
                symbol(0x2000, 0x40, "foo", Some(true)),
                symbol(0x1000, 0x20, "foo.isra.0", Some(false)),
                symbol(0x3000, 0x10, "other", None),
            ],
            None,
        );
        assert_eq!(symbols.named("foo").map(|symbol| symbol.address).collect::<Vec<_>>(), [0x2000]);
        assert_eq!(symbols.suffixed("foo").map(|symbol| symbol.name).collect::<Vec<_>>(), ["foo.isra.0"]);
        let held = symbols.containing(0x2004).unwrap();
        assert_eq!((held.symbol.name, held.offset, held.size), ("foo", 4, 0x40));
        assert_eq!(symbols.containing(0x2040), None, "what follows is not known");
        assert_eq!(symbols.containing(0xfff), None);
        assert_eq!(symbols.traceable(0x2000, 0x40), Some(true));
        assert_eq!(symbols.traceable(0x1000, 0x20), Some(false));
        assert_eq!(symbols.traceable(0x3000, 0x10), None);
        // What stands against a probe is in the site data.
        assert_eq!((symbols.notrace(0x1004), symbols.blacklisted(0x1004)), (None, None));
    }

    #[test]
    fn a_part_of_a_module_is_the_modules() {
        let symbol = Confirmed { address: 0x2000, size: 0x40, name: "foo", traceable: Some(true) };
        let symbols = Symbols::of_part(&[symbol], Some("a_module"));
        assert_eq!(symbols.named("foo").next().unwrap().module, Some("a_module"));
    }
}
