// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The new object: all of the old one but the programs that were replaced, and the functions that are added.
//!
//! Debug information is left out, because it describes code that is not there any more.

use super::CompileError;
use super::code::{Added, Code, Refers};
use super::ext::{Ext, Record};
use super::input::{INSN, Input, by_symbol};
use crate::bpf::insn::Insn;
use object::elf::{SectionType, SymbolInfo, SymbolOther};
use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Object as _, ObjectSection, ObjectSymbol, RelocationFlags, SectionFlags, SectionIndex, SectionKind, SymbolFlags,
    SymbolKind, SymbolScope, elf,
};
use std::collections::{BTreeSet, HashMap};

/// The map that counts calls whose arguments could not be read.
pub(super) const FAULTS: &str = "siteseer_faults";
const MAPS: &str = ".maps";
/// Bytes of a map's definition with four members.
const MAP_BYTES: u32 = 32;
const BPF_MAP_TYPE_PERCPU_ARRAY: u32 = 6;

struct Writer<'a, 'd> {
    input: &'a mut Input<'d>,
    out: Object<'static>,
    sections: HashMap<usize, SectionId>,
    by_name: HashMap<String, SectionId>,
    symbols: HashMap<usize, SymbolId>,
    /// Sections of the object that are not taken over.
    replaced: &'a BTreeSet<usize>,
    ext: Ext,
}

/// Writes the object, without the sections of the programs that were replaced.
pub(super) fn write(input: &mut Input<'_>, replaced: &BTreeSet<usize>, code: Code) -> Result<Vec<u8>, CompileError> {
    let mut ext = input.ext.clone();
    for &section in replaced {
        ext.without(input.is_named(section));
    }
    let out = Object::new(object::BinaryFormat::Elf, object::Architecture::Bpf, object::Endianness::Little);
    let (sections, by_name, symbols) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut writer = Writer { input, out, sections, by_name, symbols, replaced, ext };
    writer.take_sections()?;
    writer.take_symbols()?;
    writer.take_relocations()?;
    writer.add(code)?;
    let (btf, ext) = (writer.input.btf.finish().map_err(CompileError::Btf)?, writer.ext.to_bytes());
    for (name, data) in [(".BTF", btf), (".BTF.ext", ext)] {
        let section = writer.section(name, elf::SHT_PROGBITS, elf::SectionFlags(0));
        writer.out.set_section_data(section, data, 4);
    }
    writer.out.write().map_err(CompileError::Write)
}

/// Whether a section is made again, or describes what is not there any more.
fn is_left_out(name: &str, kind: SectionType) -> bool {
    const LLVM_ADDRSIG: SectionType = SectionType(0x6fff_4c03);
    let kinds = [elf::SHT_NULL, elf::SHT_SYMTAB, elf::SHT_STRTAB, elf::SHT_REL, elf::SHT_RELA, LLVM_ADDRSIG];
    kinds.contains(&kind) || matches!(name, ".BTF" | ".BTF.ext") || name.starts_with(".debug_")
}

impl Writer<'_, '_> {
    fn section(&mut self, name: &str, sh_type: SectionType, sh_flags: elf::SectionFlags) -> SectionId {
        let has_data = sh_type != elf::SHT_NOBITS;
        let kind = if has_data { SectionKind::Other } else { SectionKind::UninitializedData };
        let section = self.out.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        self.out.section_mut(section).flags = SectionFlags::Elf { sh_type, sh_flags };
        self.by_name.insert(name.to_owned(), section);
        section
    }

    fn take_sections(&mut self) -> Result<(), CompileError> {
        let indices: Vec<SectionIndex> = self.input.elf.sections().map(|section| section.index()).collect();
        for index in indices {
            let section = self.input.elf.section_by_index(index)?;
            let name = section.name()?.to_owned();
            let SectionFlags::Elf { sh_type, sh_flags } = section.flags() else { continue };
            if is_left_out(&name, sh_type) || self.replaced.contains(&index.0) {
                continue;
            }
            let (size, align) = (section.size(), section.align().max(1));
            if !align.is_power_of_two() {
                return Err(CompileError::Damaged { section: name });
            }
            let data = section.data()?.to_vec();
            let id = self.section(&name, sh_type, sh_flags);
            if sh_type == elf::SHT_NOBITS {
                self.out.append_section_bss(id, size, align);
            } else {
                self.out.set_section_data(id, data, align);
            }
            self.sections.insert(index.0, id);
        }
        Ok(())
    }

