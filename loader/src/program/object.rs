// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A program that libbpf has loaded, and what it keeps of it.
//!
//! [`Program`] is a borrowed handle to libbpf's `struct bpf_program`: of libbpf-rs's `Program` and `ProgramMut`
//! (feature `libbpf-rs`), or of a raw pointer. What the loader needs is read through it: the relocated instructions,
//! which may be behind the guard (see [`crate::program::section`]), and the object's BTF. libbpf has no way from a
//! program to its object, so the BTF comes back from the kernel, by the descriptor that libbpf has while it loads.
//! Function and line information is what was kept when the program was loaded: libbpf has given it out since its
//! release 1.6 only.

use crate::bpf::btf::btf_data;
use crate::bpf::call::errno;
use crate::bpf::objects::program_info;
use crate::program::passed::{Loading, Passed, passed};
use crate::program::section::{Form, Section, SectionError, Told, Wanted, unguarded};
use crate::program::{FuncInfo, LineInfo};
use libbpf_sys as sys;
use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Why a program cannot be taken over from libbpf.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The object has not been loaded, or the program is left out of it (`autoload`).
    #[error("program {program} is not loaded")]
    NotLoaded {
        /// The program's name.
        program: String,
    },
    /// The program was opened before the section was registered.
    #[error(
        "program {program} did not pass through siteseer when it was loaded: call siteseer::register() before opening \
         the object, and put the program in SEC(\"fentry/...\"), SEC(\"fexit/...\") or SEC(\"kprobe_maybe_inline/...\")"
    )]
    NotGuarded {
        /// The program's name.
        program: String,
    },
    /// The section's name is not ours.
    #[error("program {program}")]
    Section {
        /// The program's name.
        program: String,
        /// What is wrong with it.
        #[source]
        error: SectionError,
    },
    /// The kernel does not give information on the program or its BTF.
    #[error(
        "program {program}: {what}{}",
        if matches!(error.raw_os_error(), Some(libc::EPERM)) { " (CAP_SYS_ADMIN is needed)" } else { "" }
    )]
    Info {
        /// The program's name.
        program: String,
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

impl ObjectError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            ObjectError::Info { error, .. } => errno(error),
            _ => libc::EINVAL,
        }
    }
}

/// A function of a loaded BPF program, as a place to attach to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BpfTarget {
    /// The kernel's id of the program.
    pub prog_id: u32,
    /// The function's FUNC in that program's BTF; 0 for the one that the section of the program to attach names.
    pub btf_id: u32,
}

/// A borrowed handle to a program of a loaded BPF object.
#[derive(Debug, Clone, Copy)]
pub struct Program<'p> {
    raw: NonNull<sys::bpf_program>,
    object: PhantomData<&'p sys::bpf_program>,
}

