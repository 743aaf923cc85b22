// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `count.bpf.c` tells user space: `count.h` in Rust.

/// What calls are counted by, besides the function: the constant `count_by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Nothing else.
    Function,
    /// The site.
    Site,
    /// The process.
    Tgid,
    /// The thread.
    Pid,
    /// The processor.
    Cpu,
    /// The thread's name.
    Comm,
    /// An argument's value.
    Argument,
    /// The power of two below an argument's value.
    Histogram,
    /// The kernel's stack.
    Stack,
}

/// A key of the map `counts`, or of `functions`. The map's values are numbers of calls for each processor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The attachment's cookie.
    pub function: u32,
    /// Whether the calls do not have the argument, or there was no room for the stack.
    pub missing: bool,
    /// In a histogram: whether the values are negative, and their magnitudes stand for them.
    pub negative: bool,
    /// What was counted by. In a histogram 0 is for 0, and n for values of n bits. See [`Key::stack`].
    pub value: u64,
    /// The thread's name, if that was counted by.
    pub comm: String,
}

/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// The most functions of a stack.
pub const FRAMES: usize = 127;

/// Reads a value of the map `stacks`: addresses, from the innermost one outwards.
pub fn frames(data: &[u8]) -> Vec<u64> {
    let words = data.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    words.take_while(|&address| address != 0).take(FRAMES).collect()
}

impl Key {
    /// If calls were counted by stack: the site's id, and the key of the stack in the map `stacks`.
    pub fn stack(&self) -> (u32, u32) {
        ((self.value >> 32) as u32, self.value as u32)
    }

    /// That of a function's calls, counted by nothing else: an index of the map `functions`.
    pub fn of(function: u32) -> Key {
        Key { function, missing: false, negative: false, value: 0, comm: String::new() }
    }

    /// Reads a key; `None` if it is too short to be one.
    pub fn parse(data: &[u8]) -> Option<Key> {
        let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
        let comm = data.get(8..24)?;
        let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
        let flags = word(28)?;
        Some(Key {
            function: word(24)?,
            missing: flags & 1 != 0,
            negative: flags & 2 != 0,
            value: u64::from_ne_bytes(data.get(..8)?.try_into().ok()?),
            comm: String::from_utf8_lossy(&comm[..end]).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_program_writes() {
        let mut data = [0; KEY_LEN];
        data[..8].copy_from_slice(&7u64.to_ne_bytes());
        data[8..12].copy_from_slice(b"bash");
        data[24] = 3;
        data[28] = 2;
        let key = Key::parse(&data).unwrap();
        assert_eq!((key.function, key.missing, key.negative, key.value, &*key.comm), (3, false, true, 7, "bash"));
        assert!(Key::parse(&data[..KEY_LEN - 1]).is_none());
    }
}
