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
const STATIC: u32 = 0;
const GLOBAL: u32 = 1;

/// Amends BTF: the FUNCs `statics` become static; a global FUNC with the prototype of the FUNC `like` is added.
pub(super) fn amend(
    btf: &[u8],
    statics: impl Iterator<Item = u32>,
    like: u32,
    texts: &[&str],
) -> Result<Amended, Refusal> {
    let word16 = |at: usize| btf.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes);
    let word = |at: usize| btf.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let part = |header: usize, offset: usize| {
        let start = header.checked_add(word(offset)? as usize)?;
        let end = start.checked_add(word(offset + 4)? as usize)?;
        btf.get(start..end)
    };
    if word16(0) != Some(MAGIC) {
        return Err(Refusal::MalformedBtf("it has no little-endian BTF header"));
    }
    let header = word(4).map(|length| length as usize).filter(|length| *length >= HEADER);
    let parts = header.and_then(|header| Some((part(header, 8)?, part(header, 16)?)));
    let (types, strings) = parts.ok_or(Refusal::MalformedBtf("its header points out of it"))?;

    let mut types = types.to_vec();
    let mut strings = strings.to_vec();
    let offsets = type_offsets(&types)?;
    let func = |types: &[u8], id: u32| {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        let offset = *offsets.get(index)?;
        let info = read(types, offset + 4)?;
        (info >> 24 & 0x1f == KIND_FUNC).then_some((offset, info))
    };
    let not_func = Refusal::MalformedBtf("a function's type is not a FUNC");
    let prototype = func(&types, like).and_then(|(offset, _)| read(&types, offset + 8)).ok_or(not_func.clone())?;
    for id in statics {
        let (offset, info) = func(&types, id).ok_or(not_func.clone())?;
        if let Some(place) = types.get_mut(offset + 4..offset + 8) {
            place.copy_from_slice(&((info & !0xffff) | STATIC).to_le_bytes());
        }
    }
    let mut add = |text: &str| {
        let offset = u32::try_from(strings.len()).unwrap_or(u32::MAX);
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        offset
    };
    let name = add("siteseer_trampoline");
    let file = add("siteseer");
    let texts = texts.iter().map(|text| add(text)).collect();
    for word in [name, KIND_FUNC << 24 | GLOBAL, prototype] {
        types.extend_from_slice(&word.to_le_bytes());
    }
    let too_large = Refusal::MalformedBtf("it is too large");
    let function = u32::try_from(offsets.len() + 1).map_err(|_| too_large.clone())?;
    let type_len = u32::try_from(types.len()).map_err(|_| too_large.clone())?;
    let str_len = u32::try_from(strings.len()).map_err(|_| too_large)?;

    let mut bytes = Vec::with_capacity(HEADER + types.len() + strings.len());
    bytes.extend_from_slice(btf.get(..4).unwrap_or_default());
    for word in [HEADER as u32, 0, type_len, type_len, str_len] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&types);
    bytes.extend_from_slice(&strings);
    Ok(Amended { bytes, function, file, texts })
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
