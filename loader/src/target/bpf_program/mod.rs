// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions of loaded BPF programs as targets of fentry and fexit programs.
//!
//! A BPF program is not the compiler's to inline once it is loaded: each of its functions (its *main* function and its
//! subprograms, static ones too) is one piece of machine code, which begins with instructions that the kernel patches
//! for fentry and fexit. So a target function is a [`Function`] with one candidate, a body, and the mechanism is the
//! kernel's own: a program loaded with `attach_prog_fd`, for the FUNC in the target's BTF (`bpf_check_attach_target()`
//! in kernel/bpf/verifier.c).
//!
//! Three things keep calls from being seen.
//!
//! * A *tail call* jumps past the instructions that are patched (`X86_TAIL_CALL_OFFSET` in arch/x86/net/bpf_jit_comp.c,
//!   `PROLOGUE_OFFSET` in arch/arm64/net/bpf_jit_comp.c). Only main functions are entered so, and only those of
//!   programs that are in a map of type PROG_ARRAY. All maps of the machine are looked through for that ([`TailSlot`]).
//!   A program that is put into such a map later is not noticed by itself: [`crate::Link::tail_slots`] looks again.
//! * An *extension* (freplace) is jumped to from the first instructions of the function that it replaces. The old body
//!   of that function then does not run. The kernel lets nothing else patch them meanwhile. The extension is a program,
//!   and a target: what jumps to it comes in by its first instruction, and is seen. (Since Linux 6.13 the kernel keeps
//!   programs with an extension out of prog arrays, and extensions too. Before, a tail call into such a program runs
//!   the old body; that is not a call of the extension.)
//! * Copies that clang inlined into other functions of the program before it was loaded. BTF does not tell about them.
//!   A main function has none; for a subprogram the report has a note.
//!
//! What else the kernel has against it (a target without BTF, or one that is not JITed; more than one fentry program on
//! top of another) it says when the program is loaded, and that is the site's reason.

mod query;

use crate::bpf::call::errno;
use crate::site::reason::Reason;
use crate::target::function::{Candidate, Function, Prototype};
use siteseer_sites::btf::{Btf, BtfError, Kind, TypeId};
use siteseer_sites::site::{Marks, SiteKind};
use siteseer_sites::{CodeSum, Machine};
use std::io;

pub use crate::site::bpf::{BpfSite, TailSlot};
pub use query::{id_of, tail_slots};

/// Why a function of a BPF program cannot be a target.
#[derive(Debug, thiserror::Error)]
pub enum BpfTargetError {
    /// The kernel does not tell about the program.
    #[error(
        "BPF program {id}: {what}{}",
        if matches!(error.raw_os_error(), Some(libc::EPERM)) { " (CAP_SYS_ADMIN is needed)" } else { "" }
    )]
    Info {
        /// Its id.
        id: u32,
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// It was loaded without BTF, or without function information.
    #[error(
        "BPF program {id} ({program}) was loaded without BTF of its functions: nothing can be attached to them (compile it \
         with -g)"
    )]
    NoBtf {
        /// Its id.
        id: u32,
        /// Its name.
        program: String,
    },
    /// Its BTF is damaged.
    #[error("the BTF of BPF program {id} ({program})")]
    Btf {
        /// Its id.
        id: u32,
        /// Its name.
        program: String,
        /// What is wrong with it.
        #[source]
        error: BtfError,
    },
    /// The kernel's answer has no addresses: it was not compiled to machine code, or addresses are hidden.
    #[error(
        "BPF program {id} ({program}) is not JITed, or kernel addresses are hidden from this process: nothing can be attached \
         to its functions"
    )]
    NotJited {
        /// Its id.
        id: u32,
        /// Its name.
        program: String,
    },
    /// The program has no such function.
    #[error("BPF program {id} ({program}) has no function {function}; it has {}", functions.join(", "))]
    NoFunction {
        /// Its id.
        id: u32,
        /// Its name.
        program: String,
        /// The function's name.
        function: String,
        /// Names of the functions that it has.
        functions: Vec<String>,
    },
    /// A module was named beside a BPF program.
    #[error("{module}:{function}: a function of BPF program {id} is in no module")]
    Module {
        /// The program's id.
        id: u32,
        /// The module.
        module: String,
        /// The function.
        function: String,
    },
    /// The maps of the machine could not be looked through.
    #[error(
        "whether BPF programs are entered by tail call cannot be found out{}",
        if matches!(error.raw_os_error(), Some(libc::EPERM)) { " (CAP_SYS_ADMIN is needed)" } else { "" }
    )]
    Maps {
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

impl BpfTargetError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            BpfTargetError::Info { error, .. } => errno(error),
            _ => libc::ENOENT,
        }
    }
}

/// An extension that has taken a function's place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extension {
    /// FUNC of the function in the target's BTF.
    pub func: TypeId,
    /// Id of the extension program.
    pub program: u32,
    /// Its name.
    pub name: String,
}

