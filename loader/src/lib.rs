// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Runs a BPF program wherever the body of a kernel function starts executing, however the compiler arranged it, and
//! hands it the function's own arguments, correct, at every one of those places; where it cannot, it says which place
//! and why.
//!
//! # What it is for
//! A kprobe or fentry program on `foo` runs when the symbol `foo` is entered. The compiler leaves foo's body in other
//! places as well: inlined into callers, and in clones (`foo.isra.0`, `foo.constprop.2`). Calls that happen there are
//! missed, silently. Here each such place is a *site*. A program in `SEC("fentry/foo")`, as it is, or in
//! `SEC("kprobe_maybe_inline/foo")` runs at all of them; one in `SEC("fexit/foo")` runs at the returns of all that have
//! one:
//!
//! ```c
//! SEC("fentry/ns_capable")
//! int BPF_PROG(capable, struct user_namespace *ns, int cap)
//! {
//!         bpf_printk("capability %d at level %d", cap, ns->level);
//!         return 0;
//! }
//! ```
//!
//! # With libbpf-rs
//! One call before the others. Objects and skeletons of libbpf-cargo are then opened, loaded and attached as ever, and
//! the link of such a program stands for all of its sites; a program that siteseer has nothing to add to stays libbpf's
//! alone ([`register()`]).
//!
//! ```no_run
//! # #[cfg(feature = "libbpf-rs")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes: &[u8] = &[];
//! use siteseer::{AttachOptions, Attached, Policy, set_attach_options};
//!
//! siteseer::register()?; // before opening
//! let mut builder = libbpf_rs::ObjectBuilder::default();
//! let open = builder.open_memory(bytes)?;
//! for program in open.progs().filter(|program| program.name() == "returned") {
//!     // An inlined copy has no return, so an exit program cannot be there: settle for the sites that have one.
//!     set_attach_options(&program, AttachOptions::default().policy(Policy::BestEffort))?;
//! }
//! let object = open.load()?;
//! for program in object.progs_mut() {
//!     let link = program.attach()?; // detaches every site when it is dropped
//!     if let Some(attached) = Attached::of(&link) {
//!         print!("{}", attached.report());
//!     }
//! #   drop(link);
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "libbpf-rs"))]
//! # fn main() {}
//! ```
//!
//! # With a target of one's own
//! To plan without attaching, to attach one program several times, or to name the function at run time.
//!
//! ```no_run
//! # #[cfg(feature = "libbpf-rs")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes: &[u8] = &[];
//! use siteseer::{Attach, AttachOptions, Policy, SourceOptions, Target};
//!
//! siteseer::register()?; // once, before opening objects
//! let object = libbpf_rs::ObjectBuilder::default().open_memory(bytes)?.load()?;
//! let program = object.progs().find(|program| program.name() == "capable").ok_or("no such program")?;
//!
//! let target = Target::running(&SourceOptions::default())?;
//! let link = Attach::with(&target, AttachOptions::default().policy(Policy::BestEffort).cookie(7)).attach(&program)?;
//! print!("{}", link.report());
//! // ns_capable: attached at 14 of 14 sites (1 body, 13 inline) by fentry, kprobe
//! for (site, reason) in link.report().skipped() {
//!     println!("{} is not traced: {reason} ({})", site.symbol, reason.key());
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "libbpf-rs"))]
//! # fn main() {}
//! ```
//!
//! Dropping the [`Link`] detaches every site. [`Attach::plan`] says what would be attached, and changes nothing.
//!
//! An application with libbpf-cargo: <https://docs.rs/libbpf-cargo> makes the skeleton; its build script finds the
//! folder of `siteseer.bpf.h` in the environment variable `DEP_SITESEER_INCLUDE`, if `siteseer` is a dependency of the
//! package. `examples/capsnoop` is one.
//!
//! # Features
//! | feature | |
//! |---|---|
//! | `libbpf-rs` (default) | take its programs, give its links |
//! | `dwarf` | read sites from a debug vmlinux when there is no encoded file; this compiles the encoder |
//! | `vendored` | link a libbpf of its own statically; without it the system's: 1.1 or newer (1.6 with `libbpf-rs`) |
//! | `static` | link libbpf, libelf and zlib statically |
//!
//! # Policy
//! [`Attach`] attaches `fentry` and `fexit` programs everywhere or not at all ([`Policy::Complete`]) unless another
//! policy is set. libbpf's own calls attach them as plain libbpf does, and wherever else they can be attached
//! ([`Policy::AtLeastLibbpf`]): a program never sees less than without siteseer, and a warning says what it does not
//! see.
//!
//! # How it works
//! A folder for each phase, in this order. Each takes the result of those before and leaves it as it is; none uses
//! one that comes after.
//!
//! | folder | what it makes |
//! |---|---|
//! | `bpf` | BPF instructions and helpers; the only calls of bpf(2) and perf_event_open(2) |
//! | `site` | the words for a site: where it is, what its arguments are, and why a program does not run there |
//! | `program` | the program that libbpf loaded: which arguments it reads, what it calls, which prototype it states |
//! | `trampoline` | BPF code that gathers the arguments of one location prototype and calls the program |
//! | `kernel` | what the running kernel says about its text, and what it can do |
//! | `source` | site data of the image and of modules: encoded beforehand from DWARF, the kernel's own, or DWARF itself |
//! | `target` | every place where a function's body may start: in the image, in modules, in BPF programs |
//! | `plan` | what is attached and how, and what is not and why. Pure: it can be computed for any kernel, running or not |
//! | `explain` | a plan in words; what the compiler made of a function, by rules that can be denied |
//! | `compile` | a plan as an object with trampolines, for other loaders |
//! | `attach` | carries plans out: programs loaded, sites armed. The link owns that |
//! | `register` | siteseer inside of libbpf's own calls |
//!
//! What is public is here, and nowhere else; the module `internals`, which is not documented, is for the project's own
//! tools.
//!
//! # What a program can rely on
//! * Its context is the array of 8-byte slots that the kernel gives a fentry or fexit program. A pointer to a structure
//!   keeps its type, and can be followed directly (from Linux 6.2).
//! * An argument that it reads is there, or the site is not attached, and reported. A program that can do with less
//!   asks by `siteseer_arg()` of `siteseer.bpf.h`. Never a made-up value.
//! * Helpers that take the context work, or the program is refused with the helper's name.
//!
//! # Limits
//! Attaching requires CAP_BPF, CAP_PERFMON and CAP_SYSLOG (for addresses). x86-64 and arm64.

mod attach;
mod bpf;
mod compile;
mod error;
mod explain;
mod forked;
#[doc(hidden)]
pub mod internals;
mod kernel;
mod plan;
mod program;
mod register;
mod site;
mod source;
mod target;
mod trampoline;

pub use attach::link::{Cost, Gone, Link};
pub use attach::{Attach, AttachError, AttachOptions};
pub use error::Error;
pub use libbpf_sys;
pub use plan::mechanism::Mechanism;
pub use plan::report::{FunctionReport, Outcome, Report, SiteReport};
pub use plan::{InTheWay, Plan, PlanError};
pub use program::object::Program;
pub use program::policy::Policy;
pub use register::log::{LogLevel, set_log};
pub use register::{Attached, RegisterError, RegisterOptions};
pub use register::{can_attach, clean, register, register_with, set_attach_options, unregister};
pub use site::bpf::TailSlot;
pub use site::candidate::Place;
pub use site::reason::{MissingArgument, Reason};
pub use site::refusal::Refusal;
pub use site::unavailable::Unavailable;
pub use siteseer_sites as sites;
pub use source::{Dwarf, SourceOptions};
pub use target::{Target, TargetError};
