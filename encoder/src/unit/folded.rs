// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that GCC folded into an equal one (`-fipa-icf`).
//!
//! If the code of two functions is equal, GCC keeps one body. The other's debug entry is a definition without an
//! address, and callers in the same unit call the body, or have a copy of it, under the name of the one that was kept.
//! So hits at all sites of that one may be calls of the other ([`Marks::MAY_REPEAT`]). What happens to the other's
//! symbol depends on whether its address may be compared:
//!
//! * *An alias.* It is a second symbol at the body: a site, at which hits may be calls of the one that was kept, too.
//!   Where that has inlined copies or clones, they may be calls that are missed ([`Marks::MAY_MISS`]), and all sites
//!   say so.
//! * *A wrapper.* It has text, which jumps to the body or has a copy of it. Callers elsewhere and callers through
//!   pointers enter the wrapper: it is a site at which calls are missed. The jump tells which function the body belongs
//!   to. If there is no jump, the body tells, because its code is the same. No debug entry describes such a copy. What
//!   was inlined into the body begins at the same instructions of the copy, with its arguments at the same places. If
//!   the code is only alike, because each has data of its own, or if several bodies have the same code and something
//!   else inlined, calls of these functions are missed there. So they are if no code is alike: it may have been folded
//!   into any function of its shape and length.
//! * *Nothing* is left of the symbol of a static function that is only called. Its debug entry is that of a function
//!   that is neither inlined nor present, and few units have any such entry. It cannot be told which function it was
//!   folded into: hits at all sites of the source's functions of its shape may be its calls.
//!
//! With link-time optimisation, the definition is in the unit of the function's source, which has no text (see
//! [`early`](super::early)), and the symbol is in the text of a unit that GCC made when it linked. It has a site, too.
//! If no symbol is left, nothing tells.
//!
//! Functions that the source declares inline are most of a unit's definitions without text. They are only looked at if
//! a symbol in the unit's text has such a function's name, and no text of that function begins there.
//!
//! Other symbols that share an address are aliases that the source made: a function with such a name has no definition
//! of its own, and a call by that name is a call of the function. Most definitions without an address are of functions
//! that were inlined everywhere, or of weak ones that another unit overrides: the text at their symbol, if there is
//! one, is not in the unit's ranges.
//!
//! [`Marks::MAY_REPEAT`]: siteseer_sites::Marks::MAY_REPEAT
//! [`Marks::MAY_MISS`]: siteseer_sites::Marks::MAY_MISS

use crate::elf::image::Image;
use crate::elf::symbols::{Symbol, SymbolKind};
use crate::text;
use hashbrown::{HashMap, HashSet};
use std::ops::Range;

/// How much longer or shorter the same code may be elsewhere, because of its jumps.
const MAX_DIFFERENCE: u64 = 16;

/// The addresses that symbols of several functions share.
#[derive(Debug, Default)]
pub(crate) struct SharedAddresses<'a> {
    addresses: HashSet<u64>,
    /// By the function's name.
    by_function: HashMap<&'a str, Vec<u64>>,
}

impl<'a> SharedAddresses<'a> {
    pub(crate) fn find(image: &Image<'a>) -> SharedAddresses<'a> {
        let functions: Vec<&Symbol<'a>> =
            image.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Function).collect();
        let mut shared = SharedAddresses::default();
        for symbols in functions.chunk_by(|a, b| a.address == b.address) {
            let first = function_of(symbols[0].name);
            if symbols.iter().all(|symbol| function_of(symbol.name) == first) {
                continue;
            }
            shared.addresses.insert(symbols[0].address);
            for symbol in symbols {
                shared.by_function.entry(function_of(symbol.name)).or_default().push(symbol.address);
            }
        }
        shared
    }

    /// Whether an address is one of them.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }

    fn of(&self, function: &str) -> &[u64] {
        self.by_function.get(function).map_or(&[], Vec::as_slice)
    }
}

/// The name of the function that a symbol stands for.
pub(crate) fn function_of(symbol: &str) -> &str {
    symbol.split_once('.').map_or(symbol, |(function, _)| function)
}

/// A function with text, as its unit tells.
#[derive(Debug, Clone, Copy)]
struct Body<'a> {
    address: u64,
    name: &'a str,
    /// Its debug entry, as an offset in `.debug_info`.
    die: usize,
    /// Whether a site was made of it: not if its name alone tells it.
    has_site: bool,
}

/// A definition without text.
#[derive(Debug, Clone, Copy)]
struct Definition<'a> {
    die: usize,
    name: &'a str,
    is_inlined: bool,
}

