// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Encoding only some functions, fast.
//!
//! Whoever asks for one function should not wait for all. Reading a name needs its debug entry, but most units do not
//! even contain the name, and that shows without reading them: a name is in `.debug_str`, and a unit that declares a
//! function of that name contains the string's offset (`DW_FORM_strp`), or the name itself (`DW_FORM_string`) where it
//! is too short to be worth an offset. A unit that contains neither, and refers to no entry of another unit, is
//! skipped.

use crate::debug::slice::Slice;
use crate::debug::units::{DebugInfo, DebugUnit};
use gimli::Section;
use hashbrown::HashSet;
use memchr::memmem::Finder;

/// Names of functions.
pub(crate) struct Filter {
    names: HashSet<String>,
    /// What a unit that has one of the names must contain.
    needles: Vec<Finder<'static>>,
}

impl Filter {
    /// A filter for these names in that debug information.
    pub(crate) fn new(names: &[String], debug: &DebugInfo<'_>) -> Filter {
        let mut needles = Vec::new();
        for name in names {
            // The copies of `foo.part.0` are copies of `foo`.
            let name = name.split('.').next().unwrap_or(name);
            let mut inline = name.as_bytes().to_vec();
            inline.push(0);
            for offset in offsets_of(&inline, debug.dwarf.debug_str.reader()) {
                needles.push(Finder::new(&offset.to_le_bytes()).into_owned());
            }
            needles.push(Finder::new(&inline).into_owned());
        }
        Filter { names: names.iter().cloned().collect(), needles }
    }

    /// Whether functions of that name are wanted.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether what is left of functions of that name, or clones of it, may be wanted.
    pub(crate) fn has_stem(&self, name: &str) -> bool {
        self.names
            .iter()
            .any(|wanted| wanted.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }

    /// Whether a symbol has one of the names, or a name made from one of them.
    pub(crate) fn has_symbol(&self, symbol: &str) -> bool {
        self.names
            .iter()
            .any(|name| symbol.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }

    /// Whether a unit may have anything that is wanted.
    pub(crate) fn may_be_in(&self, unit: &DebugUnit<'_, '_>) -> bool {
        if unit.refers_elsewhere() {
            return true;
        }
        let Ok(entries) = unit.unit.header.range_from(unit.unit.header.root_offset()..) else { return true };
        self.needles.iter().any(|needle| needle.find(entries.slice()).is_some())
    }
}

/// The offsets at which a string, or the tail of a longer one, is in a section of strings.
fn offsets_of(name: &[u8], strings: &Slice<'_>) -> Vec<u32> {
    Finder::new(name).find_iter(strings.slice()).filter_map(|at| u32::try_from(at).ok()).collect()
}