    fn take_symbols(&mut self) -> Result<(), CompileError> {
        for symbol in self.input.elf.symbols() {
            let index = symbol.index().0;
            let section = match symbol.section_index() {
                Some(section) => match self.sections.get(&section.0) {
                    Some(section) => SymbolSection::Section(*section),
                    None => continue,
                },
                None if symbol.is_undefined() => SymbolSection::Undefined,
                None => continue,
            };
            if let (SymbolKind::Section, SymbolSection::Section(section)) = (symbol.kind(), section) {
                self.symbols.insert(index, self.out.section_symbol(section));
                continue;
            }
            let SymbolFlags::Elf { st_info, st_other } = symbol.flags() else { continue };
            let written = Symbol {
                name: symbol.name_bytes()?.to_vec(),
                value: symbol.address(),
                size: symbol.size(),
                kind: symbol.kind(),
                scope: symbol.scope(),
                weak: symbol.is_weak(),
                section,
                flags: SymbolFlags::Elf { st_info, st_other },
            };
            self.symbols.insert(index, self.out.add_symbol(written));
        }
        Ok(())
    }

    fn take_relocations(&mut self) -> Result<(), CompileError> {
        for section in self.input.elf.sections() {
            let Some(&id) = self.sections.get(&section.index().0) else { continue };
            for (offset, relocation) in section.relocations() {
                let (target, r_type) = by_symbol(&section, offset, &relocation)?;
                let Some(&symbol) = self.symbols.get(&target.0) else {
                    let program = self.input.elf.symbol_by_index(target)?.name().unwrap_or_default().to_owned();
                    return Err(CompileError::Referred { section: section.name()?.to_owned(), program });
                };
                let flags = RelocationFlags::Elf { r_type };
                // Addends are in the data, which is taken over.
                let written = Relocation { offset, symbol, addend: 0, flags };
                self.out.add_relocation(id, written).map_err(CompileError::Write)?;
            }
        }
        Ok(())
    }

    /// The section of a name, which is added if there is none.
    fn code_section(&mut self, name: &str) -> SectionId {
        let flags = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
        self.by_name.get(name).copied().unwrap_or_else(|| self.section(name, elf::SHT_PROGBITS, flags))
    }

    fn add(&mut self, code: Code) -> Result<(), CompileError> {
        let faults = if code.counts_faults() { Some(self.add_map()?) } else { None };
        let Code { functions, programs, .. } = code;
        let mut text = None;
        let mut starts = Vec::new();
        if !functions.is_empty() {
            let section = self.code_section(".text");
            text = Some(self.out.section_symbol(section));
            let mut end = self.out.section(section).data().len();
            for function in &functions {
                starts.push(end);
                end += function.insns.len() * INSN;
            }
        }
        for (function, is_static) in
            functions.into_iter().map(|one| (one, true)).chain(programs.into_iter().map(|one| (one, false)))
        {
            self.add_function(function, is_static, text, &starts, faults)?;
        }
        Ok(())
    }

    fn add_function(
        &mut self,
        function: Added,
        is_static: bool,
        text: Option<SymbolId>,
        starts: &[usize],
        faults: Option<SymbolId>,
    ) -> Result<(), CompileError> {
        let Added { name, section: section_name, func, mut insns, references, lines, relocations } = function;
        let missing = || CompileError::NoFuncInfo { function: name.clone() };
        let mut written = Vec::new();
        for reference in references {
            let symbol = match reference.to {
                Refers::Symbol(symbol) => self.symbols.get(&symbol).copied().ok_or_else(|| {
                    let symbol = self.input.elf.symbol_by_index(object::SymbolIndex(symbol));
                    let program = symbol.ok().and_then(|symbol| symbol.name().ok()).unwrap_or_default().to_owned();
                    CompileError::Referred { section: section_name.clone(), program }
                })?,
                Refers::Faults => faults.ok_or_else(missing)?,
                Refers::Added(number) => {
                    let start = starts.get(number).copied().ok_or_else(missing)?;
                    point(&mut insns, reference.at, start).ok_or_else(missing)?;
                    text.ok_or_else(missing)?
                }
                Refers::Function(section, start) => {
                    let section = self.sections.get(&section).copied().ok_or_else(missing)?;
                    point(&mut insns, reference.at, start * INSN).ok_or_else(missing)?;
                    self.out.section_symbol(section)
                }
            };
            let flags = RelocationFlags::Elf { r_type: reference.kind };
            written.push((reference.at, Relocation { offset: 0, symbol, addend: 0, flags }));
        }
        let section = self.code_section(&section_name);
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
        let start = self.out.append_section_data(section, &bytes, INSN as u64);
        for (at, relocation) in written {
            let relocation = Relocation { offset: start + (at * INSN) as u64, ..relocation };
            self.out.add_relocation(section, relocation).map_err(CompileError::Write)?;
        }
        let binding = if is_static { elf::STB_LOCAL } else { elf::STB_GLOBAL };
        self.out.add_symbol(Symbol {
            name: name.into_bytes(),
            value: start,
            size: bytes.len() as u64,
            kind: SymbolKind::Text,
            scope: if is_static { SymbolScope::Compilation } else { SymbolScope::Linkage },
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::Elf { st_info: SymbolInfo::new(binding, elf::STT_FUNC), st_other: SymbolOther(0) },
        });
        let first = usize::try_from(start).unwrap_or(usize::MAX) / INSN;
        let moved = |records: Vec<Record>| -> Vec<Record> {
            records.into_iter().map(|record| Record { insn: first + record.insn, ..record }).collect()
        };
        let known = self.input.btf.find_string(&section_name);
        let offset = known.unwrap_or_else(|| self.input.btf.string(&section_name));
        let Writer { input, ext, .. } = self;
        let is_meant = |offset: u32| input.btf.text(offset) == Some(section_name.as_str());
        ext.functions.append(offset, is_meant, vec![Record::new(first, &[func])]);
        ext.lines.append(offset, is_meant, moved(lines));
        ext.relocations.append(offset, is_meant, moved(relocations));
        Ok(())
    }

