// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The format of the 2024 conference proposal.
//!
//! It is split BTF over the kernel's. A DATASEC with the kind flag holds the copies of a text section, each as {u32 FUNC, u32 offset in
//! the section, u32 BTF_KIND_LOC}, in the order of FUNCs. A BTF_KIND_LOC has a string for each parameter, which says where it is.
//! The proposal does not define the text of these strings; this is the text that siteseer prints (`rdi`, `*(rsp+16)`). Any
//! computation can be written as text, so that every location has a form. An empty string is a missing location.

use crate::btf::{MAGIC, TypeId};
use crate::location::{Argument, Located};
use crate::set::SiteSet;
use crate::site::SiteKind;
use std::collections::HashMap;

/// The number that the proposal uses, the first that was free.
const KIND_LOC: u32 = 20;
/// BTF_KIND_DATASEC with the kind flag.
const DATASEC_OF_SITES: u32 = 1 << 31 | 15 << 24;
const HEADER_LEN: u32 = 24;

/// The inlined copies of a set in that format. Types that only they use are not in it: all formats need these alike.
pub fn write(set: &SiteSet) -> Vec<u8> {
    let mut types = Vec::new();
    let mut strings = Strings::default();
    let mut next = set.types.end_id();
    let mut known: HashMap<Vec<u32>, TypeId> = HashMap::new();
    let prototypes: Vec<TypeId> = set
        .prototypes
        .iter()
        .map(|prototype| {
            let texts = prototype.iter().map(|argument| strings.add(&text(set, argument))).collect();
            *known.entry(texts).or_insert_with_key(|texts| {
                words(&mut types, &[0, KIND_LOC << 24 | texts.len() as u32, 0]);
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
    fn copies_and_strings_are_where_the_header_says() {
        let set = set();
        let data = write(&set);
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        let types = word(4) as usize;
        let strings = types + word(16) as usize;
        assert_eq!((word(12) as usize + types, data.len()), (strings, strings + word(20) as usize));
        let string = |offset: u32| {
            let bytes = &data[strings + offset as usize..];
            std::str::from_utf8(&bytes[..bytes.iter().position(|byte| *byte == 0).unwrap()]).unwrap().to_owned()
        };
        // The one BTF_KIND_LOC, and a text for each of its parameters.
        assert_eq!((word(types), word(types + 4)), (0, KIND_LOC << 24 | 6));
        let texts: Vec<String> = (0..6).map(|nth| string(word(types + 12 + 4 * nth))).collect();
        assert_eq!(texts, ["-2", "0x10000", "rdi", "*(rsp-8)", "rdx:rcx", ""]);
        // The section with the one copy.
        let section = types + 12 + 4 * 6;
        assert_eq!((string(word(section)).as_str(), word(section + 4)), (".text", DATASEC_OF_SITES | 1));
        let copy = [word(section + 12), word(section + 16), word(section + 20)];
        assert_eq!(copy, [set.functions[0].func, 0x10, set.types.end_id()]);
    }
}
