// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The lines of a kernel table, as they come: the tables are megabytes, and the kernel gives a page for each read.

use memchr::{memchr, memrchr};
use std::io::{self, Read};
use std::ops::ControlFlow;

/// How much is asked for at once.
pub(super) const BUFFER: usize = 64 << 10;

/// Calls with each line of the input, without its end. No line of the kernel's is longer than the buffer; a longer one
/// would be given in pieces.
pub(super) fn read_lines(input: impl Read, mut with: impl FnMut(&[u8])) -> io::Result<()> {
    read_lines_until(input, |line| {
        with(line);
        ControlFlow::Continue(())
    })
}

/// [`read_lines`], up to the line at which the call breaks. What comes after it is not read, as far as it is not in the
/// buffer.
pub(super) fn read_lines_until(mut input: impl Read, mut with: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    // Bytes of a line whose end has not come yet.
    let mut held = 0;
    loop {
        let count = match input.read(&mut buffer[held..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        let filled = held + count;
        let is_full = filled == buffer.len();
        let whole = match memrchr(b'\n', &buffer[held..filled]) {
            Some(at) => held + at + 1,
            None if count == 0 || is_full => filled,
            None => 0,
        };
        if each_line_until(&buffer[..whole], &mut with).is_break() || count == 0 {
            return Ok(());
        }
        buffer.copy_within(whole..filled, 0);
        held = filled - whole;
    }
}

/// Calls with each line of the text, without its end.
pub(super) fn each_line(text: &[u8], mut with: impl FnMut(&[u8])) {
    let _ = each_line_until(text, |line| {
        with(line);
        ControlFlow::Continue(())
    });
}

fn each_line_until(mut text: &[u8], mut with: impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
    while !text.is_empty() {
        let end = memchr(b'\n', text).unwrap_or(text.len());
        with(&text[..end])?;
        text = text.get(end + 1..).unwrap_or_default();
    }
    ControlFlow::Continue(())
}

/// An address as the kernel writes it: a number of at most 16 hexadecimal digits, up to the first space, and what comes
/// after that space.
pub(super) fn address(line: &[u8]) -> Option<(u64, &[u8])> {
    // All but oddities have 16 digits: no search for the space.
    let end =
        if line.get(16) == Some(&b' ') { 16 } else { line.iter().position(|&byte| byte == b' ').unwrap_or(line.len()) };
    let (digits, rest) = line.split_at(end);
    let value = hexadecimal(digits.strip_prefix(b"0x").unwrap_or(digits))?;
    Some((value, rest.get(1..).unwrap_or_default()))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut value = 0;
    for &byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its text in pieces of a few bytes, as a pipe may.
    struct Pieces<'t>(&'t [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn lines(input: impl Read) -> Vec<String> {
        let mut lines = Vec::new();
        read_lines(input, |line| lines.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
        lines
    }

    #[test]
    fn addresses() {
        assert_eq!(address(b"ffffffff81000000 T x"), Some((0xffff_ffff_8100_0000, &b"T x"[..])));
        assert_eq!(address(b"1F t y"), Some((0x1f, &b"t y"[..])));
        assert_eq!(address(b"1f"), Some((0x1f, &b""[..])));
        assert_eq!(address(b"0x10 t"), Some((0x10, &b"t"[..])));
        for line in [&b""[..], b" t", b"xyz t", b"0x t", b"+1 t", b"12345678123456789 t"] {
            assert_eq!(address(line), None);
        }
    }

    #[test]
    fn a_line_longer_than_the_buffer_hides_no_other() {
        let text = format!("one\n{}\nthree\n", "x".repeat(3 * BUFFER));
        let lines = lines(text.as_bytes());
        assert_eq!(lines.first().map(String::as_str), Some("one"));
        assert_eq!(lines.last().map(String::as_str), Some("three"));
        assert_eq!(lines.concat().len(), text.len() - 3);
    }

    proptest! {
        #[test]
        fn pieces_are_the_same_lines(text in "[ab\n]{0,60}", piece in 1usize..20) {
            let expected: Vec<&str> = text.lines().collect();
            prop_assert_eq!(lines(Pieces(text.as_bytes(), piece)), expected.clone());
            prop_assert_eq!(lines(text.as_bytes()), expected);
        }
    }
}
