// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Stacks that a BPF program took on the running kernel, in words: with the inlined functions in them if the site data
//! has ranges, and by symbols otherwise.

use super::places::{Place, find};
use super::query::{At, Query};
use crate::Failure;
use siteseer::Target;
use siteseer::internals::symbols::Symbols;
use siteseer_sites::file;
use siteseer_sites::machine::StackWalk;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// One function of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// `vfs_read+0x12`, `nf_hook+0x7 [nf_tables]`; for an inlined function its name.
    pub(crate) function: String,
    pub(crate) inlined: bool,
    /// `fs/read_write.c:34`
    pub(crate) line: Option<String>,
}

impl Frame {
    /// Functions may be missing here.
    fn unknown() -> Frame {
        Frame { function: "?".to_owned(), inlined: false, line: None }
    }

    pub(crate) fn text(&self) -> String {
        let inlined = if self.inlined { " (inlined)" } else { "" };
        let line = self.line.as_ref().map(|line| format!("  {line}")).unwrap_or_default();
        format!("{}{inlined}{line}", self.function)
    }
}

/// The stack of a call.
pub(crate) struct Taken<'t> {
    /// The site's address.
    pub(crate) site: u64,
    /// The function, and the line that calls it, if the site is in an inlined copy of it.
    pub(crate) inlined: Option<(&'t str, Option<String>)>,
    /// What of the callers is in the stack.
    pub(crate) walk: StackWalk,
    /// All addresses, from the innermost one outwards.
    pub(crate) addresses: &'t [u64],
}

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Spot {
    address: u64,
    /// It is where a call returns to: the call is before it.
    returns: bool,
}

/// The functions that addresses are in, as far as they have been looked up.
pub(crate) struct Stacks<'t> {
    target: &'t Target,
    known: RefCell<HashMap<Spot, Vec<Frame>>>,
}

impl<'t> Stacks<'t> {
    pub(crate) fn new(target: &'t Target) -> Stacks<'t> {
        Stacks { target, known: RefCell::default() }
    }

    /// Whether the site data says which functions are inlined where.
    pub(crate) fn has_inlined(target: &Target) -> bool {
        let has = target.opened(Vec::new(), |opened| {
            opened.first().is_some_and(|image| matches!(image.file.chains(), Ok(Some(_))))
        });
        has.unwrap_or(false)
    }

    /// The functions of a stack, from the one that was called outwards.
    pub(crate) fn frames(&self, taken: &Taken<'_>) -> Result<Vec<Frame>, Failure> {
        let symbols = self.target.symbols()?;
        let first = Spot { address: taken.site, returns: false };
        let callers = match taken.walk {
            StackWalk::Lost => [].iter(),
            StackWalk::Whole | StackWalk::MayLackCaller => callers(taken.site, taken.addresses, symbols).iter(),
        };
        let spots: Vec<Spot> =
            [first].into_iter().chain(callers.map(|&address| Spot { address, returns: true })).collect();
        self.learn(&spots, symbols)?;
        let known = self.known.borrow();
        let mut frames = Vec::new();
        for spot in &spots {
            let here = known.get(spot).map_or(&[][..], Vec::as_slice);
            if spot.returns {
                frames.extend_from_slice(here);
                continue;
            }
            frames.extend(at_site(taken, here));
            if taken.walk != StackWalk::Whole {
                frames.push(Frame::unknown());
            }
        }
        Ok(frames)
    }

    fn learn(&self, spots: &[Spot], symbols: &Symbols) -> Result<(), Failure> {
        let mut known = self.known.borrow_mut();
        let new: Vec<Spot> = spots.iter().filter(|spot| !known.contains_key(spot)).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        let module = |spot: &Spot| symbols.containing(spot.address)?.symbol.module.map(Arc::<str>::from);
        let modules: BTreeSet<Arc<str>> = new.iter().filter_map(module).collect();
        let found = self.target.opened(modules, |opened| -> Result<Vec<Vec<Frame>>, Failure> {
            let mut places = Vec::with_capacity(opened.len());
            for one in opened {
                let module = one.module.as_deref().map(str::to_owned);
                places.push(Place::new(module, one.file, Some(one.placement.clone()))?);
            }
            new.iter().map(|spot| functions(*spot, symbols, &places)).collect()
        });
        let found = match found {
            Ok(found) => found?,
            // Without site data there are symbols.
            Err(_) => new.iter().map(|spot| functions(*spot, symbols, &[])).collect::<Result<_, Failure>>()?,
        };
        known.extend(new.into_iter().zip(found));
        Ok(())
    }
}

/// The functions at the site. What is inlined into the function there was not called yet.
fn at_site(taken: &Taken<'_>, here: &[Frame]) -> Vec<Frame> {
    let Some((around, inner)) = here.split_last() else { return Vec::new() };
    let Some((name, call)) = &taken.inlined else { return vec![around.clone()] };
    if let Some(own) = inner.iter().position(|frame| frame.function == *name) {
        return here[own..].to_vec();
    }
    // The copy's code begins after its entry. Whether what is inlined there called it is not known.
    let mut frames = vec![Frame { function: (*name).to_owned(), inlined: true, line: None }];
    if inner.is_empty() {
        frames.push(Frame { line: call.clone().or_else(|| around.line.clone()), ..around.clone() });
    } else {
        frames.extend([Frame::unknown(), around.clone()]);
    }
    frames
}

/// The addresses of a stack after that of the site, and without the BPF program that took it.
fn callers<'s>(site: u64, stack: &'s [u64], symbols: &Symbols) -> &'s [u64] {
    let start = |address: u64| symbols.containing(address).map(|found| address - found.offset);
    let own = start(site);
    if let Some(at) = stack.iter().position(|&address| own.is_some() && start(address) == own) {
        return &stack[at + 1..];
    }
    let is_tracer = |address: &&u64| {
        let found = symbols.containing(**address);
        found.is_none_or(|found| found.symbol.module.is_some_and(|module| module == "bpf"))
    };
    &stack[stack.iter().take_while(is_tracer).count()..]
}

