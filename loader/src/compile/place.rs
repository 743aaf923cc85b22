// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where a site is, for who knows no addresses: a symbol that means one place, and the distance from it.
//!
//! The kernel resolves the symbol when a probe is attached. If several symbols have a name, it takes the first or
//! refuses, by version. Then the distance from `_stext` serves, where the image's text begins: the kernel looks at the
//! function that holds the place, not at the symbol that it was counted from (`_kprobe_addr()`, kernel/kprobes.c).

use crate::site::reason::Reason;
use crate::site::refusal::Refusal;
use crate::target::function::{Candidate, Function};
use siteseer_sites::file::{FileError, SiteFile};
use std::collections::BTreeMap;

const START: &str = "_stext";

/// A place in the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolPlace {
    /// A symbol.
    pub symbol: String,
    /// Bytes from it.
    pub offset: u64,
}

/// What the site data says about symbols.
pub(super) struct Places {
    /// Link-time address of `_stext`.
    start: Option<u64>,
    /// The link-time addresses that symbols of a name have.
    named: BTreeMap<String, Vec<u64>>,
}

impl Places {
    /// For the symbols that hold the sites of functions. `all` says whether the site data knows all symbols of a name.
    pub(super) fn new(file: &SiteFile<'_>, functions: &[Function], all: bool) -> Result<Places, FileError> {
        let text = file.sections().iter().find(|section| section.name == ".text");
        let mut named: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for candidate in functions.iter().flat_map(|function| &function.candidates).filter(|_| all) {
            if named.contains_key(&candidate.symbol) {
                continue;
            }
            let found = file.containers_of(&candidate.symbol)?.into_iter();
            let found = found.filter(|container| container.name == candidate.symbol);
            named.insert(candidate.symbol.clone(), found.map(|container| container.address).collect());
        }
        Ok(Places { start: text.map(|text| text.address), named })
    }

    /// The place of a site.
    pub(super) fn of(&self, site: &Candidate) -> Option<SymbolPlace> {
        let symbol = site.link_address.wrapping_sub(site.offset());
        // For an exact one the name has been found to mean one symbol.
        let is_unique = site.exact.is_some() || self.named.get(&site.symbol).is_some_and(|all| **all == [symbol]);
        if is_unique {
            return Some(SymbolPlace { symbol: site.symbol.clone(), offset: site.offset() });
        }
        // `struct kprobe` has 32 bits for it.
        let offset = site.link_address.checked_sub(self.start?).filter(|&offset| u32::try_from(offset).is_ok())?;
        Some(SymbolPlace { symbol: START.to_owned(), offset })
    }

    /// Marks sites that are nowhere as such.
    pub(super) fn mark(&self, functions: &mut [Function]) {
        for candidate in functions.iter_mut().flat_map(|function| &mut function.candidates) {
            if candidate.obstacle.is_none() && self.of(candidate).is_none() {
                candidate.obstacle = Some(Reason::Refused(Refusal::NotBySymbol));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::site::{Marks, SiteKind};

    fn site(symbol: &str, address: u64, offset: u64) -> Candidate {
        Candidate {
            module: None,
            index: None,
            kind: SiteKind::Inline,
            address: address + offset,
            link_address: address + offset,
            moved: 0,
            symbol: symbol.to_owned(),
            symbol_address: address,
            symbol_size: 0x100,
            prototype: 0,
            arguments: Vec::new(),
            marks: Marks::default(),
            source: None,
            declared: None,
            obstacle: None,
            code: siteseer_sites::CodeSum::NONE,
            ends_module: false,
            traceable: None,
            described: true,
            exact: None,
            bpf: None,
            live_patch: None,
        }
    }

    #[test]
    fn places_by_symbols_that_are_unique() {
        let named = [("foo", vec![0x1100, 0x1200]), ("bar", vec![0x1300])];
        let named = named.into_iter().map(|(name, addresses)| (name.to_owned(), addresses)).collect();
        let mut places = Places { start: Some(0x1000), named };
        let of = |places: &Places, site: &Candidate| places.of(site).map(|place| (place.symbol, place.offset));
        let place = |symbol: &str, offset| Some((symbol.to_owned(), offset));
        assert_eq!(of(&places, &site("bar", 0x1300, 4)), place("bar", 4));
        assert_eq!(of(&places, &site("foo", 0x1200, 4)), place("_stext", 0x204));
        assert_eq!(of(&places, &site("unknown", 0x1400, 0)), place("_stext", 0x400));
        let exact = Candidate { exact: Some(7), ..site("unknown", 0x1400, 0) };
        assert_eq!(of(&places, &exact), place("unknown", 0));
        assert_eq!(of(&places, &site("foo", 0x100, 4)), None, "it is before _stext");
        assert_eq!(of(&places, &site("foo", 0x2_0000_0000, 4)), None, "it is too far away");
        places.start = None;
        assert_eq!(of(&places, &site("foo", 0x1200, 4)), None);
        let mut function = Function {
            name: "f".to_owned(),
            prototypes: Vec::new(),
            candidates: vec![site("bar", 0x1300, 4), site("foo", 0x1200, 4)],
            left_out: Vec::new(),
            displacement: 0,
        };
        places.mark(std::slice::from_mut(&mut function));
        let obstacles: Vec<_> = function.candidates.iter().map(|site| site.obstacle.clone()).collect();
        assert_eq!(obstacles, [None, Some(Reason::Refused(Refusal::NotBySymbol))]);
    }
}
