// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ELF image of a kernel: its sections, its text symbols and the tables that the kernel patches itself by.
//!
//! Two kinds of image are read. A `vmlinux` (ET_EXEC, or ET_DYN on arm64) is linked: addresses are link-time virtual
//! addresses, displaced as a whole at run time. A module (`.ko`, ET_REL) is not: every section starts at 0, and text
//! and tables have holes that relocations fill. Such an image is laid out here, each allocated section after the
//! other, and its relocations are applied, so that everyone else sees unique addresses; an address is then turned
//! into section + offset by [`Image::section_at`]. Undefined symbols of a module get addresses of their own, outside
//! all sections, so that a branch to `__x86_indirect_thunk_rax` can still be recognised.
//!
//! The bytes are borrowed, normally from a memory map. Only what must be changed is copied: compressed debug
//! sections, and the relocated sections of a module.

use crate::elf::noreturn::is_noreturn;
use crate::elf::relocate::{self, Layout};
use crate::elf::symbols::{Symbol, SymbolTable, is_indirect_thunk};
use crate::elf::tables::Tables;
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::read::{CompressionFormat, Object as _, ObjectSection as _};
use object::{LittleEndian, SectionIndex};
use siteseer_sites::Machine;
use std::borrow::Cow;
use std::ops::Range;

/// Why an ELF image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file does not begin as an ELF file does.
    #[error("not an ELF file")]
    NotElf,
    /// A 32-bit ELF file.
    #[error("a 32-bit ELF file: only 64-bit kernels are supported")]
    NotElf64,
    /// A big-endian ELF file.
    #[error("a big-endian ELF file: only little-endian kernels are supported")]
    BigEndian,
    /// An architecture other than x86-64 and arm64.
    #[error("for another machine (e_machine {0}): only x86-64 and arm64 are supported")]
    Machine(u16),
    /// Neither a linked kernel image nor a module.
    #[error("neither a kernel image nor a module (e_type {0})")]
    FileType(u16),
    /// The file ends before a section does.
    #[error("truncated: section {section} ends at byte {end} of a file of {len}")]
    Truncated {
        /// Name or index of the section.
        section: String,
        /// Offset in the file at which it should end.
        end: u64,
        /// Size of the file.
        len: u64,
    },
    /// A header or table of the ELF file is malformed.
    #[error("malformed ELF file: {what}")]
    Malformed {
        /// What was being read.
        what: &'static str,
        /// The reader's own words.
        #[source]
        source: object::Error,
    },
    /// A compressed section could not be decompressed.
    #[error("section {section} cannot be decompressed")]
    Compressed {
        /// Name of the section.
        section: String,
        /// The reader's own words.
        #[source]
        source: object::Error,
    },
    /// Compressed sections claim more bytes than such an image can have.
    #[error("section {section} and other compressed ones claim {size} bytes together, in an image of {image}")]
    CompressionRatio {
        /// Name of the section that was wanted.
        section: String,
        /// The sizes that their headers claim, together.
        size: u64,
        /// The size of the image.
        image: u64,
    },
    /// No symbol table.
    #[error("no symbol table (.symtab): a stripped image cannot be used")]
    NoSymbols,
    /// A linked image without the symbols that delimit a kernel.
    #[error("not a kernel image: no symbol {0}")]
    NotKernel(&'static str),
    /// No DWARF.
    #[error(
        "no debug information (.debug_info): use the kernel's debug vmlinux, or the module's .ko with debug information"
    )]
    NoDebugInfo,
    /// No BTF.
    #[error("no .BTF section: built without CONFIG_DEBUG_INFO_BTF, or (a module) without the kernel's vmlinux at hand")]
    NoBtf,
}

impl ImageError {
    fn malformed(what: &'static str) -> impl FnOnce(object::Error) -> ImageError {
        move |source| ImageError::Malformed { what, source }
    }
}

