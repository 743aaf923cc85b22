// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The shared library's name for the dynamic linker. The number is raised when the interface changes incompatibly.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsiteseer.so.0");
}
