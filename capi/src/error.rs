// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Errors as libbpf has them: a negative errno, or NULL and errno; and the sentence, for the thread.

use crate::text::c_string;
use siteseer::internals::log;
use siteseer::{AttachError, TargetError};
use siteseer_sites::with_causes;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
        Failure::new(error.errno(), with_causes(&error))
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        siteseer::Error::from(error).into()
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Failure {
        siteseer::Error::from(error).into()
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

/// Makes a call. A panic in it is a fault of siteseer's, and ends with the call: it must not unwind into C, which would
/// abort the application.
fn guarded<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What a call leaves when it panics is dropped, or is protected by locks that report the panic.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given");
        Err(Failure::new(libc::ENOTRECOVERABLE, format!("internal error of siteseer: {said}")))
    })
}

/// What a call gives as a number: 0 or more, or a negative errno.
pub(crate) fn number<T: From<c_int> + std::ops::Neg<Output = T>>(call: impl FnOnce() -> Result<T, Failure>) -> T {
    guarded(call).unwrap_or_else(|failure| -T::from(fail(failure)))
}

/// What a call gives as a handle: NULL with errno set.
pub(crate) fn handle<T>(call: impl FnOnce() -> Result<T, Failure>) -> *mut T {
    pointer(|| Ok(Box::into_raw(Box::new(call()?))))
}

/// What a call gives as a pointer: NULL with errno set.
pub(crate) fn pointer<T>(call: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    guarded(call).unwrap_or_else(null)
}

/// What a call gives that cannot fail.
pub(crate) fn plain<T: Default>(call: impl FnOnce() -> T) -> T {
    guarded(|| Ok(call())).unwrap_or_else(|failure| {
        fail(failure);
        T::default()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_end_at_the_boundary() {
        let broken = || -> c_int { panic!("entry {} is not there", 7) };
        assert_eq!(number(|| Ok(broken())), -libc::ENOTRECOVERABLE);
        assert_eq!(log::last_error().as_deref(), Some("internal error of siteseer: entry 7 is not there"));
        assert!(handle(|| Ok(broken())).is_null());
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTRECOVERABLE));
        assert_eq!(plain(broken), 0);
        assert_eq!(number(|| Ok(3)), 3);
    }
}
