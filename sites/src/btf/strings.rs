// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! String tables: NUL-terminated strings, named by the offset of their first byte.
//!
//! Split BTF's offsets continue its base's, so that it can name the base's strings. The strings of a site file's
//! own section continue the split part's in the same way.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::ffi::CStr;
use std::hash::BuildHasher;
use std::sync::Arc;

/// How many string sections can continue one another: kernel, module, sites, and the site file's own two.
const PARTS: usize = 5;

/// String sections that continue one another. A small copyable view.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Strings<'a> {
    parts: [&'a [u8]; PARTS],
    used: usize,
}

impl<'a> Strings<'a> {
    /// These strings, continued by a section. `None` if there are too many already, or they exceed 4 GB.
    pub(crate) fn continued(mut self, section: &'a [u8]) -> Option<Strings<'a>> {
        *self.parts.get_mut(self.used)? = section;
        self.used += 1;
        u32::try_from(self.parts.iter().map(|p| p.len() as u64).sum::<u64>()).ok()?;
        Some(self)
    }

    /// Bytes in all sections: the offset of what would be added next.
    pub(crate) fn len(&self) -> u32 {
        self.parts.iter().map(|p| p.len() as u32).sum()
    }

    /// The string at an offset, if it is inside, terminated and UTF-8.
    pub(crate) fn get(&self, offset: u32) -> Option<&'a str> {
        self.bytes(offset).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The bytes of the string at an offset.
    pub(crate) fn bytes(&self, offset: u32) -> Option<&'a [u8]> {
        let mut offset = offset as usize;
        for part in &self.parts {
            match part.get(offset..) {
                Some(rest) if !rest.is_empty() => {
                    return CStr::from_bytes_until_nul(rest).ok().map(CStr::to_bytes);
                }
                _ => offset -= part.len(),
            }
        }
        None
    }

    /// The offsets at which a string stands; several if it is stored twice or another ends with it. None for the empty
    /// string.
    pub(crate) fn offsets_of(&self, string: &str) -> Vec<u32> {
        let mut offsets = Vec::new();
        if string.is_empty() || string.contains('\0') {
            return offsets;
        }
        let ended = [string.as_bytes(), &[0]].concat();
        let mut first = 0;
        for part in &self.parts {
            offsets.extend(memchr::memmem::find_iter(part, &ended).map(|at| first + at as u32));
            first += part.len() as u32;
        }
        offsets
    }

    /// The section that was added last.
    pub(crate) fn last(&self) -> &'a [u8] {
        self.used.checked_sub(1).and_then(|nth| self.parts.get(nth)).copied().unwrap_or_default()
    }

    /// All sections, one after the other.
    fn concatenated(&self) -> Vec<u8> {
        self.parts.concat()
    }
}

/// A string table being built, over the strings of others: a string that one of those has keeps its offset there.
#[derive(Debug, Clone)]
pub(crate) struct StringTable {
    below: Vec<Arc<Layer>>,
    own: Layer,
    hasher: DefaultHashBuilder,
}

/// Strings one after the other, and where each of them is.
#[derive(Debug, Clone, Default)]
struct Layer {
    /// The offset of the first byte.
    start: u32,
    bytes: Vec<u8>,
    /// Offsets from the first byte.
    index: HashTable<u32>,
}

impl Layer {
    /// The strings of a section that begins at an offset.
    fn new(start: u32, bytes: Vec<u8>, hasher: &DefaultHashBuilder) -> Layer {
        let mut index = HashTable::with_capacity(bytes.len() / 16);
        let mut offset = 0;
        for string in bytes.split_inclusive(|b| *b == 0) {
            // Only terminated strings: the last piece of a malformed table is none.
            if let [name @ .., 0] = string {
                let hash = hasher.hash_one(name);
                index.entry(hash, |o| at(&bytes, *o) == name, |o| hasher.hash_one(at(&bytes, *o))).or_insert(offset);
            }
            offset += string.len() as u32;
        }
        Layer { start, bytes, index }
    }

    /// An empty layer on top of this one.
    fn above(&self) -> Layer {
        Layer { start: self.start + self.bytes.len() as u32, ..Layer::default() }
    }

    /// The offset of a string.
    fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        let found = self.index.find(hash, |&offset| at(&self.bytes, offset) == name);
        found.map(|offset| self.start + offset)
    }
}

/// The string at an offset of a section; empty where the section is malformed.
fn at(section: &[u8], offset: u32) -> &[u8] {
    section.get(offset as usize..).and_then(|rest| CStr::from_bytes_until_nul(rest).ok()).map_or(&[], CStr::to_bytes)
}

