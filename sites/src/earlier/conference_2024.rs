// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The format of the 2024 conference proposal.
//!
//! It is split BTF over the kernel's. A DATASEC with the kind flag holds the copies of a text section, each as {u32
//! FUNC, u32 offset in the section, u32 BTF_KIND_LOC}, in the order of FUNCs. A BTF_KIND_LOC has a string for each
//! parameter, which says where it is. The proposal does not define the text of these strings; this is the text that
//! siteseer prints (`rdi`, `*(rsp+16)`). Any computation can be written as text, so that every location has a form. An
//! empty string is a missing location.
//!
//! A FUNC with type 0 says that the function has no stable prototype. It is written for each out-of-line copy with a
//! signature that the compiler changed, by the name of its symbol: who knows only the prototype in the source must not
//! attach there.

use crate::btf::{MAGIC, TypeId};
use crate::location::{Argument, Located};
use crate::set::SiteSet;
use crate::site::{Marks, SiteKind};
use std::collections::{BTreeSet, HashMap};

/// The number that the proposal uses, the first that was free.
const KIND_LOC: u32 = 20;
const LOC: u32 = KIND_LOC << 24;
/// BTF_KIND_DATASEC with the kind flag.
const DATASEC_OF_SITES: u32 = 1 << 31 | 15 << 24;
/// BTF_KIND_FUNC; the linkage is static.
const FUNC: u32 = 12 << 24;
const HEADER_LEN: u32 = 24;

/// The inlined copies of a set in that format, and the symbols without a stable prototype. Types that only they use are
/// not in it: all formats need these alike.
pub fn write(set: &SiteSet) -> Vec<u8> {
    let mut types = Vec::new();
    let mut strings = Strings::default();
    let mut next = set.types.end_id();
    for name in changed(set) {
        words(&mut types, &[strings.add(name), FUNC, 0]);
        next += 1;
    }
    let mut known: HashMap<Vec<u32>, TypeId> = HashMap::new();
    let prototypes: Vec<TypeId> = set
        .prototypes
        .iter()
        .map(|prototype| {
            let texts = prototype.iter().map(|argument| strings.add(&text(set, argument))).collect();
            *known.entry(texts).or_insert_with_key(|texts| {
                words(&mut types, &[0, LOC | texts.len() as u32, 0]);
                words(&mut types, texts);
                next += 1;
                next - 1
            })
        })
        .collect();
    for (index, section) in set.sections.iter().enumerate() {
        let of_section = |kind, of| kind == SiteKind::Inline && usize::from(of) == index;
        let mut copies: Vec<[u32; 3]> = set
            .sites
            .iter()
            .filter(|site| of_section(site.kind, site.section))
            .map(|site| {
                let func = set.functions.get(site.function as usize).map_or(0, |function| function.func);
                let location = prototypes.get(site.prototype as usize).copied().unwrap_or_default();
                [func, site.address.wrapping_sub(section.address) as u32, location]
            })
            .collect();
        if copies.is_empty() {
            continue;
        }
        copies.sort_unstable();
        let name = strings.add(&section.name);
        words(&mut types, &[name, DATASEC_OF_SITES | copies.len() as u32, section.size as u32]);
        copies.iter().for_each(|copy| words(&mut types, copy));
    }
    let mut out = Vec::with_capacity(HEADER_LEN as usize + types.len() + strings.bytes.len());
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[1, 0]);
    let (types_len, strings_len) = (types.len() as u32, strings.bytes.len() as u32);
    words(&mut out, &[HEADER_LEN, 0, types_len, types_len, strings_len]);
    out.extend_from_slice(&types);
    out.extend_from_slice(&strings.bytes);
    out
}

/// The symbols of out-of-line copies with a changed signature.
fn changed(set: &SiteSet) -> BTreeSet<&str> {
    let changed = set.sites.iter().filter(|site| site.marks.contains(Marks::SIGNATURE_CHANGED));
    let containers = changed.filter_map(|site| set.containers.get(site.container as usize));
    containers.map(|container| container.name.as_str()).collect()
}

/// Why data cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not begin with the header, or is of another version.
    #[error("not BTF as it was proposed in 2024")]
    Header,
    /// A part that the header names is not there, or a type ends early.
    #[error("the data ends within its {0}")]
    Short(&'static str),
    /// A kind that this part does not have.
    #[error("type {0}: this kind does not belong here")]
    Kind(TypeId),
    /// A copy refers to something that is not a BTF_KIND_LOC.
    #[error("type {0} is not a location")]
    Location(TypeId),
}

/// An inlined copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inlined<'a> {
    /// The text section.
    pub section: &'a str,
    /// Bytes from the section's start.
    pub offset: u32,
    /// For each parameter where it is, as text; empty if it has no location.
    pub locations: Vec<&'a str>,
}

/// The data, opened: the types are walked, and no copy is looked at.
#[derive(Debug)]
pub struct Sites<'a> {
    /// The FUNCs with type 0.
    pub without_prototype: Vec<&'a str>,
    /// By type: the offsets of the words of a BTF_KIND_LOC.
    locations: HashMap<TypeId, &'a [u8]>,
    sections: Vec<(&'a str, &'a [u8])>,
    strings: &'a [u8],
}

