// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The text symbols of an image, as kallsyms sees them.
//!
//! The kernel refuses and names probes by kallsyms, so its view is followed: section and file symbols and the
//! compiler's local labels are dropped (scripts/mksysmap), symbols without a type count (labels in assembly split
//! functions), and of several symbols at one address the first in kallsyms' order stands for all
//! (scripts/kallsyms.c `compare_symbols`): strong before weak, ordinary before what looks made by the linker script,
//! fewer leading underscores first.

use crate::elf::image::{Container, ImageError, is_text};
use crate::elf::relocate::Layout;
use hashbrown::DefaultHashBuilder;
use object::elf;
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _};
use object::{LittleEndian, SymbolIndex};
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::OnceLock;

/// What a text symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// A function (STT_FUNC).
    Function,
    /// A label without a type (STT_NOTYPE): assembly, or the linker script.
    Label,
    /// Anything else, such as data in text.
    Other,
}

/// A symbol in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Address.
    pub address: u64,
    /// Size in bytes that the symbol table gives; often 0 for labels.
    pub size: u64,
    /// Name.
    pub name: &'a str,
    /// What it is.
    pub kind: SymbolKind,
    /// Whether it is visible to other objects (global or weak).
    pub global: bool,
    /// Whether it is weak.
    pub weak: bool,
}

/// The text symbols, by address and by name, and the linker's symbols that delimit ranges and tables.
pub struct SymbolTable<'a> {
    sorted: Vec<Symbol<'a>>,
    /// Made when first asked for.
    by_name: OnceLock<ByName>,
    linker: HashMap<&'static str, u64>,
    imports: HashMap<u64, &'a str>,
}

/// Delimiters that are looked for in all sections.
const LINKER_SYMBOLS: &[&str] = &[
    "__alt_instructions",
    "__alt_instructions_end",
    "__entry_text_end",
    "__entry_text_start",
    "__hyp_idmap_text_end",
    "__hyp_idmap_text_start",
    "__hyp_text_end",
    "__hyp_text_start",
    "__idmap_text_end",
    "__idmap_text_start",
    "__irqentry_text_end",
    "__irqentry_text_start",
    "__kprobes_text_end",
    "__kprobes_text_start",
    "__noinstr_text_end",
    "__noinstr_text_start",
    "__start___bug_table",
    "__start___ex_table",
    "__start___jump_table",
    "__start___kcfi_traps",
    "__start_kprobe_blacklist",
    "__start_mcount_loc",
    "__start_static_call_sites",
    "__stop___bug_table",
    "__stop___ex_table",
    "__stop___jump_table",
    "__stop___kcfi_traps",
    "__stop_kprobe_blacklist",
    "__stop_mcount_loc",
    "__stop_static_call_sites",
    "_einittext",
    "_end",
    "_etext",
    "_sinittext",
    "_stext",
    "_text",
];

impl<'a> SymbolTable<'a> {
    pub(crate) fn new(file: &ElfFile64<'a, LittleEndian>, layout: &Layout) -> Result<SymbolTable<'a>, ImageError> {
        /// Symbols that one thread reads at a time.
        const PART: usize = 8192;
        let sections = file.elf_section_table();
        let reader = Reader {
            file,
            layout,
            is_text: sections.iter().map(|s| is_text(s.sh_flags(LittleEndian))).collect(),
            wanted: LINKER_SYMBOLS.iter().map(|&name| (name, ())).collect(),
        };
        let all = file.elf_symbol_table().symbols();
        let parts: Vec<Part<'a>> =
            all.par_chunks(PART).enumerate().map(|(nth, symbols)| reader.read(nth * PART, symbols)).collect();
        let mut result = SymbolTable {
            sorted: Vec::with_capacity(parts.iter().map(|part| part.text.len()).sum()),
            by_name: OnceLock::new(),
            linker: HashMap::new(),
            imports: HashMap::new(),
        };
        for part in parts {
            result.sorted.extend(part.text);
            result.linker.extend(part.linker);
            result.imports.extend(part.imports);
        }
        result
            .sorted
            .par_sort_unstable_by(|a, b| a.address.cmp(&b.address).then_with(|| preference(a).cmp(&preference(b))));
        if u32::try_from(result.sorted.len()).is_err() {
            return Err(ImageError::NoSymbols);
        }
        Ok(result)
    }

    /// All symbols, by address and then in the order in which kallsyms prefers them.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol<'a>> {
        self.sorted.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The symbols at exactly that address.
    pub fn at(&self, address: u64) -> &[Symbol<'a>] {
        let start = self.sorted.partition_point(|s| s.address < address);
        let rest = &self.sorted[start..];
        let aliases = rest.iter().take_while(|s| s.address == address).count();
        &rest[..aliases]
    }

    /// All symbols in a range of addresses.
    pub(crate) fn between(&self, range: &Range<u64>) -> &[Symbol<'a>] {
        let first = self.sorted.partition_point(|s| s.address < range.start);
        let rest = &self.sorted[first..];
        &rest[..rest.partition_point(|s| s.address < range.end)]
    }

    /// The undefined symbol that was given an address.
    pub(crate) fn import_at(&self, address: u64) -> Option<&'a str> {
        self.imports.get(&address).copied()
    }

