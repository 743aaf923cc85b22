// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Opening site data: a site file, split BTF with or without the companion section, the kernel's own.

use super::code::Code;
use super::elf::Sections;
use super::ext::{Around, Ext, RawFunction, RawRun, wide};
use super::function::FunctionRef;
use super::ranges::RangesError;
use super::site::{ContainerRef, SiteRef};
use super::write::WriteError;
use crate::btf::{Btf, BtfError, CHECKPOINT_STRIDE, Kind, LocsecEntry, Stored, Strings, TypeId};
use crate::machine::Machine;
use crate::set::Section;
use crate::site::Unprobeable;
use crate::sums::Sums;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// Why site data cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Not an ELF file that can be read: ELF64, little-endian.
    #[error("not a readable ELF file")]
    Elf(#[source] object::read::Error),
    /// Another architecture.
    #[error("ELF machine {0} is not supported (x86-64 and arm64 are)")]
    Machine(u16),
    /// A section that is not there.
    #[error("there is no {0} section")]
    NoSection(&'static str),
    /// Malformed BTF.
    #[error("{section}")]
    Btf {
        /// Name of the section.
        section: &'static str,
        /// What is wrong.
        source: BtfError,
    },
    /// The companion section has another version.
    #[error(".BTF.inline.ext has version {0}, which is not supported: it was written by another release")]
    Version(u8),
    /// The companion section's header is malformed.
    #[error(".BTF.inline.ext: malformed header: {0}")]
    Header(&'static str),
    /// A table of the companion section is not inside it, or not a whole number of records.
    #[error(".BTF.inline.ext: the {0} table is malformed")]
    Table(&'static str),
    /// A record contradicts the rest of the file.
    #[error("damaged site data: {what} {index}")]
    Corrupt {
        /// What was read.
        what: &'static str,
        /// Its number.
        index: u32,
    },
    /// What was read is not what was written: its checksum is another.
    #[error("{section} is damaged at {offset:#x}: encode the image again")]
    Damaged {
        /// Name of the section.
        section: &'static str,
        /// Where in it the damaged block begins; in the companion section counted from its header's end.
        offset: usize,
    },
    /// Sections that came one by one are of different images.
    #[error(
        ".BTF, .BTF.inline and .BTF.inline.ext do not belong together: they are of different builds, or incomplete"
    )]
    Apart,
    /// Sections that came one by one cannot be put into a file.
    #[error("the sections cannot be put into a file")]
    Assembled(#[source] WriteError),
    /// The section that tells which copies addresses are in cannot be used.
    #[error(".BTF.inline.ranges")]
    Ranges(#[source] RangesError),
    /// The section with the sums of code cannot be used.
    #[error(".BTF.inline.code: {0}")]
    Code(&'static str),
    /// What the sites of a function have would take more memory than a file of this size justifies.
    #[error("the sites of the function take more memory than a file of this size can need")]
    TooLarge,
}

impl FileError {
    pub(super) fn corrupt(what: &'static str, index: u32) -> FileError {
        FileError::Corrupt { what, index }
    }
}

/// What is known about an image if its site data has no companion section.
#[derive(Debug, Clone)]
pub struct Image {
    /// The architecture.
    pub machine: Machine,
    /// The GNU build id.
    pub build_id: Vec<u8>,
    /// What address constants are relative to: the address of `_text`. `None` if that is not known: then an address
    /// constant is not a location.
    pub base_address: Option<u64>,
    /// Text sections with their addresses: at link time or at run time, as [`Image::base_address`] is. Sites in any
    /// other section are [`Unprobeable::Unplaced`].
    pub sections: Vec<Section>,
}

/// A text section with sites.
#[derive(Debug, Clone, Copy)]
pub struct TextSection<'a> {
    /// Name, such as `.text`.
    pub name: &'a str,
    /// Address of its start.
    pub address: u64,
    /// Bytes; 0 if it is not known.
    pub size: u64,
    pub(super) first: u32,
    pub(super) entries: &'a [LocsecEntry],
    /// Why nothing in it can be probed, where only the section itself tells.
    pub(super) unprobeable: Option<Unprobeable>,
}

impl TextSection<'_> {
    /// Indices of the section's sites.
    pub fn sites(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.entries.len() as u32
    }
}

/// What a file says about the module that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleRef<'a> {
    /// Name, as the kernel has it.
    pub name: &'a str,
    /// The GNU build id of the kernel whose BTF the module's is split over; empty if it is not known.
    pub kernel_build_id: &'a [u8],
}

/// A section of a module, which the kernel places by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedSection<'a> {
    /// Name, as in `/sys/module/MODULE/sections`.
    pub name: &'a str,
    /// Where it is taken to be by the addresses in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Bytes of the parts of site data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// The image's BTF.
    pub btf: usize,
    /// The upstream part.
    pub inline: usize,
    /// The companion section.
    pub ext: usize,
    /// Which copies addresses are in; 0 if the file does not have it.
    pub ranges: usize,
    /// Sums of the code at sites; 0 if the file does not have them.
    pub code: usize,
}

