// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The BTF that a generated program is loaded with: the object's own, amended.
//!
//! Functions that see the argument array become static; a FUNC for the trampoline is added, and the texts that stand
//! for its source lines. Types are only walked over, never interpreted, so this needs the sizes of the kinds and no
//! more (Documentation/bpf/btf.rst).

use crate::site::refusal::Refusal;

/// What was amended.
#[derive(Debug)]
pub(super) struct Amended {
    pub(super) bytes: Vec<u8>,
    /// The trampoline's FUNC.
    pub(super) function: u32,
    /// Offset of the trampoline's file name.
    pub(super) file: u32,
    /// Offsets of the texts.
    pub(super) texts: Vec<u32>,
}

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const KIND_FUNC: u32 = 12;
/// Linkage of a FUNC: its vlen.
pub(crate) const STATIC: u32 = 0;
/// Likewise.
pub(crate) const GLOBAL: u32 = 1;
/// What stands for the file of a trampoline's lines.
pub(crate) const FILE: &str = "siteseer";

/// Amends BTF: the FUNCs `statics` become static; a global FUNC with the prototype of the FUNC `like` is added.
pub(super) fn amend(
    btf: &[u8],
    statics: impl Iterator<Item = u32>,
    like: u32,
    texts: &[&str],
) -> Result<Amended, Refusal> {
    let mut amendment = Amendment::of(btf)?;
    let prototype = amendment.prototype(like)?;
    for id in statics {
        amendment.make_static(id)?;
    }
    let name = amendment.string("siteseer_trampoline");
    let file = amendment.string(FILE);
    let texts = texts.iter().map(|text| amendment.string(text)).collect();
    let function = amendment.add(&[name, KIND_FUNC << 24 | GLOBAL, prototype])?;
    Ok(Amended { bytes: amendment.finish()?, function, file, texts })
}

/// BTF that gets more types and strings. The ids and offsets of those that it has stay.
#[derive(Debug)]
pub(crate) struct Amendment {
    /// Magic, version, flags.
    begin: [u8; 4],
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Where each type begins, from type 1 on.
    offsets: Vec<usize>,
}