/// The functions that one unit defines, with and without text.
#[derive(Debug, Default)]
pub(crate) struct Folds<'a> {
    bodies: Vec<Body<'a>>,
    without_text: Vec<Definition<'a>>,
    /// The debug entries of functions that the source declares inline and that have no text: most of a unit's.
    declared_inline: Vec<usize>,
}

/// What is left of a function that was folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// A symbol at another's body.
    Alias,
    /// A symbol with text that jumps to another's body.
    Jump,
    /// A symbol with text that has a copy of another's body. No debug entry describes it. For each body with the same
    /// code, its debug entry, and where its instructions are in the copy.
    Copy(Vec<(usize, Places)>),
}

/// Addresses in one function, and in another one with the same code. In order.
pub(crate) type Places = Vec<(u64, u64)>;

/// A function that was folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folded<'a> {
    /// Its debug entry, as an offset in `.debug_info`.
    pub(crate) die: usize,
    pub(crate) address: u64,
    pub(crate) left: Left,
    /// The functions that it was folded into, as far as is known.
    pub(crate) into: Vec<&'a str>,
}

/// What a unit's functions come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved<'a> {
    pub(crate) folded: Vec<Folded<'a>>,
    /// Functions that others were folded into, and that have no site yet: debug entry and address.
    pub(crate) without_site: Vec<(usize, u64)>,
}

impl<'a> Folds<'a> {
    /// Notes a function with text.
    pub(crate) fn body(&mut self, address: u64, name: &'a str, die: usize, has_site: bool) {
        self.bodies.push(Body { address, name, die, has_site });
    }

    /// Notes a definition without text.
    pub(crate) fn without_text(&mut self, die: usize, name: &'a str, is_inlined: bool) {
        self.without_text.push(Definition { die, name, is_inlined });
    }

    /// Whether the unit defines nothing without text.
    pub(crate) fn is_empty(&self) -> bool {
        self.without_text.is_empty() && self.declared_inline.is_empty()
    }

    /// Notes a function without text that the source declares inline.
    pub(crate) fn declared_inline(&mut self, die: usize) {
        self.declared_inline.push(die);
    }

    /// Adds the functions that the source declares inline and that have a symbol in the unit's text, though they have
    /// no text of their own.
    pub(crate) fn find_declared_inline(
        &mut self,
        image: &Image<'a>,
        ranges: &[Range<u64>],
        name_of: impl Fn(usize) -> Option<&'a str>,
    ) {
        let names: HashSet<&str> = self.undescribed(image, ranges).collect();
        if names.is_empty() {
            return;
        }
        for &die in &self.declared_inline {
            if let Some(name) = name_of(die).filter(|name| names.contains(name)) {
                self.without_text.push(Definition { die, name, is_inlined: true });
            }
        }
    }

