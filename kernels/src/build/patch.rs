// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Changes of the sources: patches of a row, in unified format.
//!
//! The sources are shared by all rows. So the files that the patches change are copied to the kernel's folder and
//! patched there, and each is mounted in the place of the one in the sources: for the kernel, and later for its
//! modules. patch(1) applies them without fuzz: a patch whose context is gone is an error. A patch cannot add or remove
//! files.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use super::SOURCE;
use crate::{child::die_with_parent, error::GetError, record::BuildRecipe};

/// The folder in the kernel's that holds the files.
const FOLDER: &str = "patched";

/// Copies the files that the patches of a recipe change, and changes them. Returns the mounts.
pub(super) fn apply(recipe: &BuildRecipe, source: &Path, kernel: &Path) -> Result<Vec<(PathBuf, String)>, GetError> {
    let folder = kernel.join(FOLDER);
    for (name, text) in &recipe.patches {
        let failed = |said: String| GetError::Patch {
            name: name.clone(),
            source_package: format!("{} {}", recipe.source.name, recipe.source.version),
            said,
        };
        let changed = changed_files(text).map_err(failed)?;
        for path in changed {
            let (from, to) = (source.join(&path), folder.join(&path));
            if to.exists() {
                continue;
            }
            let copy = || -> io::Result<()> {
                fs::create_dir_all(to.parent().unwrap_or(&folder))?;
                // With its permissions: some are scripts.
                fs::copy(&from, &to).map(drop)
            };
            copy().map_err(|error| failed(format!("{}: {error}", path.display())))?;
        }
        run_patch(&folder, text)?.map_err(failed)?;
    }
    Ok(mounts(recipe, kernel))
}

/// The files in a kernel's folder that are in the place of those in the sources, and where the build root must have
/// them.
pub(super) fn mounts(recipe: &BuildRecipe, kernel: &Path) -> Vec<(PathBuf, String)> {
    let files = recipe.patches.iter().flat_map(|(_, text)| changed_files(text).unwrap_or_default());
    let files: BTreeSet<PathBuf> = files.collect();
    files.iter().map(|path| (kernel.join(FOLDER).join(path), format!("{SOURCE}/{}", path.display()))).collect()
}

/// The files that a patch changes: below the folder of the sources, in the order of the patch.
fn changed_files(patch: &str) -> Result<Vec<PathBuf>, String> {
    let lines: Vec<&str> = patch.lines().collect();
    let mut files = Vec::new();
    for pair in lines.windows(2) {
        let [before, after] = pair else { continue };
        let (Some(before), Some(after)) = (before.strip_prefix("--- "), after.strip_prefix("+++ ")) else { continue };
        let (Some(old), Some(new)) = (below(before, "a/"), below(after, "b/")) else {
            return Err(format!("{before} and {after} do not name one file, below a/ and b/"));
        };
        let stays_inside = new.components().all(|part| matches!(part, Component::Normal(_)));
        if old != new || !stays_inside {
            return Err(format!("{before} and {after} do not name one file, below a/ and b/"));
        }
        files.push(new.to_owned());
    }
    if files.is_empty() { Err("it changes no file".to_owned()) } else { Ok(files) }
}

/// The path in a header's line, if it is below a folder. A date may follow the path.
fn below<'l>(line: &'l str, folder: &str) -> Option<&'l Path> {
    line.split('\t').next()?.strip_prefix(folder).map(Path::new)
}

/// Runs patch(1). The inner error is what it said.
fn run_patch(folder: &Path, text: &str) -> Result<Result<(), String>, GetError> {
    let mut command = Command::new("patch");
    command.args(["--strip=1", "--fuzz=0", "--forward", "--batch", "--no-backup-if-mismatch", "--reject-file=-"]);
    command.arg("--directory").arg(folder).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = die_with_parent(&mut command)
        .spawn()
        .map_err(|_| GetError::NoProgram { program: "patch".to_owned(), package: "patch" })?;
    if let Some(mut input) = child.stdin.take() {
        // If it ends before it has read everything, its status says why.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(GetError::io("cannot run patch"))?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let said = [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream).trim().to_owned());
    Ok(Err(said.join("\n").trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PackageRecord;

    const PATCH: &str = "SPDX-License-Identifier: GPL-2.0-only\n\nWhy.\n\n--- a/kernel/x.c\n+++ b/kernel/x.c\n\
                         @@ -1,2 +1,3 @@\n int x;\n+int added;\n int y;\n";

    fn recipe(patches: &[(&str, &str)]) -> BuildRecipe {
        BuildRecipe {
            source: PackageRecord { name: "linux".to_owned(), version: "7.3".to_owned(), sha256: "ab".to_owned() },
            archive: String::new(),
            config: vec![],
            make: vec![],
            tools: [].into(),
            procedure: 1,
            plugin: vec![],
            patches: patches.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        }
    }

    #[test]
    fn the_changed_file_is_beside_the_kernel_and_the_sources_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (source, kernel) = (directory.path().join("source"), directory.path().join("kernel"));
        fs::create_dir_all(source.join("kernel")).unwrap();
        let text = "/* first */\nint x;\nint y;\n";
        fs::write(source.join("kernel/x.c"), text).unwrap();
        fs::write(source.join("kernel/other.c"), text).unwrap();
        let second = PATCH.replace(" int x;\n+int added;\n", " int added;\n+int twice;\n");
        let mounts = apply(&recipe(&[("first", PATCH), ("second", &second)]), &source, &kernel).unwrap();
        let file = kernel.join("patched/kernel/x.c");
        assert_eq!(mounts, [(file.clone(), "/build/workspace/kernel/x.c".to_owned())]);
        assert_eq!(fs::read_to_string(file).unwrap(), "/* first */\nint x;\nint added;\nint twice;\nint y;\n");
        assert_eq!(fs::read_to_string(source.join("kernel/x.c")).unwrap(), text);
        assert_eq!(apply(&recipe(&[]), &source, &kernel).unwrap(), []);
    }

    #[test]
    fn a_patch_that_does_not_fit_is_an_error_that_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir_all(source.join("kernel")).unwrap();
        let error = |text: &str, patch: &str| {
            fs::write(source.join("kernel/x.c"), text).unwrap();
            let kernel = tempfile::tempdir().unwrap();
            apply(&recipe(&[("mine", patch)]), &source, kernel.path()).unwrap_err().to_string()
        };
        let of_context = error("int x;\nint z;\n", PATCH);
        assert!(of_context.contains("patch mine") && of_context.contains("linux 7.3"), "{of_context}");
        assert!(of_context.contains("Hunk #1 FAILED"), "{of_context}");
        let gone = error("", &PATCH.replace("kernel/x.c", "kernel/gone.c"));
        assert!(gone.contains("kernel/gone.c: No such file"), "{gone}");
        let outside = error("", &PATCH.replace("kernel/x.c", "../x.c"));
        assert!(outside.contains("do not name one file"), "{outside}");
        assert!(error("", "nothing\n").contains("it changes no file"));
    }
}
