// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The C interface: what `siteseer.h` declares, on top of the crate `siteseer`.
//!
//! The header is written by hand, and is the documentation. That it says what is here is checked: a test has a C compiler
//! compare every structure and enumerator with these, and every function's name with what the shared library exports
//! (`tests/tests/c_interface.rs`).
//!
//! It is a crate of its own because a shared and a static library are wanted by C applications alone: every Rust
//! application would build them otherwise.
//!
//! Handles are boxes. What a handle gives out (strings, a link's report) is kept in it, so that it lives as long. Handles are
//! immutable, except for what is filled once; so they can be shared between threads.

pub mod error;
pub mod layout;
pub mod link;
pub mod options;
pub mod print;
pub mod register;
pub mod report;
pub mod target;
pub mod text;

use std::ffi::c_char;

/// `siteseer_version_string()`
#[unsafe(no_mangle)]
pub extern "C" fn siteseer_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
