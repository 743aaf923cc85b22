// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Messages to a callback.

use crate::text::c_string;
use siteseer::{LogLevel, set_log};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

type Print = unsafe extern "C" fn(level: c_int, message: *const c_char, ctx: *mut c_void);

struct Callback {
    print: Print,
    ctx: *mut c_void,
}

// SAFETY: the header says that the callback is called from any thread, by several at once; the context is its own to
// look after.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    fn call(&self, level: LogLevel, message: &str) {
        let level = match level {
            LogLevel::Warn => 0,
            LogLevel::Info => 1,
            _ => 2,
        };
        let message = c_string(message);
        // SAFETY: the caller of `siteseer_set_print` gave a function of this type; the message lives through the call.
        unsafe { (self.print)(level, message.as_ptr(), self.ctx) };
    }
}

/// `siteseer_set_print()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_set_print(print: Option<Print>, ctx: *mut c_void) {
    let Some(print) = print else { return set_log(None) };
    let callback = Callback { print, ctx };
    set_log(Some(Arc::new(move |level, message: &str| callback.call(level, message))));
}
