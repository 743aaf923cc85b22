// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs as they stand in an object file, for `explain`: no kernel, no libbpf, no privileges.
//!
//! What is attached comes from libbpf, relocated ([`crate::program::object`]). What is explained need not: libbpf's
//! relocations put addresses of maps, ids of kernel functions and offsets of members in place. None of these changes
//! which slots of its context a program loads. Only the parts of a program must be brought together, for it reads in
//! its subprograms too: clang puts static functions and those of other sections elsewhere, and calls them through
//! relocations (`R_BPF_64_32` on the call, `R_BPF_64_64` where a function's address is taken). They are appended here
//! in the order in which they are met, and calls are made relative.
//!
//! Where that is not the same: code that a CO-RE relocation makes unreachable, or a constant in `.rodata` does, is
//! there before libbpf and the verifier have seen it. What it reads counts as read, so that the answer errs by asking
//! for too much.

use crate::bpf::insn::Insn;
use crate::program::UserProgram;
use crate::program::section::{Form, Plain, Section, SectionError, Wanted};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// Why an object file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFileError {
    /// It is not an ELF file, or a damaged one.
    #[error("not a BPF object")]
    Elf(#[from] object::Error),
    /// It is for another machine.
    #[error("not a BPF object: it is for another machine")]
    NotBpf,
    /// None of its sections is one of ours.
    #[error("it has no program in SEC(\"fentry/...\"), SEC(\"fexit/...\") or SEC(\"kprobe_maybe_inline/...\")")]
    NoPrograms,
    /// A section's name has no function that could be one.
    #[error("program {program}")]
    Section {
        /// Name of the program.
        program: String,
        /// What is wrong with it.
        #[source]
        error: SectionError,
    },
    /// A program's code leads out of what there is.
    #[error("program {program}: instruction {insn} of {function} refers to code that is not there")]
    Code {
        /// Name of the program.
        program: String,
        /// The function.
        function: String,
        /// The instruction in it.
        insn: usize,
    },
    /// The programs are too large together, with what each calls.
    #[error("program {program}: the object's programs have more than {MOST_INSNS} instructions, with what they call")]
    TooLarge {
        /// Name of the program that was one too many.
        program: String,
    },
}

/// As many instructions may the programs of an object have together. The kernel takes no program of more than a
/// million. What many programs call is counted for each: an object of a megabyte could be gigabytes otherwise.
const MOST_INSNS: usize = 4_000_000;

/// A function of a program, and where the object file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The section's index.
    pub section: usize,
    /// Its first instruction in the section.
    pub start: usize,
    /// Its instructions in the program.
    pub insns: Range<usize>,
}

/// A program as it stands in an object file.
#[derive(Debug, Clone)]
pub struct FileProgram {
    /// Its code, its subprograms after it.
    pub program: UserProgram,
    /// What the code is made of, in its order: the program itself, then what it leads to.
    pub parts: Vec<Part>,
    /// Its section.
    pub section: String,
    /// What kind it is, by that.
    pub form: Form,
    /// The object's BTF.
    pub btf: Option<Arc<[u8]>>,
    /// The function that its section names.
    pub wanted: Wanted,
}

/// A program that libbpf attaches to a function's symbol and nowhere else.
#[derive(Debug, Clone)]
pub struct PlainProgram {
    /// Its name.
    pub name: String,
    /// Its section.
    pub section: String,
    /// What the section names.
    pub plain: Plain,
}

type Elf<'a> = ElfFile64<'a, Endianness>;

/// A function of the file: its section and the instructions in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Code {
    name: String,
    section: SectionIndex,
    start: usize,
    end: usize,
}

/// Reads the programs of an object file that are in sections of ours, in the order of the file.
///
/// # Errors
/// [`ObjectFileError`].
pub fn read(data: &[u8]) -> Result<Vec<FileProgram>, ObjectFileError> {
    let programs = read_ours(&parse(data)?)?;
    if programs.is_empty() { Err(ObjectFileError::NoPrograms) } else { Ok(programs) }
}

/// Reads all programs of an object file that run at functions of the kernel: those in sections of ours, and those in
/// sections of kprobes and the like. Neither need be there.
///
/// # Errors
/// [`ObjectFileError`].
pub fn read_all(data: &[u8]) -> Result<(Vec<FileProgram>, Vec<PlainProgram>), ObjectFileError> {
    let elf = parse(data)?;
    let mut plain = Vec::new();
    for code in functions(&elf)? {
        let section = elf.section_by_index(code.section)?;
        let section = section.name()?.trim_start_matches('?').to_owned();
        plain.extend(Plain::parse(&section).map(|plain| PlainProgram { name: code.name, section, plain }));
    }
    Ok((read_ours(&elf)?, plain))
}

fn parse(data: &[u8]) -> Result<Elf<'_>, ObjectFileError> {
    let elf = Elf::parse(data)?;
    if elf.architecture() != object::Architecture::Bpf || !elf.is_little_endian() {
        return Err(ObjectFileError::NotBpf);
    }
    Ok(elf)
}

