// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writing results: to a file that is whole or not there, and to a standard output that may be full or gone.

use crate::Failure;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// Says something on stderr, if that can be written: `eprintln` panics where it cannot.
macro_rules! tell {
    ($($what:tt)*) => {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($what)*))))
    };
}
pub(crate) use tell;

/// What could not be written to standard output.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {what} to standard output")]
pub(crate) struct Unwritten {
    /// `the counts`, `the calls`.
    what: &'static str,
    #[source]
    error: io::Error,
}

impl Unwritten {
    /// For `map_err`.
    pub(crate) fn of(what: &'static str) -> impl Fn(io::Error) -> Unwritten {
        move |error| Unwritten { what, error }
    }
}

/// Writes figures that were counted once and cannot be counted again: to standard output, or else to standard error.
pub(crate) fn keep(text: &str, what: &'static str) -> Result<(), Unwritten> {
    let written = deliver(text, &mut io::stdout().lock(), &mut io::stderr());
    written.map_err(Unwritten::of(what))
}

fn deliver(text: &str, to: &mut impl Write, instead: &mut impl Write) -> io::Result<()> {
    let written = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    if written.is_err() {
        // If that is gone too, there is nowhere else.
        let _ = instead.write_all(text.as_bytes());
    }
    written
}

/// Whether the error is that nobody reads our output any more.
pub(crate) fn is_broken_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    let unwritten = failure.downcast_ref::<Unwritten>().map(|unwritten| &unwritten.error);
    let error = unwritten.or_else(|| failure.downcast_ref::<io::Error>());
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error with what caused it, unless its text says that already.
pub(crate) fn chain(failure: &(dyn std::error::Error + 'static)) -> String {
    let mut text = failure.to_string();
    let mut source = failure.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

/// Writes a file under another name first, so that no reader ever sees a part of it, and none is left after a failure.
pub(crate) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let written = write_there(path, write);
    written.map_err(|failure| format!("cannot write {}: {}", path.display(), chain(&*failure)).into())
}

fn write_there(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<(), Failure> {
    let write_to = |file: fs::File| -> Result<(), Failure> {
        let mut out = io::BufWriter::new(file);
        write(&mut out)?;
        Ok(out.flush()?)
    };
    let name = path.file_name().ok_or("it has no file name")?;
    if is_in_place(path) {
        return write_to(open_in_place(path)?);
    }
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = (|| {
        // Not synced: what a power failure loses can be encoded again, and a cut file is refused when it is read.
        write_to(fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?)?;
        Ok(fs::rename(&temporary, path)?)
    })();
    if written.is_err() {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Opens a file that is written as it is. Standard output is the open file itself: if it was opened once more, what it
/// was redirected to would be written from its beginning, also where it is appended to.
fn open_in_place(path: &Path) -> io::Result<fs::File> {
    let open = match path.to_str() {
        Some("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => io::stdout().as_fd().try_clone_to_owned()?,
        Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => io::stderr().as_fd().try_clone_to_owned()?,
        _ => return fs::OpenOptions::new().write(true).truncate(true).open(path),
    };
    Ok(open.into())
}

/// Whether a file is written as it is. Something that is not a regular file (a terminal, a pipe) cannot be replaced,
/// and has no readers to protect. What names an open file (/dev/stdout) is not that file, even if it is regular.
pub(crate) fn is_in_place(path: &Path) -> bool {
    let is_open_file = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"].iter().any(|of| path.starts_with(of));
    is_open_file || fs::metadata(path).is_ok_and(|meta| !meta.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_a_full_disk_refuses_goes_elsewhere() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let mut instead = Vec::new();
        let error = deliver("5 calls\n", &mut full, &mut instead).unwrap_err();
        assert_eq!(instead, b"5 calls\n");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let failure = Failure::from(Unwritten::of("the counts")(error));
        assert!(chain(&*failure).starts_with("cannot write the counts to standard output: No space left"), "{failure}");
        assert!(!is_broken_pipe(&*failure));
        // Buffered: it is refused only when it is flushed.
        let mut instead = Vec::new();
        deliver("5 calls\n", &mut io::BufWriter::new(full), &mut instead).unwrap_err();
        assert_eq!(instead, b"5 calls\n");
    }

    #[test]
    fn names_of_open_files_are_not_replaced() {
        let file = std::env::temp_dir().join(format!("siteseer-output-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        assert!(!is_in_place(&file) && !is_in_place(&file.with_extension("new")));
        fs::remove_file(&file).unwrap();
        for path in ["/dev/stdout", "/dev/fd/3", "/proc/self/fd/1", "/dev/null"] {
            assert!(is_in_place(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_pipe_that_closes_is_known() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let mut instead = Vec::new();
        let error = deliver("5 calls\n", &mut writer, &mut instead).unwrap_err();
        assert_eq!(instead, b"5 calls\n");
        assert!(is_broken_pipe(&*Failure::from(Unwritten::of("the counts")(error))));
        let mut out = Vec::new();
        let mut instead = Vec::new();
        deliver("5 calls\n", &mut out, &mut instead).unwrap();
        assert_eq!((out, instead), (b"5 calls\n".to_vec(), Vec::new()));
    }
}
