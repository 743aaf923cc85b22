// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The calls that are made while a tool watches: the same each time, [`CALLS`] of each kind.

use crate::guest::case::Failure;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How many calls of each kind there are.
pub const CALLS: usize = 50;
/// How many processes are started.
const PROCESSES: usize = 3;

/// The disk, and the file system on it.
const DISK: &str = "/dev/nvme0n1";
/// Where it is mounted.
pub const FOLDER: &str = "/mnt";

/// Mounts the disk.
///
/// # Errors
/// If there is no disk with a file system.
pub fn mount_disk() -> Result<(), Failure> {
    fs::create_dir_all(FOLDER)?;
    mount(DISK, Path::new(FOLDER), "ext4")
}

/// Makes all calls once.
///
/// # Errors
/// If a call fails.
pub fn run() -> Result<(), Failure> {
    let folder = PathBuf::from(FOLDER).join("work");
    fs::create_dir_all(&folder)?;
    files(&folder)?;
    names(&folder)?;
    cold(&folder)?;
    fs::remove_dir_all(&folder)?;
    mounts()?;
    sockets()?;
    signals()?;
    locks()?;
    processes()?;
    // Softer work of the kernel's ends before the counts are taken.
    thread::sleep(Duration::from_millis(200));
    Ok(())
}

/// Opens, writes, synchronises, reads, and changes the mode.
fn files(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("file");
    for _ in 0..CALLS {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        file.write_all(&[1; 4096])?;
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut [0; 4096])?;
        file.metadata()?;
        // fchmod().
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    let mut file = File::create(folder.join("synchronised"))?;
    for _ in 0..CALLS {
        file.write_all(&[2; 512])?;
        file.sync_all()?;
    }
    Ok(())
}

/// Makes, lists, renames and removes files and folders.
fn names(folder: &Path) -> Result<(), Failure> {
    let (one, other) = (folder.join("one"), folder.join("other"));
    for _ in 0..CALLS {
        File::create(&one)?;
        fs::rename(&one, &other)?;
        fs::remove_file(&other)?;
        fs::create_dir(&one)?;
        fs::read_dir(&one)?.count();
        fs::remove_dir(&one)?;
        // There is none now.
        let _ = fs::metadata(&one);
    }
    Ok(())
}

/// Reads a file that is not in memory.
fn cold(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("cold");
    fs::write(&path, vec![3; 1 << 20])?;
    let mut file = File::open(&path)?;
    file.sync_all()?;
    for _ in 0..CALLS / 10 {
        advise(&file, libc::POSIX_FADV_DONTNEED)?;
        // Read ahead on request, and then by itself.
        advise(&file, libc::POSIX_FADV_WILLNEED)?;
        advise(&file, libc::POSIX_FADV_DONTNEED)?;
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

fn advise(file: &File, advice: i32) -> Result<(), Failure> {
    // SAFETY: plain call.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        error => Err(format!("advice {advice} on a file: {}", std::io::Error::from_raw_os_error(error)).into()),
    }
}

fn mounts() -> Result<(), Failure> {
    let place = Path::new("/mounted");
    fs::create_dir_all(place)?;
    for _ in 0..CALLS / 10 {
        mount("none", place, "tmpfs")?;
        let name = c_string(place)?;
        // SAFETY: the string lives through the call.
        check(unsafe { libc::umount(name.as_ptr()) })?;
    }
    Ok(())
}

/// Connections by the loopback interface.
fn sockets() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let answers = thread::spawn(move || -> std::io::Result<()> {
        for _ in 0..CALLS {
            let (mut stream, _) = listener.accept()?;
            stream.read_exact(&mut [0; 64])?;
            stream.write_all(&[4; 64])?;
        }
        Ok(())
    });
    for _ in 0..CALLS {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&[5; 64])?;
        stream.read_exact(&mut [0; 64])?;
    }
    Ok(answers.join().map_err(|_| "the thread that answers panicked")??)
}

/// Signals of no effect.
fn signals() -> Result<(), Failure> {
    for _ in 0..CALLS {
        // SAFETY: plain call; signal 0 is only checked.
        check(unsafe { libc::kill(libc::getpid(), 0) })?;
    }
    Ok(())
}

/// Two threads that wait for each other.
fn locks() -> Result<(), Failure> {
    let lock = Arc::new(Mutex::new(0));
    let threads = [lock.clone(), lock].map(|lock| {
        thread::spawn(move || {
            for _ in 0..CALLS {
                if let Ok(mut held) = lock.lock() {
                    *held += 1;
                    thread::sleep(Duration::from_micros(100));
                }
            }
        })
    });
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".into()))
}

fn processes() -> Result<(), Failure> {
    for _ in 0..PROCESSES {
        // The program knows no such word and ends at once.
        Command::new("/proc/self/exe").arg("nothing").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    }
    Ok(())
}

fn mount(what: &str, place: &Path, kind: &str) -> Result<(), Failure> {
    let (what, place, kind) = (c_string(Path::new(what))?, c_string(place)?, c_string(Path::new(kind))?);
    // SAFETY: the strings live through the call.
    let mounted = unsafe { libc::mount(what.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    check(mounted).map_err(|error| format!("cannot mount {what:?}: {error}").into())
}

fn c_string(path: &Path) -> Result<std::ffi::CString, Failure> {
    Ok(std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?)
}

fn check(result: i32) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
