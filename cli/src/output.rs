// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writing results: to a file that is whole or not there, and to a pipe that may close.

use crate::Failure;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Says something on stderr, if that can be written: `eprintln` panics where it cannot.
macro_rules! tell {
    ($($what:tt)*) => {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($what)*))))
    };
}
pub(crate) use tell;

/// Whether the error is that nobody reads our output any more.
pub(crate) fn is_broken_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
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
    // Something that is not a regular file (/dev/stdout, a pipe) cannot be replaced, and has no readers to protect.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return write_to(fs::OpenOptions::new().write(true).open(path)?);
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
