// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Attachments that were handed to libbpf's user as a `struct bpf_link`, and what can be asked of them.
//!
//! What arms the sites belongs to the link ([`super::queue`]), and so do the programs: one that is for a function of a
//! module keeps the module loaded, and after the link is destroyed nothing of it may. This file keeps the rest: the
//! maps, with their counters; the report; and the definitions of events in tracefs. Only these definitions must be
//! undone when the link is destroyed, and nobody says when that is. So it is looked for whenever something is attached
//! or asked, and when the process ends: the links' sockets hang up. Until then a definition does nothing, but is there.

use super::queue::{Queue, identity, is_closed};
use super::{RegisterError, carrier};
use crate::attach::AttachError;
use crate::attach::armed::{Armed, missed_by};
use crate::attach::link::{Cost, Gone, Link};
use crate::attach::unanswered::{MISSED, unanswered};
use crate::attach::{Definition, remove_all};
use crate::bpf::objects::open_link;
use crate::forked::ForkLock;
use crate::plan::report::Report;
use crate::site::bpf::TailSlot;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::panic::catch_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

struct Handed {
    /// Without what arms it, and without its programs.
    link: Link,
    /// The kernel's ids of the links that arm it.
    ids: Vec<u32>,
    /// How many files the queue holds.
    files: usize,
    definitions: Mutex<Vec<Definition>>,
    /// Hangs up when the link is destroyed.
    peer: OwnedFd,
    /// Which socket it has.
    identity: (u64, u64),
    /// The process that attached it: what it inherited is not its child's to undo.
    process: u32,
}

impl Handed {
    fn is_attached(&self) -> bool {
        !is_closed(self.peer.as_fd())
    }

