// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Errors as libbpf has them: a negative errno, or NULL and errno; and the sentence, for the thread.

use crate::text::c_string;
use siteseer::log;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::ptr;

/// An error with its number.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, message)
    }
}

impl From<siteseer::Error> for Failure {
    fn from(error: siteseer::Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
    }
}

fn fail(failure: Failure) -> c_int {
    log::set_last_error(failure.message);
    failure.errno
}

/// A result as a number: 0 or more, or a negative errno.
pub(crate) fn number<T: From<c_int> + std::ops::Neg<Output = T>>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| -T::from(fail(failure)))
}

/// A result as a handle: NULL with errno set.
pub(crate) fn handle<T>(result: Result<T, Failure>) -> *mut T {
    match result {
        Ok(handle) => Box::into_raw(Box::new(handle)),
        Err(failure) => null(failure),
    }
}

/// NULL with errno set.
pub(crate) fn null<T>(failure: Failure) -> *mut T {
    let errno = fail(failure);
    // SAFETY: the place is the thread's own.
    unsafe { *libc::__errno_location() = errno };
    ptr::null_mut()
}

/// `siteseer_last_error()`
#[unsafe(no_mangle)]
pub extern "C" fn siteseer_last_error() -> *const c_char {
    thread_local! {
        static GIVEN: RefCell<CString> = RefCell::default();
    }
    let message = c_string(&log::last_error().unwrap_or_default());
    GIVEN.with_borrow_mut(|given| {
        // What was given stays where it is as long as it is the last.
        if *given != message {
            *given = message;
        }
        given.as_ptr()
    })
}
