// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiling BPF programs from C: for this crate's own build, and for tests that compile theirs when they run.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// `CLANG`, or the newest clang that is found.
///
/// # Errors
/// A sentence, if there is none.
pub fn clang() -> Result<OsString, String> {
    if let Some(clang) = env::var_os("CLANG") {
        return Ok(clang);
    }
    let names = (14..=22).rev().map(|version| format!("clang-{version}")).chain(["clang".to_owned()]);
    for name in names {
        if Command::new(&name).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Ok(name.into());
        }
    }
    Err("no clang found: install clang (14 or newer), or name one in the environment variable CLANG".to_owned())
}

/// Compiles one source for BPF. `target` is the architecture as libbpf's `bpf_tracing.h` has it (`x86`, `arm64`); the
/// first of `includes` is libbpf's folder: its warnings are not ours. The source's own folder is `name` in the debug
/// information: neither a machine's folders nor the time get into the object.
///
/// # Errors
/// The compiler's words.
pub fn compile(
    clang: &OsString,
    source: &Path,
    object: &Path,
    target: &str,
    includes: &[&Path],
    name: &str,
) -> Result<(), String> {
    let mut command = Command::new(clang);
    command.args(["-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"]);
    // libbpf's own headers are not written for -Wextra; a program need not use all parameters that it states.
    command.args(["-Wno-unused-parameter", "-Wno-sign-compare", "-fno-stack-protector"]);
    // A table for linkers that fold functions; nothing links these, and not every reader of ELF knows it.
    command.arg("-fno-addrsig");
    command.arg(format!("-D__TARGET_ARCH_{target}"));
    for (index, include) in includes.iter().enumerate() {
        command.arg(if index == 0 { "-isystem" } else { "-I" }).arg(include);
    }
    command.arg(format!("-ffile-prefix-map={}={name}", source.parent().unwrap_or(source).display()));
    command.arg("-c").arg(source).arg("-o").arg(object);
    let output = command.output().map_err(|error| format!("{}: {error}", clang.display()))?;
    if !output.status.success() {
        return Err(format!("{command:?}:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}
