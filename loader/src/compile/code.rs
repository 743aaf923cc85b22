// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The functions that a planned program becomes in the new object.
//!
//! The loader's images are whole: the trampoline, then all of the user's functions, linked and changed. An object is
//! linked by who loads it, and all loaders expect what clang writes: a program is a function of its section, and what
//! it calls is in `.text`, referred to by relocations. So an image is taken apart again. The trampoline becomes the
//! program. The user's functions that were changed, or that lead to those, become static functions in `.text`; the
//! others are referred to where they are. An instruction that the object relocates (a map, a variable, a kernel
//! function) is taken from the object, with its relocation.
//!
//! A program for real fentry or fexit has no trampoline: it is the user's function itself.

use super::CompileError;
use super::ext::Record;
use super::input::{Input, Relocation};
use crate::bpf::insn::Insn;
use crate::program::object_file::{FileProgram, Part};
use crate::site::refusal::Refusal;
use crate::trampoline::btf::{FILE, GLOBAL, STATIC};
use crate::trampoline::{Image, OwnMap};
use object::elf;
use object::elf::RelocationType;
use std::collections::{BTreeSet, HashMap};

/// What an instruction refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refers {
    /// A symbol of the object, by index.
    Symbol(usize),
    /// A function that stays where it is: its section, and its first instruction there.
    Function(usize, usize),
    /// One of the functions that are added to `.text`, by number.
    Added(usize),
    /// The map that counts lost calls.
    Faults,
}

/// A relocation of a new function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reference {
    /// The instruction.
    pub(super) at: usize,
    pub(super) to: Refers,
    /// The relocation's type.
    pub(super) kind: RelocationType,
}

/// Code of a new function, as far as it distinguishes functions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Body {
    /// The FUNC that it is made from.
    like: u32,
    /// The name that it is made from.
    name: String,
    linkage: u32,
    insns: Vec<[u8; 8]>,
    references: Vec<Reference>,
    lines: Vec<Record>,
    relocations: Vec<Record>,
}

/// A function that is added to the object.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) name: String,
    /// Its section.
    pub(super) section: String,
    /// Its FUNC.
    pub(super) func: u32,
    pub(super) insns: Vec<Insn>,
    pub(super) references: Vec<Reference>,
    pub(super) lines: Vec<Record>,
    /// CO-RE.
    pub(super) relocations: Vec<Record>,
}

/// All functions that are added.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// In `.text`: static.
    pub(super) functions: Vec<Added>,
    /// In sections of their own: programs.
    pub(super) programs: Vec<Added>,
    /// Groups of functions that have been added, and the number of the first: images often differ in their trampolines
    /// alone.
    known: HashMap<Vec<Body>, usize>,
}

impl Code {
    /// Whether anything refers to the map of lost calls.
    pub(super) fn counts_faults(&self) -> bool {
        self.programs.iter().any(|program| program.references.iter().any(|reference| reference.to == Refers::Faults))
    }

    /// Adds the program of an image, to a section. Returns the program's name.
    pub(super) fn add(
        &mut self,
        input: &mut Input<'_>,
        program: &FileProgram,
        image: &Image,
        statics: &BTreeSet<usize>,
        section: &str,
        name: &str,
    ) -> Result<String, CompileError> {
        let parts = Parts { input, program, image, statics };
        let copied = parts.copied()?;
        let has_lines = parts.have_lines(&copied);
        let number = |part: usize| copied.iter().position(|copy| *copy == part);
        let bodies = copied.iter().map(|part| parts.body(*part, &number, has_lines)).collect::<Result<Vec<_>, _>>()?;
        if image.user_start == 0 {
            return self.add_plain(input, bodies, section, name);
        }
        let main = bodies.first().map(|body| (body.like, body.name.clone()));
        let (like, _) = main.ok_or_else(|| CompileError::NoFuncInfo { function: name.to_owned() })?;
        let first = self.add_functions(input, bodies)?;
        let mut references: Vec<Reference> = Vec::new();
        let mut insns = image.insns.get(..image.user_start).unwrap_or_default().to_vec();
        for &(at, map) in image.maps.iter().filter(|(at, _)| *at < image.user_start) {
            if map != OwnMap::Faults {
                return Err(CompileError::Program { program: name.to_owned(), refusal: Refusal::NoSession });
            }
            references.push(Reference { at, to: Refers::Faults, kind: elf::R_BPF_64_64 });
            if let Some(insn) = insns.get_mut(at) {
                *insn = Insn::load64(insn.dst(), 0, 0)[0];
            }
        }
        for (at, insn) in insns.iter_mut().enumerate().filter(|(_, insn)| insn.is_subprogram_call()) {
            // The trampoline calls nothing else.
            references.push(Reference { at, to: Refers::Added(first), kind: elf::R_BPF_64_32 });
            insn.imm = -1;
        }
        let file = input.btf.string(FILE);
        let texts = image.texts.iter().filter(|_| has_lines);
        let lines = texts
            .zip(1u32..)
            .map(|((at, text), line)| Record::new(*at as usize, &[file, input.btf.string(text), line << 10]));
        let lines = lines.collect();
        let name = input.fresh(name);
        let func = input.btf.add_func(&name, like, GLOBAL).map_err(CompileError::Btf)?;
        let section = section.to_owned();
        let added = Added { name: name.clone(), section, func, insns, references, lines, relocations: Vec::new() };
        self.programs.push(added);
        Ok(name)
    }

