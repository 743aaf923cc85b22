// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A reader that knows upstream's kinds alone.
//!
//! It is written from what include/uapi/linux/btf.h says, and shares nothing with siteseer's own reader: no code, no
//! types, no companion section. What it makes of a location is what a tool that knows the kernel's format would make of
//! it. It is for tests: it believes what it reads.

use std::collections::HashMap;

/// Registers and memory at a site, and where the image lies.
pub(crate) struct State<'s> {
    pub(crate) register: &'s dyn Fn(u32) -> u64,
    pub(crate) byte: &'s dyn Fn(u64) -> u8,
    pub(crate) base: u64,
}

/// A type: the three words of `struct btf_type`, and the words after them.
struct Type<'a> {
    name: u32,
    info: u32,
    size_or_type: u32,
    tail: &'a [u8],
}

impl Type<'_> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x7f
    }

    fn vlen(&self) -> usize {
        (self.info & 0x00ff_ffff) as usize
    }

    fn word(&self, nth: usize) -> u32 {
        word(self.tail, 4 * nth)
    }
}

/// The BTF of an image (and of a module, split over it) and the BTF with its sites, numbered through.
pub(crate) struct Reader<'a> {
    types: Vec<Type<'a>>,
    strings: Vec<u8>,
}

/// One entry of a LOCSEC.
pub(crate) struct Site {
    /// The name of the LOCSEC.
    pub(crate) locsec: String,
    pub(crate) func: u32,
    pub(crate) offset: u32,
    loc_proto: u32,
}

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap())
}

/// Bytes after `struct btf_type`: once, and for each element.
fn tail(kind: u32) -> (usize, usize) {
    match kind {
        1 | 14 | 17 => (4, 0),
        2 | 7..=12 | 16 | 18 => (0, 0),
        3 => (12, 0),
        4 | 5 | 15 | 19 | 22 => (0, 12),
        6 | 13 => (0, 8),
        20 => (4, 4),
        21 => (0, 4),
        other => panic!("kind {other}"),
    }
}