/// One function of a loaded program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfFunction {
    /// FUNC in the program's BTF.
    pub func: TypeId,
    /// Address of its machine code; 0 if it is hidden, or there is none.
    pub address: u64,
    /// Bytes of machine code.
    pub size: u32,
}

/// A loaded BPF program, with what matters of it to whoever attaches to it. Plain data.
#[derive(Debug, Clone)]
pub struct BpfProgram {
    /// The kernel's id of it.
    pub id: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Its BTF.
    pub btf: Vec<u8>,
    /// Its functions, the main one first.
    pub functions: Vec<BpfFunction>,
    /// The slots of prog arrays that it is in.
    pub tail_slots: Vec<TailSlot>,
    /// The extensions that have taken functions' places.
    pub extensions: Vec<Extension>,
}

impl BpfProgram {
    /// Asks the kernel for a program, and looks all maps and links through for it. Requires CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// [`BpfTargetError`] if the kernel does not tell, or the program has no BTF.
    pub fn read(id: u32) -> Result<BpfProgram, BpfTargetError> {
        query::read(id)
    }

    /// A function as a target, by name.
    ///
    /// # Errors
    /// [`BpfTargetError`] if there is no such function, or no machine code.
    pub fn function(&self, name: &str, machine: Machine) -> Result<Function, BpfTargetError> {
        let btf = self.parse()?;
        let named = |found: &&BpfFunction| btf.ty(found.func).is_some_and(|ty| ty.name() == name);
        match self.functions.iter().find(named) {
            Some(found) => self.target(&btf, found, machine),
            None => Err(self.no_function(&btf, name)),
        }
    }

    /// A function as a target, by its FUNC in the program's BTF.
    ///
    /// # Errors
    /// As [`BpfProgram::function`].
    pub fn function_of(&self, func: TypeId, machine: Machine) -> Result<Function, BpfTargetError> {
        let btf = self.parse()?;
        match self.functions.iter().find(|function| function.func == func) {
            Some(found) => self.target(&btf, found, machine),
            None => {
                let name = btf.ty(func).map_or_else(|| format!("type {func}"), |ty| ty.name().to_owned());
                Err(self.no_function(&btf, &name))
            }
        }
    }

    fn parse(&self) -> Result<Btf<'_>, BpfTargetError> {
        Btf::parse(&self.btf).map_err(|error| BpfTargetError::Btf { id: self.id, program: self.name.clone(), error })
    }

    fn no_function(&self, btf: &Btf<'_>, name: &str) -> BpfTargetError {
        let functions = self.functions.iter().filter_map(|function| btf.ty(function.func));
        BpfTargetError::NoFunction {
            id: self.id,
            program: self.name.clone(),
            function: name.to_owned(),
            functions: functions.map(|ty| ty.name().to_owned()).collect(),
        }
    }

    fn target(&self, btf: &Btf<'_>, found: &BpfFunction, machine: Machine) -> Result<Function, BpfTargetError> {
        let (id, program) = (self.id, self.name.clone());
        if found.address == 0 {
            return Err(BpfTargetError::NotJited { id, program });
        }
        // None of its types are the kernel's: real fentry gives them their types, and a trampoline could not.
        let prototype = Prototype::of(btf, found.func, 0).ok_or(BpfTargetError::NoBtf { id, program })?;
        let name = btf.ty(found.func).filter(|ty| ty.kind() == Kind::Func).map_or("", |ty| ty.name()).to_owned();
        // R1 to R5 are the first five registers of the C convention (kernel/bpf, "BPF calling convention").
        let arguments = prototype.by_convention(machine);
        let subprogram = self.functions.first().is_none_or(|main| main.func != found.func);
        let extension = self.extensions.iter().find(|extension| extension.func == found.func);
        let candidate = Candidate {
            module: None,
            index: None,
            kind: SiteKind::Body,
            address: found.address,
            link_address: found.address,
            moved: 0,
            symbol: format!("{name}[bpf:{}]", self.id),
            symbol_address: found.address,
            symbol_size: u64::from(found.size),
            prototype: 0,
            arguments,
            marks: Marks::default(),
            source: None,
            declared: None,
            obstacle: extension.map(|by| Reason::Extended { program: by.program, name: by.name.clone() }),
            code: CodeSum::NONE,
            ends_module: false,
            traceable: None,
            described: false,
            exact: Some(found.func),
            bpf: Some(BpfSite {
                program: self.id,
                tail_slots: if subprogram { Vec::new() } else { self.tail_slots.clone() },
                subprogram,
            }),
            live_patch: None,
        };
        let (prototypes, candidates) = (vec![prototype], vec![candidate]);
        Ok(Function { name, prototypes, candidates, left_out: Vec::new(), displacement: 0 })
    }
}
