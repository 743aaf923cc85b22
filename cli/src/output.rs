// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writing results: to a file that is whole or not there, and to a pipe that may close.

use crate::Failure;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

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
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| -> Failure { format!("cannot write {}: {error}", path.display()).into() };
    let Some(name) = path.file_name() else {
        return Err(format!("cannot write {}: it has no file name", path.display()).into());
    };
    // Something that is no regular file (/dev/stdout, a pipe) cannot be replaced, and has no readers to protect.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(bytes))
            .map_err(failed);
    }
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        // Not synced: what a power failure loses can be encoded again, and a cut file is refused when it is read.
        file.write_all(bytes)?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(failed)
}