/// A section that holds instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section<'a> {
    /// The section's name.
    pub name: &'a str,
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Section<'_> {
    /// The section's addresses.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// The symbol that kallsyms reports for an address, as [`Image::container`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container<'a> {
    /// The name that kallsyms puts first of those at the address.
    pub name: &'a str,
    /// The symbol's address.
    pub address: u64,
    /// Bytes up to the next symbol of another address, as kallsyms counts: padding included.
    pub size: u64,
}

/// A section that is loaded, with its bytes after relocation. Without bytes: zero-filled (NOBITS).
struct Loaded<'a> {
    address: u64,
    bytes: Cow<'a, [u8]>,
}

/// Text delimited by linker symbols. A range that the kernel does not have is empty.
#[derive(Debug, Clone, Default)]
pub struct SpecialText {
    /// `_stext`..`_etext`: what stays after boot (kernel/extable.c `core_kernel_text`).
    pub core: Range<u64>,
    /// `_sinittext`..`_einittext`.
    pub init: Range<u64>,
    /// `.exit.text` of a linked image, discarded at boot.
    pub exit: Range<u64>,
    /// `__noinstr_text_start`..`__noinstr_text_end`, the idle text in it included.
    pub noinstr: Range<u64>,
    /// `__entry_text_start`..`__entry_text_end`.
    pub entry: Range<u64>,
    /// `__kprobes_text_start`..`__kprobes_text_end`.
    pub kprobes: Range<u64>,
    /// arm64's `__irqentry_text`, `__idmap_text`, `__hyp_text` and `__hyp_idmap_text`, which its
    /// `arch_populate_kprobe_blacklist` adds.
    pub arch: Vec<Range<u64>>,
}

/// A kernel image or module.
pub struct Image<'a> {
    elf: ElfFile64<'a, LittleEndian>,
    machine: Machine,
    layout: Layout,
    build_id: Vec<u8>,
    loaded: Vec<Loaded<'a>>,
    text: Vec<Section<'a>>,
    symbols: SymbolTable<'a>,
    extent: Range<u64>,
    special: SpecialText,
    alternative_text: Range<u64>,
    per_cpu: Range<u64>,
    /// Addresses of functions that branch to the address in a register.
    thunks: Vec<u64>,
    /// Addresses of functions that never return.
    noreturn: Vec<u64>,
    tables: Tables,
}

/// How many times as large as the whole image its compressed sections may be. DWARF is compressed to a third or a
/// fifth; deflate can make a thousand times as much of an image that is made for it.
const MAX_RATIO: u64 = 16;
/// Compressed sections may be so large in any image.
const SMALL: u64 = 64 << 20;

impl<'a> Image<'a> {
    /// Reads an image.
    ///
    /// # Errors
    /// Whatever is wrong with the file; a missing `.debug_info` or `.BTF` is reported when it is asked for.
    pub fn parse(data: &'a [u8]) -> Result<Image<'a>, ImageError> {
        let machine = check_header(data)?;
        check_sections(data)?;
        let elf = ElfFile64::<LittleEndian>::parse(data).map_err(ImageError::malformed("headers"))?;
        if elf.elf_symbol_table().is_empty() {
            return Err(ImageError::NoSymbols);
        }
        let layout = Layout::new(&elf);
        let mut build_id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
        // Longer than any hash is not a build id.
        build_id.truncate(64);
        let (loaded, text) = load(&elf, &layout)?;
        let symbols = SymbolTable::new(&elf, &layout)?;
        let mut image = Image {
            elf,
            machine,
            layout,
            build_id,
            loaded,
            text,
            symbols,
            extent: 0..0,
            special: SpecialText::default(),
            alternative_text: 0..0,
            per_cpu: 0..0,
            thunks: Vec::new(),
            noreturn: Vec::new(),
            tables: Tables::default(),
        };
        image.extent = image.find_extent()?;
        image.special = image.find_special();
        image.alternative_text = image.section_range(".altinstr_aux");
        if image.is_relocatable() {
            image.per_cpu = image.section_range(".data..percpu");
        }
        image.thunks = image.symbols.addresses(is_indirect_thunk);
        image.noreturn = image.symbols.addresses(is_noreturn);
        image.tables = Tables::read(&image);
        Ok(image)
    }

    /// The architecture.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The GNU build id; empty if the image has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// The address that run-time displacements are counted from: `_text`, or where the first section of a module
    /// was laid out.
    pub fn base(&self) -> u64 {
        self.extent.start
    }

    /// What moves with the image at run time: `_text`..`_end`, or all sections of a module.
    pub fn loaded(&self) -> Range<u64> {
        self.extent.clone()
    }

    /// Whether this is a module. The kernel places the sections of a module one by one.
    pub fn is_relocatable(&self) -> bool {
        self.layout.is_relocatable()
    }

    /// The `.BTF` section.
    ///
    /// # Errors
    /// [`ImageError::NoBtf`], or that it cannot be decompressed.
    pub fn btf(&self) -> Result<&'a [u8], ImageError> {
        let section = self.elf.section_by_name(".BTF").ok_or(ImageError::NoBtf)?;
        let data = section.data().map_err(ImageError::malformed("section .BTF"))?;
        if data.is_empty() { Err(ImageError::NoBtf) } else { Ok(data) }
    }

