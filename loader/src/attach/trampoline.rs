// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Loading the programs of a plan: the images are the plan's, and get the descriptors of the maps that they refer to.
//!
//! A fentry or fexit program is loaded for one function, and the kernel may refuse it for what the function is (not
//! sleepable, a prototype that its trampolines cannot carry) or for what the program does. The first is the site's
//! affair, the second the program's. They are told apart by loading an empty program in its place.

use super::AttachError;
use super::arm::place;
use super::link::Part;
use crate::bpf::btf::{self, btf_of};
use crate::bpf::load::{LoadAs, Refused, Request};
use crate::bpf::map::Map;
use crate::plan::{Plan, PlannedProgram, PlannedTrampoline};
use crate::site::reason::Reason;
use crate::trampoline::{OwnMap, SavedMap};
use libbpf_sys as sys;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Why a program was not loaded.
pub(super) enum Unloaded {
    /// This mechanism cannot be used at its sites.
    There(Reason),
    /// At all.
    AtAll(AttachError),
}

impl From<AttachError> for Unloaded {
    fn from(error: AttachError) -> Unloaded {
        Unloaded::AtAll(error)
    }
}

/// Loads the programs that one of the user's becomes.
pub(super) struct Loader<'a> {
    /// Its name.
    pub(super) name: &'a str,
    pub(super) gpl: bool,
    pub(super) sleepable: bool,
    /// Whether it may be run as a KPROBE program everywhere, if the kernel does not take it as a TRACING program.
    pub(super) can_do_without: bool,
    /// The BTF that was loaded last: mostly that of the next one, too.
    btf: Option<(Vec<u8>, OwnedFd)>,
    /// The kernel's BTF objects of modules, by name.
    modules: HashMap<Arc<str>, OwnedFd>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(name: &'a str, gpl: bool, sleepable: bool, can_do_without: bool) -> Loader<'a> {
        Loader { name, gpl, sleepable, can_do_without, btf: None, modules: HashMap::new() }
    }

    /// Loads a program. `planned` is the first of its trampolines, which stands for all in what is said.
    pub(super) fn load(
        &mut self,
        program: &PlannedProgram,
        planned: &PlannedTrampoline,
        plan: &Plan,
        part: &Part,
    ) -> Result<OwnedFd, Unloaded> {
        let image = &program.image;
        let first = planned.sites.first().and_then(|&index| plan.sites.get(index));
        let site = || first.map(|site| place(&site.site)).unwrap_or_default();
        let saved = image.saved.map(|saved| saved_map(&saved)).transpose();
        // The program holds the map from when it is loaded.
        let saved = saved.map_err(|error| AttachError::Map { what: "calls that have not returned", error })?;
        let insns = image.with_maps(|map| match map {
            OwnMap::Sites => part.site_map.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            OwnMap::Faults => part.fault_map.as_raw_fd(),
            OwnMap::Saved => saved.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        });
        if image.gpl_only && !self.gpl {
            return Err(AttachError::Licence { program: self.name.to_owned(), site: site() }.into());
        }
        if let Some(data) = &image.btf
            && self.btf.as_ref().is_none_or(|(loaded, _)| loaded != data)
        {
            let fd = btf::load(data).map_err(|refused| AttachError::Btf {
                site: site(),
                error: refused.error,
                log: refused.log,
            })?;
            self.btf = Some((data.clone(), fd));
        }
        let module = planned.module.as_ref().map(|module| module_btf(&mut self.modules, module)).transpose();
        let module = module.map_err(|error| {
            let said = Some(format!("the kernel's BTF of the module cannot be read: {error}"));
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Unloaded::There(Reason::Kernel { errno, mechanism: planned.mechanism.word(), said })
        })?;
        let kind = LoadAs::of(planned.mechanism, planned.func, module, planned.program, self.sleepable);
        let request = Request {
            name: self.name,
            gpl: self.gpl,
            kind,
            insns: &insns,
            func_info: &image.func_info,
            line_info: &image.line_info,
            btf: image.btf.as_ref().and(self.btf.as_ref()).map(|(_, fd)| fd.as_fd()),
        };
        let refused = match request.load() {
            Ok(program) => return Ok(program),
            Err(refused) => refused,
        };
        let verifier = |refused: Refused| AttachError::Verifier {
            program: self.name.to_owned(),
            site: site(),
            error: refused.error,
            log: refused.log,
        };
        if !planned.mechanism.probe().is_tracing() {
            return Err(verifier(refused).into());
        }
        // Load an empty program to find out which part is at fault: what the kernel does not load for that function
        // either.
        let mechanism = planned.mechanism.word();
        match kind.refuses_all() {
            Some(target) => {
                let errno = target.error.raw_os_error().unwrap_or(libc::EIO);
                let said = last_line(&target.log);
                Err(Unloaded::There(Reason::Kernel { errno, mechanism, said }))
            }
            // Another mechanism asks less of the program: it returns what it likes, its pointers are trusted no
            // further.
            None if self.can_do_without || planned.func.is_none() || is_about_a_pointer(&refused.log) => {
                let errno = refused.error.raw_os_error().unwrap_or(libc::EIO);
                Err(Unloaded::There(Reason::Kernel { errno, mechanism, said: last_line(&refused.log) }))
            }
            None => Err(verifier(refused).into()),
        }
    }
}

/// Opens the kernel's BTF object of a module, while `modules` keeps it open.
fn module_btf<'m>(modules: &'m mut HashMap<Arc<str>, OwnedFd>, module: &Arc<str>) -> io::Result<BorrowedFd<'m>> {
    let known: &'m OwnedFd = match modules.entry(Arc::clone(module)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(slot) => slot.insert(btf_of(module)?),
    };
    Ok(known.as_fd())
}

/// Whether the verifier does not let the program have an argument because of what it points to. Older kernels give
/// tracing programs no pointer but to structures, integers and `void` (`btf_ctx_access()` in kernel/bpf/btf.c); to a
/// KPROBE program it is a number like any other.
fn is_about_a_pointer(log: &str) -> bool {
    log.lines().any(|line| line.starts_with("func '") && line.trim_end().ends_with("is not a struct"))
}

/// The last line of a verifier's log that is about the program or its target.
fn last_line(log: &str) -> Option<String> {
    let mut lines = log.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty() && !line.starts_with("processed ")).map(str::to_owned)
}

/// Creates the map that keeps arguments from a function's entry to its return.
fn saved_map(saved: &SavedMap) -> io::Result<OwnedFd> {
    let SavedMap { key_size, value_size, max_entries } = *saved;
    let map = Map::plain(sys::BPF_MAP_TYPE_HASH, c"siteseer_saved", key_size, value_size, max_entries);
    Map { flags: sys::BPF_F_NO_PREALLOC, ..map }.create()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_that_tracing_programs_do_not_get() {
        let log = "0: (79) r2 = *(u64 *)(r1 +0)\nfunc 'apply' arg0 type FUNC_PROTO is not a struct\ninvalid bpf_context \
                   access off=0 size=8\nprocessed 1 insns\n";
        assert!(is_about_a_pointer(log));
        assert!(!is_about_a_pointer("R1 type=scalar expected=fp, is not a struct pointer\n"));
    }

    #[test]
    fn the_line_that_says_why() {
        let log = "do_nanosleep is not sleepable\nprocessed 0 insns (limit 1000000) max_states_per_insn 0\n\n";
        assert_eq!(last_line(log).as_deref(), Some("do_nanosleep is not sleepable"));
        assert_eq!(last_line("\n"), None);
    }
}
