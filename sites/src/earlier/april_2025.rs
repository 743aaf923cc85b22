// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The `.BTF.inline` section as proposed in April 2025.
//!
//! A header {u16 magic, u8 version, u8 flags, u32 header length, u32 offset and length of the instances, u32 offset and
//! length of the locations}; for each inlined copy {u32 callee, u32 caller, u32 offset in the caller, u16 number of
//! parameters, a u32 location offset each}, without padding; locations as byte code, each stored once:
//!
//! | code | operand | meaning |
//! |---|---|---|
//! | 0 | | end |
//! | 1-4 | 1, 2, 4, 8 bytes | signed constant |
//! | 5-8 | 1, 2, 4, 8 bytes | unsigned constant |
//! | 9 | u8 | register |
//! | 10 | u8, s64 | register + offset |
//! | 11 | u8 | read so many bytes at what was computed |
//!
//! What it cannot say (register pairs, computed values, why a location is missing) becomes the empty location. An
//! address is a constant: it does not follow the kernel's displacement. Out-of-line sites are not in it.

use crate::btf::{Btf, Kind, MAGIC, NameIndex, TypeId, loc::canonical_constant};
use crate::location::{Argument, Located, Location};
use crate::set::SiteSet;
use crate::site::SiteKind;
use std::collections::HashMap;

const HEADER_LEN: u32 = 24;

/// The inline sites of a set in that format.
pub fn write(set: &SiteSet) -> Vec<u8> {
    let base = Btf::parse(&set.base_btf).ok();
    let names = base.as_ref().map(|base| NameIndex::new(base, &[Kind::Func])).unwrap_or_default();
    let callers: Vec<TypeId> =
        set.containers.iter().map(|c| names.get(Kind::Func, &c.name).next().unwrap_or_default()).collect();
    let mut locations = Locations::default();
    let prototypes: Vec<Vec<u32>> =
        set.prototypes.iter().map(|p| p.iter().map(|argument| locations.add(argument)).collect()).collect();
    let mut instances = Vec::new();
    for site in set.sites.iter().filter(|site| site.kind == SiteKind::Inline) {
        let words = |index: u32| prototypes.get(index as usize).map_or(&[][..], Vec::as_slice);
        let caller = callers.get(site.container as usize).copied().unwrap_or_default();
        let start = set.containers.get(site.container as usize).map_or(0, |c| c.address);
        let callee = set.functions.get(site.function as usize).map_or(0, |f| f.func);
        for word in [callee, caller, site.address.wrapping_sub(start) as u32] {
            instances.extend_from_slice(&word.to_le_bytes());
        }
        let words = words(site.prototype);
        instances.extend_from_slice(&(words.len() as u16).to_le_bytes());
        words.iter().for_each(|word| instances.extend_from_slice(&word.to_le_bytes()));
    }
    let mut out = Vec::with_capacity(HEADER_LEN as usize + instances.len() + locations.bytes.len());
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[1, 0]);
    let (instances_len, locations_len) = (instances.len() as u32, locations.bytes.len() as u32);
    for word in [HEADER_LEN, 0, instances_len, instances_len, locations_len] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&instances);
    out.extend_from_slice(&locations.bytes);
    out
}

#[derive(Default)]
struct Locations {
    bytes: Vec<u8>,
    offsets: HashMap<Vec<u8>, u32>,
}

impl Locations {
    fn add(&mut self, argument: &Argument) -> u32 {
        let mut code = argument.as_ref().ok().and_then(encode).unwrap_or_default();
        code.push(0);
        *self.offsets.entry(code).or_insert_with_key(|code| {
            let offset = self.bytes.len() as u32;
            self.bytes.extend_from_slice(code);
            offset
        })
    }
}

