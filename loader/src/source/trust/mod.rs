// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which files are read, by who owns them, and how.
//!
//! Site data decides where probes stand and which registers are called arguments. Build ids, types and checksums show
//! that a file fits the kernel. They do not show who made it: all of them are public. So a process that may do more
//! than other processes of its user (root, capabilities, set-user-ID) reads what it finds by searching only if root
//! alone can have put it there: each folder and each symbolic link on the way, and the file itself, are owned by root,
//! and nobody else may write to them. A file that the caller names is the caller's decision.
//!
//! The path is walked one component at a time, each opened in the folder that was looked at before, and no link is
//! followed by the kernel: what was looked at is what is opened.
//!
//! Only regular files are read: to open a FIFO blocks, and to open a device may do anything. A file is mapped if root
//! alone can change it. A mapped file that somebody truncates ends the process with SIGBUS, so that all others are
//! copied.

use memmap2::Mmap;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// As many symbolic links as the kernel follows in one path.
const LINKS: usize = 40;
/// The largest file that is copied. Debug images of kernels have up to about a gigabyte.
const LARGEST_COPY: u64 = 4 << 30;

/// Who chose a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// The caller named it.
    ByCaller,
    /// It was found in one of the usual places.
    BySearch,
}

/// What a file holds.
#[derive(Debug)]
pub enum Contents {
    /// Root alone can change the file.
    Mapped(Mmap),
    /// Others can.
    Copied(Vec<u8>),
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Contents::Mapped(bytes) => bytes,
            Contents::Copied(bytes) => bytes,
        }
    }
}

/// Whether the process may do more than others of its user: it is root's, has capabilities, or was given privileges by
/// its file.
pub fn is_privileged() -> bool {
    // SAFETY: plain calls.
    unsafe { libc::geteuid() == 0 || has_secure_environment() || has_capabilities() }
}

