// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From a place as it is given to the image or module that it is in, and the address there.
//!
//! Site data has link-time addresses. The symbols of the site data turn a symbol with an offset into such an address,
//! whatever the kernel did to the addresses. An address of the running kernel is displaced. The displacement is known
//! for the running kernel. For another kernel, it is known as soon as a stack has an address together with a symbol
//! that only one function has.

use super::query::{At, Query};
use crate::Failure;
use siteseer::internals::placement::Placement;
use siteseer_sites::file::{ChainIndex, Chains, ContainerRef, FileError, SiteFile};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

/// The name of the image where a module may be named.
const IMAGE: &str = "vmlinux";

/// An image or module.
pub(super) struct Place<'f> {
    /// The module; `None` for the image.
    pub(super) module: Option<String>,
    pub(super) file: &'f SiteFile<'f>,
    /// `None` if the site data does not have them.
    pub(super) chains: Option<Chains<'f, 'f>>,
    /// Where it lies; `None` for a file.
    placement: Option<Placement>,
    index: OnceCell<ChainIndex>,
    symbols: OnceCell<HashMap<&'f str, Vec<ContainerRef<'f>>>>,
    /// What is added to addresses of a file to get those of its kernel, once a stack has told it.
    learned: Cell<Option<u64>>,
}

/// A place that was found.
pub(super) struct Found<'p, 'f> {
    pub(super) place: &'p Place<'f>,
    /// Its address in the site data.
    pub(super) link: u64,
}

/// Why a place is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFound {
    #[error("module {0} has no site data")]
    Module(String),
    #[error("no function has the symbol {0}")]
    Symbol(String),
    #[error("the offset is past the end of the symbol {0}")]
    Beyond(String),
    #[error("the symbol {name} is not unique: it is at {}", list(addresses))]
    Ambiguous { name: String, addresses: Vec<u64> },
    #[error("it is neither in the kernel's text nor in that of a module with site data")]
    Outside,
    #[error(transparent)]
    Damaged(#[from] FileError),
}

fn list(addresses: &[u64]) -> String {
    addresses.iter().map(|address| format!("{address:#x}")).collect::<Vec<String>>().join(", ")
}

impl<'f> Place<'f> {
    pub(super) fn new(
        module: Option<String>,
        file: &'f SiteFile<'f>,
        placement: Option<Placement>,
    ) -> Result<Place<'f>, FileError> {
        Ok(Place {
            module,
            file,
            chains: file.chains()?,
            placement,
            index: OnceCell::new(),
            symbols: OnceCell::new(),
            learned: Cell::new(None),
        })
    }

    /// All chains, decoded when they are first asked for; `None` if the site data does not have them.
    pub(super) fn index(&self) -> Result<Option<&ChainIndex>, FileError> {
        let Some(chains) = &self.chains else { return Ok(None) };
        if self.index.get().is_none() {
            let index = chains.index()?;
            return Ok(Some(self.index.get_or_init(|| index)));
        }
        Ok(self.index.get())
    }

    /// The address where the kernel has it, as far as that is known, or else in the file.
    pub(super) fn run_time(&self, link: u64) -> u64 {
        let placed = self.placement.as_ref().and_then(|placement| placement.run_time(link));
        placed.unwrap_or_else(|| link.wrapping_add(self.learned.get().unwrap_or(0)))
    }

    fn named(&self, name: &str) -> &[ContainerRef<'f>] {
        let symbols = self.symbols.get_or_init(|| {
            let mut symbols: HashMap<&str, Vec<ContainerRef<'f>>> = HashMap::new();
            for container in self.file.containers() {
                let named = symbols.entry(container.name).or_default();
                if named.iter().all(|known| known.address != container.address) {
                    named.push(container);
                }
            }
            symbols
        });
        symbols.get(name).map_or(&[], Vec::as_slice)
    }

    /// The address in the site data of one in the kernel.
    fn link_time(&self, address: u64) -> Option<u64> {
        if let Some(placement) = &self.placement {
            return placement.link_time(address).filter(|&link| self.is_text(link));
        }
        let displaced = self.learned.get().map(|displacement| address.wrapping_sub(displacement));
        [displaced, Some(address)].into_iter().flatten().find(|&link| self.is_text(link))
    }

    fn is_text(&self, link: u64) -> bool {
        self.file.sections().iter().any(|text| link.wrapping_sub(text.address) < text.size)
    }

    fn is_named(&self, module: Option<&str>) -> bool {
        match module {
            None => true,
            Some(IMAGE) => self.module.is_none(),
            Some(module) => self.module.as_deref() == Some(module),
        }
    }
}

/// Finds a place; `address` is what a stack has beside the symbol.
pub(super) fn find<'p, 'f>(
    places: &'p [Place<'f>],
    query: &Query,
    address: Option<u64>,
) -> Result<Found<'p, 'f>, NotFound> {
    let module = query.module.as_deref();
    let mut named = places.iter().filter(|place| place.is_named(module)).peekable();
    if let (None, Some(module)) = (named.peek(), module) {
        return Err(NotFound::Module(module.to_owned()));
    }
    let (name, offset, size) = match &query.at {
        At::Address(address) => {
            let found = named.find_map(|place| Some(Found { place, link: place.link_time(*address)? }));
            return found.ok_or(NotFound::Outside);
        }
        At::Symbol { name, offset, size } => (name, *offset, *size),
    };
    let mut hits: Vec<(&'p Place<'f>, &ContainerRef<'f>)> = Vec::new();
    let mut is_known = false;
    for place in named {
        let all = place.named(name);
        is_known |= !all.is_empty();
        // What returns from a call at the end of a function returns to its end.
        hits.extend(all.iter().filter(|symbol| offset <= u64::from(symbol.size)).map(|symbol| (place, symbol)));
        place.file.whole()?;
        // The kernel's own lookups prefer the image's, too.
        if !hits.is_empty() && place.module.is_none() {
            break;
        }
    }
    let link = |symbol: &ContainerRef<'_>| symbol.address.wrapping_add(offset);
    if let Some(size) = size
        && hits.iter().any(|(_, symbol)| u64::from(symbol.size) == size)
    {
        hits.retain(|(_, symbol)| u64::from(symbol.size) == size);
    }
    if let (Some(address), [_, _, ..]) = (address, &hits[..]) {
        hits.retain(|(place, symbol)| place.link_time(address) == Some(link(symbol)));
    }
    match hits[..] {
        [(place, symbol)] => {
            if let Some(address) = address
                && place.module.is_none()
            {
                place.learned.set(Some(address.wrapping_sub(link(symbol))));
            }
            Ok(Found { place, link: link(symbol) })
        }
        [] if is_known => Err(NotFound::Beyond(name.clone())),
        [] => Err(NotFound::Symbol(name.clone())),
        _ => {
            let addresses = hits.iter().map(|(_, symbol)| symbol.address).collect();
            Err(NotFound::Ambiguous { name: name.clone(), addresses })
        }
    }
}

/// The error of site data that do not have chains.
pub(super) fn without_chains(what: &str) -> Failure {
    format!(
        "{what} does not say which inlined copy an address is in: encode again with `siteseer encode --lines`, or --ranges"
    )
    .into()
}