    /// The first of the symbols at the last symbol address at or before `address`, and the room up to the next
    /// symbol address (kernel/kallsyms.c `get_symbol_pos`). The last symbol is endless.
    pub(crate) fn containing(&self, address: u64) -> Option<Container<'a>> {
        let after = self.sorted.partition_point(|s| s.address <= address);
        let found = self.sorted[after.checked_sub(1)?].address;
        let aliases = self.sorted[..after].iter().rev().take_while(|s| s.address == found).count();
        let symbol = &self.sorted[after - aliases];
        let end = self.sorted.get(after).map_or(u64::MAX, |next| next.address);
        Some(Container { name: symbol.name, address: found, size: end - found })
    }

    /// The symbols of a name, by address.
    pub fn named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Symbol<'a>> + 's {
        let index = self.by_name.get_or_init(|| ByName::new(&self.sorted));
        index.of_hash(name).map(|nth| &self.sorted[nth as usize]).filter(move |symbol| symbol.name == name)
    }

    pub(crate) fn linker(&self, name: &str) -> Option<u64> {
        self.linker.get(name).copied()
    }

    /// The addresses of the symbols with a name that fits, sorted. The symbols are defined or (in a module) imported.
    pub(crate) fn addresses(&self, fits: impl Fn(&str) -> bool + Sync) -> Vec<u64> {
        let defined = self.sorted.par_iter().filter(|symbol| fits(symbol.name)).map(|symbol| symbol.address);
        let mut addresses: Vec<u64> = defined.collect();
        addresses.extend(self.imports.iter().filter(|(_, name)| fits(name)).map(|(address, _)| *address));
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// Whether a name is that of a retpoline, which branches to the address in a register
/// (arch/x86/lib/retpoline.S). `__x86_indirect_jump_thunk_` and `_call_thunk_` are those for call depth tracking.
pub(crate) fn is_indirect_thunk(name: &str) -> bool {
    ["__x86_indirect_thunk_", "__x86_indirect_jump_thunk_", "__x86_indirect_call_thunk_", "__x86_indirect_its_thunk_"]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(|register| register != "array"))
}

/// Symbols by the hash of their names: chains through one array, in the order of the symbols.
struct ByName {
    hasher: DefaultHashBuilder,
    /// For each hash, one plus the first symbol; 0 if there is none.
    first: Vec<u32>,
    /// For each symbol, one plus the next of the same hash.
    next: Vec<u32>,
}

impl ByName {
    fn new(symbols: &[Symbol<'_>]) -> ByName {
        let mut index = ByName {
            hasher: DefaultHashBuilder::default(),
            first: vec![0; symbols.len().next_power_of_two()],
            next: vec![0; symbols.len()],
        };
        for (nth, symbol) in symbols.iter().enumerate().rev() {
            let slot = index.slot(symbol.name);
            index.next[nth] = std::mem::replace(&mut index.first[slot], nth as u32 + 1);
        }
        index
    }

    fn slot(&self, name: &str) -> usize {
        self.hasher.hash_one(name) as usize & (self.first.len() - 1)
    }

    /// Indices of the symbols with names that have the hash of this one.
    fn of_hash(&self, name: &str) -> impl Iterator<Item = u32> + '_ {
        let first = self.first[self.slot(name)].checked_sub(1);
        std::iter::successors(first, |&nth| self.next[nth as usize].checked_sub(1))
    }
}

