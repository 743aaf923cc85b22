// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `siteseer compile` makes, loaded and attached by other loaders: the examples with aya and with cilium/ebpf, and
//! libbpf without siteseer, see the same calls, with the same arguments: all that are made.
//!
//! The installed tool compiles the object of examples/opensnoop for each kernel. The guest's half makes the calls and
//! compares (`siteseer_conformance::guest::examples`).

use super::build::{Built, root, run, words};
use siteseer_bpf_progs::compile;
use siteseer_conformance::guest::examples::FOLDER;
use siteseer_sites::with_causes;
use siteseer_vmtest::{build_go, build_guest_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Of each loader: it sees all calls; it refuses what does not fit.
pub(super) const CHECKS: [&str; 6] = [
    // Proves S25.2.
    "opensnoop-libbpf",
    "whole-libbpf",
    "opensnoop-aya",
    // Proves S25.5.
    "opensnoop-aya-refuses",
    "opensnoop-cilium",
    "opensnoop-cilium-refuses",
];

type Objects = [(&'static str, PathBuf); 2];

/// The objects, by name: that of examples/opensnoop, and cli/tests/programs/whole.bpf.c. They are the same for all
/// kernels.
fn objects(folder: &Path) -> Result<Objects, String> {
    static OBJECTS: OnceLock<Result<Objects, String>> = OnceLock::new();
    let make = || {
        let include = folder.join("include");
        fs::create_dir_all(&include).map_err(words(include.display()))?;
        // All that the program wants of the kernel's types.
        let types_file = include.join("vmlinux.h");
        fs::write(&types_file, "#include \"kernel.h\"\n").map_err(words(types_file.display()))?;
        let examples = root().join("examples");
        let (types, own) = (examples.join("capsnoop/src"), root().join("loader/include"));
        let includes = [Path::new(siteseer_bpf_progs::LIBBPF_INCLUDE), &include, &types, &own];
        let clang = compile::clang()?;
        let make = |name: &'static str, source: PathBuf| -> Result<(&'static str, PathBuf), String> {
            let object = folder.join(format!("{name}.bpf.o"));
            // The programs read no registers: they are the same for all architectures.
            compile::compile(&clang, &source, &object, "x86", &includes, name)?;
            Ok((name, object))
        };
        Ok([
            make("compiled", examples.join("opensnoop/opensnoop.bpf.c"))?,
            make("whole", root().join("cli/tests/programs/whole.bpf.c"))?,
        ])
    };
    OBJECTS.get_or_init(make).clone()
}

/// Compiles the objects for a kernel; they and their manifests, each with its place in the guest. One is compiled by
/// site data, which knows all symbols, so that places are counted from the symbols that hold them; the other by the
/// image, where they are counted from _stext.
fn compile_for(built: &Built, kernel: &str, vmlinux: &Path, sites: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let folder = built.folder.join("loaders");
    fs::create_dir_all(&folder).map_err(words(folder.display()))?;
    let mut files = Vec::new();
    for ((name, object), (option, about)) in
        objects(&folder)?.into_iter().zip([("--sites", sites), ("--vmlinux", vmlinux)])
    {
        let compiled = folder.join(format!("{kernel}-{name}.bpf.o"));
        // aya gives kprobes no cookies.
        let mut command = Command::new(&built.tool);
        run(command.args(["compile", "--no-cookies", option]).arg(about).arg(object).arg("-o").arg(&compiled))?;
        let manifest = folder.join(format!("{kernel}-{name}.bpf.o.json"));
        let text = fs::read_to_string(&manifest).map_err(words(manifest.display()))?;
        if text.contains("_stext") != (option == "--vmlinux") {
            return Err(format!("{option}: places are counted from other symbols than expected:\n{text}"));
        }
        files.extend([(compiled, format!("{FOLDER}/{name}.bpf.o")), (manifest, format!("{FOLDER}/{name}.bpf.o.json"))]);
    }
    Ok(files)
}

/// What the loaders need in the guest of a kernel: their programs, and what is compiled for it.
pub(super) fn files(
    built: &Built,
    kernel: &siteseer_kernels::KernelPaths,
    sites: &Path,
) -> Result<Vec<(PathBuf, String)>, String> {
    let arch = kernel.record.arch;
    let mut files = compile_for(built, &kernel.name, &kernel.vmlinux, sites)?;
    let aya = build_guest_for(arch, "siteseer-example-aya", "opensnoop-aya", "guest");
    let cilium = build_go(arch, Path::new("examples/cilium"));
    files.extend([
        (aya.map_err(|error| with_causes(&error))?, format!("{FOLDER}/opensnoop-aya")),
        (cilium.map_err(|error| with_causes(&error))?, format!("{FOLDER}/opensnoop-cilium")),
    ]);
    Ok(files)
}
