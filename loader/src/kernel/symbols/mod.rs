// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the kernel says about its own text: symbols, the functions that ftrace knows, the kprobe blacklist, modules.
//!
//! A site is stored with its link-time address. Where it is now, which symbol holds it, and whether the kernel will
//! accept a probe there are questions to the running kernel's tables:
//!
//! * `/proc/kallsyms`: every symbol with its address. Only text symbols matter here. The kernel itself answers "which
//!   function is this address in" by the greatest symbol not above it, and says that the function ends where the next
//!   symbol with another address begins (`kallsyms_lookup_size_offset()` in kernel/kallsyms.c). [`Symbols::containing`]
//!   does the same, so that its answers are the kernel's.
//! * `available_filter_functions_addrs` (Linux 6.5) in tracefs: the addresses that ftrace patches. It may lie some
//!   bytes after the symbol's. Older kernels list names alone.
//! * the kprobe blacklist in debugfs: ranges that no probe may touch.
//!
//! The tables are plain data ([`Symbols`]), parsed from text without any I/O; [`running`] reads them. None of the
//! parsers can fail: a line that is not what it should be is passed over.
//!
//! Whether a kprobe event is refused because the function is invisible to ftrace is decided by
//! `within_notrace_func()` in kernel/trace/trace_kprobe.c. [`Symbols::notrace`] repeats its rule: a suffixed symbol
//! (`foo.isra.0`) that ftrace does not know is refused only if `foo` is refused too.

mod ask;
mod kallsyms;
mod lines;
mod part;

use crate::bpf::call::errno;
pub(crate) use ask::Asker;
pub(super) use ask::array;
use kallsyms::{Entry, Table};
use lines::{address, each_line, read_lines, read_lines_until};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
pub(crate) use part::{Confirmed, traceable};
use siteseer_sites::both::both;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Why the running kernel's symbols cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// A file could not be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// All addresses are zero.
    #[error(
        "/proc/kallsyms hides all addresses: CAP_SYSLOG is needed (run as root), and sysctl kernel.kptr_restrict must not be 2{}",
        match kptr_restrict { Some(value) => format!(" (it is {value})"), None => String::new() }
    )]
    Restricted {
        /// The value of `/proc/sys/kernel/kptr_restrict`, if it could be read.
        kptr_restrict: Option<u32>,
    },
    /// Modules come and go faster than the symbols can be read.
    #[error("modules are loaded and unloaded all the time: the kernel's symbols cannot be read while nothing changes")]
    Restless,
    /// The table has no text symbol at all.
    #[error("/proc/kallsyms has no text symbols: the kernel was built without CONFIG_KALLSYMS")]
    NoSymbols,
}

impl SymbolsError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            SymbolsError::Read { error, .. } => errno(error),
            SymbolsError::Restricted { .. } => libc::EPERM,
            SymbolsError::NoSymbols => libc::EOPNOTSUPP,
            SymbolsError::Restless => libc::EAGAIN,
        }
    }
}

/// A text symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Run-time address.
    pub address: u64,
    /// Name.
    pub name: &'a str,
    /// The module that it belongs to; `None` for the kernel's image.
    pub module: Option<&'a str>,
}

/// The symbol that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Containing<'a> {
    /// The symbol. If several are at one address, it is the first of the table, as in the kernel's answers.
    pub symbol: Symbol<'a>,
    /// Bytes from the symbol to the address.
    pub offset: u64,
    /// Bytes from the symbol to the next one with another address.
    pub size: u64,
}

/// What is known about the functions that ftrace can trace.
#[derive(Debug, Clone, Default)]
pub enum Ftrace {
    /// Nothing: tracefs could not be read.
    #[default]
    Unknown,
    /// The addresses of the patch sites, sorted.
    Addresses(Vec<u64>),
    /// Names alone (before Linux 6.5): `foo`, and `foo [module]` for one in a module.
    Names(HashSet<String>),
}

/// A loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name.
    pub name: String,
    /// Where its core text begins.
    pub address: u64,
    /// Bytes in memory.
    pub size: u64,
}

/// The kernel's tables as data.
#[derive(Debug, Default)]
pub struct Symbols {
    table: Table,
    /// Built when first asked for.
    by_name: OnceLock<ByName>,
    ftrace: Ftrace,
    blacklist: Option<Vec<Range<u64>>>,
    modules: Vec<Module>,
    unavailable: Vec<String>,
    /// If it is a part, what is known about its symbols; the table does not say where they end.
    part: Option<part::Part>,
}