    /// Adds the map of lost calls: a definition as libbpf reads it from BTF (`parse_btf_map_def()`).
    fn add_map(&mut self) -> Result<SymbolId, CompileError> {
        const POINTER: u32 = 2 << 24;
        const ARRAY: u32 = 3 << 24;
        const STRUCT: u32 = 4 << 24;
        const INT: u32 = 1 << 24;
        const VAR: u32 = 14 << 24;
        const GLOBAL: u32 = 1;
        let map = self.input.fresh(FAULTS);
        let section = match self.by_name.get(MAPS) {
            Some(section) => *section,
            None => self.section(MAPS, elf::SHT_PROGBITS, elf::SHF_ALLOC | elf::SHF_WRITE),
        };
        let start = self.out.append_section_data(section, &[0; MAP_BYTES as usize], 8);
        let btf = &mut self.input.btf;
        let mut build = || -> Result<(), crate::site::refusal::Refusal> {
            let mut integer = |name: &str, bytes: u32| {
                let name = btf.string(name);
                btf.add(&[name, INT, bytes, bytes * 8])
            };
            let (word, long) = (integer("unsigned int", 4)?, integer("unsigned long long", 8)?);
            let mut members = Vec::new();
            let mut number = |name: &str, value: u32| -> Result<(), crate::site::refusal::Refusal> {
                let array = btf.add(&[0, ARRAY, 0, word, word, value])?;
                let pointer = btf.add(&[0, POINTER, array])?;
                members.extend([btf.string(name), pointer, 64 * (members.len() as u32 / 3)]);
                Ok(())
            };
            number("type", BPF_MAP_TYPE_PERCPU_ARRAY)?;
            number("max_entries", 1)?;
            for (name, ty) in [("key", word), ("value", long)] {
                let pointer = btf.add(&[0, POINTER, ty])?;
                members.extend([btf.string(name), pointer, 64 * (members.len() as u32 / 3)]);
            }
            let definition = btf.add(&[&[0, STRUCT | 4, MAP_BYTES][..], &members].concat())?;
            let name = btf.string(&map);
            let variable = btf.add(&[name, VAR, definition, GLOBAL])?;
            btf.add_variable(MAPS, variable, start as u32, MAP_BYTES)
        };
        build().map_err(CompileError::Btf)?;
        Ok(self.out.add_symbol(Symbol {
            name: map.into_bytes(),
            value: start,
            size: u64::from(MAP_BYTES),
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::Elf {
                st_info: SymbolInfo::new(elf::STB_GLOBAL, elf::STT_OBJECT),
                st_other: SymbolOther(0),
            },
        }))
    }
}

/// Makes an instruction refer to a function by its section, as clang does with static functions: the distance is in the
/// instruction, in instructions less one for a call, and in bytes for an address.
fn point(insns: &mut [Insn], at: usize, start: usize) -> Option<()> {
    let insn = insns.get_mut(at)?;
    let distance = if insn.is_load64() { start as i64 } else { start as i64 / INSN as i64 - 1 };
    insn.imm = i32::try_from(distance).ok()?;
    Some(())
}