    /// The `.BTF.base` section of a module that was built outside of the kernel's tree: the kernel's types that its
    /// `.BTF` refers to.
    ///
    /// # Errors
    /// If the section cannot be read.
    pub fn distilled_btf(&self) -> Result<Option<&'a [u8]>, ImageError> {
        let section = self.elf.section_by_name(".BTF.base");
        section.map(|section| section.data().map_err(ImageError::malformed("section .BTF.base"))).transpose()
    }

    /// The name of a module, as the kernel has it: `name=` in its `.modinfo`.
    pub fn module_name(&self) -> Option<&'a str> {
        let section = self.elf.section_by_name(".modinfo")?;
        let mut fields = section.data().ok()?.split(|&byte| byte == 0);
        std::str::from_utf8(fields.find_map(|field| field.strip_prefix(b"name="))?).ok()
    }

    /// All sections that are loaded, by address.
    pub fn loaded_sections(&self) -> Vec<Section<'a>> {
        let table = self.elf.elf_section_table();
        let mut sections: Vec<Section<'a>> = table
            .enumerate()
            .filter(|(_, header)| header.sh_flags(LittleEndian).contains(elf::SHF_ALLOC))
            .filter_map(|(index, header)| {
                let name = std::str::from_utf8(table.section_name(LittleEndian, header).ok()?).ok()?;
                let size = header.sh_size.get(LittleEndian);
                Some(Section { name, address: self.layout.address(index, header), size })
            })
            .collect();
        sections.sort_by_key(|section| section.address);
        sections
    }

    /// The bytes of a debug section by name, decompressed and relocated where needed; empty if there is none.
    ///
    /// # Errors
    /// [`ImageError::NoDebugInfo`] if `.debug_info` is asked for and missing; a section that cannot be decompressed.
    pub fn debug_section(&self, name: &str) -> Result<Cow<'a, [u8]>, ImageError> {
        let missing = || if name == ".debug_info" { Err(ImageError::NoDebugInfo) } else { Ok(Cow::Borrowed(&[][..])) };
        let Some(section) = self.elf.section_by_name(name) else { return missing() };
        let compressed = section.compressed_data().map_err(ImageError::malformed("a debug section"))?;
        if compressed.format != CompressionFormat::None {
            self.bound_decompressed(name)?;
        }
        let bytes =
            compressed.decompress().map_err(|source| ImageError::Compressed { section: name.to_owned(), source })?;
        if bytes.is_empty() {
            return missing();
        }
        Ok(relocate::apply(&self.elf, &self.layout, section.index(), bytes))
    }

    /// Refuses an image if its compressed sections are larger together than such an image can need. The size that they
    /// claim is the size that is allocated for them.
    fn bound_decompressed(&self, name: &str) -> Result<(), ImageError> {
        let sections = self.elf.sections().filter_map(|section| section.compressed_data().ok());
        let compressed = sections.filter(|data| data.format != CompressionFormat::None);
        let size = compressed.fold(0, |sum: u64, data| sum.saturating_add(data.uncompressed_size));
        let image = self.elf.data().len() as u64;
        if size > image.saturating_mul(MAX_RATIO).saturating_add(SMALL) {
            return Err(ImageError::CompressionRatio { section: name.to_owned(), size, image });
        }
        Ok(())
    }

    /// The sections that hold instructions, by address. Writable ones are left out: nothing that can be probed is
    /// in them.
    pub fn text_sections(&self) -> &[Section<'a>] {
        &self.text
    }

    /// The index in [`Image::text_sections`] of the section that holds an address.
    pub fn section_at(&self, address: u64) -> Option<u16> {
        let after = self.text.partition_point(|s| s.address <= address);
        let index = after.checked_sub(1)?;
        self.text[index].range().contains(&address).then(|| u16::try_from(index).ok()).flatten()
    }

    /// The bytes of a range that lies in one loaded section; `None` for any other, and for zero-filled sections.
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let after = self.loaded.partition_point(|s| s.address <= range.start);
        let section = &self.loaded[after.checked_sub(1)?];
        let start = usize::try_from(range.start - section.address).ok()?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        section.bytes.get(start..start.checked_add(len)?)
    }

    /// The text symbols.
    pub fn symbols(&self) -> &SymbolTable<'a> {
        &self.symbols
    }

    /// All symbols at exactly that address, in the order in which kallsyms prefers them.
    pub fn symbol_at(&self, address: u64) -> &[Symbol<'a>] {
        self.symbols.at(address)
    }

    /// Whether a name stands for an address: as a symbol's, or as that of another image's.
    pub(crate) fn is_named(&self, address: u64, name: &str) -> bool {
        self.symbols.import_at(address) == Some(name)
            || self.symbol_at(address).iter().any(|symbol| symbol.name == name)
    }

    /// The symbol that kallsyms reports for an address: the first of those at the last symbol address at or before
    /// it. `None` outside text.
    pub fn container(&self, address: u64) -> Option<Container<'a>> {
        let section = self.text[usize::from(self.section_at(address)?)];
        let found = self.symbols.containing(address)?;
        (found.address >= section.address)
            .then(|| Container { size: found.size.min(section.range().end - found.address), ..found })
    }

    /// All text symbols of a name, in order of address.
    pub fn symbols_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Symbol<'a>> + 's {
        self.symbols.named(name)
    }

    /// Text between linker symbols.
    pub fn special(&self) -> &SpecialText {
        &self.special
    }

    /// The tables by which the kernel patches and guards its text.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether the compiler was told to avoid indirect branches (CONFIG_MITIGATION_RETPOLINE): then it makes no jump
    /// tables either, and an indirect jump is a tail call (arch/x86/Makefile).
    pub fn has_retpolines(&self) -> bool {
        self.machine == Machine::X86_64 && !self.thunks.is_empty()
    }

    /// Whether that is the address of a retpoline, which branches to the address in a register.
    pub(crate) fn is_indirect_thunk(&self, address: u64) -> bool {
        self.thunks.binary_search(&address).is_ok()
    }

    /// Whether that is the address of a function that is known by its name never to return.
    pub(crate) fn is_noreturn(&self, address: u64) -> bool {
        self.noreturn.binary_search(&address).is_ok()
    }

    /// Whether an address is in text that functions jump out to before alternatives are applied.
    pub(crate) fn in_alternative_text(&self, address: u64) -> bool {
        self.alternative_text.contains(&address)
    }

    /// Whether an address is in a module's variables of each CPU, which the kernel places per CPU. (Those of a linked
    /// image are outside of it.)
    pub(crate) fn is_per_cpu(&self, address: u64) -> bool {
        self.per_cpu.contains(&address)
    }

    /// The end of the text section that holds an address; the address itself outside of text.
    pub(crate) fn section_end(&self, address: u64) -> u64 {
        self.section_at(address).map_or(address, |index| self.text[usize::from(index)].range().end)
    }

    /// All addresses of the image.
    pub(crate) fn extent(&self) -> Range<u64> {
        self.extent.clone()
    }

    /// The value of a linker symbol that [`crate::elf::symbols`] keeps, in any section.
    pub(crate) fn linker_symbol(&self, name: &str) -> Option<u64> {
        self.symbols.linker(name)
    }

    /// The range between two linker symbols; empty if one is missing or they are the wrong way round.
    pub(crate) fn between(&self, start: &str, end: &str) -> Range<u64> {
        match (self.linker_symbol(start), self.linker_symbol(end)) {
            (Some(start), Some(end)) if start <= end => start..end,
            _ => 0..0,
        }
    }

    /// The addresses of all sections whose names begin so.
    pub(crate) fn section_ranges(&self, prefix: &str) -> Vec<Range<u64>> {
        let sections = self.elf.sections();
        let named =
            sections.filter(|section| section.name_bytes().is_ok_and(|name| name.starts_with(prefix.as_bytes())));
        let header = |section: object::read::elf::ElfSection64<'_, '_, LittleEndian>| {
            let header = section.elf_section_header();
            let start = self.layout.address(section.index(), header);
            start..start.saturating_add(header.sh_size.get(LittleEndian))
        };
        named.map(header).collect()
    }

    /// Where a module's text has relocations.
    pub(crate) fn relocated(&self) -> Vec<u64> {
        if !self.is_relocatable() {
            return Vec::new();
        }
        let text =
            self.elf.sections().filter(|section| is_text(section.elf_section_header().sh_flags.get(LittleEndian)));
        text.flat_map(|section| relocate::places(&self.elf, &self.layout, section.index())).collect()
    }

    /// The addresses of a section by name, if it is loaded.
    pub(crate) fn section_range(&self, name: &str) -> Range<u64> {
        let found = self.elf.elf_section_table().section_by_name(LittleEndian, name.as_bytes());
        found.map_or(0..0, |(index, header)| {
            let start = self.layout.address(index, header);
            start..start.saturating_add(header.sh_size.get(LittleEndian))
        })
    }

    fn find_extent(&self) -> Result<Range<u64>, ImageError> {
        if self.is_relocatable() {
            return Ok(self.layout.extent());
        }
        let start = self.linker_symbol("_text").ok_or(ImageError::NotKernel("_text"))?;
        let end = self.linker_symbol("_end").ok_or(ImageError::NotKernel("_end"))?;
        if start < end { Ok(start..end) } else { Err(ImageError::NotKernel("_end after _text")) }
    }

    fn find_special(&self) -> SpecialText {
        if self.is_relocatable() {
            // The linker script of the kernel delimits these by symbols; a module has sections instead.
            return SpecialText {
                core: self.extent.clone(),
                init: self.section_range(".init.text"),
                exit: 0..0,
                noinstr: self.section_range(".noinstr.text"),
                entry: 0..0,
                kprobes: self.section_range(".kprobes.text"),
                arch: Vec::new(),
            };
        }
        let arch = [
            ("__irqentry_text_start", "__irqentry_text_end"),
            ("__idmap_text_start", "__idmap_text_end"),
            ("__hyp_text_start", "__hyp_text_end"),
            ("__hyp_idmap_text_start", "__hyp_idmap_text_end"),
        ];
        SpecialText {
            core: self.between("_stext", "_etext"),
            init: self.between("_sinittext", "_einittext"),
            exit: self.section_range(".exit.text"),
            noinstr: self.between("__noinstr_text_start", "__noinstr_text_end"),
            entry: self.between("__entry_text_start", "__entry_text_end"),
            kprobes: self.between("__kprobes_text_start", "__kprobes_text_end"),
            arch: match self.machine {
                Machine::X86_64 => Vec::new(),
                Machine::Aarch64 => arch.into_iter().map(|(start, end)| self.between(start, end)).collect(),
            },
        }
    }
}

