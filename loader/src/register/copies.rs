// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Two copies of libbpf in one process.
//!
//! Each copy has a table of handlers of its own. What is registered with the one is never asked by the other: objects
//! that the application opens with the other are silently loaded and attached as if siteseer were not there.
//!
//! A process may well have two copies, each with users of its own (a library that links libbpf beside a program that
//! holds one), and that is not a fault. What matters is which copy the application calls. It alone knows: a copy that
//! was linked statically need not be among a program's dynamic symbols, nor in its symbol table once it is stripped. So
//! the application says it. `siteseer_register()` of siteseer.h is a macro that passes the address of the application's
//! own `bpf_object__load()`, and here it is compared with ours. A function has one address in a process, whoever asks
//! (System V ABI, "Function Addresses"), also where calls go through a table of the program's.
//!
//! Rust applications need none of this: Cargo links one `libbpf-sys` only (`links = "bpf"`), and theirs is ours.

use super::RegisterError;
use libbpf_sys as sys;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// libbpf's `bpf_object__load()`.
pub type ObjectLoad = unsafe extern "C" fn(*mut sys::bpf_object) -> c_int;

fn ours() -> *const c_void {
    let ours: ObjectLoad = sys::bpf_object__load;
    ours as *const c_void
}

/// Whether the copy of libbpf with that `bpf_object__load()` is the one that siteseer uses.
///
/// # Errors
/// [`RegisterError::TwoLibbpfs`] if it is another.
pub fn is_ours(load: ObjectLoad) -> Result<(), RegisterError> {
    compare(load as *const c_void)
}

/// The same for a caller that does not say which copy it calls: with the one that a program finds by name. That is not
/// every program's, but none finds one that is hidden in a library.
///
/// # Errors
/// As [`is_ours`].
pub fn is_the_one_by_name() -> Result<(), RegisterError> {
    // SAFETY: a name that ends; the handle is the one for the default order.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"bpf_object__load".as_ptr()) };
    if found.is_null() { Ok(()) } else { compare(found) }
}

fn compare(theirs: *const c_void) -> Result<(), RegisterError> {
    let ours = ours();
    if ptr::eq(theirs, ours) {
        return Ok(());
    }
    Err(RegisterError::TwoLibbpfs { theirs: holder(theirs), ours: holder(ours) })
}

/// The file that an address of code was loaded from.
fn holder(address: *const c_void) -> String {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the structure lives through the call, which fills it in unless it returns 0. A name that it gives ends,
    // and lives as long as the object.
    let name = unsafe {
        let is_found = libc::dladdr(address, info.as_mut_ptr()) != 0;
        let name = info.assume_init().dli_fname;
        (is_found && !name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "the program itself".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_copy_is_refused_and_named() {
        unsafe extern "C" fn other(_: *mut sys::bpf_object) -> c_int {
            0
        }
        is_ours(sys::bpf_object__load).unwrap();
        let error = is_ours(other).unwrap_err();
        assert_eq!(error.errno(), libc::EEXIST);
        assert!(matches!(&error, RegisterError::TwoLibbpfs { theirs, ours } if theirs == ours), "{error}");
        assert!(error.to_string().contains("two copies of libbpf"), "{error}");
    }

    #[test]
    fn the_file_of_an_address() {
        let own = std::env::current_exe().unwrap();
        let name = holder(ours());
        assert!(name.ends_with(&*own.file_name().unwrap().to_string_lossy()), "{name}");
        assert_eq!(holder(ptr::without_provenance(8)), "the program itself");
    }
}
