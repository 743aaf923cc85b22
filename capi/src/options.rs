// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Structures that begin with their size, as libbpf has them: the caller's may be shorter than ours, or longer.
//!
//! A member that is not there is 0, the default. One that we do not know must be 0: what it asks for cannot be done. It
//! may lie in what is padding here, after the last member: what we know ends where that does, as in libbpf's
//! `OPTS_VALID()`.

use crate::error::Failure;
use crate::layout::{Layout, layout};
use crate::text::optional;
use siteseer::{AttachOptions, Dwarf, Policy, RegisterOptions, SourceOptions};
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

/// A structure that begins with its size.
///
/// # Safety
/// It is `repr(C)`, its first member is its size as `usize`, any bytes are a value of it, and `MEMBERS` has all of its
/// members.
pub(crate) unsafe trait Versioned: Sized {
    const NAME: &'static str;
    /// Where each member begins and ends.
    const MEMBERS: &'static [(usize, usize)];
    /// Bytes up to the end of the last member.
    const KNOWN: usize = Self::MEMBERS[Self::MEMBERS.len() - 1].1;
}

/// [`Versioned::MEMBERS`], in their order.
macro_rules! members {
    ($structure:ty { $($member:ident),* $(,)? }) => {
        &[$((std::mem::offset_of!($structure, $member), crate::options::end_of!($structure, $member))),*]
    };
}
pub(crate) use members;

/// Where a member ends: libbpf's `offsetofend()`.
macro_rules! end_of {
    ($structure:ty, $member:ident) => {
        std::mem::offset_of!($structure, $member)
            + crate::options::size_of_member(|structure: &$structure| &structure.$member)
    };
}
pub(crate) use end_of;

/// Bytes of what a function gets out of a structure.
pub(crate) const fn size_of_member<T, M>(_: fn(&T) -> &M) -> usize {
    size_of::<M>()
}

/// `struct siteseer_source_opts`
#[repr(C)]
pub struct SourceOpts {
    sz: usize,
    file: *const c_char,
    no_dwarf: u8,
    found_dwarf: u8,
    embedded: *const c_void,
    embedded_sz: usize,
    modules: *const *const c_char,
    module_cnt: usize,
}

/// `struct siteseer_register_opts`
#[repr(C)]
pub struct RegisterOpts {
    sz: usize,
    source: *const SourceOpts,
    policy: c_int,
    no_plan_at_load: u8,
    accept_doubt: u8,
}

/// `struct siteseer_attach_opts`
#[repr(C)]
pub struct AttachOpts {
    sz: usize,
    policy: c_int,
    all_prototypes: u8,
    no_bulk: u8,
    cookie: u64,
    functions: *const *const c_char,
    function_cnt: usize,
    file: *const c_char,
    bpf_program_id: u32,
    accept_doubt: u8,
    pairing: c_int,
    max_sites: u32,
    allow_risky: u8,
}

// SAFETY: numbers and raw pointers only, the size first.
unsafe impl Versioned for SourceOpts {
    const NAME: &'static str = "struct siteseer_source_opts";
    const MEMBERS: &'static [(usize, usize)] =
        members!(SourceOpts { sz, file, no_dwarf, found_dwarf, embedded, embedded_sz, modules, module_cnt });
}
// SAFETY: as above.
unsafe impl Versioned for RegisterOpts {
    const NAME: &'static str = "struct siteseer_register_opts";
    const MEMBERS: &'static [(usize, usize)] =
        members!(RegisterOpts { sz, source, policy, no_plan_at_load, accept_doubt });
}
// SAFETY: as above.
unsafe impl Versioned for AttachOpts {
    const NAME: &'static str = "struct siteseer_attach_opts";
    const MEMBERS: &'static [(usize, usize)] = members!(AttachOpts {
        sz,
        policy,
        all_prototypes,
        no_bulk,
        cookie,
        functions,
        function_cnt,
        file,
        bpf_program_id,
        accept_doubt,
        pairing,
        max_sites,
        allow_risky
    });
}

pub(crate) const SOURCE_OPTS: Layout = layout!(
    "siteseer_source_opts",
    SourceOpts { sz, file, no_dwarf, found_dwarf, embedded, embedded_sz, modules, module_cnt }
);
pub(crate) const REGISTER_OPTS: Layout =
    layout!("siteseer_register_opts", RegisterOpts { sz, source, policy, no_plan_at_load, accept_doubt });
pub(crate) const ATTACH_OPTS: Layout = layout!(
    "siteseer_attach_opts",
    AttachOpts {
        sz,
        policy,
        all_prototypes,
        no_bulk,
        cookie,
        functions,
        function_cnt,
        file,
        bpf_program_id,
        accept_doubt,
        pairing,
        max_sites,
        allow_risky
    }
);

