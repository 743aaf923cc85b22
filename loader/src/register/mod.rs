// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sections as libbpf's own: objects are opened, loaded and attached by libbpf's calls, and siteseer does its part
//! inside.
//!
//! libbpf lets a library register handlers for section names (`libbpf_register_prog_handler()`). They come before its
//! own, so the names that it knows (`fentry`, `fexit`) can be taken over too. A handler is called three times in a
//! program's life (`handler`):
//!
//! * when the object is opened: what an earlier program at this address left is forgotten (`programs`);
//! * just before the program is loaded, relocated and ready. Here it is decided how (`decide`): for its own function,
//!   as plain libbpf would, wherever plain libbpf could; else behind a guard ([`crate::program::section`]), where
//!   only siteseer attaches it;
//! * when it is attached, by `bpf_program__attach()` or a skeleton. If siteseer has nothing to add, libbpf attaches it.
//!   Otherwise [`Attach`](crate::Attach) does, with libbpf's own program at the body, and the result is made a `struct
//!   bpf_link` (`handed`). Programs at both ends of the same calls are kept together (`pairs`). If siteseer cannot,
//!   libbpf attaches it, and it is said why (`warn`).
//!
//! A handler is not called where a link is made of the program's descriptor. What is loaded for its own function then
//! runs as with plain libbpf; what is behind the guard is refused by the kernel.
//!
//! # The link
//! `struct bpf_link` is opaque, and libbpf has no call that makes one for descriptors that it did not open; still its
//! user must get one: `bpf_program__attach()` fails without, and it is what he destroys. libbpf has one descriptor for
//! such a link, and destroying the link closes it. So all that has to be closed is kept alive by one descriptor: the
//! files that arm the sites are sent over a socket and left lying in its queue (`SCM_RIGHTS`, unix(7)), and when the
//! socket is closed, the kernel closes what lies in it, before `close()` returns. The link itself comes from attaching
//! an iterator, which arms nothing; then the socket takes the place of its descriptor (`dup3()`). No structure of
//! libbpf is looked into, no thread or callback is needed, and a process that is killed leaves nothing armed.
//!
//! # Limits
//! libbpf's table of handlers is global, has no lock, and is moved when a handler is added or removed, while programs
//! of open objects point into it. [`register`] and [`unregister`] exclude each other; they cannot exclude another
//! thread that opens an object, nor whoever else registers handlers. After [`unregister`], programs that were opened
//! before must not be loaded or attached any more (their objects may be closed, and links stay).

mod can_attach;
mod carrier;
#[doc(hidden)]
pub mod copies;
mod decide;
mod error;
mod func;
mod handed;
mod handler;
pub mod log;
mod pairs;
mod programs;
mod queue;
#[cfg(feature = "libbpf-rs")]
mod rust;
mod shared;
mod warn;

pub use can_attach::can_attach;
pub use error::RegisterError;
pub use handed::Attached;

use crate::attach::AttachOptions;
use crate::attach::link::Link;
use crate::forked::ForkLock;
use crate::plan::Policy;
use crate::plan::report::Report;
use crate::program::object::Program;
use crate::program::section::{Form, SECTIONS};
use crate::source::SourceOptions;
use libbpf_sys as sys;
use std::ffi::c_long;
use std::io;
use std::sync::{Arc, MutexGuard};

/// How programs that libbpf's own calls attach are treated.
#[derive(Debug, Clone)]
pub struct RegisterOptions {
    pub(crate) source: SourceOptions,
    pub(crate) policy: Option<Policy>,
    pub(crate) plan_at_load: bool,
    pub(crate) accept_doubt: bool,
}

impl Default for RegisterOptions {
    fn default() -> RegisterOptions {
        RegisterOptions { source: SourceOptions::default(), policy: None, plan_at_load: true, accept_doubt: false }
    }
}

impl RegisterOptions {
    /// Where site data is looked for.
    #[must_use]
    pub fn source(mut self, source: SourceOptions) -> RegisterOptions {
        self.source = source;
        self
    }

