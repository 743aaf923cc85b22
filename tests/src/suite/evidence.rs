// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a compiler did to a module's functions, from the symbol table and the DWARF of the `.ko`.
//!
//! It answers the conditions of a case and nothing else, and shares no code with the encoder, which would find what it
//! makes of it: a copy is where a DIE says one begins, a parameter has a location if the DIE has one at the entry.
//!
//! A `.ko` is relocatable: each section that is loaded gets addresses of its own here, and what refers to them is
//! relocated as it is read.

mod dies;

use gimli::{EndianSlice, LittleEndian, Relocate, RelocateReader, SectionId};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SectionKind, SymbolKind};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Why a module cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// It is not an ELF file of the right shape.
    #[error("the module's ELF: {0}")]
    Elf(#[from] object::Error),
    /// Its DWARF is malformed.
    #[error("the module's DWARF: {0}")]
    Dwarf(#[from] gimli::Error),
    /// It has none.
    #[error("the module has no DWARF")]
    NoDwarf,
}

/// A function symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its address in the layout of this page.
    pub address: u64,
    /// Its size.
    pub size: u64,
}

/// Whether a parameter has a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Presence {
    /// At the entry.
    pub at_entry: bool,
    /// At the entry or in the [`dies::NEAR`] bytes after it.
    pub near: bool,
}

/// A place where a function's body begins: an inlined copy, or a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The function.
    pub function: String,
    /// Whether it is inlined.
    pub inlined: bool,
    /// Where it begins.
    pub entry: u64,
    /// The symbol that holds it.
    pub holder: String,
    /// The parameters that its DIE mentions.
    pub parameters: BTreeMap<String, Presence>,
}

/// A call that the DWARF mentions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function that is called.
    pub function: String,
    /// The symbol that holds the call.
    pub holder: String,
}

/// What there is in a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Its function symbols, by address.
    pub symbols: Vec<Symbol>,
    /// Bodies and copies.
    pub instances: Vec<Instance>,
    /// Calls.
    pub calls: Vec<Call>,
    /// Addresses of instructions that the kernel patches: its jump labels and static calls.
    pub patched: BTreeSet<u64>,
    /// Functions whose signature the DWARF says is not the ordinary one.
    pub changed: BTreeSet<String>,
    /// The parameters of each function.
    pub parameters: BTreeMap<String, BTreeSet<String>>,
}

impl Evidence {
    /// Reads a module.
    ///
    /// # Errors
    /// If it is not a relocatable ELF file with DWARF.
    pub fn read(module: &[u8]) -> Result<Evidence, EvidenceError> {
        let file = object::File::parse(module)?;
        let layout = Layout::new(&file);
        let mut evidence = Evidence { symbols: layout.symbols(&file), ..Evidence::default() };
        let mut sections = HashMap::new();
        for section in file.sections() {
            let name = section.name()?;
            if let Some((_, size)) = PATCHED.iter().find(|(table, _)| *table == name) {
                let Relocations(map) = layout.relocations(&file, &section)?;
                evidence.patched.extend(map.into_iter().filter(|(offset, _)| offset % size == 0).map(|(_, code)| code));
            }
            if name.starts_with(".debug_") {
                let map = layout.relocations(&file, &section)?;
                sections.insert(name.to_owned(), (section.uncompressed_data()?, map));
            }
        }
        if !sections.contains_key(SectionId::DebugInfo.name()) {
            return Err(EvidenceError::NoDwarf);
        }
        let empty = (Cow::Borrowed(&[][..]), Relocations::default());
        let load = |id: SectionId| -> Result<Reader<'_>, gimli::Error> {
            let (data, map) = sections.get(id.name()).unwrap_or(&empty);
            Ok(RelocateReader::new(EndianSlice::new(data, LittleEndian), map))
        };
        let dwarf = gimli::Dwarf::load(load)?;
        dies::collect(&dwarf, &mut evidence)?;
        Ok(evidence)
    }

    /// The symbol that holds an address.
    fn holder(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let mut before = self.symbols.get(..after)?.iter().rev();
        before.find(|symbol| address < symbol.address.saturating_add(symbol.size.max(1)))
    }

    /// What there is of a function, in words: for a case that is not exercised.
    pub fn describe(&self, function: &str) -> String {
        let prefix = format!("{function}.");
        let own = self.symbols.iter().map(|symbol| symbol.name.as_str());
        let own: BTreeSet<&str> = own.filter(|name| *name == function || name.starts_with(&prefix)).collect();
        let mut copies: BTreeMap<&str, usize> = BTreeMap::new();
        for instance in self.instances.iter().filter(|instance| instance.inlined && instance.function == function) {
            *copies.entry(&instance.holder).or_default() += 1;
        }
        let symbols = if own.is_empty() {
            format!("{function} has no symbol")
        } else {
            format!("{function} has {}", own.into_iter().collect::<Vec<_>>().join(", "))
        };
        if copies.is_empty() {
            return format!("{symbols}, and no inlined copy");
        }
        let copies: Vec<String> = copies.iter().map(|(holder, count)| format!("{count} in {holder}")).collect();
        format!("{symbols}, and inlined copies: {}", copies.join(", "))
    }
}