fn symbol_of<'a>(symbol: &elf::Sym64<LittleEndian>, name: &'a str, address: u64) -> Symbol<'a> {
    let kind = match symbol.st_type() {
        elf::STT_FUNC => SymbolKind::Function,
        elf::STT_NOTYPE => SymbolKind::Label,
        _ => SymbolKind::Other,
    };
    let bind = symbol.st_bind();
    Symbol {
        address,
        size: symbol.st_size(LittleEndian),
        name,
        kind,
        global: bind != elf::STB_LOCAL,
        weak: bind == elf::STB_WEAK,
    }
}

/// What kallsyms does not keep (scripts/mksysmap, scripts/kallsyms.c `is_ignored_symbol`).
fn is_dropped(symbol: &elf::Sym64<LittleEndian>, name: &str) -> bool {
    const PREFIXES: [&str; 10] = [
        "$",
        ".L",
        "__efistub_",
        "__kvm_nvhe_$",
        "__kvm_nvhe_.L",
        "__pi_$",
        "__pi_.L",
        "__kcfi_typeid_",
        "__AArch64ADRPThunk_",
        "__export_symbol_",
    ];
    let kind = symbol.st_type();
    kind == elf::STT_SECTION
        || kind == elf::STT_FILE
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.ends_with("_veneer")
}

/// Reads an image's symbols.
struct Reader<'s, 'a> {
    file: &'s ElfFile64<'a, LittleEndian>,
    layout: &'s Layout,
    /// By section.
    is_text: Vec<bool>,
    /// [`LINKER_SYMBOLS`].
    wanted: HashMap<&'static str, ()>,
}

/// What some of the symbols come to.
#[derive(Default)]
struct Part<'a> {
    text: Vec<Symbol<'a>>,
    linker: Vec<(&'static str, u64)>,
    imports: Vec<(u64, &'a str)>,
}

impl<'a> Reader<'_, 'a> {
    /// Reads symbols; `first` is the first one's place in the table.
    fn read(&self, first: usize, symbols: &[elf::Sym64<LittleEndian>]) -> Part<'a> {
        let (file, layout) = (self.file, self.layout);
        let table = file.elf_symbol_table();
        let mut part = Part::default();
        for (nth, symbol) in symbols.iter().enumerate() {
            let index = SymbolIndex(first + nth);
            let Ok(name) = table.symbol_name(LittleEndian, symbol) else { continue };
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if name.is_empty() {
                continue;
            }
            if symbol.is_undefined(LittleEndian) {
                if layout.is_relocatable() {
                    part.imports.push((layout.import_address(index), name));
                }
                continue;
            }
            let address = layout.symbol_address(file, index, symbol);
            if name.starts_with('_')
                && let Some((&name, ())) = self.wanted.get_key_value(name)
            {
                part.linker.push((name, address));
            }
            let Ok(Some(section)) = table.symbol_section(LittleEndian, symbol, index) else { continue };
            if self.is_text.get(section.0) == Some(&true) && !is_dropped(symbol, name) {
                part.text.push(symbol_of(symbol, name, address));
            }
        }
        part
    }
}

/// kallsyms' order of symbols at one address.
fn preference<'a>(symbol: &Symbol<'a>) -> (bool, bool, usize, &'a str) {
    let name = symbol.name;
    let underscores = name.len() - name.trim_start_matches('_').len();
    let weak = symbol.weak && symbol.kind != SymbolKind::Other;
    (weak, may_be_linker_script_provided(name), underscores, name)
}

fn may_be_linker_script_provided(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("__") else { return false };
    name.len() >= 8
        && (["start_", "stop_", "end_"].iter().any(|prefix| rest.starts_with(prefix))
            || name.ends_with("_start")
            || name.ends_with("_end"))
}
