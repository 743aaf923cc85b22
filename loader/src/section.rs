// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `SEC("kprobe_maybe_inline/[module:]foo")`: how a program gets from libbpf to us.
//!
//! libbpf knows nothing of our section names, but lets a library register handlers for them. When it loads an object it
//! relocates each program (maps, CO-RE, subprograms, kfuncs), and then, just before the load, calls the
//! handler's `prog_prepare_load_fn`. The program that we are handed there cannot be loaded as it stands: its context is an
//! array of arguments that only the trampoline makes, and it may call accessors that no kernel has. So it is put
//! behind a *guard* of three instructions,
//!
//! ```text
//! r0 = 0
//! if r0 != 0 goto +1
//! exit
//! ```
//!
//! which leaves the rest reachable in the control flow graph and dead for the verifier: it is never explored, so it
//! loads whatever it does. libbpf goes on believing that it has loaded the program, keeps the relocated instructions, and
//! gives them back through `bpf_program__insns()` when the program is attached: no registry of our own, and nothing to free.
//!
//! The kernel holds the object's BTF only if the program that is loaded refers to it. Line information does that, so it is
//! passed on, moved behind the guard. Function information is not: with it, kernels before 6.8 verify every
//! global function of the object on its own.
//!
//! libbpf's table of handlers is global and not locked. [`register`] locks itself against itself; do not open objects in
//! another thread while it runs for the first time, nor register other handlers at the same time.

use libbpf_sys as sys;
use std::cell::RefCell;
use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::Mutex;

/// The section name without its function.
pub const SECTION: &str = "kprobe_maybe_inline";
const HANDLER: &std::ffi::CStr = c"kprobe_maybe_inline+";

/// libbpf refused the handler.
#[derive(Debug, thiserror::Error)]
#[error("libbpf does not take a handler for SEC(\"kprobe_maybe_inline\"): {0}")]
pub struct RegisterError(std::io::Error);

/// What a section name asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The module before the colon, if any; `vmlinux` is the kernel's image.
    pub module: Option<String>,
    /// The function; `None` in a bare `SEC("kprobe_maybe_inline")`, whose function is given when attaching.
    pub function: Option<String>,
}

/// A section name that is not ours, or lacks a part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// Another section.
    #[error("SEC(\"{section}\") is not SEC(\"kprobe_maybe_inline/[module:]function\")")]
    Foreign {
        /// The section's name.
        section: String,
    },
    /// A part is empty or has a character that no symbol has.
    #[error("\"{text}\" is not [module:]function")]
    Malformed {
        /// What was found after the slash.
        text: String,
    },
}

impl Wanted {
    /// Parses `[module:]function`.
    ///
    /// # Errors
    /// [`SectionError::Malformed`].
    pub fn parse(text: &str) -> Result<Wanted, SectionError> {
        let symbol = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'))
        };
        let malformed = || SectionError::Malformed { text: text.to_owned() };
        let (module, function) = match text.split_once(':') {
            Some((module, function)) => (Some(module), function),
            None => (None, text),
        };
        let module_ok =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        if !symbol(function) || !module.is_none_or(module_ok) {
            return Err(malformed());
        }
        Ok(Wanted { module: module.map(str::to_owned), function: Some(function.to_owned()) })
    }

    /// Parses a whole section name.
    ///
    /// # Errors
    /// [`SectionError`].
    pub fn from_section(section: &str) -> Result<Wanted, SectionError> {
        match section.strip_prefix(SECTION) {
            Some("") => Ok(Wanted::default()),
            Some(rest) if rest.starts_with('/') => Wanted::parse(&rest[1..]),
            _ => Err(SectionError::Foreign { section: section.to_owned() }),
        }
    }
}

/// `r0 = 0; if r0 != 0 goto +1; exit`.
fn guard() -> [sys::bpf_insn; 3] {
    let insn = |code: u32, off: i16| {
        let mut insn = sys::bpf_insn { code: code as u8, off, ..Default::default() };
        insn.set_dst_reg(0);
        insn
    };
    [
        insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, 0),
        insn(sys::BPF_JMP | sys::BPF_JNE | sys::BPF_K, 1),
        insn(sys::BPF_JMP | sys::BPF_EXIT, 0),
    ]
}

fn bytes(insn: &sys::bpf_insn) -> (u8, u8, u8, i16, i32) {
    (insn.code, insn.dst_reg(), insn.src_reg(), insn.off, insn.imm)
}

/// The instructions behind the guard, or `None` if the program was not loaded through our handler.
pub(crate) fn behind_guard(insns: &[sys::bpf_insn]) -> Option<&[sys::bpf_insn]> {
    let guard = guard();
    let (head, rest) = insns.split_at_checked(guard.len())?;
    head.iter().zip(&guard).all(|(a, b)| bytes(a) == bytes(b)).then_some(rest)
}

/// Registers the section with libbpf, once per process. Call it before opening objects that use it.
///
/// # Errors
/// [`RegisterError`] if libbpf refuses.
pub fn register() -> Result<(), RegisterError> {
    static REGISTERED: Mutex<bool> = Mutex::new(false);
    let mut registered = REGISTERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *registered {
        return Ok(());
    }
    let opts = sys::libbpf_prog_handler_opts {
        sz: size_of::<sys::libbpf_prog_handler_opts>() as sys::size_t,
        prog_prepare_load_fn: Some(prepare_load),
        prog_attach_fn: Some(attach),
        ..Default::default()
    };
    // SAFETY: the string and the options live through the call, and libbpf copies both. The table of handlers is not locked: our
    // own calls are, by the mutex; the rest is the caller's promise, stated above.
    let handler = unsafe { sys::libbpf_register_prog_handler(HANDLER.as_ptr(), sys::BPF_PROG_TYPE_KPROBE, 0, &opts) };
    if handler < 0 {
        return Err(RegisterError(std::io::Error::from_raw_os_error(-handler)));
    }
    *registered = true;
    Ok(())
}

