// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The guest that the tools run in.

use super::Run;
use super::prepare::Prepared;
use crate::guest::case::Failure;
use siteseer_kernels::KernelPaths;
use siteseer_vmtest::Vm;
use std::path::Path;

/// The machine for a kernel and its site data, with all files of the jobs. Several may use the disk, since none writes
/// to its image.
pub fn machine<'v>(paths: &KernelPaths, guest: &Path, sites: &Path, prepared: &Prepared) -> Vm<'v> {
    let mut vm = Vm::new(paths.record.arch, &paths.vmlinuz)
        .init(guest)
        .arg("clients")
        .file(sites, format!("/var/cache/siteseer/{}.sites", paths.record.build_id))
        .qemu_arg("-drive")
        .qemu_arg(format!("file={},if=none,id=disk,format=raw,snapshot=on", prepared.disk.display()))
        .qemu_arg("-device")
        .qemu_arg("nvme,drive=disk,serial=clients")
        .memory(3072);
    for (place, file) in &prepared.files {
        vm = vm.file(file, place);
    }
    vm
}

/// Boots it, and returns the runs of all jobs.
///
/// # Errors
/// If it does not boot, or a job could not be tried.
pub fn boot(vm: Vm<'_>) -> Result<Vec<Run>, Failure> {
    let outcome = vm.run()?;
    if !outcome.success() {
        return Err(format!("the guest ended with {:?}; its console:\n{}", outcome.exit_status, outcome.console).into());
    }
    Ok(outcome.result_lines().iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?)
}