/// Where the functions and their sites are.
#[derive(Debug, Clone)]
enum Index<'a> {
    /// In the file.
    Stored { functions: &'a [RawFunction], runs: &'a [RawRun] },
    /// Made when the file was opened.
    Built { functions: Vec<BuiltFunction<'a>>, runs: Vec<(u32, u32)> },
}

#[derive(Debug, Clone)]
struct BuiltFunction<'a> {
    name: &'a str,
    func: TypeId,
    runs: (u32, u32),
}

/// Site data, open for reading. Nothing is copied; what is asked for is read where it lies.
///
/// What is read of a site file is checked by its checksums. A method that returns a `Result` fails once anything
/// damaged was read; whoever uses another asks [`SiteFile::whole`] afterwards.
#[derive(Debug, Clone)]
pub struct SiteFile<'a> {
    machine: Machine,
    build_id: Cow<'a, [u8]>,
    base_address: Option<u64>,
    pub(super) base: Btf<'a>,
    btf: Btf<'a>,
    pub(super) strings: Strings<'a>,
    sections: Vec<TextSection<'a>>,
    site_count: u32,
    index: Index<'a>,
    pub(super) ext: Option<Ext<'a>>,
    pub(super) ranges: Option<&'a [u8]>,
    pub(super) code: Option<&'a [u8]>,
    sums: Option<Arc<Sums<'a>>>,
    sizes: Sizes,
    base_bytes: Option<&'a [u8]>,
}

/// What a LOCSEC's name has before that of the text section that it is about.
const LOCSEC_PREFIX: &str = "inline";

/// The name of the LOCSEC of a text section: `inline.text` for `.text`.
pub(super) fn locsec_name(section: &str) -> String {
    // Without the dot a reader could not tell the prefix from the name.
    if section.starts_with('.') { format!("{LOCSEC_PREFIX}{section}") } else { section.to_owned() }
}

/// The name of the text section that a LOCSEC is about: both `.text` and `inline.text` are in use for `.text`.
fn text_section_name(locsec: &str) -> &str {
    match locsec.strip_prefix(LOCSEC_PREFIX) {
        Some(rest) if rest.starts_with('.') => rest,
        _ => locsec,
    }
}

/// Why nothing in a section can be probed, as far as its name tells. A module's `.exit.text` stays until it is
/// unloaded.
fn of_section(name: &str, is_module: bool) -> Option<Unprobeable> {
    match name {
        ".init.text" => Some(Unprobeable::Init),
        ".exit.text" if !is_module => Some(Unprobeable::Exit),
        ".noinstr.text" => Some(Unprobeable::Noinstr),
        ".entry.text" => Some(Unprobeable::Entry),
        _ => None,
    }
}

