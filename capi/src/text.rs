// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Strings from and to C.

use crate::error::Failure;
use std::ffi::{CStr, CString, c_char};

/// For C, which cannot have a NUL in it.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// A string of the caller's; `None` for NULL.
///
/// # Safety
/// It is NULL, or ends with a NUL.
pub(crate) unsafe fn optional(text: *const c_char, what: &str) -> Result<Option<String>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text =
        text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8: {}", text.to_string_lossy())))?;
    Ok(Some(text.to_owned()))
}
