// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What libbpf keeps of a program, as the analysis needs it, and the function that it was told to attach to.

use super::AttachError;
use crate::bpf::btf::{btf_data, btf_name};
use crate::bpf::load::insn;
use crate::kernel::Kernel;
use crate::program::UserProgram;
use crate::program::object::{BpfTarget, Loaded};
use crate::program::section::{Told, Wanted};
use crate::target::bpf_program::{BpfProgram, BpfTargetError};
use crate::target::function::Function;
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, Kind, Type};
use std::cell::LazyCell;
use std::collections::BTreeMap;

/// What libbpf keeps of a program, as the analysis needs it.
pub(super) fn user_program(loaded: Loaded<'_>, kernel: &Kernel) -> UserProgram {
    let insns: Vec<_> = loaded.insns.iter().map(insn).collect();
    // All of the kernel's types take milliseconds to walk; most programs call no kfunc.
    let kernel_btf = LazyCell::new(|| kernel.btf.as_deref().and_then(|data| Btf::parse(data).ok()));
    let parameters = |id: i32| {
        let btf = kernel_btf.as_ref()?;
        let func = btf.ty(u32::try_from(id).ok()?).filter(|ty| ty.kind() == Kind::Func)?;
        u8::try_from(btf.ty(func.target()?)?.params().len()).ok()
    };
    let kfuncs = insns.iter().filter(|insn| insn.is_kfunc_call() && insn.off == 0);
    let kfunc_arguments: BTreeMap<i32, u8> =
        kfuncs.filter_map(|insn| Some((insn.imm, parameters(insn.imm)?))).collect();
    UserProgram {
        name: loaded.name,
        func_info: loaded.func_info.to_vec(),
        line_info: loaded.line_info.to_vec(),
        btf: loaded.btf,
        exit: loaded.form.kind.is_exit(),
        kfunc_arguments,
        insns,
    }
}

/// The BPF program whose function is the target, if it is one's: given when attaching, or to
/// `bpf_program__set_attach_target()`.
pub(super) fn bpf_target(given: Option<u32>, told: Told) -> Option<BpfTarget> {
    match (given, told) {
        (Some(prog_id), _) => Some(BpfTarget { prog_id, btf_id: 0 }),
        (None, Told::Program { prog_id, btf_id }) => Some(BpfTarget { prog_id, btf_id }),
        (None, Told::Nothing | Told::Kernel { .. }) => None,
    }
}

/// Looks functions of a BPF program up: those that are named, or else the one that is meant by its FUNC.
pub(super) fn bpf_functions(
    target: BpfTarget,
    wanted: &[Wanted],
    machine: Machine,
) -> Result<Vec<Function>, BpfTargetError> {
    let program = BpfProgram::read(target.prog_id)?;
    if wanted.is_empty() {
        return Ok(vec![program.function_of(target.btf_id, machine)?]);
    }
    let function = |wanted: &Wanted| {
        let name = wanted.function.as_deref().unwrap_or_default();
        match &wanted.module {
            None => program.function(name, machine),
            Some(module) => {
                let (module, function) = (module.clone(), name.to_owned());
                Err(BpfTargetError::Module { id: target.prog_id, module, function })
            }
        }
    };
    wanted.iter().map(function).collect()
}

/// The kernel's function that `bpf_program__set_attach_target()` named, if it was called for one: it comes before the
/// section's.
pub(super) fn told_function(name: &str, told: Told, kernel: &Kernel) -> Result<Option<Wanted>, AttachError> {
    let (object, btf_id) = match told {
        Told::Nothing | Told::Program { .. } => return Ok(None),
        Told::Kernel { object, btf_id } => (object, btf_id),
    };
    let base = kernel.btf.as_deref().and_then(|data| Btf::parse(data).ok());
    let function = |ty: Type<'_>| (ty.kind() == Kind::Func).then(|| ty.name().to_owned());
    let found = base.and_then(|base| {
        if object == 0 {
            return Some(Wanted { module: None, function: Some(base.ty(btf_id).and_then(function)?) });
        }
        let module = btf_name(object).ok().filter(|module| module != "vmlinux");
        let function = match &module {
            None => base.ty(btf_id).and_then(function)?,
            Some(_) => {
                let data = btf_data(object).ok()?;
                Btf::parse_split(&data, &base).ok()?.ty(btf_id).and_then(function)?
            }
        };
        Some(Wanted { module, function: Some(function) })
    });
    match found {
        Some(wanted) => Ok(Some(wanted)),
        None => Err(AttachError::NoSuchType { program: name.to_owned(), object, btf_id }),
    }
}