/// Symbols by the hash of their names up to the first dot: chains through one array, in the order of the symbols.
#[derive(Debug)]
struct ByName {
    /// For each hash, one plus the first symbol; 0 if there is none.
    first: Vec<u32>,
    /// For each symbol, one plus the next of the same hash.
    next: Vec<u32>,
}

impl ByName {
    fn new(table: &Table) -> ByName {
        let count = u32::try_from(table.entries.len()).unwrap_or(u32::MAX - 1);
        let mut index =
            ByName { first: vec![0; (count as usize).next_power_of_two()], next: vec![0; table.entries.len()] };
        for (nth, entry) in (0..count).zip(&table.entries).rev() {
            let slot = index.slot(table.name(entry));
            index.next[nth as usize] = index.first[slot];
            index.first[slot] = nth + 1;
        }
        index
    }

    fn slot(&self, name: &str) -> usize {
        // FNV-1a: names are short, and of the kernel.
        let stem = name.bytes().take_while(|&byte| byte != b'.');
        let hash = stem
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        (hash ^ hash >> 32) as usize & (self.first.len() - 1)
    }

    /// Indices of the symbols whose stems have the hash of this name's.
    fn of_stem(&self, name: &str) -> impl Iterator<Item = u32> + '_ {
        let first = self.first[self.slot(name)].checked_sub(1);
        std::iter::successors(first, |&nth| self.next[nth as usize].checked_sub(1))
    }
}

/// The module names that kallsyms gives to text that is not a module's: JITed BPF programs, trampolines.
const PSEUDO_MODULES: [&str; 3] = ["bpf", "__builtin__ftrace", "__builtin__kprobes"];

impl Symbols {
    /// Parses the text of `/proc/kallsyms`.
    pub fn parse(text: impl AsRef<[u8]>) -> Symbols {
        Symbols { table: Table::parse(text.as_ref()), ..Symbols::default() }
    }

    /// Reads `/proc/kallsyms`.
    ///
    /// # Errors
    /// What reading gives.
    pub fn read(kallsyms: impl io::Read) -> io::Result<Symbols> {
        Ok(Symbols { table: Table::read(kallsyms)?, ..Symbols::default() })
    }

