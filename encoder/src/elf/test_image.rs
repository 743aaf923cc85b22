// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Small ELF images, written by hand for tests.

use object::elf;
use siteseer_sites::Machine;

/// Where the text of test kernels begins.
pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;

pub(crate) const AX: u64 = 0x6;
pub(crate) const A: u64 = 0x2;

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    address: u64,
    data: Vec<u8>,
    link: u32,
    info: u32,
}

struct Symbol {
    name: String,
    value: u64,
    size: u64,
    info: u8,
    section: u16,
}

/// An image under construction.
pub(crate) struct TestImage {
    pub(crate) machine: u16,
    pub(crate) e_type: u16,
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
}

/// The relative 32-bit field at `place` that points to `target`.
pub(crate) fn relative(place: u64, target: u64) -> [u8; 4] {
    (target.wrapping_sub(place) as i32).to_le_bytes()
}

impl TestImage {
    pub(crate) fn new(machine: Machine, e_type: elf::FileType) -> TestImage {
        let null = Section { name: String::new(), kind: 0, flags: 0, address: 0, data: Vec::new(), link: 0, info: 0 };
        TestImage { machine: machine.to_elf(), e_type: e_type.0, sections: vec![null], symbols: Vec::new() }
    }

    /// A kernel with these bytes in `.text`.
    pub(crate) fn kernel(machine: Machine, text: &[u8]) -> TestImage {
        let mut image = TestImage::new(machine, elf::ET_EXEC);
        image.section(".text", AX, TEXT, text);
        let end = TEXT + text.len() as u64;
        for (name, value) in [("_text", TEXT), ("_stext", TEXT), ("_etext", end), ("_end", TEXT + 0x100_0000)] {
            image.label(name, value, 1);
        }
        image
    }

    /// Adds a section and returns its index.
    pub(crate) fn section(&mut self, name: &str, flags: u64, address: u64, data: &[u8]) -> u16 {
        self.section_of(1, name, flags, address, data, 0, 0)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a section header")]
    pub(crate) fn section_of(
        &mut self,
        kind: u32,
        name: &str,
        flags: u64,
        address: u64,
        data: &[u8],
        link: u32,
        info: u32,
    ) -> u16 {
        self.sections.push(Section { name: name.to_owned(), kind, flags, address, data: data.to_vec(), link, info });
        (self.sections.len() - 1) as u16
    }

    /// Adds a table of the kernel, with the linker symbols around it.
    pub(crate) fn table(&mut self, section: &str, start: &str, stop: &str, address: u64, data: &[u8]) {
        let index = self.section(section, A, address, data);
        self.label(start, address, index);
        self.label(stop, address + data.len() as u64, index);
    }

    /// Adds a symbol without type and size and returns its index.
    pub(crate) fn label(&mut self, name: &str, value: u64, section: u16) -> u32 {
        self.symbol(name, value, 0, 0x10, section)
    }

    /// Adds a local function of `.text`.
    pub(crate) fn function(&mut self, name: &str, value: u64, size: u64) {
        self.symbol(name, value, size, 0x02, 1);
    }

    pub(crate) fn symbol(&mut self, name: &str, value: u64, size: u64, info: u8, section: u16) -> u32 {
        self.symbols.push(Symbol { name: name.to_owned(), value, size, info, section });
        self.symbols.len() as u32
    }

    pub(crate) fn build(mut self) -> Vec<u8> {
        let (mut strings, mut table) = (vec![0], vec![0; 24]);
        for symbol in &self.symbols {
            table.extend((strings.len() as u32).to_le_bytes());
            table.extend([symbol.info, 0]);
            table.extend(symbol.section.to_le_bytes());
            table.extend(symbol.value.to_le_bytes());
            table.extend(symbol.size.to_le_bytes());
            strings.extend(symbol.name.as_bytes());
            strings.push(0);
        }
        let count = self.sections.len() as u32;
        if !self.symbols.is_empty() {
            self.section_of(2, ".symtab", 0, 0, &table, count + 1, 1);
            self.section_of(3, ".strtab", 0, 0, &strings, 0, 0);
        }
        let names_index = self.sections.len() as u16;
        self.section_of(3, ".shstrtab", 0, 0, &[], 0, 0);
        let mut names = vec![];
        let mut name_offsets = vec![];
        for section in &self.sections {
            name_offsets.push(names.len() as u32);
            names.extend(section.name.as_bytes());
            names.push(0);
        }
        if let Some(last) = self.sections.last_mut() {
            last.data = names;
        }
        let mut body = vec![0; 64];
        let mut headers = vec![];
        for (section, name) in self.sections.iter().zip(name_offsets) {
            headers.extend(name.to_le_bytes());
            headers.extend(section.kind.to_le_bytes());
            let offset = body.len() as u64;
            for word in [section.flags, section.address, offset, section.data.len() as u64] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend(section.link.to_le_bytes());
            headers.extend(section.info.to_le_bytes());
            headers.extend(16u64.to_le_bytes());
            headers.extend(if section.kind == 2 || section.kind == 4 { 24u64 } else { 0 }.to_le_bytes());
            body.extend(&section.data);
            while !body.len().is_multiple_of(8) {
                body.push(0);
            }
        }
        let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        header.extend(self.e_type.to_le_bytes());
        header.extend(self.machine.to_le_bytes());
        header.extend(1u32.to_le_bytes());
        for word in [0, 0, body.len() as u64] {
            header.extend(word.to_le_bytes());
        }
        header.extend(0u32.to_le_bytes());
        for half in [64, 56, 0, 64, self.sections.len() as u16, names_index] {
            header.extend(half.to_le_bytes());
        }
        body[..64].copy_from_slice(&header);
        body.extend(headers);
        body
    }
}
