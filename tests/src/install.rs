// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! siteseer's Makefile, as tests run it: nothing is optimised, and crates that cargo compiled for the tests are used
//! again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with what cargo builds for `make`. `scratch` is the one that cargo gives to tests, `CARGO_TARGET_TMPDIR`.
pub fn results(scratch: &Path) -> PathBuf {
    scratch.parent().unwrap_or(scratch).join("install")
}

/// `make` in a folder of the tree.
pub fn make(folder: &Path, scratch: &Path) -> Command {
    let mut command = Command::new("make");
    command.arg("-C").arg(folder).arg("PROFILE=dev");
    prepare(&mut command, scratch);
    command
}

/// Makes a command that builds siteseer share compiled crates with the tests.
///
/// The results have a folder of their own, as the C libraries have one file name whichever libbpf they are for. The
/// intermediate files are in the folder of the tests (`build.build-dir` in cargo's reference; before 1.91 cargo ignores
/// it).
pub fn prepare(command: &mut Command, scratch: &Path) {
    command.env("CARGO_TARGET_DIR", results(scratch));
    command.env("CARGO_BUILD_BUILD_DIR", scratch.parent().unwrap_or(scratch));
    // Of the make or the cargo that may have started the tests. A crate is compiled again if its build script looks at
    // one that has changed.
    for (name, _) in std::env::vars_os() {
        let is_theirs = name.to_str().is_some_and(|name| THEIRS.iter().any(|theirs| name.starts_with(theirs)));
        if is_theirs {
            command.env_remove(name);
        }
    }
}

/// How the names of such variables begin.
const THEIRS: [&str; 6] =
    ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CARGO_ENCODED_RUSTFLAGS", "CARGO_MANIFEST_", "CARGO_PKG_"];