impl StringTable {
    /// An empty table over a base's strings. The base is copied and indexed.
    pub(crate) fn new(base: Strings<'_>) -> StringTable {
        let hasher = DefaultHashBuilder::default();
        let base = Layer::new(0, base.concatenated(), &hasher);
        StringTable { own: base.above(), below: vec![Arc::new(base)], hasher }
    }

    /// An empty table over the strings below this one and a section that continues them. The section alone is copied
    /// and indexed.
    pub(crate) fn over(&self, section: &[u8]) -> StringTable {
        let layer = Layer::new(self.own.start, section.to_vec(), &self.hasher);
        let own = layer.above();
        let mut below = self.below.clone();
        below.push(Arc::new(layer));
        StringTable { own, below, hasher: self.hasher.clone() }
    }

    /// A table without a base. It begins with the empty string.
    pub(crate) fn standalone() -> StringTable {
        let mut table = StringTable::new(Strings::default());
        table.add("");
        table
    }

    /// The offset of a string, which is added if neither the table has it nor one below. Bytes from the first NUL on
    /// are dropped: the table cannot hold them.
    pub(crate) fn add(&mut self, string: &str) -> u32 {
        let name = string.as_bytes().split(|b| *b == 0).next().unwrap_or_default();
        // Most types have no name, and every table begins with the empty string.
        if name.is_empty() && self.below.first().is_some_and(|base| base.bytes.first() == Some(&0)) {
            return 0;
        }
        let hash = self.hasher.hash_one(name);
        let layers = self.below.iter().map(|layer| &**layer).chain([&self.own]);
        if let Some(offset) = layers.into_iter().find_map(|layer| layer.find(hash, name)) {
            return offset;
        }
        let Layer { start, bytes, index } = &mut self.own;
        let offset = bytes.len() as u32;
        bytes.extend_from_slice(name);
        bytes.push(0);
        index.insert_unique(hash, offset, |o| self.hasher.hash_one(at(bytes, *o)));
        *start + offset
    }

    /// A table over this one and those below it, which names all their strings and is stored after them.
    pub(crate) fn continued(&self) -> StringTable {
        let mut below = self.below.clone();
        below.push(Arc::new(self.own.clone()));
        StringTable { own: self.own.above(), below, hasher: self.hasher.clone() }
    }

    /// The string at an offset.
    pub(crate) fn get(&self, offset: u32) -> &str {
        let mut layers = self.below.iter().map(|layer| &**layer).chain([&self.own]);
        let holder = layers.rfind(|layer| layer.start <= offset);
        let bytes = holder.map_or(&[][..], |layer| at(&layer.bytes, offset - layer.start));
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The bytes of the table itself, without those below.
    pub(crate) fn own(&self) -> &[u8] {
        &self.own.bytes
    }

    /// Bytes in the tables below.
    pub(crate) fn base_len(&self) -> u32 {
        self.own.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_its_bases_strings() {
        let base = Strings::default().continued(b"\0int\0char\0").unwrap();
        let mut table = StringTable::new(base);
        assert_eq!(table.add(""), 0);
        assert_eq!(table.add("char"), 5);
        assert_eq!(table.add("foo"), 10);
        assert_eq!(table.add("bar\0baz"), 14);
        assert_eq!(table.add("foo"), 10);
        assert_eq!((table.get(1), table.get(14), table.get(99)), ("int", "bar", ""));
        let mut more = table.continued();
        assert_eq!((more.add("int"), more.add("bar"), more.add("new")), (1, 14, 18));
        let all = base.continued(table.own()).unwrap().continued(more.own()).unwrap();
        assert_eq!((all.get(18), all.get(14), all.get(6), all.get(22)), (Some("new"), Some("bar"), Some("har"), None));
    }

    #[test]
    fn a_table_over_an_indexed_one_is_the_same() {
        let kernel = Strings::default().continued(b"\0int\0char\0").unwrap();
        let module = kernel.continued(b"own\0int\0").unwrap();
        assert_eq!(module.last(), b"own\0int\0");
        let (mut whole, mut over) = (StringTable::new(module), StringTable::new(kernel).over(module.last()));
        assert_eq!(whole.base_len(), over.base_len());
        for name in ["int", "own", "new", "", "char"] {
            assert_eq!(whole.add(name), over.add(name), "{name}");
        }
        assert_eq!((over.get(1), over.get(10), over.get(18)), ("int", "own", "new"));
    }

    #[test]
    fn unterminated_strings_are_none() {
        let strings = Strings::default().continued(b"\0ab").unwrap();
        assert_eq!(
            (strings.get(0), strings.get(1), strings.get(3), strings.get(u32::MAX)),
            (Some(""), None, None, None)
        );
        assert_eq!(StringTable::new(strings).add("ab"), 3);
    }
}