    fn definitions(&self) -> Vec<Definition> {
        std::mem::take(&mut *self.definitions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

static HANDED: ForkLock<Vec<Arc<Handed>>> = ForkLock::new(Vec::new);

fn all() -> MutexGuard<'static, Vec<Arc<Handed>>> {
    HANDED.lock()
}

/// Forgets links that were destroyed, and removes their definitions.
pub(super) fn sweep() {
    let gone: Vec<Arc<Handed>> = all().extract_if(.., |handed| !handed.is_attached()).collect();
    let own = gone.iter().filter(|handed| handed.process == std::process::id());
    remove_all(own.flat_map(|handed| handed.definitions()).collect());
}

/// The process that sweeps when it ends.
static SWEEPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn sweep_at_exit() {
    // A child that was forked has nothing to undo. It may have been forked while a thread that it does not have held
    // the lock.
    if SWEEPS.load(Ordering::Relaxed) == std::process::id() {
        let _ = catch_unwind(sweep);
    }
}

/// Makes a link one of libbpf's. Its report and counters are found by its descriptor from then on.
pub(super) fn hand_out(mut link: Link) -> Result<(NonNull<sys::bpf_link>, Attached), RegisterError> {
    static AT_EXIT: Once = Once::new();
    sweep();
    let failed = |what| move |error| RegisterError::Link { what, error };
    // In this order: when the queue is emptied no program runs any more before the first event is disarmed.
    let armed = link.disown();
    let ids = armed.ids().map_err(failed("its parts"))?;
    let programs = link.give_programs().map_err(failed("its parts"))?;
    let (mut files, mut definitions) = armed.into_parts();
    files.extend(definitions.iter_mut().filter_map(Definition::take_event));
    let count = files.len();
    files.extend(programs);
    let queue = Queue::of(files).map_err(failed("its parts"));
    let carried = queue.and_then(|Queue { holder, peer }| {
        let identity =
            identity(holder.as_raw_fd()).ok_or_else(io::Error::last_os_error).map_err(failed("its parts"))?;
        Ok((carrier::carry(holder)?, peer, identity))
    });
    let (raw, peer, identity) = match carried {
        Ok(carried) => carried,
        Err(error) => {
            // What armed it is closed by now.
            drop(Armed::events(definitions));
            return Err(error);
        }
    };
    if !definitions.is_empty() {
        AT_EXIT.call_once(|| {
            // SAFETY: the function is there as long as this library, which is when the C library calls it. Where there
            // is no room for it, what it would remove is left to the next process.
            unsafe { libc::atexit(sweep_at_exit) };
        });
        SWEEPS.store(std::process::id(), Ordering::Relaxed);
    }
    let handed = Arc::new(Handed {
        link,
        ids,
        files: count,
        definitions: Mutex::new(definitions),
        peer,
        identity,
        process: std::process::id(),
    });
    all().push(Arc::clone(&handed));
    Ok((raw, Attached(handed)))
}

/// The attachment that the descriptor of a link stands for.
pub(super) fn find(descriptor: RawFd) -> Option<Attached> {
    sweep();
    let identity = identity(descriptor)?;
    all().iter().find(|handed| handed.identity == identity).map(|handed| Attached(Arc::clone(handed)))
}

/// The attachment that a link of libbpf's calls stands for. It can be asked; it is detached by `bpf_link__destroy()`,
/// or what calls that.
#[derive(Clone)]
pub struct Attached(Arc<Handed>);

impl Attached {
    /// The outcome of every site.
    pub fn report(&self) -> &Report {
        self.0.link.report()
    }

    /// Whether the link has not been destroyed.
    pub fn is_attached(&self) -> bool {
        self.0.is_attached()
    }

    /// As [`Link::gone`].
    ///
    /// # Errors
    /// If the kernel does not tell which modules are loaded.
    pub fn gone(&self) -> Result<Vec<Gone>, AttachError> {
        self.0.link.gone()
    }

    /// As [`Link::unseen_modules`]. Such a link is not refreshed: attach the program again.
    ///
    /// # Errors
    /// If the kernel does not tell which modules are loaded.
    pub fn unseen_modules(&self) -> Result<Vec<String>, AttachError> {
        self.0.link.unseen_modules()
    }

    /// As [`Link::in_the_way`].
    ///
    /// # Errors
    /// If the kernel does not tell which functions live patches have replaced.
    pub fn in_the_way(&self) -> Result<Vec<String>, AttachError> {
        self.0.link.in_the_way()
    }

    /// As [`Link::tail_slots`].
    ///
    /// # Errors
    /// If the machine's maps cannot be looked through (which requires CAP_SYS_ADMIN).
    pub fn tail_slots(&self) -> Result<Vec<TailSlot>, AttachError> {
        self.0.link.tail_slots()
    }

    /// As [`Link::missed`]. Requires CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// If the kernel does not give a counter, or the link is destroyed.
    pub fn missed(&self) -> Result<u64, AttachError> {
        let links = self.0.ids.iter().map(|&id| open_link(id)).collect::<io::Result<Vec<OwnedFd>>>();
        let definitions = self.0.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let by_links = links.and_then(|links| missed_by(&links, &*definitions)).map_err(unanswered(MISSED))?;
        Ok(self.0.link.missed()? + by_links)
    }

    /// As [`Link::faults`].
    ///
    /// # Errors
    /// If the kernel does not give the counter.
    pub fn faults(&self) -> Result<u64, AttachError> {
        self.0.link.faults()
    }

    /// As [`Link::cost`].
    ///
    /// # Errors
    /// If the kernel does not give information on a program.
    pub fn cost(&self) -> Result<Cost, AttachError> {
        let cost = self.0.link.cost()?;
        // Its socket and the other end of it.
        Ok(Cost { files: cost.files + self.0.files + 2, ..cost })
    }
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("attached", &self.is_attached()).field("report", self.report()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::tests::child_ends;
    use serial_test::serial;

    #[test]
    #[serial]
    fn a_forked_child_ends() {
        SWEEPS.store(std::process::id(), Ordering::Relaxed);
        assert!(child_ends(all, || {
            sweep_at_exit();
            true
        }));
    }

    #[test]
    #[serial]
    fn a_forked_child_can_attach_and_ask() {
        assert!(child_ends(all, || {
            sweep();
            find(-1).is_none()
        }));
    }
}
