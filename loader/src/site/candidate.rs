// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A place where a function's body may start executing, on a given kernel.

use super::bpf::BpfSite;
use super::live_patch::Concern;
use super::reason::Reason;
use super::unavailable::{Unavailable, available};
use siteseer_sites::CodeSum;
use siteseer_sites::btf::TypeId;
use siteseer_sites::location::{Argument, Located, Missing};
use siteseer_sites::site::{Marks, SiteKind};
use std::sync::Arc;

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Place {
    /// File, as the debug information names it.
    pub file: String,
    /// Line, from 1; 0 where it is not known.
    pub line: u32,
}

/// One place where a body of the function may start executing.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The module that it is in; `None` for the kernel's image.
    pub module: Option<Arc<str>>,
    /// The site's number in the site data of the image or module, if it is from there.
    pub index: Option<u32>,
    /// What it is.
    pub kind: SiteKind,
    /// Run-time address of the probe.
    pub address: u64,
    /// Link-time address of the probe.
    pub link_address: u64,
    /// How many bytes before the probe the body starts; with [`Marks::MOVED_BACK`], how many bytes after it.
    pub moved: u8,
    /// The symbol that holds it.
    pub symbol: String,
    /// Run-time address of that symbol.
    pub symbol_address: u64,
    /// Bytes of that symbol, as the kernel sees it.
    pub symbol_size: u64,
    /// The prototype, an index into [`Function::prototypes`](crate::target::function::Function::prototypes).
    pub prototype: usize,
    /// One per parameter of the prototype.
    pub arguments: Vec<Argument>,
    /// Flags.
    pub marks: Marks,
    /// Where it was called (inline site) or declared.
    pub source: Option<Place>,
    /// Where the function was declared.
    pub declared: Option<Place>,
    /// What stands against a probe there, whatever the program.
    /// `Kernel::notrace_events` says that some obstacles are not obstacles on this kernel.
    pub obstacle: Option<Reason>,
    /// The sum of the kernel's code there, as far as the site data has it.
    pub code: CodeSum,
    /// Whether it is in the last function of a module's text: see
    /// `Kernel::decodes_past_modules`.
    pub ends_module: bool,
    /// Whether ftrace knows a patch site in the symbol; `None` where the kernel does not say.
    pub traceable: Option<bool>,
    /// Whether the site data describes it; if not, its arguments are the ABI's, or not known.
    pub described: bool,
    /// The FUNC of the kernel's or the module's BTF for a body that the kernel finds by that FUNC's name, and cannot
    /// take for another: what fentry goes by (`kallsyms_lookup_name()`, or for a module `find_kallsyms_symbol_value()`,
    /// in `bpf_check_attach_target()`, kernel/bpf/verifier.c).
    pub exact: Option<TypeId>,
    /// What it is in a BPF program; `exact` is then a FUNC of that program's BTF. `None` for the kernel's own code.
    pub bpf: Option<BpfSite>,
    /// How a live patch concerns it.
    pub live_patch: Option<Concern>,
}

impl Candidate {
    /// Bytes from the symbol to the probe.
    pub fn offset(&self) -> u64 {
        self.address.wrapping_sub(self.symbol_address)
    }

    /// Where a parameter's value is for a program that accepts doubt or does not, or why it cannot have the value.
    ///
    /// # Errors
    /// Why the argument is not available.
    pub fn available(&self, parameter: usize, accept_doubt: bool) -> Result<&Located, Unavailable> {
        let argument = self.arguments.get(parameter);
        argument.map_or(Err(Missing::NotMentioned.into()), |argument| available(argument, accept_doubt))
    }

    /// Whether the probe is on an out-of-line symbol's first byte.
    pub fn is_entry(&self) -> bool {
        self.kind != SiteKind::Inline && self.offset() == 0
    }
}