    /// The tables of a kernel that is not running, from its image's text symbols: (link-time address, name).
    pub fn from_image<'n>(symbols: impl IntoIterator<Item = (u64, &'n str)>) -> Symbols {
        Symbols::of_files(symbols, None)
    }

    /// The same, or those of a module.
    pub(crate) fn of_files<'n>(symbols: impl IntoIterator<Item = (u64, &'n str)>, module: Option<&str>) -> Symbols {
        Symbols { table: Table::of_image(symbols, module), ..Symbols::default() }
    }

    /// The tables of a kernel that is not running, from its ELF image: the symbols of its executable sections, at their
    /// link-time addresses. What ftrace knows and what is blacklisted is not in them; site data has it for their sites.
    ///
    /// # Errors
    /// If it is not an ELF file that can be read.
    pub fn of_elf(image: &[u8]) -> Result<Symbols, object::read::Error> {
        let elf = object::read::elf::ElfFile64::<object::LittleEndian>::parse(image)?;
        let text: HashSet<_> = elf
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .map(|section| section.index())
            .collect();
        let in_text = |symbol: &object::read::elf::ElfSymbol64<'_, '_, object::LittleEndian>| {
            symbol.section_index().is_some_and(|index| text.contains(&index))
        };
        let symbols = elf.symbols().filter(in_text);
        Ok(Symbols::from_image(symbols.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))))
    }

    /// Adds what is known about ftrace.
    #[must_use]
    pub fn with_ftrace(mut self, ftrace: Ftrace) -> Symbols {
        self.ftrace = ftrace;
        self
    }

    /// Adds the kprobe blacklist: ranges of run-time addresses.
    #[must_use]
    pub fn with_blacklist(mut self, mut ranges: Vec<Range<u64>>) -> Symbols {
        ranges.retain(|range| range.start < range.end);
        ranges.sort_by_key(|range| (range.start, range.end));
        self.blacklist = Some(ranges);
        self
    }

    /// Adds the loaded modules.
    #[must_use]
    pub fn with_modules(mut self, modules: Vec<Module>) -> Symbols {
        self.modules = modules;
        self
    }

    fn view(&self, entry: &Entry) -> Symbol<'_> {
        Symbol { address: entry.address, name: self.table.name(entry), module: self.table.module_of(entry) }
    }

    /// How many text symbols there are.
    pub fn len(&self) -> usize {
        self.table.entries.len()
    }

    /// Whether there is no text symbol.
    pub fn is_empty(&self) -> bool {
        self.table.entries.is_empty()
    }

    /// Whether the kernel gave no addresses (`kptr_restrict`).
    pub fn is_restricted(&self) -> bool {
        !self.table.entries.is_empty() && self.table.entries.iter().all(|entry| entry.address == 0)
    }

    /// All text symbols, by address.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.table.entries.iter().map(|entry| self.view(entry))
    }

    /// The symbols whose names are the same up to the first dot, by address, with others whose hash is the same.
    fn of_stem(&self, name: &str) -> impl Iterator<Item = Symbol<'_>> {
        let index = self.by_name.get_or_init(|| ByName::new(&self.table));
        index.of_stem(name).map(|entry| self.view(&self.table.entries[entry as usize]))
    }

    /// All symbols of exactly that name, of the kernel and of modules, by address.
    pub fn named<'s, 'n>(&'s self, name: &'n str) -> impl Iterator<Item = Symbol<'s>> + use<'s, 'n> {
        self.of_stem(name).filter(move |symbol| symbol.name == name)
    }

    /// All symbols whose name is the given one plus a suffix that begins with a dot: `foo.isra.0`, `foo.cold`. By name,
    /// then by address.
    pub fn suffixed<'s>(&'s self, name: &str) -> impl Iterator<Item = Symbol<'s>> + use<'s> {
        let made = |symbol: &Symbol<'_>| symbol.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let mut found: Vec<Symbol<'s>> = self.of_stem(name).filter(made).collect();
        found.sort_by_key(|symbol| symbol.name);
        found.into_iter()
    }

    /// All symbols at exactly that address.
    pub fn at(&self, address: u64) -> impl Iterator<Item = Symbol<'_>> {
        let from = self.table.entries.partition_point(|entry| entry.address < address);
        self.table.entries[from..]
            .iter()
            .take_while(move |entry| entry.address == address)
            .map(|entry| self.view(entry))
    }

    /// The symbol that holds an address, as the kernel's `kallsyms_lookup_size_offset()` finds it.
    pub fn containing(&self, address: u64) -> Option<Containing<'_>> {
        if let Some(part) = &self.part {
            let (start, size) = part.containing(address)?;
            return Some(Containing { symbol: self.at(start).next()?, offset: address - start, size });
        }
        let above = self.table.entries.partition_point(|entry| entry.address <= address);
        let last = self.table.entries.get(above.checked_sub(1)?)?;
        let first = self.table.entries[..above].partition_point(|entry| entry.address < last.address);
        let end = self.table.entries.get(above).map_or(u64::MAX, |entry| entry.address);
        Some(Containing {
            symbol: self.view(self.table.entries.get(first)?),
            offset: address - last.address,
            size: end - last.address,
        })
    }

    /// Whether ftrace knows a patch site in the function that begins at `address` and has `size` bytes; `None` where
    /// the kernel does not say.
    pub fn traceable(&self, address: u64, size: u64) -> Option<bool> {
        if let Some(part) = &self.part {
            return part.traceable(address);
        }
        match &self.ftrace {
            Ftrace::Unknown => None,
            Ftrace::Addresses(addresses) => {
                let from = addresses.partition_point(|&patch| patch < address);
                Some(addresses.get(from).is_some_and(|&patch| patch - address < size))
            }
            Ftrace::Names(names) => {
                // A name that several functions of the image, or of a module, have says nothing about one of them.
                let listed = |symbol: &Symbol<'_>| match symbol.module {
                    None => names.contains(symbol.name),
                    Some(module) => names.contains(&format!("{} [{module}]", symbol.name)),
                };
                match self.at(address).find(listed) {
                    None => Some(false),
                    Some(found) => {
                        let mut same = self.named(found.name).filter(|symbol| symbol.module == found.module);
                        if same.nth(1).is_none() { Some(true) } else { None }
                    }
                }
            }
        }
    }

    /// Whether kprobe events refuse the address because its function is invisible to ftrace
    /// (`within_notrace_func()` in kernel/trace/trace_kprobe.c); `None` where the kernel does not say.
    pub fn notrace(&self, address: u64) -> Option<bool> {
        if self.part.is_some() {
            return None;
        }
        let Some(holder) = self.containing(address) else { return Some(false) };
        if self.traceable(holder.symbol.address, holder.size)? {
            return Some(false);
        }
        let Some((plain, _)) = holder.symbol.name.split_once('.') else { return Some(true) };
        // kprobe_lookup_name() takes the first symbol of the name, the image's before those of modules.
        let of_image = self.named(plain).find(Symbol::in_kernel);
        let Some(plain) = of_image.or_else(|| self.named(plain).next()) else { return Some(true) };
        let Some(holder) = self.containing(plain.address) else { return Some(true) };
        self.traceable(holder.symbol.address, holder.size).map(|traceable| !traceable)
    }

    /// Whether an address is in the last function of a module's text, which for the kernel ends with its page
    /// (`find_kallsyms_symbol()` in kernel/module/kallsyms.c).
    pub fn ends_module(&self, address: u64) -> bool {
        // What comes after it is not in a part, which is not taken where that matters.
        if self.part.is_some() {
            return false;
        }
        let above = self.table.entries.partition_point(|entry| entry.address <= address);
        let module_of = |index: usize| self.table.entries.get(index).and_then(|entry| self.table.module_of(entry));
        let holder = above.checked_sub(1).and_then(module_of);
        holder.is_some() && module_of(above) != holder
    }

    /// Whether the address is on the kprobe blacklist; `None` where the list could not be read.
    pub fn blacklisted(&self, address: u64) -> Option<bool> {
        let ranges = self.blacklist.as_ref()?;
        // Ranges may nest, so all that begin at or before the address are candidates; there are a few hundred.
        let until = ranges.partition_point(|range| range.start <= address);
        Some(ranges[..until].iter().any(|range| range.contains(&address)))
    }

    /// The loaded modules.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// What the kernel did not let us read, and what is less certain for it: sentences for people.
    pub fn unavailable(&self) -> &[String] {
        &self.unavailable
    }
}