impl<'a> Reader<'a> {
    /// Reads BTF, and split BTF over it, part by part.
    pub(crate) fn new(parts: &[&'a [u8]]) -> Reader<'a> {
        // Type 0 is void.
        let void = Type { name: 0, info: 0, size_or_type: 0, tail: &[] };
        let mut reader = Reader { types: vec![void], strings: Vec::new() };
        parts.iter().for_each(|part| reader.add(part));
        reader
    }

    fn add(&mut self, data: &'a [u8]) {
        assert_eq!(word(data, 0), 0x0001_eb9f, "magic, version 1, no flags");
        let header = word(data, 4) as usize;
        let section = |at: usize| {
            let start = header + word(data, at) as usize;
            &data[start..start + word(data, at + 4) as usize]
        };
        let (mut types, strings) = (section(8), section(16));
        self.strings.extend_from_slice(strings);
        while !types.is_empty() {
            let info = word(types, 4);
            let (once, each) = tail(info >> 24 & 0x7f);
            let len = once + each * (info & 0x00ff_ffff) as usize;
            let (ty, rest) = types.split_at(12 + len);
            self.types.push(Type { name: word(ty, 0), info, size_or_type: word(ty, 8), tail: &ty[12..] });
            types = rest;
        }
    }

    fn name(&self, offset: u32) -> String {
        let rest = &self.strings[offset as usize..];
        let end = rest.iter().position(|&byte| byte == 0).unwrap();
        String::from_utf8(rest[..end].to_vec()).unwrap()
    }

    /// The name of a FUNC.
    pub(crate) fn func_name(&self, func: u32) -> String {
        self.name(self.types[func as usize].name)
    }

    /// The entries of all LOCSECs.
    pub(crate) fn sites(&self) -> Vec<Site> {
        let mut sites = Vec::new();
        for ty in self.types.iter().filter(|ty| ty.kind() == 22) {
            let locsec = self.name(ty.name);
            let entry = |nth| {
                let [func, loc_proto, offset] = [0, 1, 2].map(|field| ty.word(3 * nth + field));
                Site { locsec: locsec.clone(), func, offset, loc_proto }
            };
            sites.extend((0..ty.vlen()).map(entry));
        }
        sites
    }

    /// The type without typedefs (8), qualifiers (9 to 11) and type tags (18).
    fn strip(&self, mut id: u32) -> &Type<'a> {
        loop {
            let ty = &self.types[id as usize];
            match ty.kind() {
                8..=11 | 18 => id = ty.size_or_type,
                _ => return ty,
            }
        }
    }

    /// Whether a type is signed: an INT by its encoding, an ENUM (6) or ENUM64 (19) by its kind flag.
    fn is_signed(&self, id: u32) -> bool {
        let ty = self.strip(id);
        match ty.kind() {
            1 => ty.word(0) >> 24 & 1 != 0,
            6 | 19 => ty.info >> 31 != 0,
            _ => false,
        }
    }

    /// The parameters at a site, in 8-byte slots each; `None` where there is no location.
    pub(crate) fn values(&self, site: &Site, state: &State<'_>) -> Vec<Option<Vec<u64>>> {
        let proto = &self.types[self.types[site.func as usize].size_or_type as usize];
        let locations = &self.types[site.loc_proto as usize];
        assert_eq!((proto.kind(), locations.kind()), (13, 21));
        assert_eq!(proto.vlen(), locations.vlen(), "an element for each element of the prototype");
        let mut values = Vec::new();
        for nth in 0..proto.vlen() {
            let (ty, id) = (proto.word(2 * nth + 1), locations.word(nth));
            // The mark of further arguments: neither a name nor a type.
            if ty == 0 {
                assert_eq!((nth + 1, id), (proto.vlen(), 0));
                continue;
            }
            values.push((id != 0).then(|| self.value(id, self.is_signed(ty), state)));
        }
        values
    }

    fn value(&self, id: u32, signed: bool, state: &State<'_>) -> Vec<u64> {
        let param = &self.types[id as usize];
        assert_eq!(param.kind(), 20);
        let (size, flags, count) = (param.size_or_type as usize, param.word(0), param.vlen());
        let value = |nth: usize| param.word(1 + nth);
        let (negative, constant, address) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let (register, deref, offset) = (flags & 8 != 0, flags & 16 != 0, flags & 32 != 0);
        let number = |from: usize| match count - from {
            1 if negative => value(from) as i32 as u64,
            1 => u64::from(value(from)),
            2 => u64::from(value(from + 1)) << 32 | u64::from(value(from)),
            words => panic!("{words} words"),
        };
        let raw: Vec<u64> = if constant {
            assert!(!register && !deref && !offset);
            vec![number(0).wrapping_add(if address { state.base } else { 0 })]
        } else {
            assert!(register && !address && value(0) != u32::MAX);
            let place = (state.register)(value(0)).wrapping_add(if offset { number(1) } else { 0 });
            match (deref, offset) {
                (true, _) => {
                    (0..size.div_ceil(8)).map(|slot| load(place + 8 * slot as u64, size - 8 * slot, state)).collect()
                }
                (false, true) => vec![place],
                (false, false) => (0..count).map(|nth| (state.register)(value(nth))).collect(),
            }
        };
        assert_eq!(raw.len(), size.div_ceil(8));
        raw.iter().enumerate().map(|(slot, &raw)| extend(raw, size - 8 * slot, signed)).collect()
    }

    /// How many LOC_PARAMs there are of each combination of flags and number of words.
    pub(crate) fn shapes(&self) -> HashMap<(u32, usize), usize> {
        let mut shapes = HashMap::new();
        for ty in self.types.iter().filter(|ty| ty.kind() == 20) {
            *shapes.entry((ty.word(0), ty.vlen())).or_default() += 1;
        }
        shapes
    }
}

fn load(at: u64, bytes: usize, state: &State<'_>) -> u64 {
    (0..bytes.min(8)).fold(0, |value, nth| value | u64::from((state.byte)(at.wrapping_add(nth as u64))) << (8 * nth))
}

/// The low bytes of a value, extended to a slot.
fn extend(value: u64, bytes: usize, signed: bool) -> u64 {
    if bytes >= 8 {
        return value;
    }
    let mask = (1u64 << (8 * bytes)) - 1;
    let low = value & mask;
    if signed && low >> (8 * bytes - 1) != 0 { low | !mask } else { low }
}
