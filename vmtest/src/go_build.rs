// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Builds guest programs in Go: static, for either architecture, in the build root `go`.
//!
//! Go's compiler is a cross compiler, and without cgo its programs have no C in them, so that one build root does for
//! all. The libraries are Debian's packages of their sources, which Go finds below `/usr/share/gocode` in its older
//! mode without modules: nothing is downloaded.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use siteseer_kernels::{
    Arch,
    buildroot::{self, BuildRoot, Mount},
};

use crate::guest_build::{BuildError, check, metadata};

/// Where the build root has the workspace and the folder of what is built.
const WORKSPACE: &str = "/build/workspace";
const TARGET: &str = "/build/target";

/// Builds the program in a folder of the workspace and returns its path.
///
/// # Errors
/// If there is no build root, or go fails; its words are in the error.
pub fn build_go(arch: Arch, folder: &Path) -> Result<PathBuf, BuildError> {
    let metadata = metadata()?;
    let row = buildroot::workspace_rows()?.row("go")?;
    let root = BuildRoot::get(row, false, |line| eprintln!("{line}"))?;
    let target = metadata.target_directory.join("go").join(root.key());
    fs::create_dir_all(&target).map_err(|error| BuildError::Prepare { path: target.clone(), error })?;
    let go_arch = match arch {
        Arch::X86_64 => "amd64",
        Arch::Arm64 => "arm64",
    };
    let name = folder.file_name().unwrap_or(OsStr::new("program")).to_string_lossy();
    let name = format!("{name}-{go_arch}");
    let environment = [
        ("HOME", TARGET.to_owned()),
        ("GOCACHE", format!("{TARGET}/cache")),
        ("GOPATH", "/usr/share/gocode".to_owned()),
        ("GO111MODULE", "off".to_owned()),
        ("GOFLAGS", "-trimpath".to_owned()),
        ("CGO_ENABLED", "0".to_owned()),
        ("GOOS", "linux".to_owned()),
        ("GOARCH", go_arch.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    let source = Path::new(WORKSPACE).join(folder);
    let script = format!("cd '{}' && go vet . && go build -o '{TARGET}/{name}' .", source.display());
    let program = ["sh", "-ec", &script];
    let words: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
    let mounts = [Mount::read_only(&metadata.workspace_root, WORKSPACE), Mount::writable(&target, TARGET)];
    let mut command = root.command(&mounts, &environment, &words);
    let output = command.output().map_err(|error| BuildError::Start { program: "unshare".into(), error })?;
    check(&output, &program)?;
    let built = target.join(name);
    if built.is_file() { Ok(built) } else { Err(BuildError::Missing(built)) }
}