impl Symbol<'_> {
    /// Whether the symbol is in the kernel's own image: neither in a module nor in generated code.
    pub fn in_kernel(&self) -> bool {
        self.module.is_none()
    }

    /// Whether the symbol is generated code that kallsyms files under a made-up module.
    pub fn is_generated(&self) -> bool {
        self.module.is_some_and(|module| PSEUDO_MODULES.contains(&module))
    }
}

impl Ftrace {
    /// Parses `available_filter_functions_addrs`: lines of `ffffffff81001234 name [module]`.
    pub fn parse_addresses(text: &str) -> Ftrace {
        let mut addresses = Vec::new();
        each_line(text.as_bytes(), |line| addresses.extend(address(line).map(|(address, _)| address)));
        Ftrace::of_addresses(addresses)
    }

    /// Reads `available_filter_functions_addrs`.
    ///
    /// # Errors
    /// What reading gives.
    pub fn read_addresses(table: impl io::Read) -> io::Result<Ftrace> {
        let mut addresses = Vec::new();
        read_lines(table, |line| addresses.extend(address(line).map(|(address, _)| address)))?;
        Ok(Ftrace::of_addresses(addresses))
    }

    fn of_addresses(mut addresses: Vec<u64>) -> Ftrace {
        addresses.sort_unstable();
        addresses.dedup();
        Ftrace::Addresses(addresses)
    }

    /// Parses `available_filter_functions`: lines of `name [module]`.
    pub fn parse_names(text: &str) -> Ftrace {
        let names = text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.next()?;
            Some(words.next().map_or_else(|| name.to_owned(), |module| format!("{name} {module}")))
        });
        Ftrace::Names(names.collect())
    }
}

/// Parses the kprobe blacklist: lines of `0xffffffff81000000-0xffffffff81000010<tab>name`.
pub fn parse_blacklist(text: &str) -> Vec<Range<u64>> {
    let number = |word: &str| u64::from_str_radix(word.trim().trim_start_matches("0x"), 16).ok();
    text.lines()
        .filter_map(|line| {
            let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
            let range = number(start)?..number(end)?;
            (range.start < range.end).then_some(range)
        })
        .collect()
}

