// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Lines to stdout, by a writer that can be stopped: a pipe that nobody reads blocks whoever writes to it, and then
//! neither ctrl-C nor the end of the time would be seen.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// A pipe that is ready takes as many bytes at once (`PIPE_BUF`).
const AT_ONCE: usize = 4096;
/// From how many bytes on the lines are written.
const ENOUGH: usize = 64 << 10;
/// How long it waits before it asks again whether to give up, in milliseconds.
const PATIENCE: u8 = 20;

/// Lines that are to be written.
pub(super) struct Out {
    to: File,
    pending: Vec<u8>,
    /// How many of these bytes are of the heading.
    heading: usize,
}

impl Out {
    /// Standard output.
    pub(super) fn stdout() -> io::Result<Out> {
        Ok(Out::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    fn new(to: File) -> Out {
        Out { to, pending: Vec::new(), heading: 0 }
    }

    /// Begins with a line that is not counted among those that are left.
    pub(super) fn heading(&mut self, line: &str) {
        self.line(line);
        self.heading = self.pending.len();
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) {
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.push(b'\n');
    }

    /// Whether it is time to write.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= ENOUGH
    }

    /// How many lines are not written to the end. Those that begin with a tab belong to the one before.
    pub(super) fn left(&self) -> u64 {
        let pending = self.pending.get(self.heading..).unwrap_or_default();
        let next = pending.iter().skip(1).map(Some).chain([None]);
        let ends = pending.iter().zip(next).filter(|&(&byte, next)| byte == b'\n' && next != Some(&b'\t'));
        ends.count() as u64
    }

    /// Writes what there is, until `give_up` says so.
    ///
    /// # Errors
    /// If it cannot be written at all.
    pub(super) fn write(&mut self, give_up: impl Fn() -> bool) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            let rest = self.pending.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            if !self.is_ready() {
                if give_up() {
                    break Ok(());
                }
                continue;
            }
            match self.to.write(rest.get(..AT_ONCE).unwrap_or(rest)) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => break Err(error),
            }
        };
        self.pending.drain(..written);
        self.heading = self.heading.saturating_sub(written);
        result
    }

    /// Whether a write will not block. Waits a little.
    fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(self.to.as_fd(), PollFlags::POLLOUT)];
        // An error of the descriptor's is the write's to say; a signal is for whoever may give up.
        matches!(poll(&mut fds, PollTimeout::from(PATIENCE)), Ok(ready) if ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_pipe_that_nobody_reads_is_given_up() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut out = Out::new(File::from(OwnedFd::from(writer)));
        for nth in 0..40_000 {
            out.line(&format!("{nth:09}"));
        }
        assert!(out.is_full());
        let begin = Instant::now();
        out.write(|| begin.elapsed() > Duration::from_millis(50)).unwrap();
        let left = out.left();
        assert!(left > 0 && left < 40_000, "{left}");
        // A line that was begun is among those that are left.
        let mut got = vec![0; 10 * (40_000 - left as usize)];
        reader.read_exact(&mut got).unwrap();
        assert!(got.ends_with(format!("{:09}\n", 39_999 - left).as_bytes()));
    }

    #[test]
    fn lines_are_written_and_errors_told() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut out = Out::new(File::from(OwnedFd::from(writer)));
        out.line("one");
        out.line("two");
        out.write(|| false).unwrap();
        let mut got = [0; 8];
        reader.read_exact(&mut got).unwrap();
        assert_eq!((&got, out.left()), (b"one\ntwo\n", 0));
        drop(reader);
        out.heading("which");
        out.line("three\n\tof three");
        assert_eq!(out.left(), 1);
        assert_eq!(out.write(|| false).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(out.left(), 1);
    }

    #[test]
    fn a_full_disk_takes_nothing() {
        let mut out = Out::new(File::options().write(true).open("/dev/full").unwrap());
        out.heading("TIME");
        out.line("{}");
        assert_eq!(out.write(|| false).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(out.left(), 1);
    }
}
