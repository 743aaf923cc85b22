// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The QEMU process: found, started, watched, and never left behind.
//!
//! Three streams come out of it: the console on its standard output, its own words on standard error, and the results
//! port through a FIFO. One thread reads them all by poll(2), so that a deadline is a deadline whatever the guest does.
//! The process dies with the thread that watches it, however that ends: `Drop` kills it, and `PR_SET_PDEATHSIG` does
//! when nobody is left to run `Drop`.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Instant,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::Mode,
    unistd::mkfifo,
};

use siteseer_kernels::child::die_with_parent;

/// Looks a program up in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// What watches a running guest.
pub(crate) trait Watcher {
    /// Bytes of the console.
    fn console(&mut self, bytes: &[u8]);
    /// Bytes of the results port.
    fn results(&mut self, bytes: &[u8]);
    /// When to give up; asked after every event.
    fn deadline(&self) -> Instant;
}

/// How watching ended.
#[derive(Debug)]
pub(crate) enum End {
    /// QEMU ended by itself.
    Exited(ExitStatus),
    /// The deadline passed; QEMU was killed.
    Deadline,
}

/// A running QEMU.
pub(crate) struct Qemu {
    child: Child,
    results: Option<File>,
    said: Vec<u8>,
}

/// The kernel's console driver waits 10 ms for a full line, and then drops the character (`wait_for_lsr()` in
/// drivers/tty/serial/8250/8250_port.c). A pipe of this size outlasts a reader that a busy host does not run. It is the
/// most that an unprivileged process gets (/proc/sys/fs/pipe-max-size).
const PIPE_SIZE: i32 = 1 << 20;

/// How much is read of one stream before the deadline and the other streams have their turn.
const AT_ONCE: usize = 64 * 1024;

/// QEMU's words are kept up to this length: a warning per instruction must not fill the memory.
const MAX_SAID: usize = 64 * 1024;