/// Skeletons attach every program of an object: ours is passed over (no link, no error), as it takes a target.
unsafe extern "C" fn attach(_: *const sys::bpf_program, _: c_long, link: *mut *mut sys::bpf_link) -> c_int {
    if !link.is_null() {
        // SAFETY: libbpf passes the place where it wants the link.
        unsafe { *link = ptr::null_mut() };
    }
    0
}

thread_local! {
    /// The moved line information of the program that libbpf is loading in this thread. libbpf hands the pointer to the system
    /// call right after the callback, and never frees it.
    static LINES: RefCell<Vec<sys::bpf_line_info>> = const { RefCell::new(Vec::new()) };
}

/// Puts the program behind the guard.
unsafe extern "C" fn prepare_load(
    program: *mut sys::bpf_program,
    opts: *mut sys::bpf_prog_load_opts,
    _: c_long,
) -> c_int {
    let guard = guard();
    // SAFETY: libbpf passes a live program; the instructions are read before they are replaced.
    let insns = unsafe {
        let first = sys::bpf_program__insns(program);
        let count = sys::bpf_program__insn_cnt(program) as usize;
        if first.is_null() {
            return -libc::EINVAL;
        }
        std::slice::from_raw_parts(first, count)
    };
    if behind_guard(insns).is_some() {
        return 0;
    }
    let mut guarded = guard.to_vec();
    guarded.extend_from_slice(insns);
    // SAFETY: as above; libbpf copies the new instructions.
    let set = unsafe { sys::bpf_program__set_insns(program, guarded.as_mut_ptr(), guarded.len() as sys::size_t) };
    if set < 0 {
        return set;
    }
    // SAFETY: libbpf passes its own options, whose size it has set.
    let Some(opts) = (unsafe { opts.as_mut() }) else { return 0 };
    opts.func_info = ptr::null();
    opts.func_info_cnt = 0;
    let same_record = opts.line_info_rec_size as usize == size_of::<sys::bpf_line_info>();
    if opts.line_info.is_null() || opts.line_info_cnt == 0 || !same_record {
        opts.line_info = ptr::null();
        opts.line_info_cnt = 0;
        return 0;
    }
    LINES.with_borrow_mut(|lines| {
        // SAFETY: libbpf's array has that many records of that size, just compared.
        let own = unsafe {
            std::slice::from_raw_parts(opts.line_info.cast::<sys::bpf_line_info>(), opts.line_info_cnt as usize)
        };
        lines.clear();
        lines.extend(own.iter().enumerate().map(|(index, line)| {
            // The first one stays at the first instruction: every (sub)program must begin with one.
            let moved = if index == 0 { 0 } else { line.insn_off + guard.len() as u32 };
            sys::bpf_line_info { insn_off: moved, ..*line }
        }));
        opts.line_info = lines.as_ptr().cast();
    });
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names() {
        let wanted = |module: Option<&str>, function: Option<&str>| Wanted {
            module: module.map(str::to_owned),
            function: function.map(str::to_owned),
        };
        assert_eq!(Wanted::from_section("kprobe_maybe_inline"), Ok(wanted(None, None)));
        assert_eq!(Wanted::from_section("kprobe_maybe_inline/foo"), Ok(wanted(None, Some("foo"))));
        assert_eq!(Wanted::from_section("kprobe_maybe_inline/foo.part.0"), Ok(wanted(None, Some("foo.part.0"))));
        assert_eq!(Wanted::from_section("kprobe_maybe_inline/xfs:foo"), Ok(wanted(Some("xfs"), Some("foo"))));
        assert_eq!(Wanted::from_section("kprobe_maybe_inline/vmlinux:foo"), Ok(wanted(Some("vmlinux"), Some("foo"))));
        for bad in
            ["kprobe_maybe_inline/", "kprobe_maybe_inline/:foo", "kprobe_maybe_inline/m:", "kprobe_maybe_inline/a b"]
        {
            assert!(matches!(Wanted::from_section(bad), Err(SectionError::Malformed { .. })), "{bad}");
        }
        for foreign in ["kprobe/foo", "kprobe_maybe_inlined/foo", ""] {
            assert!(matches!(Wanted::from_section(foreign), Err(SectionError::Foreign { .. })), "{foreign}");
        }
    }

    #[test]
    fn the_guard_is_recognised() {
        let exit = guard()[2];
        let mut program = guard().to_vec();
        program.push(exit);
        assert_eq!(behind_guard(&program).map(<[_]>::len), Some(1));
        assert!(behind_guard(&program[1..]).is_none());
        assert!(behind_guard(&guard()[..2]).is_none());
        assert_eq!(bytes(&guard()[0]), (0xb7, 0, 0, 0, 0));
        assert_eq!(bytes(&guard()[1]), (0x55, 0, 0, 1, 0));
        assert_eq!(bytes(&guard()[2]), (0x95, 0, 0, 0, 0));
    }

    #[test]
    fn registering_twice_is_once() {
        register().unwrap();
        register().unwrap();
    }
}