/// Opens data. `first` is the number of its first type.
///
/// # Errors
/// If the data is not what the format defines.
pub fn open(data: &[u8], first: TypeId) -> Result<Sites<'_>, ReadError> {
    let word = |at: usize| word(data, at).ok_or(ReadError::Header);
    if word(0)? != u32::from(MAGIC) | 1 << 16 {
        return Err(ReadError::Header);
    }
    let body = data.get(word(4)? as usize..).ok_or(ReadError::Header)?;
    let part = |start: u32, len: u32, what| {
        body.get(start as usize..).and_then(|rest| rest.get(..len as usize)).ok_or(ReadError::Short(what))
    };
    let mut types = part(word(8)?, word(12)?, "types")?;
    let strings = part(word(16)?, word(20)?, "strings")?;
    let mut sites = Sites { without_prototype: Vec::new(), locations: HashMap::new(), sections: Vec::new(), strings };
    for id in first.. {
        if types.is_empty() {
            break;
        }
        let (name, info, _) = triple(types).ok_or(ReadError::Short("types"))?;
        let (kind, vlen) = (info & 0xff00_0000, (info & 0x00ff_ffff) as usize);
        let each = match kind {
            FUNC => 0,
            LOC => 4,
            DATASEC_OF_SITES => 12,
            _ => return Err(ReadError::Kind(id)),
        };
        let (own, rest) = types.split_at_checked(12 + each * vlen).ok_or(ReadError::Short("types"))?;
        match kind {
            FUNC => sites.without_prototype.push(sites.text(name)?),
            DATASEC_OF_SITES => sites.sections.push((sites.text(name)?, &own[12..])),
            _ => drop(sites.locations.insert(id, &own[12..])),
        }
        types = rest;
    }
    Ok(sites)
}

impl<'a> Sites<'a> {
    fn text(&self, offset: u32) -> Result<&'a str, ReadError> {
        let rest = self.strings.get(offset as usize..).ok_or(ReadError::Short("strings"))?;
        let end = rest.iter().position(|&byte| byte == 0).ok_or(ReadError::Short("strings"))?;
        std::str::from_utf8(&rest[..end]).map_err(|_| ReadError::Short("strings"))
    }

    /// The copies of one function, by a binary search in each section.
    ///
    /// # Errors
    /// If one of them refers to what is not there.
    pub fn copies(&self, func: TypeId) -> Result<Vec<Inlined<'a>>, ReadError> {
        self.select(|entries| {
            let start = entries.partition_point(|entry| func_of(entry) < func);
            start..entries.partition_point(|entry| func_of(entry) <= func)
        })
    }

    /// All copies.
    ///
    /// # Errors
    /// If one of them refers to what is not there.
    pub fn all(&self) -> Result<Vec<Inlined<'a>>, ReadError> {
        self.select(|entries| 0..entries.len())
    }

    fn select(&self, wanted: impl Fn(&[[u8; 12]]) -> std::ops::Range<usize>) -> Result<Vec<Inlined<'a>>, ReadError> {
        let mut copies = Vec::new();
        for &(section, entries) in &self.sections {
            let (entries, _) = entries.as_chunks::<12>();
            for (_, offset, location) in entries[wanted(entries)].iter().filter_map(|entry| triple(entry)) {
                let texts = self.locations.get(&location).ok_or(ReadError::Location(location))?;
                let (texts, _) = texts.as_chunks::<4>();
                let locations = texts.iter().map(|&text| self.text(u32::from_le_bytes(text)));
                copies.push(Inlined { section, offset, locations: locations.collect::<Result<_, _>>()? });
            }
        }
        Ok(copies)
    }
}

fn func_of(entry: &[u8; 12]) -> TypeId {
    triple(entry).map_or(0, |(func, ..)| func)
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn triple(data: &[u8]) -> Option<(u32, u32, u32)> {
    Some((word(data, 0)?, word(data, 4)?, word(data, 8)?))
}

fn text(set: &SiteSet, argument: &Argument) -> String {
    argument.as_ref().map(|located: &Located| located.display(set.machine).to_string()).unwrap_or_default()
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// A string section: each string once. The empty one is at 0.
struct Strings {
    bytes: Vec<u8>,
    offsets: HashMap<String, u32>,
}

impl Default for Strings {
    fn default() -> Strings {
        Strings { bytes: vec![0], offsets: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        if let Some(&offset) = self.offsets.get(text) {
            return offset;
        }
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::earlier::april_2025::tests::set;

    #[test]
    fn copies_come_back() {
        let mut set = set();
        // The body has another signature than in the source.
        set.sites[1].marks = Marks::SIGNATURE_CHANGED;
        let (data, first) = (write(&set), set.types.end_id());
        let sites = open(&data, first).unwrap();
        assert_eq!(sites.without_prototype, ["caller"]);
        let locations = vec!["-2", "0x10000", "rdi", "*(rsp-8)", "rdx:rcx", ""];
        let copy = Inlined { section: ".text", offset: 0x10, locations };
        assert_eq!(sites.all(), Ok(vec![copy.clone()]));
        let func = set.functions[0].func;
        assert_eq!(sites.copies(func), Ok(vec![copy]));
        assert_eq!((sites.copies(func - 1), sites.copies(func + 1)), (Ok(vec![]), Ok(vec![])));
        for len in 0..data.len() {
            assert!(open(&data[..len], first).is_err(), "{len} bytes");
        }
        assert_eq!(open(&data, first + 1).unwrap().all(), Err(ReadError::Location(first + 1)));
    }

    #[test]
    fn words_are_where_the_proposal_has_them() {
        let set = set();
        let data = write(&set);
        let word = |at: usize| word(&data, at).unwrap();
        let types = word(4) as usize;
        assert_eq!((word(types), word(types + 4)), (0, 20 << 24 | 6));
        let section = types + 12 + 4 * 6;
        assert_eq!(word(section + 4), 1 << 31 | 15 << 24 | 1);
        let copy = [word(section + 12), word(section + 16), word(section + 20)];
        assert_eq!(copy, [set.functions[0].func, 0x10, set.types.end_id()]);
    }
}