impl Qemu {
    /// Starts `program`. The argument vector must send character device `results` to the file `results_path`, which
    /// this makes, and the console to standard output.
    pub(crate) fn start(program: &Path, arguments: &[OsString], results_path: &Path) -> io::Result<Qemu> {
        mkfifo(results_path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Opened first, so that the writer's opening does not block; for writing too, so that a writer that closes and
        // opens again finds a reader still: the end is told by the process's other streams.
        let results =
            File::options().read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(results_path)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_parent(&mut command);
        let qemu = Qemu { child: command.spawn()?, results: Some(results), said: Vec::new() };
        // A smaller pipe works as well, on a host that is not busy.
        for pipe in
            [qemu.results.as_ref().map(AsFd::as_fd), qemu.child.stdout.as_ref().map(AsFd::as_fd)].into_iter().flatten()
        {
            let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
        }
        Ok(qemu)
    }

    /// Passes on what comes until QEMU ends or the deadline passes, and kills it then.
    pub(crate) fn watch(&mut self, watcher: &mut dyn Watcher) -> io::Result<End> {
        let mut console = self.child.stdout.take();
        let mut errors = self.child.stderr.take();
        for stream in [console.as_ref().map(AsFd::as_fd), errors.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
            fcntl(stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let mut buffer = vec![0; AT_ONCE];
        let end = loop {
            if console.is_none() && errors.is_none() {
                break End::Exited(self.child.wait()?);
            }
            let left = watcher.deadline().saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.child.kill()?;
                self.child.wait()?;
                break End::Deadline;
            }
            // One millisecond more, as the fraction is cut off: not to spin through the last one.
            let timeout = PollTimeout::try_from(left.as_millis().min(60_000) as u32 + 1).unwrap_or(PollTimeout::MAX);
            let streams: [Option<BorrowedFd<'_>>; 3] = [
                console.as_ref().map(AsFd::as_fd),
                errors.as_ref().map(AsFd::as_fd),
                self.results.as_ref().map(AsFd::as_fd),
            ];
            let ready = wait(&streams, timeout)?;
            if ready[2] {
                // Before the console, so that a result is known when the console's end is seen.
                drain(&mut self.results, &mut buffer, AT_ONCE, |bytes| watcher.results(bytes))?;
            }
            if ready[0] {
                drain(&mut console, &mut buffer, AT_ONCE, |bytes| watcher.console(bytes))?;
            }
            if ready[1] {
                let said = &mut self.said;
                drain(&mut errors, &mut buffer, AT_ONCE, |bytes| {
                    said.extend_from_slice(&bytes[..bytes.len().min(MAX_SAID.saturating_sub(said.len()))]);
                })?;
            }
        };
        // What was in the pipes when it ended: up to a pipe's size, as there may be another writer.
        let rest = PIPE_SIZE as usize;
        drain(&mut self.results, &mut buffer, rest, |bytes| watcher.results(bytes))?;
        drain(&mut console, &mut buffer, rest, |bytes| watcher.console(bytes))?;
        Ok(end)
    }

    /// What QEMU wrote to its standard error.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.said).trim().to_owned()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Which of the streams have something to read, be it their end.
fn wait(streams: &[Option<BorrowedFd<'_>>; 3], timeout: PollTimeout) -> io::Result<[bool; 3]> {
    let (indices, mut descriptors): (Vec<usize>, Vec<PollFd<'_>>) = streams
        .iter()
        .enumerate()
        .filter_map(|(index, stream)| Some((index, PollFd::new((*stream)?, PollFlags::POLLIN))))
        .unzip();
    match poll(&mut descriptors, timeout) {
        Ok(_) => {}
        Err(nix::Error::EINTR) => return Ok([false; 3]),
        Err(error) => return Err(error.into()),
    }
    let mut ready = [false; 3];
    for (index, descriptor) in indices.into_iter().zip(&descriptors) {
        ready[index] = descriptor.any().unwrap_or(true);
    }
    Ok(ready)
}

/// Reads what is there, until at least `enough` bytes were read; at the end of the stream, drops it.
fn drain<R: Read>(
    stream: &mut Option<R>,
    buffer: &mut [u8],
    enough: usize,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut read = 0;
    while read < enough
        && let Some(reader) = stream
    {
        match reader.read(buffer) {
            Ok(0) => *stream = None,
            Ok(count) => {
                take(&buffer[..count]);
                read += count;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    struct Recorder {
        console: Vec<u8>,
        results: Vec<u8>,
        deadline: Instant,
    }

    impl Watcher for Recorder {
        fn console(&mut self, bytes: &[u8]) {
            self.console.extend_from_slice(bytes);
        }
        fn results(&mut self, bytes: &[u8]) {
            self.results.extend_from_slice(bytes);
        }
        fn deadline(&self) -> Instant {
            self.deadline
        }
    }

    /// A shell stands for QEMU.
    fn run(script: &str, limit: Duration) -> (End, Recorder, String) {
        run_watched(script, limit, |_| {})
    }

    /// Calls `before` when the shell was started and nothing was read from it.
    fn run_watched(script: &str, limit: Duration, before: impl FnOnce(&mut Child)) -> (End, Recorder, String) {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("results");
        let script = script.replace("RESULTS", &fifo.to_string_lossy());
        let deadline = Instant::now() + limit;
        let mut qemu = Qemu::start(Path::new("/bin/sh"), &["-c".into(), script.into()], &fifo).unwrap();
        before(&mut qemu.child);
        let mut recorder = Recorder { console: vec![], results: vec![], deadline };
        let end = qemu.watch(&mut recorder).unwrap();
        (end, recorder, qemu.said())
    }

    #[test]
    fn three_streams_are_told_apart_to_the_last_byte() {
        let (end, recorder, said) = run(
            "echo console; head -c 300000 /dev/zero > RESULTS; echo said >&2; echo last > RESULTS; exit 3",
            Duration::from_secs(600),
        );
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)), "{end:?}");
        assert_eq!(recorder.console, b"console\n");
        assert_eq!(said, "said");
        assert_eq!(recorder.results.len(), 300_005);
        assert!(recorder.results.ends_with(b"last\n"));
    }

    /// A busy host may run the reader only when all has been written.
    #[test]
    fn what_was_written_when_it_ended_is_read_whole() {
        let (_, recorder, _) = run_watched(
            "head -c 300000 /dev/zero > RESULTS; echo last > RESULTS; echo console",
            Duration::from_secs(600),
            |shell| {
                // A pipe that the host keeps small makes the shell wait for a reader.
                let wait_until = Instant::now() + Duration::from_secs(20);
                while shell.try_wait().unwrap().is_none() && Instant::now() < wait_until {
                    thread::sleep(Duration::from_millis(5));
                }
            },
        );
        assert_eq!(recorder.results.len(), 300_005);
        assert!(recorder.results.ends_with(b"last\n"));
        assert_eq!(recorder.console, b"console\n");
    }

    #[test]
    fn a_writer_may_close_and_open_again() {
        let script = "for i in 1 2 3; do echo $i > RESULTS; sleep 0.1; done";
        let (end, recorder, _) = run(script, Duration::from_secs(600));
        assert!(matches!(end, End::Exited(status) if status.success()), "{end:?}");
        assert_eq!(recorder.results, b"1\n2\n3\n");
    }

    #[test]
    fn the_deadline_ends_even_one_that_never_stops_talking() {
        for script in ["sleep 600", "exec yes", "trap '' TERM INT; while :; do :; done"] {
            let (end, ..) = run(script, Duration::from_millis(300));
            assert!(matches!(end, End::Deadline), "{script}: {end:?}");
        }
    }

    #[test]
    fn dropping_it_kills_it() {
        let directory = tempfile::tempdir().unwrap();
        let qemu = Qemu::start(Path::new("/bin/sleep"), &["60".into()], &directory.path().join("results")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", qemu.child.id()));
        assert!(process.exists());
        drop(qemu);
        assert!(!process.exists());
    }
}
