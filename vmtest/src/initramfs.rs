// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The initramfs: a cpio archive ("newc", Documentation/driver-api/early-userspace/buffer-format.rst) that the kernel
//! unpacks into its root file system. It is not compressed: it never leaves the machine, and unpacking costs guest
//! time.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use cpio::newc::{self, ModeFileType};

/// Directories that init mounts something on.
const MOUNT_POINTS: &[&str] = &["proc", "sys", "dev"];

/// Why no archive could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitramfsError {
    /// A path in the guest that cannot be made.
    #[error("{0:?} cannot be a file in the guest: {1}")]
    GuestPath(String, &'static str),
    /// A file of the host that cannot be read.
    #[error("{path}", path = path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A file that the format has no room for.
    #[error("{path} is {size} bytes long; a file in a cpio archive is less than 4 GiB", path = path.display())]
    TooLong {
        /// Its path.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// The archive could not be written.
    #[error("cannot write the initramfs")]
    Write(#[source] io::Error),
}

#[derive(Debug, Clone)]
enum Source {
    File(PathBuf),
    Bytes { mode: u32, bytes: Vec<u8> },
}

/// What an initramfs is to hold.
#[derive(Debug, Clone, Default)]
pub struct Initramfs {
    /// By path in the guest, without the leading slash.
    files: BTreeMap<String, Source>,
}

impl Initramfs {
    /// An archive with nothing but the directories init needs and the console's device node.
    pub fn new() -> Initramfs {
        Initramfs::default()
    }

    /// Adds a file of the host, with its permissions; a file of the same guest path is replaced.
    ///
    /// # Errors
    /// [`InitramfsError::GuestPath`] if the guest path is not absolute, has `.` or `..` in it, or would be hidden by a
    /// file system that init mounts.
    pub fn file(&mut self, host: &Path, guest: &str) -> Result<(), InitramfsError> {
        let name = guest_name(guest)?;
        self.files.insert(name, Source::File(host.to_owned()));
        Ok(())
    }

    /// Adds a file with these bytes.
    ///
    /// # Errors
    /// As [`Initramfs::file`].
    pub fn bytes(&mut self, bytes: Vec<u8>, mode: u32, guest: &str) -> Result<(), InitramfsError> {
        let name = guest_name(guest)?;
        self.files.insert(name, Source::Bytes { mode, bytes });
        Ok(())
    }

    /// Writes the archive and returns its size in bytes.
    ///
    /// # Errors
    /// If a file cannot be read or the archive cannot be written.
    pub fn write(&self, output: impl Write) -> Result<u64, InitramfsError> {
        let mut writer = Writer { output: Counting { inner: output, count: 0 }, inode: 1 };
        let mut directories: Vec<&str> = MOUNT_POINTS.to_vec();
        directories.extend(["tmp", "run"]);
        for name in self.files.keys() {
            // Parents come before what is in them.
            for (at, _) in name.match_indices('/') {
                if !directories.contains(&&name[..at]) {
                    directories.push(&name[..at]);
                }
            }
        }
        for name in directories {
            let builder = writer.entry(name).mode(if name == "tmp" { 0o1777 } else { 0o755 });
            writer.add(builder.set_mode_file_type(ModeFileType::Directory).nlink(2), &mut io::empty(), 0)?;
        }
        // The kernel opens it for init's standard files before init can mount anything.
        let console = writer.entry("dev/console").mode(0o600).set_mode_file_type(ModeFileType::Char);
        writer.add(console.rdev_major(5).rdev_minor(1), &mut io::empty(), 0)?;
        for (name, source) in &self.files {
            match source {
                Source::Bytes { mode, bytes } => {
                    let size = u32::try_from(bytes.len())
                        .map_err(|_| InitramfsError::TooLong { path: name.into(), size: bytes.len() as u64 })?;
                    let builder = writer.entry(name).mode(*mode).set_mode_file_type(ModeFileType::Regular);
                    writer.add(builder, &mut bytes.as_slice(), size)?;
                }
                Source::File(path) => {
                    let read = |error| InitramfsError::Read { path: path.clone(), error };
                    let mut file = File::open(path).map_err(read)?;
                    let metadata = file.metadata().map_err(read)?;
                    if !metadata.is_file() {
                        return Err(read(io::Error::other("not a regular file")));
                    }
                    let size = u32::try_from(metadata.len())
                        .map_err(|_| InitramfsError::TooLong { path: path.clone(), size: metadata.len() })?;
                    // In the guest all is root's, and what others may change is not believed there.
                    let mode = metadata.permissions().mode() & 0o755;
                    let builder = writer.entry(name).mode(mode).set_mode_file_type(ModeFileType::Regular);
                    writer.add(builder, &mut file, size)?;
                }
            }
        }
        newc::trailer(&mut writer.output).map_err(InitramfsError::Write)?;
        writer.output.flush().map_err(InitramfsError::Write)?;
        Ok(writer.output.count)
    }
}

fn guest_name(path: &str) -> Result<String, InitramfsError> {
    let refuse = |why| Err(InitramfsError::GuestPath(path.to_owned(), why));
    let Some(relative) = path.strip_prefix('/') else {
        return refuse("it is not absolute");
    };
    if relative.is_empty() || relative.ends_with('/') || relative.contains('\0') {
        return refuse("it names no file");
    }
    let parts: Vec<&str> = relative.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return refuse("it is not in its shortest form");
    }
    if MOUNT_POINTS.contains(&parts[0]) {
        return refuse("init mounts a file system over it");
    }
    Ok(relative.to_owned())
}

struct Counting<W> {
    inner: W,
    count: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct Writer<W: Write> {
    output: Counting<W>,
    inode: u32,
}

impl<W: Write> Writer<W> {
    /// Entries of one inode number would be taken for hard links.
    fn entry(&mut self, name: &str) -> newc::Builder {
        self.inode += 1;
        newc::Builder::new(name).ino(self.inode)
    }

    fn add(&mut self, builder: newc::Builder, content: &mut dyn Read, size: u32) -> Result<(), InitramfsError> {
        let mut entry = builder.write(&mut self.output, size);
        let copied = io::copy(&mut content.take(u64::from(size)), &mut entry).map_err(InitramfsError::Write)?;
        if copied != u64::from(size) {
            return Err(InitramfsError::Write(io::Error::other("a file became shorter while it was read")));
        }
        entry.finish().map_err(InitramfsError::Write)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode, device number and content.
    type Entry = (String, u32, (u32, u32), Vec<u8>);

    fn entries(mut archive: &[u8]) -> Vec<Entry> {
        let mut found = Vec::new();
        loop {
            let mut reader = newc::Reader::new(archive).unwrap();
            let entry = reader.entry().clone();
            if entry.is_trailer() {
                return found;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            found.push((entry.name().to_owned(), entry.mode(), (entry.rdev_major(), entry.rdev_minor()), content));
            archive = reader.finish().unwrap();
        }
    }

    #[test]
    fn the_archive_holds_what_was_put_in() {
        let host = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(host.path(), b"#!/bin/sh\n").unwrap();
        std::fs::set_permissions(host.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
        let mut initramfs = Initramfs::new();
        initramfs.file(host.path(), "/init").unwrap();
        initramfs.bytes(b"abc".to_vec(), 0o644, "/usr/share/x/data").unwrap();
        let mut archive = Vec::new();
        let size = initramfs.write(&mut archive).unwrap();
        assert_eq!(size, archive.len() as u64);

        let entries = entries(&archive);
        let entry = |name: &str| entries.iter().find(|entry| entry.0 == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(entry("init").1, 0o100750);
        assert_eq!(entry("init").3, b"#!/bin/sh\n");
        assert_eq!(entry("usr/share/x/data").1, 0o100644);
        assert_eq!(entry("usr/share/x/data").3, b"abc");
        assert_eq!((entry("dev/console").1, entry("dev/console").2), (0o020600, (5, 1)));
        for directory in ["proc", "sys", "dev", "tmp", "usr", "usr/share", "usr/share/x"] {
            assert_eq!(entry(directory).1 & 0o170000, 0o040000, "{directory}");
        }
        let at = |name: &str| entries.iter().position(|entry| entry.0 == name).unwrap();
        assert!(
            at("usr") < at("usr/share") && at("usr/share/x") < at("usr/share/x/data") && at("dev") < at("dev/console")
        );
        assert_eq!(entries.iter().filter(|entry| entry.0 == "usr").count(), 1);
    }

    #[test]
    fn guest_paths_that_cannot_be_are_refused() {
        for path in ["", "relative", "/", "/a/", "/a//b", "/a/../b", "/./a", "/proc/x", "/sys/y", "/dev/null"] {
            let error = Initramfs::new().bytes(vec![], 0o644, path).unwrap_err();
            assert!(matches!(error, InitramfsError::GuestPath(..)), "{path}: {error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let mut initramfs = Initramfs::new();
        initramfs.file(Path::new("/nonexistent/file"), "/file").unwrap();
        let error = initramfs.write(io::sink()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/file"), "{error}");
    }
}