/// The caller's structure; `None` for NULL.
///
/// # Safety
/// It is NULL, or has as many bytes as its first member says.
pub(crate) unsafe fn read<T: Versioned>(from: *const T) -> Result<Option<T>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise; a size below that of the size itself is refused before more is read.
    unsafe {
        let size = from.cast::<usize>().read_unaligned();
        if size < size_of::<usize>() {
            return Err(Failure::invalid(format!("{}: its size is {size}", T::NAME)));
        }
        // A part of a pointer is not a pointer.
        if T::MEMBERS.iter().any(|&(start, end)| start < size && size < end) {
            return Err(Failure::invalid(format!("{}: its size is {size}, which is inside of a member", T::NAME)));
        }
        let known = size.min(T::KNOWN);
        let beyond = std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known);
        if beyond.iter().any(|&byte| byte != 0) {
            let message = format!("{}: it has members set that this version does not know", T::NAME);
            return Err(Failure::new(libc::E2BIG, message));
        }
        let mut own = std::mem::zeroed::<T>();
        ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut own).cast::<u8>(), known);
        Ok(Some(own))
    }
}

/// Fills as much of the caller's structure as there is, except for its size.
///
/// # Safety
/// It is NULL, or has as many bytes as its first member says.
pub(crate) unsafe fn write<T: Versioned>(to: *mut T, from: &T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::invalid(format!("no {} to fill", T::NAME)));
    }
    let first = size_of::<usize>();
    // SAFETY: the caller's promise; no more is written than is there, and than we have.
    unsafe {
        let size = to.cast::<usize>().read_unaligned();
        if size < first {
            return Err(Failure::invalid(format!("{}: its size is {size}", T::NAME)));
        }
        let known = size.min(T::KNOWN);
        ptr::copy_nonoverlapping((&raw const *from).cast::<u8>().add(first), to.cast::<u8>().add(first), known - first);
    }
    Ok(())
}

fn policy(number: c_int) -> Result<Option<Policy>, Failure> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Policy::Complete)),
        2 => Ok(Some(Policy::BestEffort)),
        3 => Ok(Some(Policy::AtLeastLibbpf)),
        other => Err(Failure::invalid(format!("{other} is not a policy"))),
    }
}

/// A list of texts, by its two members.
///
/// # Safety
/// It is NULL, or has as many texts as `count` says.
unsafe fn texts(
    list: *const *const c_char,
    count: usize,
    (list_name, count_name): (&str, &str),
    what: &str,
) -> Result<Vec<String>, Failure> {
    if list.is_null() && count != 0 {
        return Err(Failure::invalid(format!("{count_name} is set, but {list_name} is NULL")));
    }
    let text = |nth| {
        // SAFETY: the caller's promise.
        let text = unsafe { optional(*list.add(nth), what) }?;
        text.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
    };
    (0..count).map(text).collect()
}

/// # Safety
/// As siteseer.h says about the structure.
pub(crate) unsafe fn source(opts: *const SourceOpts) -> Result<SourceOptions, Failure> {
    // SAFETY: the caller's promise.
    let Some(opts) = (unsafe { read(opts) })? else { return Ok(SourceOptions::default()) };
    // SAFETY: as above.
    let file = unsafe { optional(opts.file, "the file of site data") }?;
    let dwarf = match (opts.no_dwarf, opts.found_dwarf) {
        (0, 0) => Dwarf::default(),
        (0, _) => Dwarf::Found,
        (_, 0) => Dwarf::Never,
        _ => return Err(Failure::invalid("no_dwarf and found_dwarf are both set")),
    };
    let embedded = match (opts.embedded.is_null(), opts.embedded_sz) {
        (true, 0) => None,
        (true, _) => return Err(Failure::invalid("embedded_sz is set, but embedded is NULL")),
        // The caller may free its own: it is copied.
        // SAFETY: there are as many bytes as the caller says.
        (false, size) => Some(unsafe { std::slice::from_raw_parts(opts.embedded.cast::<u8>(), size) }.to_vec()),
    };
    // SAFETY: as above.
    let modules = unsafe { texts(opts.modules, opts.module_cnt, ("modules", "module_cnt"), "a module's file") }?;
    let options = SourceOptions::default().dwarf(dwarf).modules(modules.into_iter().map(PathBuf::from));
    let options = match file {
        Some(file) => options.file(file),
        None => options,
    };
    Ok(match embedded {
        Some(embedded) => options.embedded(embedded),
        None => options,
    })
}