impl Amendment {
    /// The BTF as it is.
    pub(crate) fn of(btf: &[u8]) -> Result<Amendment, Refusal> {
        let word16 = |at: usize| btf.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes);
        let part = |header: usize, offset: usize| {
            let start = header.checked_add(read(btf, offset)? as usize)?;
            let end = start.checked_add(read(btf, offset + 4)? as usize)?;
            btf.get(start..end)
        };
        if word16(0) != Some(MAGIC) {
            return Err(Refusal::MalformedBtf("it has no little-endian BTF header"));
        }
        let header = read(btf, 4).map(|length| length as usize).filter(|length| *length >= HEADER);
        let parts = header.and_then(|header| Some((part(header, 8)?, part(header, 16)?)));
        let (types, strings) = parts.ok_or(Refusal::MalformedBtf("its header points out of it"))?;
        let begin = btf.first_chunk().copied().unwrap_or_default();
        let (types, strings) = (types.to_vec(), strings.to_vec());
        let offsets = type_offsets(&types)?;
        Ok(Amendment { begin, types, strings, offsets })
    }

    fn func(&self, id: u32) -> Result<(usize, u32), Refusal> {
        let found = usize::try_from(id).ok().and_then(|id| id.checked_sub(1)).and_then(|index| {
            let offset = *self.offsets.get(index)?;
            let info = read(&self.types, offset + 4)?;
            (info >> 24 & 0x1f == KIND_FUNC).then_some((offset, info))
        });
        found.ok_or(Refusal::MalformedBtf("a function's type is not a FUNC"))
    }

    /// The FUNC_PROTO of a FUNC.
    pub(crate) fn prototype(&self, func: u32) -> Result<u32, Refusal> {
        let (offset, _) = self.func(func)?;
        read(&self.types, offset + 8).ok_or(Refusal::MalformedBtf("its last type is cut off"))
    }

    /// The linkage of a FUNC.
    pub(crate) fn linkage(&self, func: u32) -> Result<u32, Refusal> {
        self.func(func).map(|(_, info)| info & 0xffff)
    }

    fn make_static(&mut self, func: u32) -> Result<(), Refusal> {
        let (offset, info) = self.func(func)?;
        if let Some(place) = self.types.get_mut(offset + 4..offset + 8) {
            place.copy_from_slice(&((info & !0xffff) | STATIC).to_le_bytes());
        }
        Ok(())
    }

    /// The text at an offset of the strings.
    pub(crate) fn text(&self, offset: u32) -> Option<&str> {
        let rest = self.strings.get(usize::try_from(offset).ok()?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    }

    /// The offset of a text, if it is among the strings.
    pub(crate) fn find_string(&self, text: &str) -> Option<u32> {
        let wanted = format!("\0{text}\0");
        u32::try_from(memchr::memmem::find(&self.strings, wanted.as_bytes())? + 1).ok()
    }

    /// Adds a string, and returns its offset.
    pub(crate) fn string(&mut self, text: &str) -> u32 {
        let offset = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        offset
    }

    /// Adds a type by its words (`struct btf_type` and what follows it), and returns its id.
    pub(crate) fn add(&mut self, words: &[u32]) -> Result<u32, Refusal> {
        self.offsets.push(self.types.len());
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        u32::try_from(self.offsets.len()).map_err(|_| Refusal::MalformedBtf("it is too large"))
    }

    /// Adds a FUNC with the prototype of another.
    pub(crate) fn add_func(&mut self, name: &str, like: u32, linkage: u32) -> Result<u32, Refusal> {
        let prototype = self.prototype(like)?;
        let name = self.string(name);
        self.add(&[name, KIND_FUNC << 24 | linkage, prototype])
    }

    /// Adds a variable to the DATASEC of a name, which is added if it is not there. It is the last of the section.
    pub(crate) fn add_variable(&mut self, section: &str, variable: u32, offset: u32, size: u32) -> Result<(), Refusal> {
        const KIND_DATASEC: u32 = 15;
        let entry = [variable, offset, size];
        let is_meant = |&&at: &&usize| {
            let info = read(&self.types, at + 4).unwrap_or(0);
            let name = read(&self.types, at).and_then(|name| self.text(name));
            info >> 24 & 0x1f == KIND_DATASEC && name == Some(section)
        };
        let Some(&at) = self.offsets.iter().find(is_meant) else {
            let name = self.string(section);
            self.add(&[&[name, KIND_DATASEC << 24 | 1, offset + size][..], &entry].concat())?;
            return Ok(());
        };
        let malformed = Refusal::MalformedBtf("its last type is cut off");
        let (info, total) = read(&self.types, at + 4).zip(read(&self.types, at + 8)).ok_or(malformed)?;
        if info & 0xffff == 0xffff {
            return Err(Refusal::MalformedBtf("it is too large"));
        }
        let end = at + 12 + 12 * (info & 0xffff) as usize;
        // clang leaves the size to the loader.
        let total = if total == 0 { 0 } else { offset + size };
        for (place, word) in [(at + 4, info + 1), (at + 8, total)] {
            if let Some(place) = self.types.get_mut(place..place + 4) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.types.splice(end..end, bytes);
        self.offsets = type_offsets(&self.types)?;
        Ok(())
    }

    /// The amended BTF.
    pub(crate) fn finish(&self) -> Result<Vec<u8>, Refusal> {
        let too_large = || Refusal::MalformedBtf("it is too large");
        let type_len = u32::try_from(self.types.len()).map_err(|_| too_large())?;
        let str_len = u32::try_from(self.strings.len()).map_err(|_| too_large())?;
        let mut bytes = Vec::with_capacity(HEADER + self.types.len() + self.strings.len());
        bytes.extend_from_slice(&self.begin);
        for word in [HEADER as u32, 0, type_len, type_len, str_len] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        Ok(bytes)
    }
}

fn read(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
}

/// Where each type begins, from type 1 on.
fn type_offsets(types: &[u8]) -> Result<Vec<usize>, Refusal> {
    let mut offsets = Vec::new();
    let mut at = 0;
    while at < types.len() {
        let info = read(types, at + 4).ok_or(Refusal::MalformedBtf("its last type is cut off"))?;
        let vlen = (info & 0xffff) as usize;
        let rest = match info >> 24 & 0x1f {
            // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
            2 | 7..=12 | 16 | 18 => 0,
            // INT, VAR, DECL_TAG
            1 | 14 | 17 => 4,
            // ARRAY
            3 => 12,
            // STRUCT, UNION, DATASEC, ENUM64
            4 | 5 | 15 | 19 => 12 * vlen,
            // ENUM, FUNC_PROTO
            6 | 13 => 8 * vlen,
            _ => return Err(Refusal::MalformedBtf("it has a type of unknown kind")),
        };
        offsets.push(at);
        at += 12 + rest;
    }
    if at != types.len() {
        return Err(Refusal::MalformedBtf("its last type is cut off"));
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// int; FUNC_PROTO int(void); FUNC main (global); FUNC sub (global); one string "main".
    fn sample() -> Vec<u8> {
        let mut types: Vec<u8> = Vec::new();
        for word in [0u32, 1 << 24, 4, 0x0100_0020, 0, 13 << 24, 1, 1, 12 << 24 | 1, 2, 1, 12 << 24 | 1, 2] {
            types.extend(word.to_le_bytes());
        }
        let strings = b"\0main\0";
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            btf.extend(word.to_le_bytes());
        }
        btf.extend(types);
        btf.extend(strings);
        btf
    }

    #[test]
    fn functions_become_static_and_one_is_added() {
        let amended = amend(&sample(), [3u32].into_iter(), 3, &["one", "two"]).expect("sample is well formed");
        let types = &amended.bytes[24..];
        assert_eq!(amended.function, 5);
        let at = |word: usize| read(types, word * 4);
        assert_eq!(at(8), Some(12 << 24));
        assert_eq!(at(11), Some(12 << 24 | 1));
        assert_eq!(at(14), Some(12 << 24 | 1));
        assert_eq!(at(15), Some(2));
        let type_len = read(&amended.bytes, 12).expect("header") as usize;
        let strings = &types[type_len..];
        let text = |offset: u32| {
            let rest = &strings[offset as usize..];
            String::from_utf8_lossy(rest.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
        };
        assert_eq!(at(13).map(text).as_deref(), Some("siteseer_trampoline"));
        assert_eq!(amended.texts.iter().map(|t| text(*t)).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(text(amended.file), "siteseer");
        // What comes out can be read again.
        assert!(amend(&amended.bytes, [5u32].into_iter(), 5, &[]).is_ok());
    }

    #[test]
    fn bad_btf_is_refused() {
        let good = sample();
        for length in 0..good.len() {
            assert!(amend(&good[..length], [3u32].into_iter(), 3, &[]).is_err(), "cut at {length}");
        }
        assert!(amend(&good, [1u32].into_iter(), 3, &[]).is_err());
        assert!(amend(&good, [0u32].into_iter(), 3, &[]).is_err());
        assert!(amend(&good, std::iter::empty(), 9, &[]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn damage_never_panics(position in 0usize..82, value: u8) {
            let mut btf = sample();
            let length = btf.len();
            btf[position % length] = value;
            let _ = amend(&btf, [3u32].into_iter(), 3, &["x"]);
        }
    }
}