fn encode(located: &Located) -> Option<Vec<u8>> {
    let mut code = Vec::new();
    let register = |register: u16| u8::try_from(register).ok();
    match located.at {
        Location::Constant(value) => {
            let value = canonical_constant(value, located.size, located.signed);
            let (bytes, signed) = (value.to_le_bytes(), value as i64);
            let width = (0..3).find(|log| {
                let bits = 8 << log;
                if located.signed {
                    signed >> (bits - 1) == 0 || signed >> (bits - 1) == -1
                } else {
                    value >> bits == 0
                }
            });
            let log = width.unwrap_or(3);
            code.push(if located.signed { 1 } else { 5 } + log);
            code.extend_from_slice(&bytes[..1 << log]);
        }
        Location::Address(address) => {
            code.push(8);
            code.extend_from_slice(&address.to_le_bytes());
        }
        Location::Register(r) => code.extend_from_slice(&[9, register(r)?]),
        Location::RegisterOffset(r, offset) | Location::Memory(r, offset) => {
            code.extend_from_slice(&[10, register(r)?]);
            code.extend_from_slice(&i64::from(offset).to_le_bytes());
            if matches!(located.at, Location::Memory(..)) {
                code.extend_from_slice(&[11, u8::try_from(located.size).ok()?]);
            }
        }
        Location::RegisterPair(..) | Location::Computed(_) => return None,
    }
    Some(code)
}

/// Why data cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not begin with the header, or is of another version.
    #[error("not a .BTF.inline section of April 2025")]
    Header,
    /// A part that the header names is not there, or an instance or a location ends early.
    #[error("the data ends within its {0}")]
    Short(&'static str),
    /// A location has an operation that the format does not define, or operations in an order that has no meaning.
    #[error("location {0:#x} has no meaning")]
    Location(u32),
}

/// Where a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A constant, sign- or zero-extended to 64 bits.
    Constant(u64),
    /// In a register, by its DWARF number.
    Register(u8),
    /// The register plus the offset.
    RegisterOffset(u8, i64),
    /// So many bytes at the register plus the offset.
    Memory(u8, i64, u8),
}

/// An inlined copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The FUNC that was inlined.
    pub callee: TypeId,
    /// The FUNC that it was inlined into.
    pub caller: TypeId,
    /// Bytes from the caller's start.
    pub offset: u32,
    /// For each parameter where it is; `None`: it has no location.
    pub parameters: Vec<Option<Place>>,
}

/// Reads all instances. The format has no index: who looks for one function reads all.
///
/// # Errors
/// If the data is not what the format defines. Nothing is returned then.
pub fn read(data: &[u8]) -> Result<Vec<Instance>, ReadError> {
    let mut header = Bytes(data);
    let starts = header.take::<2>() == Some(MAGIC.to_le_bytes()) && header.take::<2>() == Some([1, 0]);
    let mut word = || header.take::<4>().map(|bytes| u32::from_le_bytes(bytes) as usize);
    let words = [word(), word(), word(), word(), word()];
    let [Some(header_len), Some(first), Some(len), Some(locations), Some(locations_len)] = words else {
        return Err(ReadError::Header);
    };
    if !starts {
        return Err(ReadError::Header);
    }
    let body = data.get(header_len..).ok_or(ReadError::Short("header"))?;
    let part = |start: usize, len: usize| body.get(start..)?.get(..len);
    let mut instances = Bytes(part(first, len).ok_or(ReadError::Short("instances"))?);
    let locations = part(locations, locations_len).ok_or(ReadError::Short("locations"))?;
    let mut found = Vec::new();
    while !instances.0.is_empty() {
        found.push(instance(&mut instances, locations)?);
    }
    Ok(found)
}

fn instance(bytes: &mut Bytes<'_>, locations: &[u8]) -> Result<Instance, ReadError> {
    const SHORT: ReadError = ReadError::Short("instances");
    let mut word = || bytes.take::<4>().map(u32::from_le_bytes).ok_or(SHORT);
    let (callee, caller, offset) = (word()?, word()?, word()?);
    let count = u16::from_le_bytes(bytes.take().ok_or(SHORT)?);
    let mut parameters = Vec::new();
    for _ in 0..count {
        let at = u32::from_le_bytes(bytes.take().ok_or(SHORT)?);
        parameters.push(place(locations, at)?);
    }
    Ok(Instance { callee, caller, offset, parameters })
}