    /// Adds a program without a trampoline.
    fn add_plain(
        &mut self,
        input: &mut Input<'_>,
        mut bodies: Vec<Body>,
        section: &str,
        name: &str,
    ) -> Result<String, CompileError> {
        if bodies.is_empty() {
            return Err(CompileError::NoFuncInfo { function: name.to_owned() });
        }
        let mut main = bodies.remove(0);
        for reference in main.references.iter_mut().chain(bodies.iter_mut().flat_map(|body| &mut body.references)) {
            if let Refers::Added(number) = &mut reference.to {
                // The program itself is not called.
                *number =
                    number.checked_sub(1).ok_or_else(|| CompileError::NoFuncInfo { function: name.to_owned() })?;
            }
        }
        let first = self.add_functions(input, bodies)?;
        let name = input.fresh(name);
        let func = input.btf.add_func(&name, main.like, GLOBAL).map_err(CompileError::Btf)?;
        self.programs.push(added(main, name.clone(), section.to_owned(), func, first));
        Ok(name)
    }

    /// Adds functions to `.text`, which refer to each other by their numbers among them. Returns the number of the
    /// first.
    fn add_functions(&mut self, input: &mut Input<'_>, bodies: Vec<Body>) -> Result<usize, CompileError> {
        if let Some(&first) = self.known.get(&bodies) {
            return Ok(first);
        }
        let first = self.functions.len();
        self.known.insert(bodies.clone(), first);
        for body in bodies {
            let name = input.fresh(&format!("{}_called", body.name));
            let func = input.btf.add_func(&name, body.like, body.linkage).map_err(CompileError::Btf)?;
            self.functions.push(added(body, name, ".text".to_owned(), func, first));
        }
        Ok(first)
    }
}

/// A function of a body, after those of other groups.
fn added(body: Body, name: String, section: String, func: u32, first: usize) -> Added {
    let references = body.references.into_iter().map(|reference| match reference.to {
        Refers::Added(number) => Reference { to: Refers::Added(first + number), ..reference },
        _ => reference,
    });
    Added {
        name,
        section,
        func,
        insns: body.insns.into_iter().map(Insn::from_bytes).collect(),
        references: references.collect(),
        lines: body.lines,
        relocations: body.relocations,
    }
}

/// The functions of a program, and the image that they are in.
struct Parts<'a, 'd> {
    input: &'a Input<'d>,
    program: &'a FileProgram,
    image: &'a Image,
    /// First instructions of the functions that see the array of arguments.
    statics: &'a BTreeSet<usize>,
}

impl Parts<'_, '_> {
    fn part(&self, number: usize) -> Result<&Part, CompileError> {
        let none = || CompileError::NoFuncInfo { function: self.program.program.name.clone() };
        self.program.parts.get(number).ok_or_else(none)
    }

    /// The part that an instruction calls, or has the address of.
    fn callee(&self, at: usize) -> Option<usize> {
        let insn = self.program.program.insns.get(at)?;
        if !insn.is_subprogram_call() && !insn.is_subprogram_address() {
            return None;
        }
        let target = usize::try_from(at as i64 + 1 + i64::from(insn.imm)).ok()?;
        self.program.parts.iter().position(|part| part.insns.start == target)
    }