/// Whether there are sites among the types of some BTF, be it split or not. What it is split over need not be at hand.
pub fn has_sites(btf: &[u8]) -> bool {
    Btf::kinds(btf).is_some_and(|mut kinds| kinds.any(|kind| kind == Kind::Locsec))
}

/// The text sections that split BTF with sites refers to: those whose addresses [`SiteFile::from_inline`] asks for.
///
/// # Errors
/// If the split BTF is malformed.
pub fn section_names<'a>(inline: &'a [u8], base: &Btf<'a>) -> Result<Vec<&'a str>, FileError> {
    let btf =
        Btf::parse_split(inline, base).map_err(|source| FileError::Btf { section: super::elf::INLINE, source })?;
    let mut names: Vec<&str> =
        btf.types().filter(|ty| ty.kind() == Kind::Locsec).map(|ty| text_section_name(ty.name())).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The build id of the kernel that a module's site file is for, found without that kernel's types. `None` if the file
/// is a kernel image's.
///
/// # Errors
/// If a section is not there or malformed.
pub fn module_kernel(data: &[u8]) -> Result<Option<&[u8]>, FileError> {
    let sections = Sections::find(data)?;
    let Some(ext) = sections.ext else { return Ok(None) };
    Ok(Ext::parse(ext)?.module.split_first_chunk::<4>().map(|(_, kernel)| kernel))
}

impl<'a> SiteFile<'a> {
    /// Opens a site file, or any ELF file with a `.BTF.inline` section, such as a debug vmlinux.
    ///
    /// Without a companion section the ELF file's own section addresses and its symbol `_text` are taken.
    ///
    /// # Errors
    /// If a section is not there or malformed, or the sections contradict one another.
    pub fn parse(data: &'a [u8]) -> Result<SiteFile<'a>, FileError> {
        Self::open(data, None)
    }

    /// Opens a module's site file: its BTF is split over the kernel's.
    ///
    /// # Errors
    /// As [`SiteFile::parse`].
    pub fn parse_module(data: &'a [u8], kernel: &Btf<'a>) -> Result<SiteFile<'a>, FileError> {
        Self::open(data, Some(kernel))
    }

    fn open(data: &'a [u8], kernel: Option<&Btf<'a>>) -> Result<SiteFile<'a>, FileError> {
        let sections = Sections::find(data)?;
        let in_btf = |source| FileError::Btf { section: super::elf::BTF, source };
        let in_inline = |source| FileError::Btf { section: super::elf::INLINE, source };
        let (inline, ext_data) = match (sections.inline, sections.ext) {
            (Some(inline), Some(ext)) => (inline, ext),
            (None, Some(_)) => return Err(FileError::NoSection(super::elf::INLINE)),
            (inline, None) => return Self::open_foreign(&sections, inline, kernel),
        };
        let ext = Ext::parse(ext_data)?;
        for (count, checkpoints) in [(ext.base_types, ext.base_checkpoints), (ext.split_types, ext.split_checkpoints)] {
            if count.div_ceil(CHECKPOINT_STRIDE) as usize != checkpoints.len() {
                return Err(FileError::Table("type"));
            }
        }
        if ext.container_names.len() != ext.containers.len() {
            return Err(FileError::Table("container name"));
        }
        let sums = Arc::new(ext.sums(&Around {
            machine: sections.machine,
            build_id: sections.build_id,
            btf: sections.btf,
            inline,
        })?);
        let stored = |count, checkpoints| Stored { count, checkpoints, sums: Arc::clone(&sums) };
        let base_types = stored(ext.base_types, ext.base_checkpoints);
        let base = Btf::with_checkpoints(sections.btf, kernel, base_types).map_err(in_btf)?;
        let split_types = stored(ext.split_types, ext.split_checkpoints);
        let btf = Btf::with_checkpoints(inline, Some(&base), split_types).map_err(in_inline)?;
        let strings = btf.strings().continued(ext.strings).ok_or(FileError::Table("string"))?;
        let mut text = Vec::with_capacity(ext.sections.len());
        let mut next = 0u32;
        for (nth, raw) in ext.sections.iter().enumerate() {
            sums.touch(raw.as_bytes());
            let entries = btf.ty(raw.locsec.get()).map(|ty| ty.locsec()).unwrap_or_default();
            let name = string(strings, Some(&sums), raw.name.get());
            let (true, true, Some(name)) = (raw.first.get() == next, raw.count.get() as usize == entries.len(), name)
            else {
                return Err(FileError::corrupt("section", nth as u32));
            };
            text.push(TextSection {
                name,
                address: wide(raw.address_low, raw.address_high),
                size: wide(raw.size_low, raw.size_high),
                first: next,
                entries,
                // Each site's record says.
                unprobeable: None,
            });
            next = next.checked_add(raw.count.get()).ok_or(FileError::Table("section"))?;
        }
        if next as usize != ext.sites.len() {
            return Err(FileError::Table("site"));
        }
        // The section may have lost its name. Without it, the loader would not compare the code at sites.
        let is_code = |data: &'a [u8]| Code::parse(data, next, ext.root()).is_ok();
        if sections.code.is_none() && sections.contents().any(is_code) {
            return Err(FileError::NoSection(super::elf::CODE));
        }
        let file = SiteFile {
            machine: sections.machine,
            build_id: Cow::Borrowed(sections.build_id),
            base_address: Some(ext.base_address),
            base,
            btf,
            strings,
            sections: text,
            site_count: next,
            index: Index::Stored { functions: ext.functions, runs: ext.runs },
            ext: Some(ext),
            ranges: sections.ranges,
            code: sections.code,
            sums: Some(sums),
            sizes: Sizes {
                btf: sections.btf.len(),
                inline: inline.len(),
                ext: ext_data.len(),
                ranges: sections.ranges.map_or(0, <[u8]>::len),
                code: sections.code.map_or(0, <[u8]>::len),
            },
            base_bytes: Some(sections.btf),
        };
        file.whole()?;
        Ok(file)
    }

    /// An ELF file without a companion section: an image that others made.
    fn open_foreign(
        sections: &Sections<'a>,
        inline: Option<&'a [u8]>,
        kernel: Option<&Btf<'a>>,
    ) -> Result<SiteFile<'a>, FileError> {
        // An image has text. A file of ours has none, and its companion section has lost its name.
        let text = sections.text_sections();
        if text.is_empty() {
            return Err(FileError::NoSection(if inline.is_some() { super::elf::EXT } else { super::elf::INLINE }));
        }
        let base = match kernel {
            Some(kernel) => Btf::parse_split(sections.btf, kernel),
            None => Btf::parse(sections.btf),
        };
        let base = base.map_err(|source| FileError::Btf { section: super::elf::BTF, source })?;
        let image = Image {
            machine: sections.machine,
            build_id: sections.build_id.to_vec(),
            base_address: sections.base_address(),
            sections: text,
        };
        let file = match inline {
            Some(inline) => Self::from_inline(inline, &base, image)?,
            None if base.types().any(|ty| ty.kind() == Kind::Locsec) => Self::from_whole(&base, image)?,
            None => return Err(FileError::NoSection(super::elf::INLINE)),
        };
        // If a damaged header says that there is text, it is not that of the image.
        if !file.sections.is_empty() && file.sections.iter().all(|section| section.size == 0) {
            return Err(FileError::NoSection(super::elf::EXT));
        }
        Ok(file)
    }

    /// Opens split BTF with sites that comes without a companion section, such as `/sys/kernel/btf/vmlinux.inline`.
    /// Everything that only the companion section knows is unknown: kinds, containers, source lines, reasons.
    ///
    /// # Errors
    /// If the split BTF is malformed, or a site's function is not a FUNC.
    pub fn from_inline(inline: &'a [u8], base: &Btf<'a>, image: Image) -> Result<SiteFile<'a>, FileError> {
        let btf =
            Btf::parse_split(inline, base).map_err(|source| FileError::Btf { section: super::elf::INLINE, source })?;
        Self::of_kinds(btf, base, inline.len(), image)
    }

    /// Opens BTF that has sites among its other types, not split off: what pahole writes before `resolve_btfids` splits
    /// it. What is true of [`SiteFile::from_inline`] is true of it.
    ///
    /// # Errors
    /// As [`SiteFile::from_inline`].
    pub fn from_whole(btf: &Btf<'a>, image: Image) -> Result<SiteFile<'a>, FileError> {
        Self::of_kinds(btf.clone(), btf, 0, image)
    }

    /// The sites that the LOC kinds of some BTF tell.
    fn of_kinds(btf: Btf<'a>, base: &Btf<'a>, inline_len: usize, image: Image) -> Result<SiteFile<'a>, FileError> {
        let mut sections = Vec::new();
        let mut site_count = 0u32;
        let is_module = base.base().is_some();
        for ty in btf.types().filter(|ty| ty.kind() == Kind::Locsec) {
            let (name, entries) = (text_section_name(ty.name()), ty.locsec());
            let known = image.sections.iter().find(|section| section.name == name);
            sections.push(TextSection {
                name,
                address: known.map_or(0, |section| section.address),
                size: known.map_or(0, |section| section.size),
                first: site_count,
                entries,
                unprobeable: of_section(name, is_module).or(known.is_none().then_some(Unprobeable::Unplaced)),
            });
            let count = u32::try_from(entries.len()).ok().and_then(|count| site_count.checked_add(count));
            site_count = count.ok_or(FileError::Table("site"))?;
        }
        let index = build_index(&btf, &sections)?;
        Ok(SiteFile {
            machine: image.machine,
            build_id: Cow::Owned(image.build_id),
            base_address: image.base_address,
            base: base.clone(),
            strings: btf.strings(),
            btf,
            sections,
            site_count,
            index,
            ext: None,
            ranges: None,
            code: None,
            sums: None,
            sizes: Sizes { inline: inline_len, ..Sizes::default() },
            base_bytes: None,
        })
    }

    /// The architecture.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The GNU build id of the image; empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// The image's own BTF.
    pub fn base_btf(&self) -> &Btf<'a> {
        &self.base
    }

    /// The bytes of the image's own BTF, if the file has a copy.
    pub fn base_btf_bytes(&self) -> Option<&'a [u8]> {
        let bytes = self.base_bytes?;
        self.touch(bytes);
        Some(bytes)
    }

    /// The split BTF with the sites; types of the base are found through it too.
    pub fn btf(&self) -> &Btf<'a> {
        &self.btf
    }

    /// Link-time address of the image's base (`_text`); 0 if it is not known.
    pub fn base_address(&self) -> u64 {
        self.base_address.unwrap_or(0)
    }

    /// What address constants are relative to, if it is known.
    pub(super) fn known_base(&self) -> Option<u64> {
        self.base_address
    }

    /// What the file says about the module that it is about; `None` if it is about the kernel's image.
    pub fn module(&self) -> Option<ModuleRef<'a>> {
        let bytes = self.ext.as_ref()?.module;
        let (name, kernel_build_id) = bytes.split_first_chunk::<4>()?;
        self.touch(bytes);
        Some(ModuleRef { name: self.string(u32::from_le_bytes(*name))?, kernel_build_id })
    }

    /// A module's sections that are loaded, those without instructions too, by address. None for the kernel's image.
    pub fn loaded_sections(&self) -> impl Iterator<Item = LoadedSection<'a>> + '_ {
        let table = self.ext.as_ref().map_or(&[][..], |ext| ext.loaded);
        (0..table.len()).filter_map(|nth| {
            let raw = self.row(table, nth)?;
            Some(LoadedSection {
                name: self.string(raw.name.get())?,
                address: wide(raw.address_low, raw.address_high),
                size: wide(raw.size_low, raw.size_high),
            })
        })
    }

    /// Text sections that have sites.
    pub fn sections(&self) -> &[TextSection<'a>] {
        &self.sections
    }

    /// The image's out-of-line symbols, by address: those that contain sites, and those that may be bodies without a
    /// site. None without the companion section. Damaged ones are left out.
    pub fn containers(&self) -> impl Iterator<Item = ContainerRef<'a>> + '_ {
        let table = self.ext.as_ref().map_or(&[][..], |ext| ext.containers);
        (0..table.len()).filter_map(|nth| ContainerRef::read(self, self.row(table, nth)?))
    }

    /// Whether all that was read so far is what was written. Without the companion section there are no checksums to
    /// tell.
    ///
    /// # Errors
    /// [`FileError::Damaged`].
    pub fn whole(&self) -> Result<(), FileError> {
        let whole = self.sums.as_ref().map_or(Ok(()), |sums| sums.whole());
        whole.map_err(|damage| FileError::Damaged { section: damage.part, offset: damage.offset })
    }

    /// A record of a table, checked by its checksum.
    pub(super) fn row<T: IntoBytes + Immutable>(&self, table: &'a [T], nth: usize) -> Option<&'a T> {
        let row = table.get(nth)?;
        if let Some(sums) = &self.sums {
            sums.touch(row.as_bytes());
        }
        Some(row)
    }

    /// A string by its offset, checked by its checksum.
    pub(super) fn string(&self, offset: u32) -> Option<&'a str> {
        string(self.strings, self.sums.as_deref(), offset)
    }

    /// Notes that a string is read.
    pub(super) fn touch_string(&self, string: &[u8]) {
        if let Some(sums) = &self.sums {
            sums.touch_string(string);
        }
    }

    /// Notes that the bytes are read.
    pub(super) fn touch(&self, bytes: &[u8]) {
        if let Some(sums) = &self.sums {
            sums.touch(bytes);
        }
    }

    /// Whether the companion section is there: kinds, containers, source lines and reasons are known.
    pub fn is_complete(&self) -> bool {
        self.ext.is_some()
    }

    /// How large the parts are.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// How many sites there are.
    pub fn site_count(&self) -> u32 {
        self.site_count
    }

    /// One site by its index.
    ///
    /// # Errors
    /// If there is no such site or its data are damaged.
    pub fn site(&self, index: u32) -> Result<SiteRef<'_, 'a>, FileError> {
        SiteRef::read(self, index)
    }

    /// All sites, by index: section by section, each sorted by function.
    pub fn sites(&self) -> impl ExactSizeIterator<Item = Result<SiteRef<'_, 'a>, FileError>> + '_ {
        (0..self.site_count).map(|index| self.site(index))
    }

    /// How many functions there are: of distinct name or prototype.
    pub fn function_count(&self) -> u32 {
        match &self.index {
            // The last record only ends the ranges of the one before.
            Index::Stored { functions, .. } => functions.len().saturating_sub(1) as u32,
            Index::Built { functions, .. } => functions.len() as u32,
        }
    }

    /// One function by its place in the order of names.
    ///
    /// # Errors
    /// If there is no such function or its data are damaged.
    pub fn function(&self, nth: u32) -> Result<FunctionRef<'_, 'a>, FileError> {
        let corrupt = || FileError::corrupt("function", nth);
        let at = nth as usize;
        match &self.index {
            Index::Stored { functions, runs } => {
                let (row, end) = self.row(functions, at).zip(self.row(functions, at + 1)).ok_or_else(corrupt)?;
                let name = self.string(row.name.get()).ok_or_else(corrupt)?;
                let declarations = (row.declarations.get(), end.declarations.get());
                let known = self.ext.map_or(0, |ext| ext.declarations.len());
                let run_range = (row.runs.get(), end.runs.get());
                let ordered = |(a, b): (u32, u32), count: usize| a <= b && b as usize <= count;
                if !ordered(run_range, runs.len()) || !ordered(declarations, known) {
                    return Err(corrupt());
                }
                self.whole()?;
                Ok(FunctionRef::new(self, nth, name, row.func.get(), run_range, declarations))
            }
            Index::Built { functions, .. } => {
                let row = functions.get(at).ok_or_else(corrupt)?;
                Ok(FunctionRef::new(self, nth, row.name, row.func, row.runs, (0, 0)))
            }
        }
    }

    /// All functions, in the order of their names.
    pub fn all_functions(&self) -> impl ExactSizeIterator<Item = Result<FunctionRef<'_, 'a>, FileError>> + '_ {
        (0..self.function_count()).map(|nth| self.function(nth))
    }

    /// A run of sites of one function: first and count, inside of the sites.
    pub(super) fn run(&self, nth: u32) -> Result<(u32, u32), FileError> {
        let run = match &self.index {
            Index::Stored { runs, .. } => self.row(runs, nth as usize).map(|run| (run.first.get(), run.count.get())),
            Index::Built { runs, .. } => runs.get(nth as usize).copied(),
        };
        let inside = |(first, count): &(u32, u32)| first.checked_add(*count).is_some_and(|end| end <= self.site_count);
        run.filter(inside).ok_or(FileError::Corrupt { what: "run", index: nth })
    }

    /// The section and the LOCSEC's entry of a site.
    pub(super) fn entry(&self, index: u32) -> Option<(usize, &'a LocsecEntry)> {
        let after = self.sections.partition_point(|section| section.first <= index);
        // Sections without sites share their first index with the next: the last of them holds it.
        let nth = after.checked_sub(1)?;
        let section = &self.sections[nth];
        let entry = section.entries.get((index - section.first) as usize)?;
        // The view of a LOCSEC is not checked as a whole when it is made.
        self.touch(entry.as_bytes());
        Some((nth, entry))
    }
}

