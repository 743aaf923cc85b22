// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `.BTF.ext`: which functions and lines the instructions are of, and their CO-RE relocations.
//!
//! Three tables of one shape (Documentation/bpf/btf.rst): records of a fixed size, by section. Each record begins with
//! the distance of its instruction from the section's start, in bytes. What else a record has is carried along and not
//! looked at, except the type of a function.

use super::CompileError;

/// `struct btf_ext_header` with all three tables.
const HEADER: usize = 32;
const MAGIC: u16 = 0xeb9f;
/// Bytes of an instruction.
const INSN: u32 = 8;

/// A record of a table, without what all begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Record {
    /// The instruction: its index in the section, or in a function.
    pub(super) insn: usize,
    /// What follows.
    pub(super) rest: Vec<u8>,
}

impl Record {
    /// A record of the words that follow the instruction.
    pub(super) fn new(insn: usize, words: &[u32]) -> Record {
        Record { insn, rest: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    }

    /// The first word after the instruction.
    pub(super) fn word(&self) -> Option<u32> {
        word(&self.rest, 0)
    }
}

/// The records of a section.
#[derive(Debug, Clone)]
struct Section {
    /// Its name in BTF's strings.
    name: u32,
    records: Vec<Record>,
}

/// One table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    record_size: usize,
    sections: Vec<Section>,
}

impl Table {
    fn parse(data: &[u8], least: usize) -> Result<Table, CompileError> {
        let cut = || CompileError::Ext("a table is cut off");
        if data.is_empty() {
            return Ok(Table { record_size: least, sections: Vec::new() });
        }
        let record_size = word(data, 0).ok_or_else(cut)? as usize;
        if record_size < least || !record_size.is_multiple_of(4) {
            return Err(CompileError::Ext("its records are too small"));
        }
        let mut sections = Vec::new();
        let mut at = 4;
        while at < data.len() {
            let (name, count) = word(data, at).zip(word(data, at + 4)).ok_or_else(cut)?;
            at += 8;
            let size = (count as usize).checked_mul(record_size).ok_or_else(cut)?;
            let rows = at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(cut)?;
            at += size;
            let records = rows.chunks_exact(record_size).filter_map(|row| {
                let (offset, rest) = row.split_first_chunk::<4>()?;
                Some(Record { insn: (u32::from_le_bytes(*offset) / INSN) as usize, rest: rest.to_vec() })
            });
            sections.push(Section { name, records: records.collect() });
        }
        Ok(Table { record_size, sections })
    }

    /// Whether it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.sections.iter().all(|section| section.records.is_empty())
    }

    /// The records of a section, by the name's offset.
    pub(super) fn of(&self, is_meant: impl Fn(u32) -> bool) -> impl Iterator<Item = &Record> {
        self.sections.iter().filter(move |section| is_meant(section.name)).flat_map(|section| &section.records)
    }

    /// Leaves sections out.
    fn without(&mut self, is_meant: &impl Fn(u32) -> bool) {
        self.sections.retain(|section| !is_meant(section.name));
    }

    /// Adds records after those that the section has.
    pub(super) fn append(&mut self, name: u32, is_meant: impl Fn(u32) -> bool, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        match self.sections.iter_mut().find(|section| is_meant(section.name)) {
            Some(section) => section.records.extend(records),
            None => self.sections.push(Section { name, records }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> (u32, u32) {
        let start = out.len();
        if !self.is_empty() {
            out.extend((self.record_size as u32).to_le_bytes());
            for section in self.sections.iter().filter(|section| !section.records.is_empty()) {
                out.extend(section.name.to_le_bytes());
                out.extend((section.records.len() as u32).to_le_bytes());
                for record in &section.records {
                    let end = out.len() + self.record_size;
                    out.extend((record.insn as u32 * INSN).to_le_bytes());
                    out.extend(&record.rest);
                    out.resize(end, 0);
                }
            }
        }
        ((start - HEADER) as u32, (out.len() - start) as u32)
    }
}

/// The section.
#[derive(Debug, Clone)]
pub(super) struct Ext {
    pub(super) functions: Table,
    pub(super) lines: Table,
    pub(super) relocations: Table,
}

impl Ext {
    pub(super) fn parse(data: &[u8]) -> Result<Ext, CompileError> {
        let magic = data.first_chunk().copied().map(u16::from_le_bytes);
        if magic != Some(MAGIC) {
            return Err(CompileError::Ext("it has no little-endian header"));
        }
        let header = word(data, 4).map_or(0, |length| length as usize);
        // Of clang before 10 it ends before the CO-RE relocations.
        let table = |at: usize, least: usize| {
            if header < at + 8 {
                return Table::parse(&[], least);
            }
            let part = word(data, at).zip(word(data, at + 4)).and_then(|(offset, length)| {
                let start = header.checked_add(offset as usize)?;
                data.get(start..start.checked_add(length as usize)?)
            });
            Table::parse(part.ok_or(CompileError::Ext("its header points out of it"))?, least)
        };
        Ok(Ext { functions: table(8, 8)?, lines: table(16, 16)?, relocations: table(24, 16)? })
    }

    /// Leaves sections out.
    pub(super) fn without(&mut self, is_meant: impl Fn(u32) -> bool) {
        for table in [&mut self.functions, &mut self.lines, &mut self.relocations] {
            table.without(&is_meant);
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        let tables = [&self.functions, &self.lines, &self.relocations].map(|table| table.write(&mut out));
        let mut header = MAGIC.to_le_bytes().to_vec();
        header.extend([1, 0]);
        header.extend((HEADER as u32).to_le_bytes());
        for (offset, length) in tables {
            header.extend(offset.to_le_bytes());
            header.extend(length.to_le_bytes());
        }
        out.splice(..HEADER, header);
        out
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Ext {
        let mut ext =
            Ext::parse(&[0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        ext.functions.append(7, |name| name == 7, vec![Record::new(0, &[3]), Record::new(9, &[4])]);
        ext.functions.append(8, |name| name == 8, vec![Record::new(0, &[5])]);
        ext.lines.append(7, |name| name == 7, vec![Record::new(2, &[1, 2, 3])]);
        ext
    }

    #[test]
    fn what_is_written_is_read() {
        let mut ext = Ext::parse(&sample().to_bytes()).unwrap();
        let functions: Vec<_> = ext.functions.of(|name| name == 7).map(|one| (one.insn, one.word())).collect();
        assert_eq!(functions, [(0, Some(3)), (9, Some(4))]);
        assert_eq!(ext.lines.of(|_| true).count(), 1);
        assert!(ext.relocations.is_empty());
        ext.without(|name| name == 7);
        let ext = Ext::parse(&ext.to_bytes()).unwrap();
        assert_eq!(ext.functions.of(|_| true).map(|one| one.word()).collect::<Vec<_>>(), [Some(5)]);
        assert!(ext.lines.is_empty());
    }

    proptest! {
        #[test]
        fn damage_never_panics(position in 0usize..100, value: u8, cut in 0usize..120) {
            let mut bytes = sample().to_bytes();
            let length = bytes.len();
            bytes[position % length] = value;
            let _ = Ext::parse(&bytes);
            let _ = Ext::parse(&bytes[..cut.min(length)]);
        }
    }
}
