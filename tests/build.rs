// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiles the C programs that are run in the virtual machine, against the C interface's header and libbpf's.

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("not run by cargo")?);
    let libbpf = env::var_os("DEP_BPF_INCLUDE").ok_or("libbpf-sys does not say where libbpf's headers are")?;
    let header = folder.join("../loader/include");
    let programs = ["c/skeleton.c", "c/changes.c"];
    programs.iter().for_each(|program| println!("cargo::rerun-if-changed={program}"));
    println!("cargo::rerun-if-changed=c/check.h");
    println!("cargo::rerun-if-changed={}", header.join("siteseer.h").display());
    cc::Build::new()
        .files(programs.map(|program| folder.join(program)))
        .include(libbpf)
        .include(header)
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("siteseer_test_c");
    Ok(())
}
