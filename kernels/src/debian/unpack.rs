// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Takes one file out of a package, or all of them. The debug packages hold gigabytes of modules' debug information
//! beside the one file that is wanted, so nothing of them is unpacked to be looked through later.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{child::die_with_parent, error::GetError};

/// Writes the file `inside` of `package` to `target`.
pub(crate) fn unpack(package: &Path, inside: &str, target: &Path) -> Result<(), GetError> {
    let options = ["--extract", "--to-stdout", "--", &format!("./{inside}")];
    let (mut unpacker, mut tar) = start(package, &options)?;
    let copied = tar.stdout.take().map_or(Ok(0), |mut content| {
        let mut file = File::create(target)?;
        let copied = io::copy(&mut content, &mut file)?;
        file.sync_all()?;
        Ok(copied)
    });
    // Both are done or get a broken pipe now.
    let ended = end(&mut unpacker, &mut tar)?;
    let size = copied.map_err(|error| GetError::disk(target, format!("cannot write {}", target.display()), error))?;
    let not_in_package =
        |said: String| GetError::NotInPackage { package: package.to_owned(), file: inside.to_owned(), said };
    match ended {
        Err(said) => Err(not_in_package(said)),
        Ok(()) if size == 0 => Err(not_in_package("it is empty, or a link".to_owned())),
        Ok(()) => Ok(()),
    }
}

/// Unpacks all files of `package` into the folder `target`.
pub(crate) fn unpack_all(package: &Path, target: &Path) -> Result<(), GetError> {
    // An archive's owners and times are of no use here.
    let folder = target.to_string_lossy();
    let (mut unpacker, mut tar) = start(package, &["--extract", "--no-same-owner", "--touch", "--directory", &folder])?;
    // tar writes nothing to it.
    drop(tar.stdout.take());
    end(&mut unpacker, &mut tar)?.map_err(|said| GetError::Unpack { package: package.to_owned(), said })
}

/// The paths of all files and folders of `package`.
pub(crate) fn list(package: &Path) -> Result<Vec<String>, GetError> {
    let (mut unpacker, mut tar) = start(package, &["--list"])?;
    let mut listed = String::new();
    let read = tar.stdout.take().map_or(Ok(0), |mut names| names.read_to_string(&mut listed));
    let ended = end(&mut unpacker, &mut tar)?;
    ended.map_err(|said| GetError::Unpack { package: package.to_owned(), said })?;
    read.map_err(GetError::io("cannot read what tar lists"))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Unpacks some files of `package`, named as [`list`] names them, into the folder `target`.
pub(crate) fn unpack_some(package: &Path, names: &[&str], target: &Path) -> Result<(), GetError> {
    let folder = target.to_string_lossy();
    let options = ["--extract", "--no-same-owner", "--touch", "--directory", &folder, "--"];
    let (mut unpacker, mut tar) = start(package, &[&options, names].concat())?;
    drop(tar.stdout.take());
    end(&mut unpacker, &mut tar)?.map_err(|said| GetError::Unpack { package: package.to_owned(), said })
}

/// Starts the two programs that unpack, the second with these options.
fn start(package: &Path, options: &[&str]) -> Result<(Child, Child), GetError> {
    let start = |command: &mut Command, package| {
        let program = command.get_program().to_string_lossy().into_owned();
        die_with_parent(command).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GetError::NoProgram { program, package },
            _ => GetError::io(format!("cannot run {program}"))(error),
        })
    };
    let mut unpacker = start(
        Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(package)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
        "dpkg",
    )?;
    let archive = unpacker.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let tar = start(
        Command::new("tar")
            .args(["--file", "-"])
            .args(options)
            // It could stop reading at the first match; then dpkg-deb would complain of a broken pipe.
            .stdin(archive)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
        "tar",
    );
    match tar {
        Ok(tar) => Ok((unpacker, tar)),
        Err(error) => {
            let _ = unpacker.kill();
            let _ = unpacker.wait();
            Err(error)
        }
    }
}

/// Waits for both; if one failed, what they said.
fn end(unpacker: &mut Child, tar: &mut Child) -> Result<Result<(), String>, GetError> {
    // Their words are short enough for a pipe's buffer.
    let mut said = String::new();
    let mut has_failed = false;
    for child in [tar, unpacker] {
        if let Some(mut errors) = child.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        has_failed |= !child.wait().map_err(GetError::io("cannot wait for a child process"))?.success();
    }
    Ok(if has_failed { Err(said.trim().to_owned()) } else { Ok(()) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn package(directory: &Path) -> std::path::PathBuf {
        let root = directory.join("root");
        fs::create_dir_all(root.join("DEBIAN")).unwrap();
        fs::create_dir_all(root.join("boot")).unwrap();
        fs::write(
            root.join("DEBIAN/control"),
            "Package: k\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n",
        )
        .unwrap();
        fs::write(root.join("boot/vmlinuz-1+x"), "the kernel").unwrap();
        let path = directory.join("k.deb");
        let built =
            Command::new("dpkg-deb").arg("--build").arg(&root).arg(&path).stdout(Stdio::null()).status().unwrap();
        assert!(built.success());
        path
    }

    #[test]
    fn one_file_comes_out() {
        let directory = tempfile::tempdir().unwrap();
        let package = package(directory.path());
        let target = directory.path().join("vmlinuz");
        unpack(&package, "boot/vmlinuz-1+x", &target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"the kernel");
    }

    #[test]
    fn some_files_come_out() {
        let directory = tempfile::tempdir().unwrap();
        let package = package(directory.path());
        let names = list(&package).unwrap();
        let name = names.iter().find(|name| name.ends_with("vmlinuz-1+x")).unwrap();
        let target = directory.path().join("some");
        fs::create_dir(&target).unwrap();
        unpack_some(&package, &[name], &target).unwrap();
        assert_eq!(fs::read(target.join(name)).unwrap(), b"the kernel");
        assert!(unpack_some(&package, &["./boot/other"], &target).is_err());
        fs::write(&package, "not a package").unwrap();
        assert!(list(&package).is_err());
    }

    #[test]
    fn a_missing_file_and_a_broken_package_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let package = package(directory.path());
        let target = directory.path().join("out");
        let error = unpack(&package, "boot/other", &target).unwrap_err();
        assert!(matches!(&error, GetError::NotInPackage { file, .. } if file == "boot/other"), "{error}");
        fs::write(&package, "not a package").unwrap();
        let error = unpack(&package, "boot/vmlinuz-1+x", &target).unwrap_err();
        assert!(matches!(error, GetError::NotInPackage { .. }), "{error}");
    }

    #[test]
    fn a_full_disk_is_called_that() {
        let directory = tempfile::tempdir().unwrap();
        let package = package(directory.path());
        let error = unpack(&package, "boot/vmlinuz-1+x", Path::new("/dev/full")).unwrap_err();
        assert!(matches!(error, GetError::DiskFull { .. }), "{error}");
    }
}
