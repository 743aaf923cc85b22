// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiles the BPF program and writes its skeleton, as any application with libbpf-cargo does. Only the folder of
//! `siteseer.bpf.h` is siteseer's; cargo passes it on from the crate `siteseer`.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/capsnoop.bpf.c";

/// `CLANG`, or the newest clang that is found: Debian's have their version in the name.
fn clang() -> OsString {
    let names = (14..=22).rev().map(|version| OsString::from(format!("clang-{version}")));
    let starts = |name: &OsString| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    env::var_os("CLANG").or_else(|| names.into_iter().find(starts)).unwrap_or_else(|| "clang".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let skeleton = PathBuf::from(env::var_os("OUT_DIR").ok_or("not run by cargo")?).join("capsnoop.skel.rs");
    let include = env::var("DEP_SITESEER_INCLUDE")?;
    for file in [SOURCE, "src/kernel.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang(clang())
        .clang_args(["-Wall", "-I", include.as_str()])
        .build_and_generate(&skeleton)?;
    Ok(())
}
