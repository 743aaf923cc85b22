// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The `.BTF.inline` section as proposed in April 2025, for comparison of sizes only.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{Linkage, SplitBtf};
    use crate::location::Missing;
    use crate::machine::Machine;
    use crate::set::{Container, Function, Section};
    use crate::site::{Marks, Site, SourceLine};

    /// Reads the instances back: callee, caller, offset, and the byte code of each parameter.
    fn read(data: &[u8]) -> Vec<(u32, u32, u32, Vec<Vec<u8>>)> {
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        let header = word(4) as usize;
        let (first, len) = (header + word(8) as usize, word(12) as usize);
        let locations = &data[header + word(16) as usize..][..word(20) as usize];
        let mut found = Vec::new();
        let mut at = first;
        while at < first + len {
            let count = usize::from(u16::from_le_bytes([data[at + 12], data[at + 13]]));
            let code = |nth: usize| {
                let mut rest = &locations[word(at + 14 + 4 * nth) as usize..];
                let mut code = Vec::new();
                while rest[0] != 0 {
                    let len = match rest[0] {
                        1 | 5 | 9 | 11 => 2,
                        2 | 6 => 3,
                        3 | 7 => 5,
                        4 | 8 => 9,
                        10 => 10,
                        other => panic!("code {other}"),
                    };
                    code.extend_from_slice(&rest[..len]);
                    rest = &rest[len..];
                }
                code
            };
            found.push((word(at), word(at + 4), word(at + 8), (0..count).map(code).collect()));
            at += 14 + 4 * count;
        }
        found
    }

    #[test]
    fn instances_come_back() {
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
        let set = SiteSet {
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
        };
        let empty = vec![];
        let memory = [&[10, 7][..], &(-8i64).to_le_bytes(), &[11, 4]].concat();
        let codes = vec![vec![1, 0xfe], vec![7, 0, 0, 1, 0], vec![9, 5], memory, empty.clone(), empty];
        assert_eq!(read(&write(&set)), [(caller, caller, 0x10, codes)]);
    }
}
