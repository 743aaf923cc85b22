// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What of a kernel's build its modules need: configuration, generated headers, Module.symvers, kbuild's own programs.
//! The objects, by far the most of it, they do not.

use std::{fs, io, path::Path};

/// Files and folders that stay, by their path; within folders, all but what [`is_leftover`] says.
const KEPT: &[&str] = &[
    ".config",
    "Makefile",
    "Module.symvers",
    "arch/arm64/include",
    "arch/x86/include",
    "include",
    "scripts",
    "tools/bpf/resolve_btfids/resolve_btfids",
    "tools/objtool/objtool",
];

/// Removes the rest, and puts a link to `vmlinux` in its place.
pub(crate) fn prune(tree: &Path, vmlinux: &Path) -> io::Result<()> {
    prune_folder(tree, Path::new(""))?;
    // pahole reads the BTF of it that a module's builds upon.
    fs::hard_link(vmlinux, tree.join("vmlinux"))
}

fn prune_folder(tree: &Path, folder: &Path) -> io::Result<()> {
    for file in fs::read_dir(tree.join(folder))? {
        let file = file?;
        let path = folder.join(file.file_name());
        let is_folder = file.file_type()?.is_dir();
        let is_kept = KEPT.iter().any(|kept| path.starts_with(kept));
        let leads_to_kept = KEPT.iter().any(|kept| Path::new(kept).starts_with(&path));
        match (is_folder, is_kept || leads_to_kept) {
            (true, true) => prune_folder(tree, &path)?,
            (true, false) => fs::remove_dir_all(file.path())?,
            (false, true) if !is_leftover(&path) => {}
            (false, _) => fs::remove_file(file.path())?,
        }
    }
    Ok(())
}

/// Objects of kbuild's programs, and the notes of how things were made.
fn is_leftover(path: &Path) -> bool {
    let is_note = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".cmd"));
    is_note || path.extension().is_some_and(|extension| extension == "o" || extension == "a")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_modules_need_stays_and_the_objects_go() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        let kept = [
            ".config",
            "Module.symvers",
            "include/generated/autoconf.h",
            "include/config/auto.conf",
            "scripts/mod/modpost",
            "scripts/module.lds",
            "arch/x86/include/generated/asm/x.h",
            "tools/objtool/objtool",
        ];
        let gone = [
            "vmlinux.o",
            "kernel/fork.o",
            "arch/x86/kernel/x.o",
            "arch/x86/boot/bzImage",
            "scripts/mod/modpost.o",
            "scripts/mod/.modpost.o.cmd",
            "tools/objtool/check.o",
            "tools/objtool/libsubcmd/libsubcmd.a",
        ];
        for path in kept.iter().chain(&gone) {
            fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
            fs::write(tree.join(path), path).unwrap();
        }
        let vmlinux = directory.path().join("vmlinux");
        fs::write(&vmlinux, "the kernel").unwrap();
        prune(&tree, &vmlinux).unwrap();
        for path in kept {
            assert!(tree.join(path).is_file(), "{path}");
        }
        for path in gone {
            assert!(!tree.join(path).exists(), "{path}");
        }
        assert_eq!(fs::read(tree.join("vmlinux")).unwrap(), b"the kernel");
    }
}