fn read_ours(elf: &Elf<'_>) -> Result<Vec<FileProgram>, ObjectFileError> {
    let linker = Linker::new(elf)?;
    let btf = elf.section_by_name(".BTF").map(|section| section.data().map(Arc::from)).transpose()?;
    let mut programs = Vec::new();
    let mut room = MOST_INSNS;
    for code in &linker.functions {
        let section = elf.section_by_index(code.section)?;
        // Sections may be marked `?` for a program that is not loaded by itself.
        let section = section.name()?.trim_start_matches('?').to_owned();
        let parsed = match Section::parse(&section) {
            Ok(parsed) => parsed,
            Err(SectionError::Foreign { .. }) => continue,
            Err(error) => return Err(ObjectFileError::Section { program: code.name.clone(), error }),
        };
        let exit = parsed.form.kind.is_exit();
        let (insns, parts) = linker.link(code, room)?;
        room -= insns.len();
        let program = UserProgram { name: code.name.clone(), insns, exit, ..UserProgram::default() };
        let (form, wanted, btf) = (parsed.form, parsed.wanted, btf.clone());
        programs.push(FileProgram { program, parts, section, form, btf, wanted });
    }
    Ok(programs)
}

/// The functions of a file, by section and place.
fn functions(elf: &Elf<'_>) -> Result<Vec<Code>, ObjectFileError> {
    let mut functions = Vec::new();
    for symbol in elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let Some(section) = symbol.section_index() else { continue };
        let start = index(symbol.address());
        let end = start.saturating_add(index(symbol.size()));
        functions.push(Code { name: symbol.name()?.to_owned(), section, start, end });
    }
    functions.sort_by_key(place);
    Ok(functions)
}

/// Where a function begins: its section and the instruction in it.
fn place(code: &Code) -> (usize, usize) {
    (code.section.0, code.start)
}

/// What a relocation makes an instruction refer to: a place in code, or nothing that matters here.
#[derive(Debug, Clone, Copy)]
enum Referred {
    /// The section, and the instruction in it that the symbol stands for.
    Code(SectionIndex, usize),
    /// A map, a variable.
    Other,
    /// A function of the kernel.
    Kernel,
}

struct Linker {
    functions: Vec<Code>,
    insns: HashMap<SectionIndex, Vec<Insn>>,
    /// By section and instruction.
    relocations: HashMap<(SectionIndex, usize), Referred>,
}

const INSN: usize = 8;

fn index(address: u64) -> usize {
    usize::try_from(address).unwrap_or(usize::MAX) / INSN
}

impl Linker {
    fn new(elf: &Elf<'_>) -> Result<Linker, ObjectFileError> {
        let functions = functions(elf)?;
        let (mut insns, mut relocations) = (HashMap::new(), HashMap::new());
        for section in elf.sections().filter(|section| section.kind() == object::SectionKind::Text) {
            let data = section.data()?;
            let code = data.chunks_exact(INSN).filter_map(|chunk| chunk.try_into().ok()).map(Insn::from_bytes);
            insns.insert(section.index(), code.collect::<Vec<Insn>>());
            for (offset, relocation) in section.relocations() {
                let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
                let symbol = elf.symbol_by_index(symbol)?;
                let code = |section: SectionIndex| {
                    elf.section_by_index(section).is_ok_and(|section| section.kind() == object::SectionKind::Text)
                };
                let referred = match symbol.section_index() {
                    Some(section) if code(section) => Referred::Code(section, index(symbol.address())),
                    Some(_) => Referred::Other,
                    None => Referred::Kernel,
                };
                relocations.insert((section.index(), index(offset)), referred);
            }
        }
        Ok(Linker { functions, insns, relocations })
    }