/// Tells files that are not for us from broken ones, before anything is parsed.
fn check_header(data: &[u8]) -> Result<Machine, ImageError> {
    if data.get(..4) != Some(&elf::ELFMAG[..]) {
        return Err(ImageError::NotElf);
    }
    match data.get(4).copied() {
        Some(c) if c == elf::ELFCLASS64.0 => {}
        Some(c) if c == elf::ELFCLASS32.0 => return Err(ImageError::NotElf64),
        _ => return Err(ImageError::NotElf),
    }
    match data.get(5).copied() {
        Some(d) if d == elf::ELFDATA2LSB.0 => {}
        Some(d) if d == elf::ELFDATA2MSB.0 => return Err(ImageError::BigEndian),
        _ => return Err(ImageError::NotElf),
    }
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(ImageError::malformed("file header"))?;
    let e_type = header.e_type(LittleEndian);
    if e_type != elf::ET_EXEC && e_type != elf::ET_DYN && e_type != elf::ET_REL {
        return Err(ImageError::FileType(e_type.0));
    }
    let e_machine = header.e_machine(LittleEndian).0;
    Machine::from_elf(e_machine).ok_or(ImageError::Machine(e_machine))
}

/// Finds the section that a truncated file lacks, for a message that says so.
fn check_sections(data: &[u8]) -> Result<(), ImageError> {
    let len = data.len() as u64;
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(ImageError::malformed("file header"))?;
    let table = header.e_shoff(LittleEndian);
    let table_end = table.saturating_add(64 * u64::from(header.e_shnum(LittleEndian)));
    if table_end > len {
        return Err(ImageError::Truncated { section: "headers".to_owned(), end: table_end, len });
    }
    let sections = header.sections(LittleEndian, data).map_err(ImageError::malformed("section headers"))?;
    for (index, section) in sections.enumerate() {
        if let Some((offset, size)) = section.file_range(LittleEndian) {
            let end = offset.saturating_add(size);
            if end > len {
                let name = sections.section_name(LittleEndian, section).unwrap_or_default();
                let section = match std::str::from_utf8(name) {
                    Ok(name) if !name.is_empty() => name.to_owned(),
                    _ => index.0.to_string(),
                };
                return Err(ImageError::Truncated { section, end, len });
            }
        }
    }
    Ok(())
}