/// Whether environment variables may be someone else's: what secure_getenv(3) asks.
fn has_secure_environment() -> bool {
    // SAFETY: plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// An environment variable; `None` if the kernel started the process with more privileges than its caller had.
pub fn environment(name: &str) -> Option<OsString> {
    if has_secure_environment() { None } else { std::env::var_os(name) }
}

/// Whether the process has an effective capability; yes, if the kernel does not say.
fn has_capabilities() -> bool {
    /// `_LINUX_CAPABILITY_VERSION_3`: two sets of 32 capabilities each, of three numbers.
    const VERSION: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: the header names the version, which has as many sets as there is room for.
    let answer = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    answer != 0 || sets.iter().any(|[effective, ..]| *effective != 0)
}

/// Reads a file, or maps it.
///
/// # Errors
/// If it cannot be read, is not a regular file, or must not be read by a process with privileges (EACCES).
pub fn read(path: &Path, chosen: Chosen) -> io::Result<Contents> {
    read_as(path, chosen, is_privileged())
}

/// [`read`], with the privileges given.
///
/// # Errors
/// As [`read`].
pub fn read_as(path: &Path, chosen: Chosen, privileged: bool) -> io::Result<Contents> {
    match open_roots(path) {
        // SAFETY: root alone can change it, and installs site data by renaming. What is read is checked as it is read.
        Ok(file) => match unsafe { Mmap::map(&file) } {
            Ok(mapped) => Ok(Contents::Mapped(mapped)),
            // Not all files of the kernel's own file systems can be mapped.
            Err(_) => copy(file),
        },
        Err(why) if chosen == Chosen::BySearch && privileged => Err(why),
        // Without O_NONBLOCK, to open a FIFO would wait for its other end.
        Err(_) => copy(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?),
    }
}

/// Copies a file that somebody may change meanwhile.
fn copy(file: File) -> io::Result<Contents> {
    let size = regular(&file.metadata()?)?;
    if size > LARGEST_COPY {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{size} bytes are too many")));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size).map_err(io::Error::other)?).map_err(io::Error::other)?;
    file.take(size).read_to_end(&mut bytes)?;
    Ok(Contents::Copied(bytes))
}

/// The size of a regular file.
fn regular(about: &Metadata) -> io::Result<u64> {
    if about.is_file() { Ok(about.size()) } else { Err(refused("it is not a regular file")) }
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

/// Opens a regular file that root alone can have put there.
fn open_roots(path: &Path) -> io::Result<File> {
    open_owned(path, 0)
}

/// The same for any owner; for root's sake folders may be root's, too.
fn open_owned(path: &Path, owner: u32) -> io::Result<File> {
    let mut walk = Walk::new(path, owner)?;
    while let Some(name) = walk.left.pop_front() {
        let found = walk.step(&name)?;
        let about = File::from(found.try_clone()?).metadata()?;
        walk.path.push(&name);
        if about.is_dir() {
            walk.enter(found)?;
        } else if walk.shared {
            // Others may have put a link of their own there, hard or symbolic.
            return Err(walk.foreign(&about));
        } else if about.is_symlink() {
            walk.follow(&found, &about)?;
        } else {
            walk.is_owners(&about)?;
            regular(&about)?;
            return walk.open(&name, &about);
        }
    }
    Err(refused("it is not a regular file"))
}

/// A path, as far as it was walked.
struct Walk {
    /// The folder.
    folder: OwnedFd,
    /// Its path, for messages.
    path: PathBuf,
    /// The names that are left.
    left: VecDeque<OsString>,
    links: usize,
    owner: u32,
    /// Whether everybody may make files in the folder, though not touch those of others (`/tmp`).
    shared: bool,
}

impl Walk {
    fn new(path: &Path, owner: u32) -> io::Result<Walk> {
        let path = std::path::absolute(path)?;
        let left = VecDeque::new();
        let mut walk = Walk { folder: root()?, path: "/".into(), left, links: 0, owner, shared: false };
        walk.push(&path);
        walk.enter(root()?)?;
        Ok(walk)
    }

    /// Goes into a folder, which nobody else may change.
    fn enter(&mut self, folder: OwnedFd) -> io::Result<()> {
        let about = File::from(folder.try_clone()?).metadata()?;
        self.shared = about.uid() == 0 && about.mode() & libc::S_ISVTX != 0;
        if !self.shared {
            self.is_owners(&about)?;
        }
        self.folder = folder;
        Ok(())
    }

    /// Puts the names of a path before those that are left.
    fn push(&mut self, path: &Path) {
        let names = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
        for name in names.collect::<Vec<_>>().into_iter().rev() {
            self.left.push_front(name);
        }
    }

    /// Takes hold of what has a name in the folder, without opening it.
    fn step(&self, name: &OsString) -> io::Result<OwnedFd> {
        open_at(self.folder.as_raw_fd(), &terminated(name)?, libc::O_PATH | libc::O_NOFOLLOW)
    }

    /// Goes on with what a symbolic link says.
    fn follow(&mut self, link: &OwnedFd, about: &Metadata) -> io::Result<()> {
        // Links have no permissions of their own.
        if about.uid() != 0 && about.uid() != self.owner {
            return Err(self.foreign(about));
        }
        self.links += 1;
        if self.links > LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let mut target = vec![0u8; libc::PATH_MAX as usize];
        // SAFETY: the buffer is as long as it is said to be.
        let length =
            unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        target.truncate(usize::try_from(length).map_err(|_| io::Error::last_os_error())?);
        let target = PathBuf::from(OsString::from_vec(target));
        self.path.pop();
        self.push(&target);
        if target.is_absolute() {
            self.path = "/".into();
            self.enter(root()?)?;
        }
        Ok(())
    }

    /// Opens the file, which is the one that was looked at.
    fn open(&self, name: &OsString, looked_at: &Metadata) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::from(open_at(self.folder.as_raw_fd(), &terminated(name)?, flags)?);
        let about = file.metadata()?;
        if (about.dev(), about.ino()) == (looked_at.dev(), looked_at.ino()) {
            Ok(file)
        } else {
            Err(refused("it was replaced meanwhile"))
        }
    }

    /// Whether only the owner can write to a folder or file, and root.
    fn is_owners(&self, about: &Metadata) -> io::Result<()> {
        let writable_by_others = about.mode() & (libc::S_IWGRP | libc::S_IWOTH) != 0;
        let owned = about.uid() == 0 || about.uid() == self.owner;
        if owned && !writable_by_others { Ok(()) } else { Err(self.foreign(about)) }
    }

    fn foreign(&self, about: &Metadata) -> io::Error {
        let (path, uid, mode) = (self.path.display(), about.uid(), about.mode() & 0o7777);
        refused(format!(
            "not read with privileges, because users other than root can change it: {path} has owner {uid}, mode \
             {mode:o}"
        ))
    }
}

fn root() -> io::Result<OwnedFd> {
    open_at(libc::AT_FDCWD, c"/", libc::O_PATH | libc::O_DIRECTORY)
}

fn terminated(name: &OsString) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(io::Error::other)
}

fn open_at(folder: libc::c_int, name: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the name is terminated.
    let descriptor = unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests;