    /// The policy of programs for which nothing else is said, in place of their section's.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> RegisterOptions {
        self.policy = Some(policy);
        self
    }

    /// Whether doubtful arguments count as located, in programs for which nothing else is said
    /// ([`AttachOptions::accept_doubt`](crate::AttachOptions::accept_doubt)).
    #[must_use]
    pub fn accept_doubt(mut self, accept: bool) -> RegisterOptions {
        self.accept_doubt = accept;
        self
    }

    /// Whether doubtful arguments count as located, where a program's own options do not say.
    #[must_use]
    pub fn accepts_doubt(&self) -> bool {
        self.accept_doubt
    }

    /// A program's own options, and these where it says nothing.
    fn complete(&self, own: AttachOptions) -> AttachOptions {
        own.or_policy(self.policy).or_accept_doubt(self.accept_doubt)
    }

    /// Whether each `fentry` and `fexit` program is planned when it is loaded, to have libbpf load it for its own
    /// function, and to leave those to libbpf that siteseer has nothing to add to. Otherwise all are loaded behind
    /// the guard, and nothing is read of the kernel before one is attached. For processes that attach by
    /// [`Attach`](crate::Attach) alone: other calls are refused then. A program with
    /// `bpf_program__set_autoattach(program, false)` is loaded for its own function, and not planned.
    #[must_use]
    pub fn plan_at_load(mut self, plan: bool) -> RegisterOptions {
        self.plan_at_load = plan;
        self
    }
}

struct State {
    /// libbpf's numbers of our handlers, in the order of [`SECTIONS`].
    handlers: Vec<i32>,
    options: Arc<RegisterOptions>,
}

static STATE: ForkLock<Option<State>> = ForkLock::new(|| None);

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock()
}

/// The options that were registered last.
fn options() -> Arc<RegisterOptions> {
    state().as_ref().map(|state| Arc::clone(&state.options)).unwrap_or_default()
}

/// Program type and expected attach type of a section.
fn types(form: Form) -> (sys::bpf_prog_type, sys::bpf_attach_type) {
    form.types()
}

/// Registers the sections with libbpf. Call it before opening objects that use them; called again it changes nothing.
///
/// From then on every object of the process that libbpf opens has its `fentry` and `fexit` programs here: libbpf's
/// calls attach them to all sites of their functions that can be attached ([`Policy::by_libbpf`]), and so does
/// [`Attach`](crate::Attach).
///
/// # Errors
/// [`RegisterError::Handler`] if libbpf refuses. Then none is registered.
pub fn register() -> Result<(), RegisterError> {
    set_up(None)
}

/// [`register`] with options. Called again, it sets the options again, for objects that are opened from then on.
///
/// # Errors
/// As [`register`].
pub fn register_with(options: RegisterOptions) -> Result<(), RegisterError> {
    set_up(Some(options))
}

fn set_up(options: Option<RegisterOptions>) -> Result<(), RegisterError> {
    let mut state = state();
    if let Some(state) = state.as_mut() {
        if let Some(options) = options {
            state.options = Arc::new(options);
            shared::forget();
        }
        return Ok(());
    }
    let mut handlers = Vec::with_capacity(SECTIONS.len());
    for (number, (section, handler, form)) in (0 as c_long..).zip(&SECTIONS) {
        let (program_type, attach_type) = types(*form);
        let opts = sys::libbpf_prog_handler_opts {
            sz: size_of::<sys::libbpf_prog_handler_opts>() as sys::size_t,
            cookie: number,
            prog_setup_fn: Some(handler::setup),
            prog_prepare_load_fn: Some(handler::prepare_load),
            prog_attach_fn: Some(handler::attach),
        };
        // SAFETY: the string and the options live through the call, and libbpf copies both. The table of handlers is
        // not locked: our own calls are, by the mutex; the rest is the caller's promise, stated above.
        let result = unsafe { sys::libbpf_register_prog_handler(handler.as_ptr(), program_type, attach_type, &opts) };
        if result < 0 {
            take_back(handlers);
            return Err(RegisterError::Handler { section, error: io::Error::from_raw_os_error(-result) });
        }
        handlers.push(result);
    }
    *state = Some(State { handlers, options: Arc::new(options.unwrap_or_default()) });
    Ok(())
}

/// The last first: libbpf moves those that follow a handler that goes.
fn take_back(handlers: Vec<i32>) {
    for handler in handlers.into_iter().rev() {
        // SAFETY: plain call; the table is ours to change, as in `register`.
        unsafe { sys::libbpf_unregister_prog_handler(handler) };
    }
}