    /// Adds the functions that have a symbol in the unit's text, and a definition in a unit without text, which `early`
    /// finds by its name. `root` finds the definition that the entry of a body refers to.
    pub(crate) fn find_early<'e>(
        &mut self,
        image: &Image<'a>,
        ranges: &[Range<u64>],
        early: impl Fn(&str) -> &'e [usize],
        root: impl Fn(usize) -> Option<usize>,
    ) {
        let mut names: Vec<&'a str> = self.undescribed(image, ranges).collect();
        names.sort_unstable();
        names.dedup();
        let described: HashSet<usize> = self.bodies.iter().filter_map(|body| root(body.die)).collect();
        for name in names {
            let dies = early(name).iter().filter(|die| !described.contains(*die));
            self.without_text.extend(dies.map(|&die| Definition { die, name, is_inlined: true }));
        }
    }

    /// The names of the symbols in some ranges that the text of no function of that name begins at.
    fn undescribed(&self, image: &Image<'a>, ranges: &[Range<u64>]) -> impl Iterator<Item = &'a str> {
        let described: HashSet<(u64, &str)> = self.bodies.iter().map(|body| (body.address, body.name)).collect();
        let is_undescribed = move |symbol: &&Symbol<'a>| {
            symbol.kind == SymbolKind::Function
                && !symbol.name.starts_with("__pfx_")
                && !described.contains(&(symbol.address, function_of(symbol.name)))
        };
        let symbols = ranges.iter().flat_map(|range| image.symbols().between(range));
        symbols.filter(is_undescribed).map(|symbol| symbol.name)
    }

    /// The debug entries of functions that are neither inlined nor there.
    pub(crate) fn gone<'s>(&'s self, image: &'s Image<'a>) -> impl Iterator<Item = usize> + 's {
        let has_symbol = |name: &str| image.symbols_named(name).next().is_some();
        let gone =
            self.without_text.iter().filter(move |definition| !definition.is_inlined && !has_symbol(definition.name));
        gone.map(|definition| definition.die)
    }

    /// Tells what was folded; `owns` tells whether text is the unit's, and `is_like` whether two debug entries are of
    /// functions of one shape.
    pub(crate) fn resolve(
        &self,
        image: &Image<'a>,
        shared: &SharedAddresses<'a>,
        owns: impl Fn(u64) -> bool,
        mut is_like: impl FnMut(usize, usize) -> bool,
    ) -> Resolved<'a> {
        let mut resolved = Resolved::default();
        if self.without_text.is_empty() {
            return resolved;
        }
        let mut by_address: HashMap<u64, Vec<&Body<'a>>> = HashMap::with_capacity(self.bodies.len());
        for body in &self.bodies {
            by_address.entry(body.address).or_default().push(body);
        }
        for definition in &self.without_text {
            for &address in shared.of(definition.name) {
                let Some(bodies) = by_address.get(&address) else { continue };
                if bodies.iter().all(|body| body.name != definition.name) {
                    resolved.add(definition, address, Left::Alias, bodies.iter().copied());
                }
            }
            for symbol in image.symbols_named(definition.name) {
                let address = symbol.address;
                let is_function = symbol.kind == SymbolKind::Function && !shared.has(address);
                if !is_function || by_address.contains_key(&address) || !owns(address) {
                    continue;
                }
                match text::jumps_at_once(image, address).and_then(|target| by_address.get(&target)) {
                    Some(bodies) => resolved.add(definition, address, Left::Jump, bodies.iter().copied()),
                    None => {
                        let (bodies, places) = self.copied(image, symbol, |die| is_like(die, definition.die));
                        resolved.add(definition, address, Left::Copy(places), bodies.into_iter());
                    }
                }
            }
        }
        resolved.without_site.sort_unstable();
        resolved.without_site.dedup();
        resolved
    }

    /// The bodies that a symbol's text may be a copy of, and for each with the same code, where its instructions are in
    /// the copy. If none has the same code, bodies with code that is alike; if none has that, bodies of the same shape,
    /// which `is_like` tells, and length.
    fn copied(
        &self,
        image: &Image<'a>,
        copy: &Symbol<'a>,
        mut is_like: impl FnMut(usize) -> bool,
    ) -> (Vec<&Body<'a>>, Vec<(usize, Places)>) {
        let range = |symbol: &Symbol<'_>| symbol.address..symbol.address.saturating_add(symbol.size);
        let text_of = |body: &Body<'a>| {
            let symbols = image.symbol_at(body.address);
            let own = symbols.iter().find(|symbol| symbol.kind == SymbolKind::Function)?;
            (own.size.abs_diff(copy.size) <= MAX_DIFFERENCE).then(|| range(own))
        };
        let bodies = self.bodies.iter().filter_map(|body| Some((body, text_of(body)?)));
        let places = |body: &Body<'a>, text| Some((body.die, text::places_in(image, text, range(copy))?));
        let same = bodies.clone().filter_map(|(body, text)| Some((body, places(body, text)?)));
        let same: (Vec<&Body<'a>>, Vec<(usize, Places)>) = same.unzip();
        if !same.0.is_empty() {
            return same;
        }
        let alike = bodies.clone().filter(|(_, text)| text::are_alike(image, text.clone(), range(copy)));
        let alike: Vec<&Body<'a>> = alike.map(|(body, _)| body).collect();
        if !alike.is_empty() {
            return (alike, Vec::new());
        }
        (bodies.map(|(body, _)| body).filter(|body| is_like(body.die)).collect(), Vec::new())
    }
}

impl<'a> Resolved<'a> {
    /// Adds what is left of a function at an address, and the bodies that it was folded into.
    fn add<'b>(
        &mut self,
        definition: &Definition<'a>,
        address: u64,
        left: Left,
        bodies: impl Iterator<Item = &'b Body<'a>>,
    ) where
        'a: 'b,
    {
        let mut folded = Folded { die: definition.die, address, left, into: Vec::new() };
        for body in bodies {
            folded.into.push(body.name);
            if !body.has_site {
                self.without_site.push((body.die, body.address));
            }
        }
        if !self.folded.contains(&folded) {
            self.folded.push(folded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_not_the_functions() {
        assert_eq!(function_of("foo.part.0"), "foo");
        assert_eq!(function_of("foo"), "foo");
    }
}