/// # Safety
/// As siteseer.h says about the structure.
pub(crate) unsafe fn register(opts: *const RegisterOpts) -> Result<RegisterOptions, Failure> {
    // SAFETY: the caller's promise.
    let Some(opts) = (unsafe { read(opts) })? else { return Ok(RegisterOptions::default()) };
    // SAFETY: as above.
    let options =
        RegisterOptions::default().source(unsafe { source(opts.source) }?).plan_at_load(opts.no_plan_at_load == 0);
    let options = options.accept_doubt(opts.accept_doubt != 0);
    Ok(match policy(opts.policy)? {
        Some(policy) => options.policy(policy),
        None => options,
    })
}

/// # Safety
/// As siteseer.h says about the structure.
pub(crate) unsafe fn attach(opts: *const AttachOpts) -> Result<AttachOptions, Failure> {
    // SAFETY: the caller's promise.
    let Some(opts) = (unsafe { read(opts) })? else { return Ok(AttachOptions::default()) };
    let mut options =
        AttachOptions::default().all_prototypes(opts.all_prototypes != 0).bulk(opts.no_bulk == 0).cookie(opts.cookie);
    if let Some(policy) = policy(opts.policy)? {
        options = options.policy(policy);
    }
    // 0 leaves it to what was registered.
    if opts.accept_doubt != 0 {
        options = options.accept_doubt(true);
    }
    // SAFETY: the caller's list has that many.
    let functions =
        unsafe { texts(opts.functions, opts.function_cnt, ("functions", "function_cnt"), "a function's name") }?;
    for name in functions {
        options = options.function(name);
    }
    // SAFETY: the caller's promise.
    if let Some(file) = unsafe { optional(opts.file, "the source file") }? {
        options = options.file(file);
    }
    if opts.bpf_program_id != 0 {
        options = options.bpf_program(opts.bpf_program_id);
    }
    match opts.pairing {
        0 => {}
        1 => options = options.paired(true),
        2 => options = options.paired(false),
        other => return Err(Failure::invalid(format!("{other} is not a pairing"))),
    }
    if let Ok(sites) = usize::try_from(opts.max_sites)
        && sites != 0
    {
        options = options.max_sites(sites);
    }
    Ok(options.allow_risky(opts.allow_risky != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller's structure of another version: this one's, and what came later.
    #[repr(C)]
    struct Newer {
        known: SourceOpts,
        later: u64,
    }

    fn newer(later: u64) -> Newer {
        // SAFETY: zeros are a value of it. So is its padding, as C callers have to see to.
        let mut newer = unsafe { std::mem::zeroed::<Newer>() };
        (newer.known.sz, newer.known.no_dwarf, newer.later) = (size_of::<Newer>(), 1, later);
        newer
    }

    // Proves S24.3.
    #[test]
    fn sizes_of_other_versions() {
        // SAFETY: all have as many bytes as they say.
        unsafe {
            assert!(read::<SourceOpts>(ptr::null()).unwrap().is_none());
            let [known, unknown] = [newer(0), newer(1)];
            assert_eq!(source((&raw const known).cast()).unwrap().dwarf, Dwarf::Never);
            let error = source((&raw const unknown).cast()).unwrap_err();
            assert_eq!(crate::error::number::<c_int>(|| Err(error)), -libc::E2BIG);
            let older: usize = size_of::<usize>();
            assert_eq!(source((&raw const older).cast()).unwrap().dwarf, Dwarf::default());
            let none: usize = 0;
            assert_eq!(crate::error::number::<c_int>(|| source((&raw const none).cast()).map(|_| 0)), -libc::EINVAL);
        }
    }

    #[test]
    fn a_size_inside_of_a_member_is_refused() {
        // The structure has only three bytes of this pointer: what comes after them is somebody else's.
        let words = [11usize, usize::MAX];
        let opts = words.as_ptr();
        // SAFETY: there are more bytes than it says.
        unsafe {
            assert!(source(opts.cast()).is_err());
            assert!(register(opts.cast()).is_err());
            assert!(attach(opts.cast()).is_err());
        }
    }

    /// A caller's structure with a member that came later, where this version has padding.
    #[repr(C)]
    struct InPadding {
        sz: usize,
        _source: *const SourceOpts,
        _policy: c_int,
        no_plan_at_load: u8,
        _accept_doubt: u8,
        later: u8,
    }

    #[test]
    fn a_later_member_may_lie_in_our_padding() {
        assert_eq!(size_of::<InPadding>(), size_of::<RegisterOpts>());
        let opts = |later| {
            // SAFETY: as in `newer`.
            let mut opts = unsafe { std::mem::zeroed::<InPadding>() };
            (opts.sz, opts.no_plan_at_load, opts.later) = (size_of::<InPadding>(), 1, later);
            opts
        };
        // SAFETY: both have as many bytes as they say.
        unsafe {
            let [unset, set] = [opts(0), opts(1)];
            assert!(register((&raw const unset).cast()).is_ok());
            let error = register((&raw const set).cast()).unwrap_err();
            assert_eq!(crate::error::number::<c_int>(|| Err(error)), -libc::E2BIG);
        }
    }

    #[test]
    fn embedded_site_data_are_copied() {
        // SAFETY: zeros are a value of it; there are as many bytes as it says.
        unsafe {
            let mut opts = std::mem::zeroed::<SourceOpts>();
            opts.sz = size_of::<SourceOpts>();
            assert!(source(&opts).unwrap().embedded_bytes().is_none());
            let mut bytes = *b"SITESUB";
            (opts.embedded, opts.embedded_sz) = (bytes.as_ptr().cast(), bytes.len());
            let read = source(&opts).unwrap();
            bytes.fill(0);
            assert_eq!(read.embedded_bytes(), Some(&b"SITESUB"[..]));
            // Of an older caller with a structure that ends before it.
            opts.sz = std::mem::offset_of!(SourceOpts, embedded);
            assert!(source(&opts).unwrap().embedded_bytes().is_none());
            (opts.sz, opts.embedded) = (size_of::<SourceOpts>(), ptr::null());
            assert!(source(&opts).is_err());
        }
    }

    #[test]
    fn files_of_modules_are_read() {
        let names = [c"a.sites".as_ptr(), c"b.sites".as_ptr(), ptr::null()];
        // SAFETY: zeros are a value of it; the list has as many texts as it says.
        unsafe {
            let mut opts = std::mem::zeroed::<SourceOpts>();
            (opts.sz, opts.modules, opts.module_cnt) = (size_of::<SourceOpts>(), names.as_ptr(), 2);
            assert_eq!(source(&opts).unwrap().modules, [PathBuf::from("a.sites"), PathBuf::from("b.sites")]);
            opts.module_cnt = 3;
            assert!(source(&opts).is_err(), "one is NULL");
            (opts.modules, opts.module_cnt) = (ptr::null(), 1);
            assert!(source(&opts).is_err());
        }
    }

    #[test]
    fn doubt_is_accepted_by_program_or_for_all() {
        let register_opts = |accept_doubt| {
            // SAFETY: as in `newer`.
            let mut opts = unsafe { std::mem::zeroed::<RegisterOpts>() };
            (opts.sz, opts.accept_doubt) = (size_of::<RegisterOpts>(), accept_doubt);
            opts
        };
        // SAFETY: the structures have as many bytes as they say.
        unsafe {
            assert!(register(&register_opts(1)).unwrap().accepts_doubt());
            assert!(!register(&register_opts(0)).unwrap().accepts_doubt());
            let mut opts = std::mem::zeroed::<AttachOpts>();
            opts.sz = size_of::<AttachOpts>();
            assert_eq!(attach(&opts).unwrap(), AttachOptions::default());
            opts.accept_doubt = 1;
            assert_eq!(attach(&opts).unwrap(), AttachOptions::default().accept_doubt(true));
            // Also the last members are read.
            (opts.accept_doubt, opts.pairing, opts.max_sites) = (0, 1, 7);
            assert_eq!(attach(&opts).unwrap(), AttachOptions::default().paired(true).max_sites(7));
            (opts.pairing, opts.max_sites, opts.allow_risky) = (0, 0, 1);
            assert_eq!(attach(&opts).unwrap(), AttachOptions::default().allow_risky(true));
        }
    }

    #[test]
    fn bad_members_are_refused() {
        let opts = |policy, functions, function_cnt| {
            // SAFETY: zeros are a value of it. So is its padding, as C callers have to see to.
            let mut opts = unsafe { std::mem::zeroed::<AttachOpts>() };
            (opts.sz, opts.policy, opts.cookie) = (size_of::<AttachOpts>(), policy, 7);
            (opts.functions, opts.function_cnt) = (functions, function_cnt);
            opts
        };
        let names = [c"foo".as_ptr(), ptr::null()];
        // SAFETY: the lists have as many names as the structures say.
        unsafe {
            assert_eq!(attach(&opts(1, names.as_ptr(), 1)).unwrap(), {
                AttachOptions::default().cookie(7).policy(Policy::Complete).function("foo")
            });
            for bad in [opts(4, ptr::null(), 0), opts(0, ptr::null(), 1), opts(0, names.as_ptr(), 2)] {
                assert!(attach(&bad).is_err());
            }
        }
    }
}
