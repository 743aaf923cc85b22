// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Members of structures that a program reads: `fields.h` in Rust.

/// How many members one program reads.
pub const FIELDS: usize = 8;
/// Reads that one may take.
pub const STEPS: usize = 8;

/// Where a chain of reads begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A parameter, by its number.
    Parameter(u32),
    /// The current thread's `struct task_struct`.
    Task,
    /// What the function returned.
    Result,
    /// Nothing that a call has.
    Nowhere,
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A pointer, and the text that it points to.
    TextPointer,
    /// Text in place, of so many bytes; 0 if that is not known.
    Characters(u32),
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// How the value is stored.
    pub kind: Kind,
    /// Where the chain begins.
    pub base: Base,
    /// Added one after the other; see `siteseer_sites::access::Access`.
    pub offsets: Vec<u32>,
    /// Bytes of the last read.
    pub size: u32,
    /// Position of the value in them.
    pub shift: u32,
    /// Bits of the value.
    pub bits: u32,
    /// Whether it has a sign.
    pub signed: bool,
    /// Whether its first byte is the highest.
    pub big_endian: bool,
}

/// The outcome of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The number, and the text if it leads to text.
    Value {
        /// The number, or the address of the text.
        number: u64,
        /// The text, which may be cut.
        text: Vec<u8>,
    },
    /// The site does not have what the chain begins with.
    Missing,
    /// It cannot be read.
    Unreadable,
}

/// The constant `fields`; `None` if there are too many, or one takes too many reads.
pub fn constant(fields: &[Field]) -> Option<Vec<u8>> {
    if fields.len() > FIELDS {
        return None;
    }
    let mut bytes = Vec::new();
    for field in fields {
        if field.offsets.len() > STEPS {
            return None;
        }
        let (kind, text_len) = match field.kind {
            Kind::Number => (1, 0),
            Kind::TextPointer => (2, 0),
            // And a NUL, which need not be there.
            Kind::Characters(count) => (3, if count == 0 { 0 } else { count.saturating_add(1) }),
        };
        let base = match field.base {
            Base::Parameter(nth) if nth < 31 => nth,
            Base::Task => 32,
            Base::Result => 33,
            Base::Parameter(_) | Base::Nowhere => 31,
        };
        let mut words = vec![
            kind,
            base,
            field.offsets.len() as u32,
            field.size,
            field.shift,
            field.bits,
            field.signed.into(),
            field.big_endian.into(),
            text_len,
        ];
        words.extend(&field.offsets);
        words.resize(WORDS, 0);
        bytes.extend(words.into_iter().flat_map(u32::to_ne_bytes));
    }
    bytes.resize(FIELDS * WORDS * 4, 0);
    Some(bytes)
}

/// Words of one member in the constant.
const WORDS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_as_a_constant() {
        let field = Field {
            kind: Kind::Characters(16),
            base: Base::Task,
            offsets: vec![8, 24],
            size: 8,
            shift: 3,
            bits: 5,
            signed: true,
            big_endian: false,
        };
        let bytes = constant(std::slice::from_ref(&field)).unwrap();
        assert_eq!(bytes.len(), FIELDS * WORDS * 4);
        let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[..12], [3, 32, 2, 8, 3, 5, 1, 0, 17, 8, 24, 0]);
        assert!(words[WORDS..].iter().all(|&word| word == 0));
        assert!(constant(&vec![field.clone(); FIELDS + 1]).is_none());
        assert!(constant(&[Field { offsets: vec![0; STEPS + 1], ..field }]).is_none());
    }
}
