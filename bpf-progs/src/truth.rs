// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `truth.bpf.c` tells the tests: `truth.h` in Rust.

/// Values of a record.
pub const VALUES: usize = 10;

/// Which program wrote a record; the names are those of the programs.
pub mod program {
    /// `copy_key`
    pub const COPY_KEY: u32 = 1;
    /// `copy_key_slots`
    pub const COPY_KEY_SLOTS: u32 = 2;
    /// `ns_capable`
    pub const NS_CAPABLE: u32 = 3;
    /// `jhash`
    pub const JHASH: u32 = 4;
    /// `any`
    pub const ANY: u32 = 5;
    /// `count`
    pub const COUNT: u32 = 6;
    /// `context`
    pub const CONTEXT: u32 = 7;
    /// `subprogram`
    pub const SUBPROGRAM: u32 = 8;
    /// `copy_key_struct`
    pub const COPY_KEY_STRUCT: u32 = 9;
}

/// One call: a record of the ring buffer `truth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// One of [`program`].
    pub program: u32,
    /// The site's kind (0 body, 1 clone, 2 inline), if it is known.
    pub kind: Option<u32>,
    /// The site's number in the link's report, if it is known.
    pub site: Option<u32>,
    /// The process.
    pub tgid: u32,
    /// The attachment's cookie.
    pub cookie: u64,
    /// Run-time address of the site; 0 if it is not known.
    pub address: u64,
    /// Which values could be obtained, one bit each.
    pub present: u64,
    /// The values.
    pub values: [u64; VALUES],
}

impl Record {
    /// Reads a record; `None` if it is too short to be one.
    pub fn parse(data: &[u8]) -> Option<Record> {
        let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let mut values = [0; VALUES];
        for (index, value) in values.iter_mut().enumerate() {
            *value = long(40 + 8 * index)?;
        }
        let known = |value: u32| Some(value).filter(|&value| value != u32::MAX);
        Some(Record {
            program: word(0)?,
            kind: known(word(4)?),
            site: known(word(8)?),
            tgid: word(12)?,
            cookie: long(16)?,
            address: long(24)?,
            present: long(32)?,
            values,
        })
    }

    /// A value, if it could be obtained.
    pub fn value(&self, n: usize) -> Option<u64> {
        (n < VALUES && self.present >> n & 1 == 1).then(|| self.values[n])
    }
}