type LoadedSections<'a> = (Vec<Loaded<'a>>, Vec<Section<'a>>);

/// The loaded sections by address, and those of them that hold instructions.
fn load<'a>(elf_file: &ElfFile64<'a, LittleEndian>, layout: &Layout) -> Result<LoadedSections<'a>, ImageError> {
    let mut loaded = Vec::new();
    let mut text = Vec::new();
    let table = elf_file.elf_section_table();
    for (index, header) in table.enumerate() {
        let flags = header.sh_flags(LittleEndian);
        let size = header.sh_size.get(LittleEndian);
        if !flags.contains(elf::SHF_ALLOC) || size == 0 || header.sh_type(LittleEndian) == elf::SHT_NOBITS {
            continue;
        }
        let data = header.data(LittleEndian, elf_file.data()).map_err(ImageError::malformed("a section"))?;
        let bytes = relocate::apply(elf_file, layout, SectionIndex(index.0), Cow::Borrowed(data));
        let address = layout.address(index, header);
        loaded.push(Loaded { address, bytes });
        if is_text(flags) {
            let name = table.section_name(LittleEndian, header).map_err(ImageError::malformed("a section name"))?;
            text.push(Section { name: std::str::from_utf8(name).unwrap_or_default(), address, size });
        }
    }
    loaded.sort_by_key(|s| s.address);
    text.sort_by_key(|s| s.address);
    Ok((loaded, text))
}

/// Whether a section with these flags holds instructions that are not data at the same time.
pub(crate) fn is_text(flags: elf::SectionFlags) -> bool {
    flags.contains(elf::SHF_ALLOC | elf::SHF_EXECINSTR) && !flags.contains(elf::SHF_WRITE)
}

#[cfg(test)]
mod tests;
