// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where a stripped program has the functions of a static libbpf, by comparison with the library that it was linked
//! with.
//!
//! A linker copies each code section of a library's object as a whole, and changes only the bytes that relocations
//! name. So each section is searched for in the program without these bytes, and the section's symbols then give the
//! addresses. A program has only the objects that it needs. The function of libbpf-tools that asks whether a function
//! can be attached to is not in the library. Its calls identify it.

use crate::case::Failure;
use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection};
use memchr::memmem;
use object::elf::{
    R_X86_64_64, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_GOTTPOFF, R_X86_64_REX_GOTPCRELX, R_X86_64_TLSGD,
    R_X86_64_TLSLD,
};
use object::read::archive::ArchiveFile;
use object::{File, Object, ObjectSection, ObjectSymbol, RelocationFlags, Section, SectionKind, Symbol, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// `fentry_can_attach()` of libbpf-tools alone calls both of these.
const FENTRY_CAN_ATTACH: (&str, [&str; 2]) = ("fentry_can_attach", ["btf__find_by_name_kind", "btf__load_module_btf"]);

/// The names of all global functions of a static library, in order.
///
/// # Errors
/// If the library cannot be read.
pub fn names(library: &[u8]) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for object in objects(library)? {
        names.extend(functions(&object).filter_map(|symbol| Some(symbol.name().ok()?.to_owned())));
    }
    Ok(names)
}

/// The addresses of the library's functions in the program, and of `fentry_can_attach()` if the program has it.
///
/// # Errors
/// If a file cannot be read, or the program was not linked with this library.
pub fn find(library: &[u8], program: &[u8]) -> Result<BTreeMap<String, u64>, Failure> {
    let program = File::parse(program)?;
    let text = program.section_by_name(".text").ok_or("the program has no .text")?;
    let code = Code { start: text.address(), bytes: text.data()? };
    let mut found = BTreeMap::new();
    let mut libbpf: Vec<Range<u64>> = Vec::new();
    for object in objects(library)? {
        for section in object.sections().filter(|section| section.kind() == SectionKind::Text && section.size() > 0) {
            let Some(address) = code.position(&section)? else { continue };
            libbpf.push(address..address + section.size());
            let here = functions(&object).filter(|symbol| symbol.section_index() == Some(section.index()));
            found.extend(here.filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), address + symbol.address()))));
        }
    }
    if !found.contains_key("bpf_object__load_skeleton") {
        return Err("it was not linked with this libbpf".into());
    }
    let frames = frames(&program)?;
    let callers = |callee: &str| -> BTreeSet<u64> {
        let calls = found.get(callee).map(|target| code.references(*target)).into_iter().flatten();
        let own = calls.filter(|from| !libbpf.iter().any(|range| range.contains(from)));
        own.filter_map(|from| frames.range(..=from).next_back().copied()).collect()
    };
    let (name, callees) = FENTRY_CAN_ATTACH;
    let [one, other] = callees.map(callers);
    let both: Vec<u64> = one.intersection(&other).copied().collect();
    if let [address] = both[..] {
        found.insert(name.to_owned(), address);
    }
    Ok(found)
}

fn objects(library: &[u8]) -> Result<Vec<File<'_>>, Failure> {
    let members = ArchiveFile::parse(library)?;
    members.members().map(|member| Ok(File::parse(member?.data(library)?)?)).collect()
}

fn functions<'d, 'f>(object: &'f File<'d>) -> impl Iterator<Item = Symbol<'d, 'f>> {
    object.symbols().filter(|symbol| symbol.is_definition() && symbol.is_global() && symbol.kind() == SymbolKind::Text)
}

/// The first addresses of the functions that the program's unwind tables describe.
fn frames(program: &File<'_>) -> Result<BTreeSet<u64>, Failure> {
    let section = program.section_by_name(".eh_frame").ok_or("the program has no .eh_frame")?;
    let table = EhFrame::new(section.data()?, NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = table.entries(&bases);
    let mut starts = BTreeSet::new();
    while let Some(entry) = entries.next()? {
        if let CieOrFde::Fde(partial) = entry {
            starts.insert(partial.parse(EhFrame::cie_from_offset)?.initial_address());
        }
    }
    Ok(starts)
}

/// The code of the program.
struct Code<'d> {
    start: u64,
    bytes: &'d [u8],
}

impl Code<'_> {
    /// Where the linker put a section, if there is exactly one such place.
    fn position(&self, section: &Section<'_, '_>) -> Result<Option<u64>, Failure> {
        let wanted = section.data()?;
        let open = open_bytes(section, wanted.len());
        // The longest run of bytes that the linker did not change is searched for, and the rest is then compared.
        let mut longest = 0..0;
        let mut begin = 0;
        for end in 0..=wanted.len() {
            if open.get(end).is_none_or(|open| *open) {
                if end - begin > longest.len() {
                    longest = begin..end;
                }
                begin = end + 1;
            }
        }
        let fits = |at: &usize| {
            let Some(place) = self.bytes.get(*at..*at + wanted.len()) else { return false };
            place.iter().zip(wanted).zip(&open).all(|((found, wanted), open)| *open || found == wanted)
        };
        let runs = memmem::find_iter(self.bytes, &wanted[longest.clone()]);
        let mut places = runs.filter_map(|at| at.checked_sub(longest.start)).filter(fits);
        Ok(places.next().filter(|_| places.next().is_none()).map(|at| self.start + at as u64))
    }

    /// Instructions that refer to an address relative to their own end. Only their displacement is compared.
    fn references(&self, target: u64) -> impl Iterator<Item = u64> {
        self.bytes.windows(4).enumerate().filter_map(move |(at, bytes)| {
            let displacement = i32::from_ne_bytes(bytes.try_into().ok()?);
            let end = self.start + at as u64 + 4;
            (end.wrapping_add_signed(displacement.into()) == target).then_some(end - 4)
        })
    }
}

/// Which bytes of a section the linker may change.
fn open_bytes(section: &Section<'_, '_>, size: usize) -> Vec<bool> {
    let mut open = vec![false; size];
    for (at, relocation) in section.relocations() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let at = at as usize;
        let range = match r_type {
            R_X86_64_64 => at..at + 8,
            // A linker also replaces the instruction if the symbol turns out to be in the program.
            R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX | R_X86_64_GOTTPOFF => {
                at.saturating_sub(3)..at + 4
            }
            // This is true for the call that follows, too.
            R_X86_64_TLSGD | R_X86_64_TLSLD => at.saturating_sub(4)..at + 12,
            _ => at..at + 4,
        };
        open[range.start.min(size)..range.end.min(size)].fill(true);
    }
    open
}
