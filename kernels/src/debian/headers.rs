// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What modules are built with, for a kernel that Debian built: its headers, and kbuild's scripts and programs.
//!
//! Three packages hold it, of the same suite and source version as the kernel: `linux-headers-RELEASE` (configuration,
//! generated headers, Module.symvers), `linux-headers-...-common` and `linux-kbuild-...`, the last with programs of the
//! machine that builds. They lie beside the kernel in the cache, in `headers`, as in a root directory; their links are
//! relative. `vmlinux` there is a link to the whole one: pahole takes the BTF that the module's builds upon from it,
//! and not every release of the packages has one.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::suite::{self, Suite};
use crate::{
    arch::Arch,
    error::GetError,
    lock::lock,
    module_tree::ModuleTree,
    partial::Partial,
    record::{KernelPaths, PackageRecord},
};

/// The folder in the kernel's.
const FOLDER: &str = "headers";

/// What `headers/headers.json` says; written last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Headers {
    /// Paths in the kernel's folder: what all architectures share, and what is of this kernel.
    common: PathBuf,
    objects: PathBuf,
    /// The packages.
    packages: Vec<PackageRecord>,
}

/// Where the build root has the kernel's folder.
const INSIDE: &str = "/build/kernel";

/// The headers of a kernel for kbuild, from the cache or fetched now.
pub(crate) fn module_tree(kernel: &KernelPaths, progress: impl Fn(&str)) -> Result<ModuleTree, GetError> {
    let headers = get(kernel, progress)?;
    let inside = |path: &Path| Path::new(INSIDE).join(path).display().to_string();
    // The packages' own makefile says the same of the places where they are installed.
    let mut arguments =
        vec!["-C".to_owned(), inside(&headers.common), format!("KBUILD_OUTPUT={}", inside(&headers.objects))];
    // Debian 12's packages have no resolve_btfids. Most modules leave it nothing to do.
    let resolves_btf_ids =
        kernel.directory.join(&headers.objects).join("tools/bpf/resolve_btfids/resolve_btfids").is_file();
    if !resolves_btf_ids {
        arguments.push("RESOLVE_BTFIDS=true".to_owned());
    }
    let words = headers.packages.iter().map(|package| format!("{} {}", package.name, package.sha256));
    Ok(ModuleTree {
        mounts: vec![(kernel.directory.clone(), INSIDE.to_owned())],
        arguments,
        resolves_btf_ids,
        made_of: words.collect::<Vec<_>>().join("\n"),
    })
}

/// The kernel's configuration, if its headers are in the cache.
pub(crate) fn config(kernel: &KernelPaths) -> Option<String> {
    let read = |path: PathBuf| fs::read(kernel.directory.join(path)).ok();
    let headers: Headers = serde_json::from_slice(&read(Path::new(FOLDER).join("headers.json"))?).ok()?;
    String::from_utf8(read(headers.objects.join(".config"))?).ok()
}

fn get(kernel: &KernelPaths, progress: impl Fn(&str)) -> Result<Headers, GetError> {
    let place = kernel.directory.parent().unwrap_or(&kernel.directory);
    let directory = kernel.directory.join(FOLDER);
    let read = || -> Option<Headers> { serde_json::from_slice(&fs::read(directory.join("headers.json")).ok()?).ok() };
    if let Some(headers) = read() {
        return Ok(headers);
    }
    let _lock = lock(&place.join("lock"), || progress(&format!("{}: waiting for another run", kernel.name)))?;
    if let Some(headers) = read() {
        return Ok(headers);
    }
    progress(&format!("{}: fetching what modules are built with", kernel.name));
    fetch(kernel, place, &directory)
}

fn fetch(kernel: &KernelPaths, place: &Path, directory: &Path) -> Result<Headers, GetError> {
    let record = &kernel.record;
    let host = Arch::host().ok_or_else(|| {
        GetError::io("cannot build modules here")(io::Error::new(io::ErrorKind::Unsupported, std::env::consts::ARCH))
    })?;
    let version = record.packages.first().map(|package| package.version.as_str());
    let suite = Suite::read(place, &record.suite, record.arch)?;
    let partial = Partial::new(place)?;
    let mut packages = Vec::new();

    let name = format!("linux-headers-{}", record.release);
    let package = suite.find(&name, version)?;
    let depends = suite::dependencies(&suite.fetch(&package)?)?;
    suite.unpack(&package, partial.path())?;
    packages.push(suite::record(&package));

    let depends_on = |prefix: &str, suffix: &str| {
        let found = depends.iter().find(|name| name.starts_with(prefix) && name.ends_with(suffix));
        found.ok_or_else(|| GetError::Unpack {
            package: PathBuf::from(&name),
            said: format!("it depends on no {prefix}*{suffix}"),
        })
    };
    let common = depends_on("linux-headers-", "-common").or_else(|_| depends_on("linux-headers-", "-common-rt"))?;
    let package = suite.find(common, version)?;
    suite.unpack(&package, partial.path())?;
    packages.push(suite::record(&package));

    // Programs that run on this machine.
    let kbuild = depends_on("linux-kbuild-", "")?;
    let foreign;
    let suite = if record.arch == host {
        &suite
    } else {
        foreign = Suite::read(&place.join(host.debian()), &record.suite, host)?;
        &foreign
    };
    let package = suite.find(kbuild, version)?;
    suite.unpack(&package, partial.path())?;
    packages.push(suite::record(&package));
    suite.discard_downloads();

    let sources = Path::new("usr/src");
    let headers = Headers {
        common: Path::new(FOLDER).join(sources).join(common),
        objects: Path::new(FOLDER).join(sources).join(&name),
        packages,
    };
    let vmlinux = partial.path().join(sources).join(&name).join("vmlinux");
    let link = || {
        match fs::remove_file(&vmlinux) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // From headers/usr/src/NAME.
        symlink("../../../../vmlinux", &vmlinux)
    };
    link().map_err(GetError::io(format!("cannot set {}", vmlinux.display())))?;
    partial.complete(&headers, "headers.json", directory)?;
    Ok(headers)
}
