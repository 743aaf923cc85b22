// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The installed library beside a libbpf of the application's own, linked in several ways.
//!
//! The linker decides whether an application has one libbpf or two. Whatever it decides, `siteseer_register()` succeeds
//! if and only if the application's libbpf knows the sections then.

use super::build::{Built, root, run, words};
use std::fs;
use std::process::Command;

/// What an application is linked with, and whether there is one libbpf only; `None` if that is the linker's affair.
const WAYS: [(&[&str], Option<bool>); 8] = [
    (&["-lsiteseer", "-lbpf"], Some(true)),
    (&["-l:libsiteseer.a", "-lbpf"], Some(true)),
    (&["-l:libsiteseer.a", "-l:libbpf.a"], Some(true)),
    (&["-lsiteseer", "-l:libbpf.a"], None),
    (&["-l:libbpf.a", "-lsiteseer"], None),
    (&["-lsiteseer", "-l:libbpf.a", "-lbpf"], None),
    // The application's copy is not among its dynamic symbols.
    (&["-lsiteseer", "-l:libbpf.a", "-Wl,--exclude-libs,ALL"], Some(false)),
    (&["-l:libbpf.a", "-lsiteseer", "-Wl,--exclude-libs,ALL"], Some(false)),
];

/// Links and runs tests/c/two_libbpfs.c in each way.
pub(super) fn refused(built: &Built) -> Result<(), String> {
    let folder = built.folder.join("two-libbpfs");
    fs::create_dir_all(&folder).map_err(words(folder.display()))?;
    let prefix = built.folder.join("prefix-system");
    let program = folder.join("program");
    for (libraries, expected) in WAYS {
        for position in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
            let mut gcc = Command::new("gcc");
            gcc.args(["-Wall", "-Wextra", "-Werror", "-s"]).args(position).arg("-I").arg(prefix.join("include"));
            gcc.arg(root().join("tests/c/two_libbpfs.c")).arg("-L").arg(prefix.join("lib")).args(libraries);
            run(gcc.args(["-lelf", "-lz", "-lm", "-ldl", "-lpthread", "-o"]).arg(&program))?;
            let said = run(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")))?;
            let found = match said.split_whitespace().take(2).collect::<Vec<_>>()[..] {
                ["0", "1"] => true,
                ["-17", "0"] if said.contains("there are two copies of libbpf") => false,
                _ => return Err(format!("{libraries:?} {position:?}: {said}")),
            };
            if expected.is_some_and(|expected| expected != found) {
                return Err(format!("{libraries:?} {position:?}: {said}"));
            }
        }
    }
    Ok(())
}
