// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that GCC folded into an equal one (`-fipa-icf`).
//!
//! Of two functions whose code is equal GCC keeps one body. The other's symbol becomes a second one at the same address, and
//! its debug entry is a definition without an address. Nothing at that address tells whose call a hit is: each of the two functions
//! has a site there, and at each of them hits may be calls of the other ([`Marks::MAY_REPEAT`]).
//!
//! Other symbols that share an address are aliases that the source made: what bears such a name has no definition of its own, and
//! a call by that name is a call of the function.
//!
//! [`Marks::MAY_REPEAT`]: siteseer_sites::Marks::MAY_REPEAT

use crate::image::Image;
use crate::symbols::{Symbol, SymbolKind};
use hashbrown::{HashMap, HashSet};

/// The symbols that share their address with one of another function.
#[derive(Debug, Default)]
pub(crate) struct Shared<'a> {
    addresses: HashSet<u64>,
    /// Their addresses, by the function's name: the symbol's without suffixes.
    by_function: HashMap<&'a str, Vec<u64>>,
}

impl<'a> Shared<'a> {
    pub(crate) fn find(image: &Image<'a>) -> Shared<'a> {
        let functions: Vec<&Symbol<'a>> =
            image.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Function).collect();
        let mut shared = Shared::default();
        for at_one in functions.chunk_by(|a, b| a.address == b.address) {
            let first = function_of(at_one[0].name);
            if at_one.iter().all(|symbol| function_of(symbol.name) == first) {
                continue;
            }
            shared.addresses.insert(at_one[0].address);
            for symbol in at_one {
                shared.by_function.entry(function_of(symbol.name)).or_default().push(symbol.address);
            }
        }
        shared
    }

    /// Whether symbols of several functions are at an address.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }

    /// The addresses that a function's symbols share with others'.
    pub(crate) fn of(&self, function: &str) -> &[u64] {
        self.by_function.get(function).map_or(&[], Vec::as_slice)
    }
}

/// The name of the function that a symbol stands for.
fn function_of(symbol: &str) -> &str {
    symbol.split_once('.').map_or(symbol, |(function, _)| function)
}

/// What one unit tells of its functions at shared addresses.
#[derive(Debug, Default)]
pub(crate) struct Folds<'a> {
    /// Functions with text: the address, the name, and the site that was made of it.
    bodies: Vec<(u64, &'a str, Option<u32>)>,
    /// Definitions without text: the address of a symbol of that name, and the debug entry.
    without_text: Vec<(u64, usize)>,
}

/// A function without text of its own, whose symbol is at another's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Folded {
    pub(crate) address: u64,
    /// Its debug entry, as an offset in `.debug_info`.
    pub(crate) die: usize,
}

impl<'a> Folds<'a> {
    /// Notes a function with text at a shared address.
    pub(crate) fn body(&mut self, address: u64, function: &'a str, site: Option<u32>) {
        self.bodies.push((address, function, site));
    }

    /// Notes a definition without text.
    pub(crate) fn without_text(&mut self, addresses: &[u64], die: usize) {
        self.without_text.extend(addresses.iter().map(|&address| (address, die)));
    }

    /// The functions that were folded into a body of this unit, and the sites of those bodies. `name` tells a debug entry's.
    pub(crate) fn resolve(self, mut name: impl FnMut(usize) -> Option<&'a str>) -> (Vec<Folded>, Vec<u32>) {
        let (mut folded, mut sites) = (Vec::new(), Vec::new());
        for (address, die) in self.without_text {
            let Some(name) = name(die) else { continue };
            let at_address = || self.bodies.iter().filter(|body| body.0 == address);
            if at_address().next().is_none() || at_address().any(|body| body.1 == name) {
                continue;
            }
            folded.push(Folded { address, die });
            sites.extend(at_address().filter_map(|body| body.2));
        }
        sites.sort_unstable();
        sites.dedup();
        (folded, sites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_text_is_folded_into_what_has() {
        let mut folds = Folds::default();
        folds.body(0x10, "one", Some(3));
        folds.body(0x20, "own", Some(4));
        folds.without_text(&[0x10], 100);
        // Its body is in this unit, and another entry of it has none.
        folds.without_text(&[0x20], 101);
        // Its symbol is at a body of another unit.
        folds.without_text(&[0x30], 102);
        let name = |die| [(100, "two"), (101, "own"), (102, "three")].iter().find(|(at, _)| *at == die).map(|at| at.1);
        assert_eq!(folds.resolve(name), (vec![Folded { address: 0x10, die: 100 }], vec![3]));
    }

    #[test]
    fn suffixes_are_not_the_functions() {
        assert_eq!(function_of("foo.part.0"), "foo");
        assert_eq!(function_of("foo"), "foo");
    }
}
