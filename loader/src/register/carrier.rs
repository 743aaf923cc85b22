// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A `struct bpf_link` of libbpf's around a descriptor of ours.
//!
//! libbpf makes links for what it attached itself, each with one descriptor, and `bpf_link__fd()` returns its number.
//! So something is attached, and its descriptor replaced. What is attached is an iterator over the kernel's maps:
//! until somebody reads it, which nobody does, that changes nothing (`bpf_iter_link_attach()` in
//! kernel/bpf/bpf_iter.c).
//!
//! The iterator's program is of an object of our own: an ELF file with two instructions in it.

use super::RegisterError;
use crate::bpf::call::check;
use crate::forked::ForkLock;
use libbpf_sys as sys;
use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// The iterator, loaded.
struct Carrier {
    object: NonNull<sys::bpf_object>,
    program: NonNull<sys::bpf_program>,
}

// SAFETY: what libbpf allocated belongs to no thread; it is used under the lock alone.
unsafe impl Send for Carrier {}

impl Drop for Carrier {
    fn drop(&mut self) {
        // SAFETY: it was opened by `load`, and nobody else has it.
        unsafe { sys::bpf_object__close(self.object.as_ptr()) };
    }
}

static CARRIER: ForkLock<Option<Carrier>> = ForkLock::new(|| None);

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> RegisterError {
    move |error| RegisterError::Link { what, error }
}

/// `r0 = 0; exit` in `SEC("iter/bpf_map")`.
fn elf() -> io::Result<Vec<u8>> {
    const PROGRAM: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let mut elf = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = elf.add_section(Vec::new(), b"iter/bpf_map".to_vec(), SectionKind::Text);
    elf.append_section_data(text, &PROGRAM, 8);
    let licence = elf.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    elf.append_section_data(licence, b"GPL\0", 1);
    elf.add_symbol(Symbol {
        name: b"siteseer_link".to_vec(),
        value: 0,
        size: PROGRAM.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(text),
        flags: SymbolFlags::None,
    });
    elf.write().map_err(io::Error::other)
}

fn load() -> io::Result<Carrier> {
    let elf = elf()?;
    // SAFETY: the bytes live through the call, and libbpf copies them.
    let object =
        unsafe { sys::bpf_object__open_mem(elf.as_ptr().cast::<c_void>(), elf.len() as sys::size_t, ptr::null()) };
    let object = NonNull::new(object).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the object is live; it has one program.
    let program = unsafe { sys::bpf_object__next_program(object.as_ptr(), ptr::null_mut()) };
    let Some(program) = NonNull::new(program) else {
        // SAFETY: the object is live, and not used any more.
        unsafe { sys::bpf_object__close(object.as_ptr()) };
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    let carrier = Carrier { object, program };
    // SAFETY: the object is live.
    check(unsafe { sys::bpf_object__load(object.as_ptr()) })?;
    Ok(carrier)
}

/// Makes a link that closes a descriptor when it is destroyed.
pub(super) fn carry(descriptor: OwnedFd) -> Result<NonNull<sys::bpf_link>, RegisterError> {
    let mut loaded = CARRIER.lock();
    let carrier = match loaded.take() {
        Some(carrier) => carrier,
        None => load().map_err(failed("its iterator"))?,
    };
    let carrier = loaded.insert(carrier);
    // SAFETY: the program is live, and loaded; options may be absent.
    let link = unsafe { sys::bpf_program__attach_iter(carrier.program.as_ptr(), ptr::null()) };
    let link = NonNull::new(link).ok_or_else(io::Error::last_os_error).map_err(failed("its iterator"))?;
    // SAFETY: the link is live, and its descriptor is its own. The descriptor that takes its place is closed by the
    // link from then on.
    unsafe {
        let own = sys::bpf_link__fd(link.as_ptr());
        if own < 0 || libc::dup3(descriptor.as_raw_fd(), own, libc::O_CLOEXEC) < 0 {
            let error = io::Error::last_os_error();
            sys::bpf_link__destroy(link.as_ptr());
            return Err(failed("its descriptor")(error));
        }
    }
    Ok(link)
}

/// Lets the iterator go.
pub(super) fn forget() {
    let _carrier = CARRIER.lock().take();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn libbpf_finds_the_iterator() {
        let elf = elf().unwrap();
        // SAFETY: the bytes live through the call; what it gives is live until it is closed.
        unsafe {
            let object = sys::bpf_object__open_mem(elf.as_ptr().cast(), elf.len() as sys::size_t, ptr::null());
            assert!(!object.is_null(), "{}", io::Error::last_os_error());
            let program = sys::bpf_object__next_program(object, ptr::null_mut());
            assert_eq!(CStr::from_ptr(sys::bpf_program__name(program)), c"siteseer_link");
            assert_eq!(sys::bpf_program__type(program), sys::BPF_PROG_TYPE_TRACING);
            assert_eq!(sys::bpf_program__expected_attach_type(program), sys::BPF_TRACE_ITER);
            assert_eq!(sys::bpf_program__insn_cnt(program), 2);
            assert!(sys::bpf_object__next_program(object, program).is_null());
            sys::bpf_object__close(object);
        }
    }
}
