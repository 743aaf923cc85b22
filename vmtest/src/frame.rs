// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Frames: how bytes leave the guest intact over a line that other writers may share.
//!
//! A frame is one line of text:
//!
//! ```text
//! <marker>:<kind>:<sequence>:<length>:<crc32>:<payload in base64>
//! ```
//!
//! The marker is random per run, so that nothing that is printed by chance, or left from another run, is taken for a
//! frame. It may stand anywhere in a line: what precedes it (a kernel message's time stamp, an unfinished line of a
//! program) is skipped, and so is what follows the payload. The checksum covers kind, sequence number and payload. A
//! frame that does not add up is dropped and counted; the sequence number then shows the receiver the gap, or the
//! second copy fills it. Text rather than raw bytes, because terminals and logs rewrite control characters.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The most payload bytes in one frame. With header and base64 this stays below the 976 characters that a line written
/// to `/dev/kmsg` may have (`LOG_LINE_MAX` in kernel/printk/printk.c, less the prefix).
pub const MAX_PAYLOAD: usize = 600;

/// No frame is longer than this; a longer line without an end is not worth keeping.
const MAX_LINE: usize = 16 * 1024;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Init runs.
    Hello,
    /// Bytes of the program's results.
    Data,
    /// The program ended.
    Farewell,
    /// Init could not run the program; the text says why.
    Failure,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Hello, Kind::Data, Kind::Farewell, Kind::Failure];

    fn letter(self) -> char {
        match self {
            Kind::Hello => 'h',
            Kind::Data => 'd',
            Kind::Farewell => 'x',
            Kind::Failure => 'f',
        }
    }

    fn from_letter(letter: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| letter == [kind.letter() as u8])
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Counts from 0 over all frames of a run.
    pub sequence: u32,
    /// What it carries.
    pub kind: Kind,
    /// The bytes, at most [`MAX_PAYLOAD`].
    pub payload: Vec<u8>,
}

fn checksum(sequence: u32, kind: Kind, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&[kind.letter() as u8]);
    hasher.update(payload);
    hasher.finalize()
}

/// Makes frames, counting.
#[derive(Debug, Clone)]
pub struct Encoder {
    marker: String,
    next: u32,
}

impl Encoder {
    /// An encoder for the run that `marker` stands for.
    pub fn new(marker: &str) -> Encoder {
        Encoder { marker: marker.to_owned(), next: 0 }
    }

    /// The lines (each with its newline) that carry `payload`: one for each [`MAX_PAYLOAD`] bytes, one if it is empty.
    pub fn encode(&mut self, kind: Kind, payload: &[u8]) -> Vec<String> {
        let mut chunks: Vec<&[u8]> = payload.chunks(MAX_PAYLOAD).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        chunks
            .into_iter()
            .map(|chunk| {
                let sequence = self.next;
                self.next = self.next.wrapping_add(1);
                format!(
                    "{}:{}:{sequence}:{}:{:08x}:{}\n",
                    self.marker,
                    kind.letter(),
                    chunk.len(),
                    checksum(sequence, kind, chunk),
                    STANDARD.encode(chunk)
                )
            })
            .collect()
    }
}

/// Finds frames in a stream of bytes.
#[derive(Debug, Clone)]
pub struct Decoder {
    marker: Vec<u8>,
    line: Vec<u8>,
    /// The line grew beyond [`MAX_LINE`]; the rest of it is skipped.
    skipping: bool,
    damaged: usize,
}

impl Decoder {
    /// A decoder for the run that `marker` stands for.
    pub fn new(marker: &str) -> Decoder {
        Decoder { marker: marker.as_bytes().to_vec(), line: Vec::new(), skipping: false, damaged: 0 }
    }

    /// Takes the next bytes of the stream and returns the frames that they complete, in order, copies included.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.skipping {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.finish_line(&mut frames);
            } else if self.line.len() > MAX_LINE {
                self.finish_line(&mut frames);
                self.skipping = true;
            }
        }
        frames
    }

    /// How many lines had the marker and were not a whole frame.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    fn finish_line(&mut self, frames: &mut Vec<Frame>) {
        let line = std::mem::take(&mut self.line);
        self.skipping = false;
        // A line may hold the marker more than once, when one frame was cut off and the next follows on the same line.
        let mut rest = line.as_slice();
        while let Some(at) = find(rest, &self.marker) {
            rest = &rest[at + self.marker.len()..];
            match parse(rest) {
                Some(frame) => frames.push(frame),
                None => self.damaged += 1,
            }
        }
    }
}

/// Whether `line` holds a frame of the run that `marker` stands for, whole or not.
pub fn is_frame(line: &[u8], marker: &str) -> bool {
    find(line, marker.as_bytes()).is_some()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len().max(1)).position(|window| window == needle)
}

