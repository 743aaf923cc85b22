// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The function that plain libbpf loads a program for: the FUNC that its section names, in the BTF of the kernel's
//! image or of a module (`find_kernel_btf_id()` in libbpf.c). The handler for a section stands in libbpf's place, so
//! that this is ours to find.

use crate::attach::OwnFunction;
use crate::bpf::btf::{btf_name, btf_of};
use crate::kernel::running_types;
use crate::program::section::{Told, Wanted};
use siteseer_sites::btf::{Btf, Kind, NameIndex, TypeId};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A function that a program can be loaded for.
pub(super) struct Func {
    /// Which it is.
    pub(super) own: OwnFunction,
    /// The BTF object of its module.
    object: Option<OwnedFd>,
}

impl Func {
    /// A function of the kernel's image.
    fn of_image(func: TypeId) -> Func {
        Func { own: OwnFunction { func, module: None, program: None }, object: None }
    }

    /// A function of a BPF program.
    pub(super) fn of_program(func: TypeId, program: Option<u32>) -> Func {
        Func { own: OwnFunction { func, module: None, program }, object: None }
    }

    /// The BTF object of its module.
    pub(super) fn object(&self) -> Option<BorrowedFd<'_>> {
        self.object.as_ref().map(AsFd::as_fd)
    }

    /// The descriptor of its module's BTF; 0 for the image's, as the kernel has it.
    pub(super) fn object_fd(&self) -> u32 {
        self.object.as_ref().map_or(0, |object| object.as_raw_fd() as u32)
    }

    /// The descriptor, to be kept open until the program is loaded.
    pub(super) fn into_object(self) -> Option<OwnedFd> {
        self.object
    }
}

/// libbpf's error for a function that no BTF has.
fn unknown() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// A FUNC of the kernel's image, by name.
pub(super) fn in_image(name: &str) -> Option<TypeId> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    static INDEX: OnceLock<NameIndex<'static>> = OnceLock::new();
    let types = running_types()?;
    // One name is found sooner by a walk, several by an index.
    if !ASKED.swap(true, Ordering::Relaxed) {
        return types.find(Kind::Func, name).map(|func| func.id());
    }
    INDEX.get_or_init(|| NameIndex::new(types, &[Kind::Func])).get(Kind::Func, name).next()
}

/// The function that a section names.
///
/// # Errors
/// As libbpf's: ESRCH if there is none.
pub(super) fn named(wanted: &Wanted) -> io::Result<Func> {
    let name = wanted.function.as_deref().unwrap_or_default();
    let module = wanted.module.as_deref().filter(|&module| module != "vmlinux");
    if module.is_none()
        && let Some(func) = in_image(name)
    {
        return Ok(Func::of_image(func));
    }
    if wanted.module.is_some() && module.is_none() {
        return Err(unknown());
    }
    let base = running_types().ok_or_else(unknown)?;
    let in_module = |module: &str| -> Option<Func> {
        let split = std::fs::read(std::path::Path::new("/sys/kernel/btf").join(module)).ok()?;
        let btf = Btf::parse_split(&split, base).ok()?;
        let func = btf.named(Kind::Func, name).next()?.id();
        let object = Some(btf_of(module).ok()?);
        Some(Func { own: OwnFunction { func, module: Some(Arc::from(module)), program: None }, object })
    };
    match module {
        Some(module) => in_module(module),
        None => modules().iter().find_map(|module| in_module(module)),
    }
    .ok_or_else(unknown)
}

/// The modules that the kernel has BTF of.
fn modules() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/kernel/btf").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name != "vmlinux" && !name.ends_with(".inline")).collect();
    names.sort();
    names
}

/// The function that `bpf_program__set_attach_target()` named; `None` if it follows from the section, or its program.
pub(super) fn told(told: Told) -> Option<Func> {
    match told {
        Told::Nothing | Told::Program { btf_id: 0, .. } => None,
        Told::Program { prog_id, btf_id } => Some(Func::of_program(btf_id, Some(prog_id))),
        Told::Kernel { object: 0, btf_id } => Some(Func::of_image(btf_id)),
        Told::Kernel { object, btf_id } => {
            let module = btf_name(object).ok().filter(|name| name != "vmlinux");
            let object = module.as_deref().map(btf_of).transpose().ok()?;
            Some(Func { own: OwnFunction { func: btf_id, module: module.map(Arc::from), program: None }, object })
        }
    }
}