    /// Where an instruction of the program is in the image.
    fn place(&self, at: usize) -> std::ops::Range<usize> {
        let position = |at: usize| self.image.positions.get(at).copied().unwrap_or(self.image.insns.len());
        position(at)..position(at + 1)
    }

    /// Whether a part's instructions are others in the image.
    fn is_changed(&self, part: &Part) -> bool {
        part.insns.clone().any(|at| {
            let old = self.program.program.insns.get(at);
            let new = self.image.insns.get(self.place(at)).unwrap_or_default();
            match (old, new) {
                (Some(old), [new]) => *old != *new && self.callee(at).is_none(),
                _ => true,
            }
        })
    }

    /// The parts that the new object has in a form of their own, the program itself first.
    fn copied(&self) -> Result<Vec<usize>, CompileError> {
        let parts = &self.program.parts;
        let has_trampoline = self.image.user_start > 0;
        let mut copied: BTreeSet<usize> = (0..parts.len())
            .filter(|&number| {
                parts.get(number).is_some_and(|part| {
                    let sees_array = has_trampoline && self.statics.contains(&part.insns.start);
                    number == 0 || sees_array || self.is_changed(part)
                })
            })
            .collect();
        loop {
            let before = copied.len();
            for (number, part) in parts.iter().enumerate() {
                if part.insns.clone().filter_map(|at| self.callee(at)).any(|callee| copied.contains(&callee)) {
                    copied.insert(number);
                }
            }
            if copied.len() == before {
                return Ok(copied.into_iter().collect());
            }
        }
    }

    /// Whether the lines of all parts are known: the kernel takes all lines or none.
    fn have_lines(&self, copied: &[usize]) -> bool {
        copied
            .iter()
            .filter_map(|&number| self.program.parts.get(number))
            .all(|part| self.input.records(&self.input.ext.lines, part).first().is_some_and(|record| record.insn == 0))
    }

    fn body(
        &self,
        number: usize,
        number_of: &impl Fn(usize) -> Option<usize>,
        has_lines: bool,
    ) -> Result<Body, CompileError> {
        let part = self.part(number)?;
        let (mut insns, mut references) = (Vec::new(), Vec::new());
        let start = self.place(part.insns.start).start;
        let mut original = self.input.insns(part)?.into_iter().zip(part.insns.clone());
        while let Some((insn, at)) = original.next() {
            let place = self.place(at);
            let here = place.start - start;
            let callee = self.callee(at);
            let relocation = self.input.relocation(part.section, part.start + at - part.insns.start);
            if relocation.is_none() && callee.is_none() {
                insns.extend(self.image.insns.get(place).unwrap_or_default());
                continue;
            }
            let copy = callee.and_then(number_of);
            let mut own = insn;
            let kind = if insn.is_load64() { elf::R_BPF_64_64 } else { elf::R_BPF_64_32 };
            let to = match (copy, relocation) {
                (Some(copy), _) => {
                    own.imm = if insn.is_load64() { 0 } else { -1 };
                    Refers::Added(copy)
                }
                (None, Some(Relocation { symbol, .. })) => Refers::Symbol(symbol),
                // The compiler has resolved a call within a section.
                (None, None) => {
                    let callee = self.part(callee.unwrap_or_default())?;
                    Refers::Function(callee.section, callee.start)
                }
            };
            references.push(Reference { at: here, to, kind: relocation.map_or(kind, |relocation| relocation.kind) });
            insns.push(own);
            if insn.is_load64() {
                insns.extend(original.next().map(|(rest, _)| rest));
            }
        }
        let records = |table| -> Vec<Record> {
            let records = self.input.records(table, part).into_iter();
            let moved = records.map(|record| {
                let insn = self.place(part.insns.start + record.insn).start - start;
                Record { insn, ..record }
            });
            moved.collect()
        };
        let like = self.input.func(part)?;
        let sees_array = self.image.user_start > 0 && (self.statics.contains(&part.insns.start) || number == 0);
        let linkage = if sees_array { STATIC } else { self.input.btf.linkage(like).map_err(CompileError::Btf)? };
        let lines = if has_lines { records(&self.input.ext.lines) } else { Vec::new() };
        let relocations = records(&self.input.ext.relocations);
        let insns = insns.into_iter().map(Insn::to_bytes).collect();
        Ok(Body { like, name: part.name.clone(), linkage, insns, references, lines, relocations })
    }
}
