// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why an object cannot be compiled.

use crate::plan::PlanError;
use crate::program::declared::DeclaredError;
use crate::program::object_file::ObjectFileError;
use crate::site::refusal::Refusal;
use crate::source::SourceError;
use crate::target::TargetError;
use crate::target::function::SelectError;

/// Why an object cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// It cannot be read.
    #[error(transparent)]
    Object(#[from] ObjectFileError),
    /// It has no BTF.
    #[error("the object has no .BTF and .BTF.ext, which say what its functions and maps are: compile it with -g")]
    NoBtf,
    /// Its BTF cannot be read, or not be amended.
    #[error("the object's BTF")]
    Btf(#[source] Refusal),
    /// The information on its functions cannot be read.
    #[error("the object's .BTF.ext: {0}")]
    Ext(&'static str),
    /// A section cannot be as it is.
    #[error("section {section} of the object is damaged")]
    Damaged {
        /// Its name.
        section: String,
    },
    /// Code is relocated in a way that no BPF compiler uses.
    #[error("section {section} of the object has a relocation that is not by a symbol alone, at byte {offset:#x}")]
    Relocation {
        /// Name of the section.
        section: String,
        /// Where in it.
        offset: u64,
    },
    /// A section names no function.
    #[error("program {program}: SEC(\"{section}\") names no function, and a manifest can name none later")]
    NoFunction {
        /// Name of the program.
        program: String,
        /// Its section.
        section: String,
    },
    /// A section names a function of a module.
    #[error("program {program}: {module} is a module, and only sites of the kernel's image can be compiled")]
    Module {
        /// Name of the program.
        program: String,
        /// The module.
        module: String,
    },
    /// The program asks at which site it is.
    #[error(
        "program {program} calls siteseer_site(), which knows sites by their addresses in the running kernel: compile it without, \
         and tell sites apart by the programs of the manifest"
    )]
    AsksForSite {
        /// Name of the program.
        program: String,
    },
    /// The program calls what only GPL-compatible programs may call.
    #[error(
        "program {program}: the code that gathers its arguments calls functions that the kernel keeps for programs with a \
         GPL-compatible licence, and the object's licence is {licence:?}"
    )]
    Licence {
        /// Name of the program.
        program: String,
        /// What the object's section `license` has.
        licence: String,
    },
    /// Something of the object refers to a program that is replaced.
    #[error("section {section} refers to the program {program}, which is replaced by others")]
    Referred {
        /// The section.
        section: String,
        /// The program.
        program: String,
    },
    /// A function is missing in the information on functions.
    #[error("the object's .BTF.ext does not have the function {function}")]
    NoFuncInfo {
        /// Its name.
        function: String,
    },
    /// The program does not work anywhere.
    #[error("program {program}")]
    Program {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
    /// A program cannot be planned, or the policy refuses it.
    #[error("program {program}")]
    Plan {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        error: PlanError,
    },
    /// A site of the plan cannot be told to another loader: a bug, since such sites are not planned.
    #[error(
        "nothing says where the site {symbol}+{offset:#x} is, which the plan attaches to: this is a bug of siteseer"
    )]
    Lost {
        /// The symbol that holds it.
        symbol: String,
        /// Bytes from it.
        offset: u64,
    },
    /// Its function cannot be looked up.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The site data cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What the program states of its function cannot be read.
    #[error(transparent)]
    Declared(#[from] DeclaredError),
    /// None of the functions of the name is the one that is meant.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The new object cannot be written.
    #[error("the new object cannot be written")]
    Write(#[source] object::write::Error),
}

impl From<object::Error> for CompileError {
    fn from(error: object::Error) -> CompileError {
        CompileError::Object(ObjectFileError::Elf(error))
    }
}