fn place(locations: &[u8], at: u32) -> Result<Option<Place>, ReadError> {
    const SHORT: ReadError = ReadError::Short("locations");
    let mut code = Bytes(locations.get(at as usize..).ok_or(SHORT)?);
    let mut found = None;
    loop {
        let [operation] = code.take().ok_or(SHORT)?;
        found = match (operation, found) {
            (0, found) => return Ok(found),
            (1..=8, None) => {
                let signed = operation <= 4;
                let len = 1usize << ((operation - 1) % 4);
                let (bytes, rest) = code.0.split_at_checked(len).ok_or(SHORT)?;
                code.0 = rest;
                let mut value = [if signed && bytes[len - 1] >= 0x80 { 0xff } else { 0 }; 8];
                value[..len].copy_from_slice(bytes);
                Some(Place::Constant(u64::from_le_bytes(value)))
            }
            (9, None) => Some(Place::Register(code.take::<1>().ok_or(SHORT)?[0])),
            (10, None) => {
                let [register] = code.take().ok_or(SHORT)?;
                Some(Place::RegisterOffset(register, i64::from_le_bytes(code.take().ok_or(SHORT)?)))
            }
            (11, Some(Place::RegisterOffset(register, offset))) => {
                Some(Place::Memory(register, offset, code.take::<1>().ok_or(SHORT)?[0]))
            }
            _ => return Err(ReadError::Location(at)),
        };
    }
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::btf::{Linkage, SplitBtf};
    use crate::location::Missing;
    use crate::machine::Machine;
    use crate::set::{Container, Function, Section};
    use crate::site::{Marks, Site, SourceLine};

    /// A copy with a parameter of each form, and a body, which the formats do not hold.
    pub(in crate::earlier) fn set() -> SiteSet {
        let mut base = SplitBtf::standalone();
        let proto = base.func_proto(0, &[("p", 0); 6], false);
        let caller = base.func("caller", proto, Linkage::Static);
        let base_btf = base.to_bytes();
        let types = SplitBtf::new(&Btf::parse(&base_btf).unwrap());
        let at = |size, signed, at| Ok(Located::certain(size, signed, at));
        let prototype: Vec<Argument> = vec![
            at(8, true, Location::Constant(-2i64 as u64)),
            at(8, false, Location::Constant(0x1_0000)),
            at(8, false, Location::Register(5)),
            at(4, false, Location::Memory(7, -8)),
            at(16, false, Location::RegisterPair(1, 2)),
            Err(Missing::OptimisedOut),
        ];
        let site = Site {
            function: 0,
            kind: SiteKind::Inline,
            address: 0x1010,
            moved: 0,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::default(),
            unprobeable: None,
        };
        SiteSet {
            module: None,
            machine: Machine::X86_64,
            build_id: vec![],
            base: 0x1000,
            base_btf: base_btf.clone(),
            types,
            sections: vec![Section { name: ".text".into(), address: 0x1000, size: 0x1000 }],
            functions: vec![Function { name: "caller".into(), func: caller, parameters: 6, variadic: false }],
            prototypes: vec![prototype.into()],
            containers: vec![Container { name: "caller".into(), address: 0x1000, size: 64, unprobeable: None }],
            files: vec![],
            sites: vec![site, Site { kind: SiteKind::Body, ..site }],
        }
    }

    #[test]
    fn instances_come_back() {
        let set = set();
        let func = set.functions[0].func;
        let parameters = vec![
            Some(Place::Constant(-2i64 as u64)),
            Some(Place::Constant(0x1_0000)),
            Some(Place::Register(5)),
            Some(Place::Memory(7, -8, 4)),
            None,
            None,
        ];
        let data = write(&set);
        let copy = Instance { callee: func, caller: func, offset: 0x10, parameters };
        assert_eq!(read(&data), Ok(vec![copy]));
        for len in 0..data.len() {
            assert!(read(&data[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn locations_without_a_meaning_are_errors() {
        assert_eq!(place(&[11, 4, 0], 0), Err(ReadError::Location(0)));
        assert_eq!(place(&[9, 1, 9, 2, 0], 0), Err(ReadError::Location(0)));
        assert_eq!(place(&[0, 12, 0], 1), Err(ReadError::Location(1)));
        assert_eq!(place(&[0], 1), Err(ReadError::Short("locations")));
        assert_eq!(place(&[2, 0xfe, 0xff, 0], 0), Ok(Some(Place::Constant(-2i64 as u64))));
        assert_eq!(place(&[6, 0xfe, 0xff, 0], 0), Ok(Some(Place::Constant(0xfffe))));
    }
}
