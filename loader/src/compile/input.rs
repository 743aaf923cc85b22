// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The object as it is: code with its relocations, BTF, and the information on functions and lines.

use super::CompileError;
use super::ext::{Ext, Record, Table};
use crate::bpf::insn::Insn;
use crate::program::object_file::{ObjectFileError, Part};
use crate::trampoline::btf::Amendment;
use object::elf::RelocationType;
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionIndex, SymbolIndex,
};
use std::collections::{HashMap, HashSet};

/// Bytes of an instruction.
pub(super) const INSN: usize = 8;

/// A relocation of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Relocation {
    /// The symbol's index.
    pub(super) symbol: usize,
    /// Its type: `R_BPF_64_64`, `R_BPF_64_32`.
    pub(super) kind: RelocationType,
}

/// An object that is compiled.
pub(super) struct Input<'d> {
    pub(super) elf: ElfFile64<'d, Endianness>,
    /// By section and instruction.
    relocations: HashMap<(usize, usize), Relocation>,
    pub(super) btf: Amendment,
    pub(super) ext: Ext,
    /// What its section `license` has.
    pub(super) licence: String,
    /// The names of its symbols, and of functions that are added.
    names: HashSet<String>,
}

/// The symbol and the type of a relocation. Addends are in the data: BPF objects have REL sections
/// (Documentation/bpf/llvm_reloc.rst).
pub(super) fn by_symbol<'d>(
    section: &impl ObjectSection<'d>,
    offset: u64,
    relocation: &object::Relocation,
) -> Result<(SymbolIndex, RelocationType), CompileError> {
    match (relocation.target(), relocation.flags()) {
        (RelocationTarget::Symbol(symbol), RelocationFlags::Elf { r_type }) if relocation.has_implicit_addend() => {
            Ok((symbol, r_type))
        }
        _ => Err(CompileError::Relocation { section: section.name()?.to_owned(), offset }),
    }
}

impl<'d> Input<'d> {
    pub(super) fn read(data: &'d [u8]) -> Result<Input<'d>, CompileError> {
        let elf = ElfFile64::<Endianness>::parse(data)?;
        let section = |name: &str| elf.section_by_name(name).map(|section| section.data()).transpose();
        let (Some(btf), Some(ext)) = (section(".BTF")?, section(".BTF.ext")?) else { return Err(CompileError::NoBtf) };
        let btf = Amendment::of(btf).map_err(CompileError::Btf)?;
        let ext = Ext::parse(ext)?;
        let licence = section("license")?.unwrap_or_default();
        let licence = licence.split(|byte| *byte == 0).next().unwrap_or_default();
        let licence = String::from_utf8_lossy(licence).into_owned();
        let mut relocations = HashMap::new();
        for section in elf.sections().filter(|section| section.kind() == object::SectionKind::Text) {
            for (offset, relocation) in section.relocations() {
                let (symbol, kind) = by_symbol(&section, offset, &relocation)?;
                let at = usize::try_from(offset).unwrap_or(usize::MAX) / INSN;
                relocations.insert((section.index().0, at), Relocation { symbol: symbol.0, kind });
            }
        }
        let names = elf.symbols().filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect();
        Ok(Input { elf, relocations, btf, ext, licence, names })
    }

    /// Whether the kernel lets its programs call everything (`license_is_gpl_compatible()`, include/linux/license.h).
    pub(super) fn is_gpl(&self) -> bool {
        const COMPATIBLE: [&str; 6] =
            ["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"];
        COMPATIBLE.contains(&self.licence.as_str())
    }

    pub(super) fn relocation(&self, section: usize, insn: usize) -> Option<Relocation> {
        self.relocations.get(&(section, insn)).copied()
    }

    /// The instructions of a part as the file has them.
    pub(super) fn insns(&self, part: &Part) -> Result<Vec<Insn>, CompileError> {
        let data = self.elf.section_by_index(SectionIndex(part.section))?.data()?;
        let code = data.get(part.start * INSN..(part.start + part.insns.len()) * INSN);
        let code = code.ok_or_else(|| ObjectFileError::Code {
            program: part.name.clone(),
            function: part.name.clone(),
            insn: part.start,
        })?;
        Ok(code.chunks_exact(INSN).filter_map(|chunk| chunk.try_into().ok()).map(Insn::from_bytes).collect())
    }

    /// Whether an offset of BTF's strings is the name of a section.
    pub(super) fn is_named(&self, section: usize) -> impl Fn(u32) -> bool + '_ {
        let section = self.elf.section_by_index(SectionIndex(section));
        let name = section.ok().and_then(|section| section.name().ok().map(str::to_owned));
        move |offset| name.is_some() && self.btf.text(offset) == name.as_deref()
    }

    /// The records of a table about a part, by the part's instructions.
    pub(super) fn records(&self, table: &Table, part: &Part) -> Vec<Record> {
        let range = part.start..part.start + part.insns.len();
        let records = table.of(self.is_named(part.section)).filter(|record| range.contains(&record.insn));
        records.map(|record| Record { insn: record.insn - part.start, ..record.clone() }).collect()
    }

    /// The FUNC of a part.
    pub(super) fn func(&self, part: &Part) -> Result<u32, CompileError> {
        let records = self.records(&self.ext.functions, part);
        let func = records.first().filter(|record| record.insn == 0).and_then(Record::word);
        func.ok_or_else(|| CompileError::NoFuncInfo { function: part.name.clone() })
    }

    /// A name that no symbol has yet.
    pub(super) fn fresh(&mut self, wish: &str) -> String {
        let numbered = (2usize..).map(|number| format!("{wish}{number}"));
        let mut names = std::iter::once(wish.to_owned()).chain(numbered);
        let free = names.find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(free.clone());
        free
    }
}
