// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Sources of kernels, unpacked once for all kernels that are built of them: `sources/PACKAGE_VERSION` in the cache.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    cache,
    child::die_with_parent,
    debian::{
        Package, folder_name,
        suite::{self, Suite},
        unpack::unpack,
    },
    error::GetError,
    lock::lock,
    partial::{Partial, check_space},
    record::{KernelRecord, PackageRecord},
};

/// What says that a folder is complete, and of what.
const RECORD: &str = ".siteseer-source.json";

/// Unpacked, the archive takes about eleven times as much.
const GROWTH: u64 = 12;

/// The folder of these sources, if they are in the cache.
pub(crate) fn cached(source: &PackageRecord) -> Option<PathBuf> {
    let directory = place()?.join(name(source));
    let record: PackageRecord = serde_json::from_slice(&fs::read(directory.join(RECORD)).ok()?).ok()?;
    (record == *source).then_some(directory)
}

/// The folder of these sources, which are in the archive `file` of a package; they are fetched if they are not in the
/// cache.
pub(crate) fn get(
    suite: &Suite,
    package: &Package,
    file: &str,
    say: &mut dyn FnMut(&str),
) -> Result<PathBuf, GetError> {
    let record = suite::record(package);
    let place = place().ok_or(GetError::NoCache)?;
    fs::create_dir_all(&place).map_err(GetError::io(format!("cannot make {}", place.display())))?;
    let _lock = lock(&place.join("lock"), || say("waiting for another run that unpacks sources"))?;
    if let Some(directory) = cached(&record) {
        return Ok(directory);
    }
    say(&format!("fetching {}", suite::describe(package)));
    check_space(&place, package.size * GROWTH)?;
    let deb = suite.fetch(package)?;
    say("unpacking the sources");
    let partial = Partial::new(&place)?;
    let archive = partial.path().join(".archive");
    unpack(&deb, file, &archive)?;
    extract(&archive, partial.path())?;
    fs::remove_file(&archive).map_err(GetError::io(format!("cannot remove {}", archive.display())))?;
    let directory = place.join(name(&record));
    partial.complete(&record, RECORD, &directory)?;
    Ok(directory)
}

/// Removes sources that no kernel in the folder of kernels was made of. Failing to is not a reason to fail.
pub(crate) fn remove_unused(kernels: &Path) {
    let folders =
        |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|file| file.path()).collect::<Vec<_>>();
    let used: BTreeSet<String> = folders(kernels)
        .iter()
        .flat_map(|kernel| folders(kernel))
        .filter_map(|entry| serde_json::from_slice::<KernelRecord>(&fs::read(entry.join("kernel.json")).ok()?).ok())
        .filter_map(|record| Some(name(&record.build?.recipe.source)))
        .collect();
    let Some(place) = place() else { return };
    let Ok(_lock) = lock(&place.join("lock"), || ()) else { return };
    for path in folders(&place) {
        let is_used = path.file_name().is_some_and(|name| used.contains(&*name.to_string_lossy()));
        if path.is_dir() && !is_used {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn place() -> Option<PathBuf> {
    Some(cache::directory()?.join("sources"))
}

fn name(source: &PackageRecord) -> String {
    folder_name(&format!("{}_{}", source.name, source.version))
}

/// Unpacks an archive, without the folder that all of it is in.
fn extract(archive: &Path, target: &Path) -> Result<(), GetError> {
    let mut command = Command::new("tar");
    command.args(["--extract", "--strip-components=1", "--no-same-owner", "--file"]).arg(archive);
    command.arg("--directory").arg(target).stdin(Stdio::null());
    let output = die_with_parent(&mut command)
        .output()
        .map_err(|_| GetError::NoProgram { program: "tar".to_owned(), package: "tar" })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(GetError::Unpack { package: archive.to_owned(), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_unpacked_without_its_folder_and_a_broken_one_is_called_that() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("linux-1/kernel")).unwrap();
        fs::write(path("linux-1/kernel/x.c"), "int x;").unwrap();
        let mut pack = Command::new("tar");
        pack.arg("-cJf").arg(path("a.tar.xz")).arg("-C").arg(directory.path()).arg("linux-1");
        assert!(pack.status().unwrap().success());
        fs::create_dir(path("out")).unwrap();
        extract(&path("a.tar.xz"), &path("out")).unwrap();
        assert_eq!(fs::read_to_string(path("out/kernel/x.c")).unwrap(), "int x;");

        let whole = fs::read(path("a.tar.xz")).unwrap();
        fs::write(path("cut.tar.xz"), &whole[..whole.len() / 2]).unwrap();
        let error = extract(&path("cut.tar.xz"), &path("out")).unwrap_err();
        assert!(matches!(&error, GetError::Unpack { package, .. } if package.ends_with("cut.tar.xz")), "{error}");
    }
}