/// The string at an offset, checked by its checksum.
pub(super) fn string<'a>(strings: Strings<'a>, sums: Option<&Sums<'a>>, offset: u32) -> Option<&'a str> {
    let bytes = strings.bytes(offset)?;
    if let Some(sums) = sums {
        sums.touch_string(bytes);
    }
    std::str::from_utf8(bytes).ok()
}

/// Groups the sites of data without a companion section by function.
fn build_index<'a>(btf: &Btf<'a>, sections: &[TextSection<'a>]) -> Result<Index<'a>, FileError> {
    let mut by_func: HashMap<TypeId, Vec<(u32, u32)>> = HashMap::new();
    for section in sections {
        let mut first = section.first;
        for run in section.entries.chunk_by(|a, b| a.func() == b.func()) {
            by_func.entry(run[0].func()).or_default().push((first, run.len() as u32));
            first += run.len() as u32;
        }
    }
    let mut named = Vec::with_capacity(by_func.len());
    for (func, runs) in by_func {
        let ty = btf.ty(func).filter(|ty| ty.kind() == Kind::Func);
        let ty = ty.ok_or(FileError::Corrupt { what: "function type", index: func })?;
        named.push((ty.name(), func, runs));
    }
    named.sort_unstable();
    let (mut functions, mut all_runs) = (Vec::with_capacity(named.len()), Vec::new());
    for (name, func, runs) in named {
        let first = all_runs.len() as u32;
        all_runs.extend(runs);
        functions.push(BuiltFunction { name, func, runs: (first, all_runs.len() as u32) });
    }
    Ok(Index::Built { functions, runs: all_runs })
}