/// Gives the sections back to libbpf: objects that are opened from now on are as if siteseer had never been there.
/// Links stay attached. See the module's limits for objects that are open.
pub fn unregister() {
    let mut state = state();
    let Some(State { handlers, .. }) = state.take() else { return };
    take_back(handlers);
    programs::forget();
    shared::forget();
    carrier::forget();
}

/// Sets how libbpf's own calls attach a program: after its object is opened, before it is loaded.
///
/// # Errors
/// [`RegisterError::Unknown`].
pub fn set_attach_options<'p>(program: impl Into<Program<'p>>, options: AttachOptions) -> Result<(), RegisterError> {
    let program = program.into();
    // At the address of a program that is gone another one may be, in another section.
    let known = program.section().is_ok() && programs::change(program.raw(), |known| known.options = options);
    if known { Ok(()) } else { Err(RegisterError::Unknown { program: program.name() }) }
}

impl Program<'_> {
    /// What was planned or done last of a program that libbpf's own calls load or attach.
    pub fn report(&self) -> Option<Arc<Report>> {
        programs::known(self.raw()).filter(|_| self.section().is_ok()).and_then(|known| known.report)
    }
}

impl Attached {
    /// The attachment that a link of libbpf's calls stands for; `None` if it is libbpf's own.
    ///
    /// # Safety
    /// The link is alive.
    pub unsafe fn from_raw(link: std::ptr::NonNull<sys::bpf_link>) -> Option<Attached> {
        // SAFETY: the caller's promise.
        handed::find(unsafe { sys::bpf_link__fd(link.as_ptr()) })
    }
}

/// Removes what processes that are gone have left in tracefs, and nothing else; also what links of this process's own,
/// which libbpf has destroyed, have left there. Gives the number of events of the former. Attaching does this too,
/// without waiting for it.
///
/// # Errors
/// If tracefs is there and cannot be read or written.
pub fn clean() -> io::Result<usize> {
    handed::sweep();
    crate::attach::clean()
}

impl Link {
    /// Makes it a link of libbpf's, which `bpf_link__destroy()` detaches. What it could be asked is asked by
    /// [`Attached::from_raw`].
    ///
    /// # Errors
    /// [`RegisterError::Link`]; then everything is detached.
    pub fn into_libbpf(self) -> Result<std::ptr::NonNull<sys::bpf_link>, RegisterError> {
        handed::hand_out(self).map(|(link, _)| link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What libbpf makes of a section name.
    fn kind(section: &std::ffi::CStr) -> Option<(u32, u32)> {
        let (mut program_type, mut attach_type) = (0, 0);
        // SAFETY: the string and both places live through the call.
        let result = unsafe { sys::libbpf_prog_type_by_name(section.as_ptr(), &mut program_type, &mut attach_type) };
        (result == 0).then_some((program_type, attach_type))
    }

    #[test]
    fn a_programs_own_options_come_first() {
        let registered = RegisterOptions::default().policy(Policy::BestEffort).accept_doubt(true);
        let own = AttachOptions::default().policy(Policy::Complete).accept_doubt(false);
        assert_eq!(registered.complete(own.clone()), own);
        let filled = AttachOptions::default().policy(Policy::BestEffort).accept_doubt(true);
        assert_eq!(registered.complete(AttachOptions::default()), filled);
        let nothing = RegisterOptions::default().complete(AttachOptions::default());
        assert_eq!(nothing, AttachOptions::default().accept_doubt(false));
    }

    // Proves S15.2, S23.10.
    #[test]
    fn registering_twice_is_once_and_unregistering_restores_libbpf() {
        let sections = [c"fentry/foo", c"fexit/foo", c"fentry.s/foo", c"fexit.s/m:foo", c"kprobe/foo", c"fmod_ret/foo"];
        let before = sections.map(kind);
        assert_eq!(kind(c"kprobe_maybe_inline/foo"), None);
        for _ in 0..3 {
            register().unwrap();
            register_with(RegisterOptions::default().plan_at_load(false)).unwrap();
            assert!(!options().plan_at_load);
            assert_eq!(kind(c"kprobe_maybe_inline/foo"), Some((sys::BPF_PROG_TYPE_KPROBE, 0)));
            assert_eq!(kind(c"kprobe_maybe_inlined/foo"), None);
            assert_eq!(sections.map(kind), before);
            unregister();
            assert_eq!(sections.map(kind), before);
            assert_eq!(kind(c"kprobe_maybe_inline/foo"), None);
            unregister();
        }
    }
}
