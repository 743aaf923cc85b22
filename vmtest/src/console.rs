// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The console: kept as text, passed on to the caller's sink, with the frames taken out that travel on it.

use std::io::Write;

use crate::frame;

/// Collects the bytes of a console.
pub(crate) struct Console<'a> {
    marker: String,
    line: Vec<u8>,
    text: String,
    sink: Option<&'a mut (dyn Write + Send)>,
    /// While set, nothing goes to the sink: what comes next may turn out to be an attempt that is not to be seen.
    held: Option<Vec<u8>>,
}

impl<'a> Console<'a> {
    pub(crate) fn new(marker: &str, sink: Option<&'a mut (dyn Write + Send)>, hold: bool) -> Console<'a> {
        Console { marker: marker.to_owned(), line: Vec::new(), text: String::new(), sink, held: hold.then(Vec::new) }
    }

    /// Takes the next bytes. Whole lines are passed on; an unfinished one waits for its end.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || self.line.len() > 64 * 1024 {
                self.finish_line();
            }
        }
    }

    /// Lets what was held back, and all that follows, through to the sink.
    pub(crate) fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.pass_on(&held);
        }
    }

    /// The whole text so far.
    pub(crate) fn into_text(mut self) -> String {
        if !self.line.is_empty() {
            self.finish_line();
        }
        self.text
    }

    fn finish_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if frame::is_frame(&line, &self.marker) {
            return;
        }
        line.retain(|byte| *byte != b'\r');
        self.text.push_str(&String::from_utf8_lossy(&line));
        match &mut self.held {
            Some(held) => held.extend_from_slice(&line),
            None => self.pass_on(&line),
        }
    }

    fn pass_on(&mut self, bytes: &[u8]) {
        if let Some(sink) = &mut self.sink {
            // A closed terminal must not fail the run: the text is kept all the same.
            if sink.write_all(bytes).and_then(|()| sink.flush()).is_err() {
                self.sink = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_passed_on_without_frames_and_carriage_returns() {
        let mut seen = Vec::new();
        let mut console = Console::new("mark", Some(&mut seen), false);
        console.push(b"one\r\ntw");
        console.push(b"o\r\n[    1.000000] mark:d:0:0:0:\r\nthree");
        assert_eq!(console.into_text(), "one\ntwo\nthree");
        assert_eq!(seen, b"one\ntwo\nthree");
    }

    #[test]
    fn held_lines_appear_on_release_only() {
        let mut seen = Vec::new();
        let mut console = Console::new("mark", Some(&mut seen), true);
        console.push(b"one\n");
        console.release();
        console.push(b"two\n");
        assert_eq!(console.into_text(), "one\ntwo\n");
        assert_eq!(seen, b"one\ntwo\n");

        let mut unseen = Vec::new();
        let mut console = Console::new("mark", Some(&mut unseen), true);
        console.push(b"one\n");
        assert_eq!(console.into_text(), "one\n");
        assert_eq!(unseen, b"");
    }
}