impl<'p> Program<'p> {
    /// A handle to libbpf's program.
    ///
    /// # Safety
    /// The pointer is to a program of an object that lives, and is not changed, as long as the handle.
    pub unsafe fn from_raw(program: NonNull<sys::bpf_program>) -> Program<'p> {
        Program { raw: program, object: PhantomData }
    }

    fn text(&self, text: *const std::ffi::c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: libbpf's strings end with a NUL and live as long as the object.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// The program's name.
    pub fn name(&self) -> String {
        // SAFETY: the program is live, as the constructor was promised.
        self.text(unsafe { sys::bpf_program__name(self.raw.as_ptr()) })
    }

    /// What its section's name says.
    ///
    /// # Errors
    /// [`ObjectError::Section`] if the section is not one of ours.
    #[doc(hidden)]
    pub fn section(&self) -> Result<Section, ObjectError> {
        // SAFETY: as above.
        let section = self.text(unsafe { sys::bpf_program__section_name(self.raw.as_ptr()) });
        Section::parse(&section).map_err(|error| ObjectError::Section { program: self.name(), error })
    }

    /// The function that its section names.
    ///
    /// # Errors
    /// As [`Program::section`].
    #[doc(hidden)]
    pub fn wanted(&self) -> Result<Wanted, ObjectError> {
        self.section().map(|section| section.wanted)
    }

    /// What kind of program it is: by its section, and by the flag that `bpf_program__set_flags()` may have set.
    ///
    /// # Errors
    /// As [`Program::section`].
    #[doc(hidden)]
    pub fn form(&self) -> Result<Form, ObjectError> {
        let form = self.section()?.form;
        // SAFETY: as above.
        let flags = unsafe { sys::bpf_program__flags(self.raw.as_ptr()) };
        Ok(Form { sleepable: form.sleepable || flags & sys::BPF_F_SLEEPABLE != 0, ..form })
    }

    /// The function of a BPF program that `bpf_program__set_attach_target()` named; `None` if it was not called, or
    /// named one of the kernel's.
    ///
    /// # Errors
    /// [`ObjectError::NotGuarded`] if the program did not come through [`crate::register()`].
    #[doc(hidden)]
    pub fn bpf_target(&self) -> Result<Option<BpfTarget>, ObjectError> {
        Ok(match self.passed()?.told {
            Told::Program { prog_id, btf_id } => Some(BpfTarget { prog_id, btf_id }),
            Told::Nothing | Told::Kernel { .. } => None,
        })
    }

    /// What is kept of the program. A program in a foreign section never passed through a handler, but its address may
    /// be that of an earlier program that did.
    fn passed(&self) -> Result<Passed, ObjectError> {
        let is_foreign =
            matches!(self.section(), Err(ObjectError::Section { error: SectionError::Foreign { .. }, .. }));
        passed(self.raw).filter(|_| !is_foreign).ok_or_else(|| ObjectError::NotGuarded { program: self.name() })
    }

    /// libbpf's pointer.
    pub(crate) fn raw(&self) -> NonNull<sys::bpf_program> {
        self.raw
    }

    /// The program's instructions, as libbpf has them.
    pub(crate) fn instructions(&self) -> &'p [sys::bpf_insn] {
        // SAFETY: as above; libbpf keeps the instructions, which are not replaced after the load, with the program.
        unsafe {
            let first = sys::bpf_program__insns(self.raw.as_ptr());
            let count = sys::bpf_program__insn_cnt(self.raw.as_ptr()) as usize;
            if first.is_null() { &[] } else { std::slice::from_raw_parts(first, count) }
        }
    }

    fn fd(&self) -> Result<RawFd, ObjectError> {
        // SAFETY: as above.
        let fd = unsafe { sys::bpf_program__fd(self.raw.as_ptr()) };
        if fd < 0 { Err(ObjectError::NotLoaded { program: self.name() }) } else { Ok(fd) }
    }

    /// A descriptor of what libbpf loaded.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, ObjectError> {
        let program = self.fd()?;
        // SAFETY: libbpf's descriptor of a loaded program is open as long as the object.
        let copy = unsafe { BorrowedFd::borrow_raw(program) }.try_clone_to_owned();
        copy.map_err(|error| ObjectError::Info { program: self.name(), what: "dup", error })
    }

    /// Everything that the loader needs of the program.
    pub(crate) fn read(&self) -> Result<Loaded<'p>, ObjectError> {
        let program = self.name();
        let fd = self.fd()?;
        let passed = self.passed()?;
        let not_passed = || ObjectError::NotGuarded { program: program.clone() };
        let insns = match passed.loading {
            Loading::Guarded => unguarded(self.form()?.kind, self.instructions()).ok_or_else(not_passed)?,
            Loading::Own | Loading::Plain => self.instructions(),
            Loading::Not => return Err(not_passed()),
        };
        let form = self.form()?;
        let failed = |what: &'static str| {
            let program = program.clone();
            move |error: io::Error| ObjectError::Info { program, what, error }
        };
        // SAFETY: libbpf's descriptor of a loaded program is open as long as the object.
        let info = program_info(unsafe { BorrowedFd::borrow_raw(fd) }).map_err(failed("bpf_obj_get_info_by_fd"))?;
        let gpl = info.gpl_compatible() != 0;
        let Passed { told, func_info, line_info, btf, loading: _ } = passed;
        let btf = match (btf, info.btf_id) {
            (_, 0) => None,
            (Some(btf), _) => Some(btf.to_vec()),
            (None, id) => Some(btf_data(id).map_err(failed("the object's BTF"))?),
        };
        Ok(Loaded { name: program, form, told, insns, func_info, line_info, btf, gpl })
    }
}

#[cfg(feature = "libbpf-rs")]
impl<'p, T> From<&'p T> for Program<'p>
where
    T: libbpf_rs::AsRawLibbpf<LibbpfType = sys::bpf_program>,
{
    fn from(program: &'p T) -> Program<'p> {
        Program { raw: program.as_libbpf_object(), object: PhantomData }
    }
}

/// What libbpf and the kernel keep of a loaded program.
#[derive(Clone)]
pub(crate) struct Loaded<'p> {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) told: Told,
    /// The relocated instructions: the main program, then its subprograms.
    pub(crate) insns: &'p [sys::bpf_insn],
    /// Offsets are relative to `insns`.
    pub(crate) func_info: Arc<[FuncInfo]>,
    /// Offsets are relative to `insns`.
    pub(crate) line_info: Arc<[LineInfo]>,
    /// The object's BTF, as the kernel has it.
    pub(crate) btf: Option<Vec<u8>>,
    /// Whether the program's licence lets it call GPL-only helpers.
    pub(crate) gpl: bool,
}
