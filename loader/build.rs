// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Tells the build scripts of packages that depend on this one where `siteseer.bpf.h` is: `DEP_SITESEER_INCLUDE`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=include={}/include", env!("CARGO_MANIFEST_DIR"));
}
