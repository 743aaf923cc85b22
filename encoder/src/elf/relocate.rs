// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Addresses for the sections of a relocatable file, and the relocations that depend on them.
//!
//! A linked file passes through unchanged. For a module (ET_REL) each loaded section is given a range of addresses
//! of its own, debug sections stay at 0 (references to them are offsets), and undefined symbols get addresses past
//! the last section. Only the relocations that matter to text decoding, tables and DWARF are applied: absolute and
//! PC-relative data, calls and branches.

use object::elf;
use object::read::elf::{ElfFile64, Rela as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, SectionIndex, SymbolIndex};
use std::borrow::Cow;
use std::ops::Range;

/// Where sections and undefined symbols are.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Empty for a linked file. Else the address of each section.
    addresses: Vec<u64>,
    /// By section: the section that holds its relocations.
    relocations: Vec<Option<SectionIndex>>,
    end: u64,
}

/// The first section's address: not 0, which means "none" in kernel tables.
const FIRST: u64 = 0x1_0000;
/// Bytes between sections: an address just past the end of one is not in the next.
const GAP: u64 = 4096;
/// Bytes of address space for each undefined symbol.
const IMPORT: u64 = 16;

type Header = elf::SectionHeader64<LittleEndian>;

impl Layout {
    pub(crate) fn new(file: &ElfFile64<'_, LittleEndian>) -> Layout {
        if file.elf_header().e_type.get(LittleEndian) != elf::ET_REL {
            return Layout::default();
        }
        let sections = file.elf_section_table();
        let mut layout =
            Layout { addresses: vec![0; sections.len()], relocations: vec![None; sections.len()], end: FIRST };
        for (index, header) in sections.enumerate() {
            if header.sh_flags(LittleEndian).contains(elf::SHF_ALLOC) {
                let align = header.sh_addralign.get(LittleEndian).clamp(1, 1 << 21).next_power_of_two();
                let address = layout.end.checked_next_multiple_of(align).unwrap_or(layout.end);
                layout.addresses[index.0] = address;
                layout.end = address.saturating_add(header.sh_size.get(LittleEndian)).saturating_add(GAP);
            }
            if header.sh_type(LittleEndian) == elf::SHT_RELA {
                let target = header.sh_info(LittleEndian) as usize;
                if let Some(slot) = layout.relocations.get_mut(target) {
                    *slot = Some(index);
                }
            }
        }
        layout
    }

    pub(crate) fn is_relocatable(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// The addresses of all sections of a relocatable file.
    pub(crate) fn extent(&self) -> Range<u64> {
        FIRST..self.end.max(FIRST)
    }

    /// The address of a section.
    pub(crate) fn address(&self, index: SectionIndex, header: &Header) -> u64 {
        self.addresses.get(index.0).copied().unwrap_or_else(|| header.sh_addr.get(LittleEndian))
    }

    /// The address that stands for an undefined symbol.
    pub(crate) fn import_address(&self, index: SymbolIndex) -> u64 {
        (self.end / IMPORT + 1).saturating_add(index.0 as u64).saturating_mul(IMPORT)
    }

    /// The address of a symbol of the file.
    pub(crate) fn symbol_address(
        &self,
        file: &ElfFile64<'_, LittleEndian>,
        index: SymbolIndex,
        symbol: &elf::Sym64<LittleEndian>,
    ) -> u64 {
        let value = symbol.st_value(LittleEndian);
        if !self.is_relocatable() {
            return value;
        }
        if symbol.is_undefined(LittleEndian) {
            return self.import_address(index);
        }
        match file.elf_symbol_table().symbol_section(LittleEndian, symbol, index) {
            Ok(Some(section)) => value.wrapping_add(self.addresses.get(section.0).copied().unwrap_or(0)),
            _ => value,
        }
    }
}

/// The bytes of a section with its relocations applied: as they are for a linked file.
pub(crate) fn apply<'a>(
    file: &ElfFile64<'a, LittleEndian>,
    layout: &Layout,
    section: SectionIndex,
    bytes: Cow<'a, [u8]>,
) -> Cow<'a, [u8]> {
    let Some(relas) = relas_of(file, layout, section) else { return bytes };
    let base = layout.addresses.get(section.0).copied().unwrap_or(0);
    let symbols = file.elf_symbol_table();
    let aarch64 = file.elf_header().e_machine.get(LittleEndian) == elf::EM_AARCH64;
    let mut bytes = bytes.into_owned();
    for rela in relas {
        let Some(index) = rela.symbol(LittleEndian, false) else { continue };
        let Ok(symbol) = symbols.symbol(index) else { continue };
        let value = layout.symbol_address(file, index, symbol).wrapping_add_signed(rela.r_addend(LittleEndian));
        let offset = rela.r_offset(LittleEndian);
        let place = base.wrapping_add(offset);
        let Ok(offset) = usize::try_from(offset) else { continue };
        let kind = rela.r_type(LittleEndian, false);
        if aarch64 {
            relocate_aarch64(&mut bytes, offset, kind, value, place);
        } else {
            relocate_x86_64(&mut bytes, offset, kind, value, place);
        }
    }
    Cow::Owned(bytes)
}

