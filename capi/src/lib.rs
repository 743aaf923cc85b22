// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The C interface: what `siteseer.h` declares, on top of the crate `siteseer`.
//!
//! The header is written by hand, and is the documentation. A test checks that it says what is here: it has a C
//! compiler compare every structure and enumerator with these, and every function's name with what the shared library
//! exports (`tests/tests/interface/main.rs`).
//!
//! It is a crate of its own because only C applications need a shared and a static library: otherwise every Rust
//! application would build them.
//!
//! Handles are boxes. A handle keeps what it returns (strings, a link's reports), so that it lives as long. Handles are
//! immutable, except for what is filled once, and for a link that is refreshed, which has a lock; so they can be shared
//! between threads.

pub mod argument;
pub mod changes;
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