/// Parses `/proc/modules`: lines of `name size references users state address`. Modules that are on their way out are
/// left out.
pub fn parse_modules(text: &str) -> Vec<Module> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.next()?.to_owned();
            let size = words.next()?.parse().ok()?;
            let state = words.nth(2)?;
            let address = words.next().filter(|_| state != "Unloading")?;
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
            Some(Module { name, address, size })
        })
        .collect()
}

/// Where tracefs and debugfs are usually mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const KALLSYMS: &str = "/proc/kallsyms";
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";

/// The folder where tracefs is mounted, if it is and may be read.
pub(crate) fn tracefs() -> Option<&'static Path> {
    TRACEFS.iter().map(Path::new).find(|path| path.join("available_filter_functions").exists())
}

/// Reads the running kernel's tables.
///
/// Without tracefs or debugfs less is known beforehand, and the kernel's own refusals say the rest when probes are
/// attached; see [`Symbols::unavailable`]. Nothing is mounted here.
///
/// # Errors
/// [`SymbolsError`] if kallsyms cannot be read or hides its addresses.
pub fn running() -> Result<Symbols, SymbolsError> {
    // The kernel takes long to write its tables, and as long for one as for another: side by side they take half.
    let kallsyms = || File::open(KALLSYMS).and_then(Symbols::read);
    let (symbols, (ftrace, blacklist)) = both(kallsyms, || (read_ftrace(), fs::read_to_string(BLACKLIST)));
    let mut symbols = symbols.map_err(|error| SymbolsError::Read { path: KALLSYMS.into(), error })?;
    if symbols.is_empty() {
        return Err(SymbolsError::NoSymbols);
    }
    if symbols.is_restricted() {
        return Err(restricted());
    }

    let mut unavailable = Vec::new();
    symbols = symbols.with_ftrace(ftrace.unwrap_or_else(|why| {
        unavailable.push(why);
        Ftrace::Unknown
    }));
    match blacklist {
        Ok(text) => symbols = symbols.with_blacklist(parse_blacklist(&text)),
        Err(error) => unavailable.push(format!("{BLACKLIST}: {error}: the kprobe blacklist is not known beforehand")),
    }
    if let Ok(text) = fs::read_to_string("/proc/modules") {
        symbols = symbols.with_modules(parse_modules(&text));
    }
    symbols.unavailable = unavailable;
    Ok(symbols)
}

fn restricted() -> SymbolsError {
    let value = fs::read_to_string("/proc/sys/kernel/kptr_restrict").ok();
    SymbolsError::Restricted { kptr_restrict: value.and_then(|value| value.trim().parse().ok()) }
}

/// Where the image of the running kernel lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bases {
    /// The address of `_text`.
    pub(crate) text: u64,
    /// The address of `_stext`, if there is that symbol.
    pub(crate) stext: Option<u64>,
}

