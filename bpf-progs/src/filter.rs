// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which calls a program looks at: `filter.h` in Rust.

/// Parameters that can be looked at.
pub const PARAMETERS: usize = 12;
/// Members of structures that can be looked at: the first ones of [`crate::fields`].
pub const FIELDS: usize = 4;
/// Operations of one expression.
pub const OPERATIONS: usize = 16;
/// Texts that threads' names and members are compared with.
pub const TEXTS: usize = 4;
/// Bytes of one, with its NUL.
pub const TEXT_LEN: usize = 32;
/// Bytes of a thread's name, with its NUL.
pub const COMM_LEN: usize = 16;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// A parameter, by its number: so many of its bits.
    Argument {
        /// The number, below [`PARAMETERS`].
        nth: u32,
        /// 8, 16, 32 or 64.
        bits: u32,
    },
    /// A member of a structure, by its number: so many of its bits.
    Member {
        /// The number, below [`FIELDS`].
        nth: u32,
        /// From 1 to 64.
        bits: u32,
    },
    /// The process.
    Tgid,
    /// The thread.
    Pid,
    /// The processor.
    Cpu,
    /// What the function returned: so many of its bits.
    Result {
        /// 8, 16, 32 or 64.
        bits: u32,
    },
}

/// How a field is compared with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// It is the same.
    Equal,
    /// It is less, without signs.
    Below,
    /// It is greater, without signs.
    Above,
    /// It is less, with signs.
    SignedBelow,
    /// It is greater, with signs.
    SignedAbove,
}

/// An operation of an expression in postfix order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Puts on the stack whether a field compares so with a value.
    Compare(Field, Comparison, u64),
    /// Puts on the stack whether the thread's name begins so, or is just that.
    Comm {
        /// The text.
        text: String,
        /// Whether more may follow.
        prefix: bool,
    },
    /// Puts on the stack whether the text that a member leads to begins so, or is just that.
    Text {
        /// The member's number, below [`FIELDS`].
        member: u32,
        /// The text.
        text: String,
        /// Whether more may follow.
        prefix: bool,
    },
    /// Turns the top of the stack around.
    Not,
    /// Takes two from the stack, and puts back whether both are true.
    And,
    /// Takes two from the stack, and puts back whether one is true.
    Or,
}

/// The constants `filter` and `filter_texts` for an expression; `None` if it is too large for them.
pub fn constants(operations: &[Operation]) -> Option<(Vec<u8>, Vec<u8>)> {
    // A last one says that there are no more.
    if operations.len() >= OPERATIONS {
        return None;
    }
    let (mut ops, mut texts) = (Vec::new(), Vec::new());
    for operation in operations {
        let (kind, field, bits, value) = match operation {
            Operation::Not => (1, 0, 0, 0),
            Operation::And => (2, 0, 0, 0),
            Operation::Or => (3, 0, 0, 0),
            Operation::Compare(field, comparison, value) => {
                let (field, bits) = match *field {
                    Field::Argument { nth, bits } if (nth as usize) < PARAMETERS => (nth, bits),
                    Field::Member { nth, bits } if (nth as usize) < FIELDS => (PARAMETERS as u32 + nth, bits),
                    Field::Argument { .. } | Field::Member { .. } => return None,
                    Field::Tgid => (32, 32),
                    Field::Pid => (33, 32),
                    Field::Cpu => (34, 32),
                    Field::Result { bits } => (35, bits),
                };
                (4 + *comparison as u32, field, bits, *value)
            }
            Operation::Comm { text, prefix } => {
                let nth = texts.len() as u64;
                texts.push(pattern(text, *prefix, COMM_LEN)?);
                (9, 0, 0, nth)
            }
            Operation::Text { member, text, prefix } if (*member as usize) < FIELDS => {
                let nth = texts.len() as u64;
                // A longer text is cut when it is read, and must not be taken for one that ends there.
                texts.push(pattern(text, *prefix, TEXT_LEN - usize::from(!prefix))?);
                (10, PARAMETERS as u32 + member, 0, nth)
            }
            Operation::Text { .. } => return None,
        };
        ops.extend([kind, field, bits, 0].into_iter().flat_map(u32::to_ne_bytes));
        ops.extend(value.to_ne_bytes());
    }
    if texts.len() > TEXTS {
        return None;
    }
    ops.resize(OPERATIONS * 24, 0);
    let mut texts = texts.concat();
    texts.resize(TEXTS * 2 * TEXT_LEN, 0);
    Some((ops, texts))
}

/// Text and mask; `None` if the text with its NUL is longer than so many bytes.
fn pattern(text: &str, prefix: bool, len: usize) -> Option<[u8; 2 * TEXT_LEN]> {
    let mut words = [0; 2 * TEXT_LEN];
    let (own, mask) = words.split_at_mut(TEXT_LEN);
    own.get_mut(..text.len()).filter(|_| text.len() < len)?.copy_from_slice(text.as_bytes());
    // The NUL after a whole text counts; what comes after the NUL is arbitrary.
    mask[..text.len() + usize::from(!prefix)].fill(0xff);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_as_constants() {
        let compare = Operation::Compare(Field::Argument { nth: 3, bits: 32 }, Comparison::SignedAbove, 7);
        let comm = |text: &str, prefix| Operation::Comm { text: text.to_owned(), prefix };
        let (ops, texts) = constants(&[compare.clone(), comm("sh", false), comm("ba", true), Operation::Or]).unwrap();
        assert_eq!((ops.len(), texts.len()), (16 * 24, 4 * 64));
        let word = |at: usize| u32::from_ne_bytes(ops[at..at + 4].try_into().unwrap());
        assert_eq!([0, 4, 8, 16].map(word), [8, 3, 32, 7]);
        assert_eq!([24, 48, 48 + 16, 72, 96].map(word), [9, 9, 1, 3, 0]);
        assert_eq!((&texts[..3], &texts[32..36]), (&b"sh\0"[..], &[0xff, 0xff, 0xff, 0][..]));
        assert_eq!((&texts[64..67], &texts[96..99]), (&b"ba\0"[..], &[0xff, 0xff, 0][..]));
        assert!(constants(&vec![compare; OPERATIONS]).is_none());
        assert!(constants(&vec![comm("x", true); TEXTS + 1]).is_none());
        assert!(constants(&[comm("a name of 16 byte", false)]).is_none());
        let text = |member, text: &str, prefix| Operation::Text { member, text: text.to_owned(), prefix };
        let (ops, _) = constants(&[text(2, "a name of 16 byte", true)]).unwrap();
        assert_eq!(ops[..8], [10u32.to_ne_bytes(), 14u32.to_ne_bytes()].concat());
        assert!(constants(&[text(4, "x", true)]).is_none());
        assert!(constants(&[text(0, &"x".repeat(31), true)]).is_some());
        assert!(constants(&[text(0, &"x".repeat(31), false)]).is_none());
        let (ops, _) =
            constants(&[Operation::Compare(Field::Result { bits: 32 }, Comparison::SignedBelow, 0)]).unwrap();
        assert_eq!(ops[..12], [7u32, 35, 32].map(u32::to_ne_bytes).concat());
        let beyond = Operation::Compare(Field::Argument { nth: 12, bits: 64 }, Comparison::Equal, 0);
        assert!(constants(&[beyond]).is_none());
    }
}