/// The addresses of a section's relocations.
pub(crate) fn places(file: &ElfFile64<'_, LittleEndian>, layout: &Layout, section: SectionIndex) -> Vec<u64> {
    let base = layout.addresses.get(section.0).copied().unwrap_or(0);
    let relas = relas_of(file, layout, section).unwrap_or_default();
    relas.iter().map(|rela| base.wrapping_add(rela.r_offset(LittleEndian))).collect()
}

/// The relocations of a section.
fn relas_of<'a>(
    file: &ElfFile64<'a, LittleEndian>,
    layout: &Layout,
    section: SectionIndex,
) -> Option<&'a [elf::Rela64<LittleEndian>]> {
    let relocations = (*layout.relocations.get(section.0)?)?;
    let header = file.elf_section_table().section(relocations).ok()?;
    header.rela(LittleEndian, file.data()).ok().flatten().map(|(relas, _)| relas)
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    let end = offset.checked_add(value.len());
    if let Some(slot) = end.and_then(|end| bytes.get_mut(offset..end)) {
        slot.copy_from_slice(value);
    }
}

/// System V psABI for AMD64, table 4.9.
fn relocate_x86_64(bytes: &mut [u8], offset: usize, kind: elf::RelocationType, value: u64, place: u64) {
    let relative = value.wrapping_sub(place);
    match kind {
        elf::R_X86_64_64 => put(bytes, offset, &value.to_le_bytes()),
        elf::R_X86_64_PC64 => put(bytes, offset, &relative.to_le_bytes()),
        elf::R_X86_64_32 | elf::R_X86_64_32S => put(bytes, offset, &(value as u32).to_le_bytes()),
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => put(bytes, offset, &(relative as u32).to_le_bytes()),
        _ => {}
    }
}

/// ELF for the Arm 64-bit Architecture, section 5.7.
fn relocate_aarch64(bytes: &mut [u8], offset: usize, kind: elf::RelocationType, value: u64, place: u64) {
    let relative = value.wrapping_sub(place);
    // Fills the immediate field of a branch: words, `width` bits at bit `shift`.
    let mut branch = |width: u32, shift: u32| {
        let Some(word) = bytes.get(offset..).and_then(|b| b.first_chunk::<4>()) else { return };
        let mask = ((1u32 << width) - 1) << shift;
        let field = ((relative >> 2) as u32) << shift & mask;
        let word = u32::from_le_bytes(*word) & !mask | field;
        put(bytes, offset, &word.to_le_bytes());
    };
    match kind {
        elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => branch(26, 0),
        elf::R_AARCH64_CONDBR19 => branch(19, 5),
        elf::R_AARCH64_TSTBR14 => branch(14, 5),
        elf::R_AARCH64_ABS64 => put(bytes, offset, &value.to_le_bytes()),
        elf::R_AARCH64_ABS32 => put(bytes, offset, &(value as u32).to_le_bytes()),
        elf::R_AARCH64_PREL64 => put(bytes, offset, &relative.to_le_bytes()),
        elf::R_AARCH64_PREL32 => put(bytes, offset, &(relative as u32).to_le_bytes()),
        _ => {}
    }
}