/// The functions that an address is in, from the innermost one outwards.
fn functions(spot: Spot, symbols: &Symbols, places: &[Place<'_>]) -> Result<Vec<Frame>, Failure> {
    let address = spot.address;
    let symbol = match symbols.containing(address) {
        Some(found) => {
            let module = found.symbol.module.map(|module| format!(" [{module}]")).unwrap_or_default();
            format!("{}+{:#x}{module}", found.symbol.name, found.offset)
        }
        None => format!("{address:#x}"),
    };
    let query = Query { module: None, at: At::Address(address) };
    let chain = match find(places, &query, None) {
        Ok(found) => match &found.place.chains {
            Some(chains) => chains.at(found.link.saturating_sub(u64::from(spot.returns)))?,
            None => None,
        },
        Err(_) => None,
    };
    let chain = chain.map_or(Vec::new(), |chain| chain.frames);
    let line = |frame: &file::Frame<'_>| {
        frame.line.filter(|line| line.line > 0).map(|line| format!("{}:{}", line.file, line.line))
    };
    let (outermost, inlined) = chain.split_last().map_or((None, &[][..]), |(last, inlined)| (Some(last), inlined));
    let name = |frame: &file::Frame<'_>| match frame.function {
        "" => "(no function)".to_owned(),
        name => name.to_owned(),
    };
    let inlined = inlined.iter().map(|frame| Frame { function: name(frame), inlined: true, line: line(frame) });
    let own = Frame { function: symbol, inlined: false, line: outermost.and_then(line) };
    Ok(inlined.chain([own]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_site_is_what_was_called() {
        let frame = |function: &str, inlined| Frame {
            function: function.to_owned(),
            inlined,
            line: Some(format!("{function}.c:1")),
        };
        let here = [frame("inner", true), frame("foo", true), frame("outer", true), frame("around+0x9", false)];
        let shown = |inlined: Option<&str>, here: &[Frame]| {
            let inlined = inlined.map(|name| (name, Some("call.c:2".to_owned())));
            let taken = Taken { site: 0, inlined, walk: StackWalk::Whole, addresses: &[] };
            at_site(&taken, here).iter().map(Frame::text).collect::<Vec<String>>()
        };
        assert_eq!(
            shown(Some("foo"), &here),
            ["foo (inlined)  foo.c:1", "outer (inlined)  outer.c:1", "around+0x9  around+0x9.c:1"]
        );
        assert_eq!(shown(None, &here), ["around+0x9  around+0x9.c:1"]);
        assert_eq!(shown(Some("bar"), &here), ["bar (inlined)", "?", "around+0x9  around+0x9.c:1"]);
        assert_eq!(shown(Some("bar"), &here[3..]), ["bar (inlined)", "around+0x9  call.c:2"]);
    }
}