type Reader<'a> = RelocateReader<EndianSlice<'a, LittleEndian>, &'a Relocations>;

/// The tables of instructions that the kernel patches, and the size of an entry, which begins with the instruction's
/// address (include/linux/jump_label.h, include/linux/static_call_types.h).
const PATCHED: [(&str, usize); 2] = [("__jump_table", 16), (".static_call_sites", 8)];

/// What stands at offsets of a section once it is relocated.
#[derive(Debug, Clone, Default)]
struct Relocations(HashMap<usize, u64>);

impl Relocate for &Relocations {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.get(&offset).copied().unwrap_or(value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        self.0
            .get(&offset)
            .map_or(Ok(value), |&value| usize::try_from(value).map_err(|_| gimli::Error::UnsupportedOffset))
    }
}

/// Addresses for the sections that are loaded.
struct Layout {
    bases: HashMap<SectionIndex, u64>,
}

impl Layout {
    /// Address 0 would be that of what was discarded.
    const FIRST: u64 = 0x10_0000;
    const ALIGN: u64 = 0x1000;

    fn new(file: &object::File<'_>) -> Layout {
        let mut next = Layout::FIRST;
        let mut bases = HashMap::new();
        for section in file.sections() {
            let is_loaded = matches!(
                section.kind(),
                SectionKind::Text | SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::UninitializedData
            );
            if is_loaded {
                bases.insert(section.index(), next);
                let end = next.saturating_add(section.size()).saturating_add(1);
                next = end.checked_next_multiple_of(Layout::ALIGN).unwrap_or(end);
            }
        }
        Layout { bases }
    }

    fn address<'a>(&self, symbol: &impl ObjectSymbol<'a>) -> u64 {
        let base = symbol.section_index().and_then(|index| self.bases.get(&index)).copied().unwrap_or(0);
        base.wrapping_add(symbol.address())
    }

    fn symbols(&self, file: &object::File<'_>) -> Vec<Symbol> {
        let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let mut symbols: Vec<Symbol> = functions
            .filter_map(|symbol| {
                let name = symbol.name().ok()?.to_owned();
                // What stands before a function for padding and its type is not a function.
                let is_padding = name.starts_with("__pfx_") || name.starts_with("__cfi_");
                (!is_padding).then(|| Symbol { name, address: self.address(&symbol), size: symbol.size() })
            })
            .collect();
        symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        symbols
    }

    /// x86-64 and arm64 have the addend in the relocation, and in DWARF none that are relative.
    fn relocations<'a>(
        &self,
        file: &object::File<'a>,
        section: &impl ObjectSection<'a>,
    ) -> Result<Relocations, object::Error> {
        let mut map = HashMap::new();
        for (offset, relocation) in section.relocations() {
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => self.address(&file.symbol_by_index(index)?),
                RelocationTarget::Section(index) => self.bases.get(&index).copied().unwrap_or(0),
                _ => 0,
            };
            if let Ok(offset) = usize::try_from(offset) {
                map.insert(offset, target.wrapping_add(relocation.addend() as u64));
            }
        }
        Ok(Relocations(map))
    }
}

#[cfg(test)]
mod tests;