/// Parses what follows the marker.
fn parse(text: &[u8]) -> Option<Frame> {
    let mut fields = text.strip_prefix(b":")?.splitn(5, |byte| *byte == b':');
    let mut next = || fields.next();
    let kind = Kind::from_letter(next()?)?;
    let sequence: u32 = number(next()?, 10)?;
    let length = usize::try_from(number(next()?, 10)?).ok()?;
    let crc = number(next()?, 16)?;
    if length > MAX_PAYLOAD {
        return None;
    }
    let encoded = next()?.get(..length.div_ceil(3) * 4)?;
    let payload = STANDARD.decode(encoded).ok()?;
    let whole = payload.len() == length && crc == checksum(sequence, kind, &payload);
    whole.then_some(Frame { sequence, kind, payload })
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    // `from_str_radix` would take a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARKER: &str = "9f31c5aa02d47b6e";

    fn sample() -> (Vec<u8>, Vec<String>) {
        let payload: Vec<u8> = (0..=255).cycle().take(2 * MAX_PAYLOAD + 17).collect();
        let lines = Encoder::new(MARKER).encode(Kind::Data, &payload);
        (payload, lines)
    }

    fn joined(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(|frame| frame.payload.clone()).collect()
    }

    #[test]
    fn long_payloads_are_cut_and_come_back_in_order() {
        let (payload, lines) = sample();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() < 976));
        let frames = Decoder::new(MARKER).push(lines.concat().as_bytes());
        assert_eq!(frames.iter().map(|frame| frame.sequence).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(joined(&frames), payload);
    }

    #[test]
    fn an_empty_payload_is_a_frame() {
        let line = Encoder::new(MARKER).encode(Kind::Farewell, &[]).concat();
        let frames = Decoder::new(MARKER).push(line.as_bytes());
        assert_eq!(frames, [Frame { sequence: 0, kind: Kind::Farewell, payload: vec![] }]);
    }

    #[test]
    fn kernel_prefixes_and_unfinished_lines_before_a_frame_are_skipped() {
        let line = Encoder::new(MARKER).encode(Kind::Data, b"payload").concat();
        let console = format!("\r\nhalf a line of a program[    1.234567] {}\r\n[    1.3] other\r\n", line.trim_end());
        let frames = Decoder::new(MARKER).push(console.as_bytes());
        assert_eq!(joined(&frames), b"payload");
    }

    #[test]
    fn a_message_in_the_middle_drops_the_frame_and_the_copy_mends_it() {
        let line = Encoder::new(MARKER).encode(Kind::Data, b"a payload of some length").concat();
        let (head, tail) = line.split_at(line.len() - 12);
        let cut = format!("{head}[    2.000001] clocksource: Switched to tsc\r\n{tail}");
        let mut decoder = Decoder::new(MARKER);
        assert_eq!(decoder.push(cut.as_bytes()), []);
        assert_eq!(decoder.damaged(), 1);
        assert_eq!(joined(&decoder.push(line.as_bytes())), b"a payload of some length");
    }

    #[test]
    fn a_frame_after_one_that_was_cut_off_on_the_same_line_is_found() {
        let mut encoder = Encoder::new(MARKER);
        let first = encoder.encode(Kind::Data, b"first").concat();
        let second = encoder.encode(Kind::Data, b"second").concat();
        let mut decoder = Decoder::new(MARKER);
        let frames = decoder.push(format!("{}{second}", &first[..first.len() - 5]).as_bytes());
        assert_eq!(joined(&frames), b"second");
        assert_eq!(decoder.damaged(), 1);
    }

    #[test]
    fn frames_of_another_run_are_not_ours() {
        let line = Encoder::new("0000000000000000").encode(Kind::Data, b"x").concat();
        let mut decoder = Decoder::new(MARKER);
        assert_eq!(decoder.push(line.as_bytes()), []);
        assert_eq!(decoder.damaged(), 0);
    }

    #[test]
    fn an_endless_line_is_not_kept() {
        let mut decoder = Decoder::new(MARKER);
        for _ in 0..1000 {
            assert_eq!(decoder.push(&[b'x'; 4096]), []);
            assert!(decoder.line.len() <= MAX_LINE + 4096);
        }
        let line = Encoder::new(MARKER).encode(Kind::Data, b"after").concat();
        assert_eq!(joined(&decoder.push(format!("\n{line}").as_bytes())), b"after");
    }

    proptest! {
        #[test]
        fn any_cutting_of_the_stream_gives_the_same_frames(cuts in prop::collection::vec(1usize..200, 1..60)) {
            let (payload, lines) = sample();
            let stream = lines.concat().into_bytes();
            let mut decoder = Decoder::new(MARKER);
            let (mut frames, mut rest, mut cuts) = (Vec::new(), stream.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                frames.extend(decoder.push(now));
                rest = later;
            }
            prop_assert_eq!(joined(&frames), payload);
        }

        #[test]
        fn a_changed_byte_never_changes_a_payload(at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let payload = b"what was sent";
            let mut stream = Encoder::new(MARKER).encode(Kind::Data, payload).concat().into_bytes();
            let at = at.index(stream.len());
            stream[at] = value;
            stream.push(b'\n');
            for frame in Decoder::new(MARKER).push(&stream) {
                prop_assert_eq!(frame.payload.as_slice(), payload.as_slice());
                prop_assert_eq!(frame.sequence, 0);
            }
        }

        #[test]
        fn noise_does_not_panic(noise in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut decoder = Decoder::new(":");
            decoder.push(&noise);
            decoder.push(b"\n:d:0:4294967295:0:AAAA\n:d:99999999999:1:0:A\n:d:-1:+1:0:AAAA\n");
        }
    }
}