    /// A program and all functions that it leads to, one after the other: no more instructions than there is room for.
    fn link(&self, main: &Code, room: usize) -> Result<(Vec<Insn>, Vec<Part>), ObjectFileError> {
        let too_large = || ObjectFileError::TooLarge { program: main.name.clone() };
        if self.code(main).len() > room {
            return Err(too_large());
        }
        let mut placed: Vec<(&Code, usize)> = vec![(main, 0)];
        let mut base_of = HashMap::from([(place(main), 0)]);
        let mut linked: Vec<Insn> = self.code(main).to_vec();
        // Instructions to be made relative, and where they lead.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut next = 0;
        while let Some(&(code, base)) = placed.get(next) {
            next += 1;
            for (nth, insn) in self.code(code).iter().enumerate() {
                let at = code.start + nth;
                let lost =
                    || ObjectFileError::Code { program: main.name.clone(), function: code.name.clone(), insn: nth };
                let referred = self.relocations.get(&(code.section, at)).copied();
                // Addends are in the instruction: in instructions less one for a call, in bytes for an address.
                let there = match referred {
                    Some(Referred::Code(section, symbol)) if insn.is_call() => {
                        Some((section, symbol as i64 + i64::from(insn.imm) + 1))
                    }
                    Some(Referred::Code(section, symbol)) if insn.is_load64() => {
                        Some((section, symbol as i64 + i64::from(insn.imm) / INSN as i64))
                    }
                    None if insn.is_subprogram_call() => Some((code.section, at as i64 + 1 + i64::from(insn.imm))),
                    _ => None,
                };
                let Some(own) = linked.get_mut(base + nth) else { return Err(lost()) };
                let Some((section, start)) = there else {
                    if matches!(referred, Some(Referred::Kernel)) && insn.is_call() {
                        // Which function it is, the kernel's BTF would tell; it is taken to read all registers.
                        *own = Insn::call_kfunc(0);
                    }
                    continue;
                };
                if insn.is_load64() {
                    let Some(rest) = self.code(code).get(nth + 1) else { return Err(lost()) };
                    *own = Insn::load64(insn.dst(), ADDRESS_OF_FUNCTION, u64::from(rest.imm as u32) << 32)[0];
                }
                let start = usize::try_from(start).map_err(|_| lost())?;
                let first = self.functions.partition_point(|code| place(code) < (section.0, start));
                let target = self.functions.get(first).filter(|code| place(code) == (section.0, start));
                let Some(target) = target else { return Err(lost()) };
                let target_base = match base_of.entry(place(target)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(entry) => {
                        let (code, end) = (self.code(target), linked.len());
                        if code.len() > room.saturating_sub(end) {
                            return Err(too_large());
                        }
                        placed.push((target, end));
                        linked.extend_from_slice(code);
                        *entry.insert(end)
                    }
                };
                open.push((base + nth, target_base));
            }
        }
        for (at, target) in open {
            let distance = target as i64 - at as i64 - 1;
            if let (Some(insn), Ok(distance)) = (linked.get_mut(at), i32::try_from(distance)) {
                insn.imm = distance;
            }
        }
        let part = |(code, base): (&Code, usize)| Part {
            name: code.name.clone(),
            section: code.section.0,
            start: code.start,
            insns: base..base + self.code(code).len(),
        };
        Ok((linked, placed.into_iter().map(part).collect()))
    }

    fn code(&self, code: &Code) -> &[Insn] {
        self.insns.get(&code.section).and_then(|insns| insns.get(code.start..code.end)).unwrap_or(&[])
    }
}

/// `BPF_PSEUDO_FUNC`.
const ADDRESS_OF_FUNCTION: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_object() {
        assert!(matches!(read(b"hello"), Err(ObjectFileError::Elf(_))));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(read(&own), Err(ObjectFileError::NotBpf)));
    }

    /// An object with one function in a section: two instructions that do nothing and the end.
    fn object_with(section: &str) -> Vec<u8> {
        object_of(section, 1, 3)
    }

    /// An object with BTF, and a section of so many instructions that as many symbols stand for.
    fn object_of(section: &str, symbols: usize, insns: usize) -> Vec<u8> {
        use object::write::{Object, Symbol, SymbolSection};
        let mut object = Object::new(object::BinaryFormat::Elf, object::Architecture::Bpf, object::Endianness::Little);
        let id = object.add_section(Vec::new(), section.as_bytes().to_vec(), object::SectionKind::Text);
        let mut code = [0xb7, 0, 0, 0, 0, 0, 0, 0].repeat(insns - 1);
        code.extend([0x95, 0, 0, 0, 0, 0, 0, 0]);
        let size = code.len() as u64;
        object.append_section_data(id, &code, 8);
        for _ in 0..symbols {
            object.add_symbol(Symbol {
                name: b"program".to_vec(),
                value: 0,
                size,
                kind: SymbolKind::Text,
                scope: object::SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(id),
                flags: object::SymbolFlags::None,
            });
        }
        let btf = object.add_section(Vec::new(), b".BTF".to_vec(), object::SectionKind::Debug);
        object.append_section_data(btf, &[0; 1000], 1);
        object.write().unwrap()
    }

    /// What many programs have in common is there once, or is bounded: a file of a megabyte could take gigabytes.
    #[test]
    fn programs_that_share_code_and_types() {
        let programs = read(&object_of("fentry/foo", 100, 1000)).unwrap();
        assert_eq!(programs.len(), 100);
        let [first, .., last] = &programs[..] else { unreachable!("there are 100") };
        let (first, last) = (first.btf.as_ref().unwrap(), last.btf.as_ref().unwrap());
        assert!(Arc::ptr_eq(first, last));
        let error = read(&object_of("fentry/foo", 5000, 1000)).unwrap_err();
        assert!(matches!(error, ObjectFileError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn sections_of_others_and_bad_names() {
        let programs = read(&object_with("fentry/foo")).unwrap();
        let told: Vec<_> = programs.iter().map(|one| (one.program.name.as_str(), one.program.insns.len())).collect();
        assert_eq!(told, [("program", 3)]);
        assert!(matches!(read(&object_with("xdp")), Err(ObjectFileError::NoPrograms)));
        let error = read(&object_with("fentry/a b")).unwrap_err();
        assert!(matches!(&error, ObjectFileError::Section { program, .. } if program == "program"), "{error}");
    }

    proptest! {
        #[test]
        fn an_object_may_be_anything(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&data);
        }
    }
}
