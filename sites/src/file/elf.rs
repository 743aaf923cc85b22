// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ELF file around the sections.

use super::read::FileError;
use super::write::WriteError;
use crate::machine::Machine;
use crate::set::Section;
use object::elf;
use object::read::elf::ElfFile64;
use object::write::StreamingBuffer;
use object::write::elf::{FileHeader, SectionHeader, Writer};
use object::{Endianness, LittleEndian, Object, ObjectSection, ObjectSymbol};
use std::io;

pub(super) const BTF: &str = ".BTF";
pub(super) const INLINE: &str = ".BTF.inline";
pub(super) const EXT: &str = ".BTF.inline.ext";
pub(super) const RANGES: &str = ".BTF.inline.ranges";
pub(super) const CODE: &str = ".BTF.inline.code";

/// What an ELF file has for us.
pub(super) struct Sections<'a> {
    file: ElfFile64<'a, LittleEndian>,
    pub(super) machine: Machine,
    pub(super) build_id: &'a [u8],
    pub(super) btf: &'a [u8],
    pub(super) inline: Option<&'a [u8]>,
    pub(super) ext: Option<&'a [u8]>,
    pub(super) ranges: Option<&'a [u8]>,
    pub(super) code: Option<&'a [u8]>,
}

impl<'a> Sections<'a> {
    pub(super) fn find(data: &'a [u8]) -> Result<Sections<'a>, FileError> {
        let file = ElfFile64::<LittleEndian>::parse(data).map_err(FileError::Elf)?;
        let e_machine = file.elf_header().e_machine.get(LittleEndian).0;
        let machine = Machine::from_elf(e_machine).ok_or(FileError::Machine(e_machine))?;
        let section = |name: &str| -> Result<Option<&'a [u8]>, FileError> {
            let Some(section) = file.section_by_name(name) else {
                return Ok(None);
            };
            section.data().map(Some).map_err(FileError::Elf)
        };
        let btf = section(BTF)?.ok_or(FileError::NoSection(BTF))?;
        let inline = section(INLINE)?;
        let ext = section(EXT)?;
        let ranges = section(RANGES)?;
        let code = section(CODE)?;
        let build_id = file.build_id().map_err(FileError::Elf)?.unwrap_or_default();
        Ok(Sections { file, machine, build_id, btf, inline, ext, ranges, code })
    }

    /// What the sections contain, whatever their names.
    pub(super) fn contents(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.file.sections().filter_map(|section| section.data().ok())
    }

    /// The executable sections of the ELF file itself, for a file whose sites come without ours.
    pub(super) fn text_sections(&self) -> Vec<Section> {
        let sections = self.file.sections().filter_map(|section| {
            let flags = section.elf_section_header().sh_flags.get(LittleEndian);
            if flags & elf::SHF_EXECINSTR == elf::SectionFlags(0) {
                return None;
            }
            let name = section.name().ok()?.to_owned();
            Some(Section { name, address: section.address(), size: section.size() })
        });
        sections.collect()
    }

    /// What address constants are relative to: `_text`, which a relocatable file does not have.
    pub(super) fn base_address(&self) -> Option<u64> {
        let text = self.file.symbols().find(|symbol| symbol.name_bytes() == Ok(b"_text"));
        text.map(|symbol| symbol.address())
    }
}

/// What is written into an ELF file.
#[derive(Default)]
pub(super) struct Contents<'c> {
    pub(super) build_id: &'c [u8],
    pub(super) btf: &'c [u8],
    pub(super) inline: &'c [u8],
    pub(super) ext: &'c [u8],
    pub(super) ranges: &'c [u8],
    pub(super) code: &'c [u8],
}

/// Writes an ELF file of the sections; those that are empty are left out.
pub(super) fn assemble(machine: Machine, all: &Contents<'_>, out: &mut dyn io::Write) -> Result<(), WriteError> {
    let note = build_id_note(all.build_id);
    let contents: [(&'static str, elf::SectionType, &[u8]); 6] = [
        (".note.gnu.build-id", elf::SHT_NOTE, &note),
        (BTF, elf::SHT_PROGBITS, all.btf),
        (INLINE, elf::SHT_PROGBITS, all.inline),
        (EXT, elf::SHT_PROGBITS, all.ext),
        (RANGES, elf::SHT_PROGBITS, all.ranges),
        (CODE, elf::SHT_PROGBITS, all.code),
    ];
    let mut out = StreamingBuffer::new(out);
    let mut writer = Writer::new(Endianness::Little, true, &mut out);
    writer.reserve_file_header();
    let mut placed = Vec::with_capacity(contents.len());
    for (name, kind, data) in contents.into_iter().filter(|(_, _, data)| !data.is_empty()) {
        let id = writer.add_section_name(name.as_bytes());
        writer.reserve_section_index();
        // 8, so that a memory map can be read by word.
        let offset = writer.reserve(data.len() as u64, 8);
        placed.push((id, kind, data, offset));
    }
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab().map_err(WriteError::Elf)?;
    writer.reserve_section_headers();
    let written = writer.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_REL,
        e_machine: elf::Machine(machine.to_elf()),
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    });
    written.map_err(WriteError::Elf)?;
    for (_, _, data, offset) in &placed {
        writer.pad_until(*offset);
        writer.write(data);
    }
    writer.write_shstrtab();
    writer.write_null_section_header();
    for (id, kind, data, offset) in placed {
        let sh_name = writer.section_name_offset(Some(id));
        writer.write_section_header(&SectionHeader {
            sh_name,
            sh_type: kind,
            sh_flags: elf::SectionFlags(0),
            sh_addr: 0,
            sh_offset: offset,
            sh_size: data.len() as u64,
            sh_link: 0,
            sh_info: 0,
            // A note's parts are aligned as its section says: readers expect 4.
            sh_addralign: if kind == elf::SHT_NOTE { 4 } else { 8 },
            sh_entsize: 0,
        });
    }
    writer.write_shstrtab_section_header();
    out.result().map_err(WriteError::Io)
}

/// A build id as an ELF note; nothing if there is none.
fn build_id_note(build_id: &[u8]) -> Vec<u8> {
    if build_id.is_empty() {
        return Vec::new();
    }
    let mut note = Vec::new();
    for word in [4, build_id.len() as u32, elf::NT_GNU_BUILD_ID.0] {
        note.extend_from_slice(&word.to_le_bytes());
    }
    note.extend_from_slice(b"GNU\0");
    note.extend_from_slice(build_id);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}