impl Bases {
    /// Reads them from the first lines of `/proc/kallsyms`: the table is in the order of addresses. `None` if there is
    /// no `_text`.
    fn read(kallsyms: impl io::Read) -> io::Result<Option<Bases>> {
        let (mut text, mut stext) = (None, None);
        read_lines_until(kallsyms, |line| {
            if let Some((at, [b't' | b'T', b' ', name @ ..])) = address(line) {
                match name {
                    b"_text" => text = text.or(Some(at)),
                    b"_stext" => stext = stext.or(Some(at)),
                    _ => {}
                }
            }
            if text.is_some() && stext.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(text.map(|text| Bases { text, stext }))
    }

    /// Those of the running kernel.
    ///
    /// # Errors
    /// [`SymbolsError`] if kallsyms cannot be read, hides its addresses, or has no `_text`.
    pub(crate) fn running() -> Result<Bases, SymbolsError> {
        let read = File::open(KALLSYMS).and_then(Bases::read);
        let bases = read.map_err(|error| SymbolsError::Read { path: KALLSYMS.into(), error })?;
        match bases {
            Some(Bases { text: 0, .. }) => Err(restricted()),
            Some(bases) => Ok(bases),
            None => Err(SymbolsError::NoSymbols),
        }
    }
}

/// Reads which functions ftrace knows; the error is a sentence for people.
fn read_ftrace() -> Result<Ftrace, String> {
    let folder = tracefs().ok_or_else(|| {
        format!(
            "no tracefs at {} (not mounted, or not readable: mount -t tracefs tracefs {}): which functions ftrace \
             knows is not known, so bodies are attached one by one",
            TRACEFS[0], TRACEFS[0]
        )
    })?;
    let addresses = File::open(folder.join("available_filter_functions_addrs"));
    if let Ok(ftrace) = addresses.and_then(Ftrace::read_addresses) {
        return Ok(ftrace);
    }
    let text = fs::read_to_string(folder.join("available_filter_functions"))
        .map_err(|error| format!("{}/available_filter_functions: {error}", folder.display()))?;
    Ok(Ftrace::parse_names(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000010 t foo
ffffffff81000040 t foo.isra.0
ffffffff81000060 t foo
ffffffff81000080 T bar
ffffffff81000080 W bar_alias
ffffffff810000a0 t foo.cold
ffffffff810000b0 D data
ffffffffc0000000 t probe_me\t[loop]
ffffffffc0000100 t bpf_prog_1\t[bpf]
";

    fn symbols() -> Symbols {
        Symbols::parse(TEXT)
    }

    // Proves S2.2.
    #[test]
    fn finds_by_name_and_address() {
        let symbols = symbols();
        assert_eq!(symbols.len(), 10);
        let foo: Vec<u64> = symbols.named("foo").map(|s| s.address).collect();
        assert_eq!(foo, [0xffff_ffff_8100_0010, 0xffff_ffff_8100_0060]);
        assert_eq!(symbols.named("fo").count(), 0);
        assert_eq!(symbols.named("data").count(), 0, "not text");
        let clones: Vec<&str> = symbols.suffixed("foo").map(|s| s.name).collect();
        assert_eq!(clones, ["foo.cold", "foo.isra.0"]);
        let aliases: Vec<&str> = symbols.at(0xffff_ffff_8100_0080).map(|s| s.name).collect();
        assert_eq!(aliases, ["bar", "bar_alias"]);
        let module = symbols.named("probe_me").next().unwrap();
        assert_eq!(module.module, Some("loop"));
        assert!(!module.in_kernel() && !module.is_generated());
        assert!(symbols.named("bpf_prog_1").next().unwrap().is_generated());
    }

    #[test]
    fn containing_is_the_kernels_answer() {
        let symbols = symbols();
        let holder = symbols.containing(0xffff_ffff_8100_0085).unwrap();
        assert_eq!((holder.symbol.name, holder.offset, holder.size), ("bar", 5, 0x20));
        let first = symbols.containing(0xffff_ffff_8100_0004).unwrap();
        assert_eq!((first.symbol.name, first.size), ("_stext", 0x10));
        assert!(symbols.containing(0x1000).is_none());
    }

    #[test]
    fn notrace_follows_the_suffix_rule() {
        let traced = |addresses: &str| symbols().with_ftrace(Ftrace::parse_addresses(addresses));
        // Only the first foo: its suffixed sibling may be probed through it, bar may not.
        let symbols = traced("ffffffff81000014 foo\n");
        assert_eq!(symbols.notrace(0xffff_ffff_8100_0012), Some(false));
        assert_eq!(symbols.notrace(0xffff_ffff_8100_0042), Some(false));
        assert_eq!(symbols.notrace(0xffff_ffff_8100_0082), Some(true));
        let symbols = traced("ffffffff81000080 bar\n");
        assert_eq!(symbols.notrace(0xffff_ffff_8100_0042), Some(true));
        assert_eq!(self::symbols().notrace(0xffff_ffff_8100_0042), None);
    }

    #[test]
    fn names_alone_say_nothing_of_a_shared_name() {
        let symbols = symbols().with_ftrace(Ftrace::parse_names("foo\nbar\nprobe_me [loop]\n"));
        assert_eq!(symbols.traceable(0xffff_ffff_8100_0010, 0x30), None);
        assert_eq!(symbols.traceable(0xffff_ffff_8100_0080, 0x20), Some(true));
        assert_eq!(symbols.traceable(0xffff_ffff_8100_0040, 0x20), Some(false));
        assert_eq!(symbols.traceable(0xffff_ffff_c000_0000, 0x20), Some(true));
        let symbols = self::symbols().with_ftrace(Ftrace::parse_names("probe_me\n"));
        assert_eq!(symbols.traceable(0xffff_ffff_c000_0000, 0x20), Some(false), "the image's, not the module's");
    }

    #[test]
    fn a_modules_text_ends_with_its_last_function() {
        let symbols = Symbols::parse(
            "ffffffff81000000 T first\nffffffff81000040 T last\nffffffffc0000000 t one\t[a]\nffffffffc0000040 t \
             two\t[a]\nffffffffc0001000 t three\t[b]\nffffffffc0001040 t four\t[b]\nffffffffc0001040 t alias\t[b]\n",
        );
        let ends = |address| symbols.ends_module(address);
        assert!(!ends(0xffff_ffff_8100_0050), "the image's text does not end with a page of nothing");
        assert!(!ends(0xffff_ffff_c000_003f) && ends(0xffff_ffff_c000_0040) && ends(0xffff_ffff_c000_0048));
        assert!(!ends(0xffff_ffff_c000_1000) && ends(0xffff_ffff_c000_1041) && !ends(0xffff_ffff_0000_0000));
    }

    #[test]
    fn blacklist_and_modules() {
        let list = parse_blacklist("0xffffffff81000080-0xffffffff81000090\tbar\n0x10-0x10\tempty\nrubbish\n");
        assert_eq!(list.len(), 1);
        let symbols = symbols().with_blacklist(list);
        assert_eq!(symbols.blacklisted(0xffff_ffff_8100_008f), Some(true));
        assert_eq!(symbols.blacklisted(0xffff_ffff_8100_0090), Some(false));
        let modules = parse_modules("loop 40960 0 - Live 0xffffffffc0000000\nx\n");
        assert_eq!(modules, [Module { name: "loop".into(), address: 0xffff_ffff_c000_0000, size: 40960 }]);
    }

    #[test]
    fn the_bases_are_read_from_the_beginning() {
        struct Guarded<'t>(&'t [u8]);
        impl io::Read for Guarded<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "it is read on");
                let count = self.0.len().min(into.len());
                into[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let bases = Bases::read(Guarded(TEXT.as_bytes())).unwrap();
        assert_eq!(bases, Some(Bases { text: 0xffff_ffff_8100_0000, stext: Some(0xffff_ffff_8100_0000) }));
        let of = |text: &str| Bases::read(text.as_bytes()).unwrap();
        assert_eq!(of("10 T _text\n20 T foo"), Some(Bases { text: 0x10, stext: None }));
        assert_eq!(of("10 T _stext\n20 T foo"), None);
        assert_eq!(of("10 T _text\t[a_module]\n20 D _text\n"), None);
    }

    #[test]
    fn hidden_addresses_are_noticed() {
        let hidden = Symbols::parse("0000000000000000 T _text\n0000000000000000 t foo\n");
        assert!(hidden.is_restricted());
        assert!(!symbols().is_restricted());
    }

    #[test]
    fn an_image_gives_the_same_table() {
        let image = Symbols::from_image([(0x20, "b"), (0x10, "a"), (0x20, "b_alias")]);
        assert_eq!(image.containing(0x25).unwrap().symbol.name, "b");
        assert_eq!(image.named("b_alias").next().unwrap().address, 0x20);
    }

    proptest! {
        #[test]
        fn parsers_take_anything(text in "(?s).{0,400}", address in any::<u64>()) {
            let symbols = Symbols::parse(text.clone())
                .with_ftrace(Ftrace::parse_addresses(&text))
                .with_blacklist(parse_blacklist(&text))
                .with_modules(parse_modules(&text));
            let _ = (symbols.containing(address), symbols.notrace(address), symbols.blacklisted(address));
            let _ = Ftrace::parse_names(&text);
        }

        #[test]
        fn parsers_take_mutilated_tables(
            at in 0..TEXT.len(), cut in 0..TEXT.len(), byte in 0u8..128, address in any::<u64>(),
        ) {
            let mut text = TEXT.as_bytes().to_vec();
            text[at] = byte;
            text.truncate(cut);
            let symbols = Symbols::parse(String::from_utf8(text).unwrap());
            for symbol in symbols.iter() {
                prop_assert!(symbols.at(symbol.address).any(|other| other == symbol));
                prop_assert!(symbols.named(symbol.name).any(|other| other == symbol));
            }
            let _ = symbols.containing(address);
        }
    }
}
