// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Calls for the tools that watch files.

use super::{Group, Tally, Tool, fails, memfd, number, owned, page_size, path};
use crate::guest::calls::syscall;
use siteseer_bpf_progs::TOOLS_FILES;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

/// `tools_files.bpf.c`.
pub(super) const GROUP: Group = Group {
    // Proves S15.1.
    name: "files",
    elf: TOOLS_FILES,
    tools: &[
        Tool::new("opensnoop", opensnoop),
        Tool::new("chmodsnoop", chmodsnoop),
        Tool::new("chownsnoop", chownsnoop),
        Tool::new("fsyncsnoop", fsyncsnoop),
        Tool::new("fsyncdist", fsyncdist),
        Tool::new("syncsnoop", syncsnoop),
        Tool::new("fallocsnoop", fallocsnoop),
        Tool::new("statsnoop", statsnoop),
        Tool::new("seeksnoop", seeksnoop),
        Tool::new("dupsnoop", dupsnoop),
        Tool::new("locksnoop", locksnoop),
        Tool::new("eventfdsnoop", eventfdsnoop),
        Tool::new("pollcount", pollcount),
        Tool::new("filelife", filelife),
        Tool::new("dirsnoop", dirsnoop),
        Tool::new("createsnoop", createsnoop),
        Tool::new("mountsnoop", mountsnoop),
        Tool::new("procsnoop", procsnoop),
        Tool::new("xattrsnoop", xattrsnoop),
        Tool::new("truncsnoop", truncsnoop),
        Tool::new("fadvise", fadvise),
        Tool::new("filetop", filetop),
    ],
    others: &[],
};

/// `do_sys_open()` is told of large files on 64-bit machines.
#[cfg(target_arch = "x86_64")]
const LARGEFILE: u64 = 0o100_000;
#[cfg(target_arch = "aarch64")]
const LARGEFILE: u64 = 0o400_000;

fn opensnoop(tally: &mut Tally) -> io::Result<()> {
    let file = path("/tmp/tools-opened")?;
    #[cfg(target_arch = "x86_64")]
    {
        tally.call((libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64 | LARGEFILE);
        owned(syscall(libc::SYS_creat, [file.as_ptr() as u64, 0o600, 0, 0, 0, 0])?);
        for flags in [libc::O_RDONLY, libc::O_RDWR | libc::O_APPEND] {
            tally.call(flags as u64 | LARGEFILE);
            owned(syscall(libc::SYS_open, [file.as_ptr() as u64, flags as u64, 0, 0, 0, 0])?);
        }
    }
    let here = libc::AT_FDCWD as u64;
    for flags in [libc::O_CREAT | libc::O_WRONLY, libc::O_RDONLY | libc::O_NONBLOCK] {
        tally.call(flags as u64 | LARGEFILE);
        owned(syscall(libc::SYS_openat, [here, file.as_ptr() as u64, flags as u64, 0o600, 0, 0])?);
    }
    // There is no such file.
    let nowhere = path("/tmp/nowhere/at/all")?;
    tally.call(LARGEFILE);
    fails(syscall(libc::SYS_openat, [here, nowhere.as_ptr() as u64, 0, 0, 0, 0]), libc::ENOENT)
}

fn chmodsnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("chmod", 0)?;
    for mode in [0o600u64, 0o644, 0o4711] {
        tally.call(mode);
        syscall(libc::SYS_fchmod, [number(&file), mode, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn chownsnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("chown", 0)?;
    for (user, group) in [(1u64, 2u64), (30, 40), (0, 0)] {
        tally.call((user << 32) + group);
        syscall(libc::SYS_fchown, [number(&file), user, group, 0, 0, 0])?;
    }
    Ok(())
}

fn fsyncsnoop(tally: &mut Tally) -> io::Result<()> {
    // The name is that of the folder's entry, `memfd:` before it.
    let file = memfd("sync-me", 0)?;
    let len = "memfd:sync-me".len() as u64;
    for _ in 0..3 {
        tally.call(len);
        syscall(libc::SYS_fsync, [number(&file), 0, 0, 0, 0, 0])?;
    }
    for _ in 0..2 {
        tally.call((1 << 32) + len);
        syscall(libc::SYS_fdatasync, [number(&file), 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn fsyncdist(tally: &mut Tally) -> io::Result<()> {
    let (file, page) = (memfd("dist", 0)?, page_size());
    syscall(libc::SYS_ftruncate, [number(&file), page, 0, 0, 0, 0])?;
    let (protection, flags) = ((libc::PROT_READ | libc::PROT_WRITE) as u64, libc::MAP_SHARED as u64);
    let at = syscall(libc::SYS_mmap, [0, page, protection, flags, number(&file), 0])? as u64;
    // From 0 to LLONG_MAX: 2^62 and more. fdatasync() adds 1.
    tally.call(62);
    syscall(libc::SYS_fsync, [number(&file), 0, 0, 0, 0, 0])?;
    tally.call(63);
    syscall(libc::SYS_fdatasync, [number(&file), 0, 0, 0, 0, 0])?;
    // From 0 to the page's last byte, as data; mm/msync.c calls the symbol.
    for _ in 0..2 {
        tally.call(u64::from((page - 1).ilog2()) + 1);
        syscall(libc::SYS_msync, [at, page, libc::MS_SYNC as u64, 0, 0, 0])?;
    }
    syscall(libc::SYS_munmap, [at, page, 0, 0, 0, 0]).map(drop)
}

fn syncsnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("range", 0)?;
    let flags = u64::from(libc::SYNC_FILE_RANGE_WRITE);
    for (offset, bytes) in [(0u64, 100u64), (4096, 8192), (5, 1 << 33)] {
        tally.call(offset + bytes + flags);
        syscall(libc::SYS_sync_file_range, [number(&file), offset, bytes, flags, 0, 0])?;
    }
    Ok(())
}

fn fallocsnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("fallocate", 0)?;
    let keep = libc::FALLOC_FL_KEEP_SIZE as u64;
    for (mode, offset, len) in [(0u64, 0u64, 4096u64), (keep, 8192, 100), (0, 300, 7)] {
        tally.call(mode + offset + len);
        syscall(libc::SYS_fallocate, [number(&file), mode, offset, len, 0, 0])?;
    }
    Ok(())
}

fn statsnoop(tally: &mut Tally) -> io::Result<()> {
    const SIZE: u64 = 5000;
    fs::write("/tmp/tools-stat", vec![1u8; SIZE as usize])?;
    let file = File::open("/tmp/tools-stat")?;
    let fd = file.as_raw_fd() as u64;
    let (name, empty) = (path("/tmp/tools-stat")?, path("")?);
    let mut buffer = [0u64; 64];
    let to = buffer.as_mut_ptr() as u64;
    let here = libc::AT_FDCWD as u64;
    for _ in 0..2 {
        tally.call(SIZE);
        syscall(libc::SYS_fstat, [fd, to, 0, 0, 0, 0])?;
        tally.call(SIZE);
        syscall(libc::SYS_newfstatat, [here, name.as_ptr() as u64, to, 0, 0, 0])?;
        tally.call(SIZE);
        let all = u64::from(libc::STATX_BASIC_STATS);
        syscall(libc::SYS_statx, [fd, empty.as_ptr() as u64, libc::AT_EMPTY_PATH as u64, all, to, 0])?;
    }
    Ok(())
}

fn seeksnoop(tally: &mut Tally) -> io::Result<()> {
    const MODE: u64 = 0o640;
    let file = memfd("seek", 0)?;
    syscall(libc::SYS_fchmod, [number(&file), MODE, 0, 0, 0, 0])?;
    for offset in [0u64, 77, 1 << 35] {
        tally.call(offset + MODE);
        syscall(libc::SYS_lseek, [number(&file), offset, libc::SEEK_SET as u64, 0, 0, 0])?;
    }
    Ok(())
}

fn dupsnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("dup", 0)?;
    for _ in 0..3 {
        tally.call(number(&file));
        owned(syscall(libc::SYS_dup, [number(&file), 0, 0, 0, 0, 0])?);
    }
    Ok(())
}

fn locksnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("lock", 0)?;
    for (kind, start) in [(libc::F_WRLCK, 100), (libc::F_RDLCK, 300), (libc::F_UNLCK, 300)] {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: 10,
            l_pid: 0,
        };
        tally.call(kind as u64 + start as u64);
        syscall(libc::SYS_fcntl, [number(&file), libc::F_SETLK as u64, (&raw const lock) as u64, 0, 0, 0])?;
    }
    // The file is closed with a lock on it: all of it is unlocked, from 0.
    tally.call(libc::F_UNLCK as u64);
    drop(file);
    Ok(())
}

fn eventfdsnoop(tally: &mut Tally) -> io::Result<()> {
    let event = owned(syscall(libc::SYS_eventfd2, [5, 0, 0, 0, 0, 0])?);
    let mut value = [0u64; 1];
    let at = value.as_mut_ptr() as u64;
    tally.call(5);
    syscall(libc::SYS_read, [number(&event), at, 8, 0, 0, 0])?;
    for count in [7u64, 1000] {
        value[0] = count;
        syscall(libc::SYS_write, [number(&event), at, 8, 0, 0, 0])?;
        tally.call(count);
        syscall(libc::SYS_read, [number(&event), at, 8, 0, 0, 0])?;
    }
    Ok(())
}

fn pollcount(tally: &mut Tally) -> io::Result<()> {
    let now = [0u64; 2];
    for _ in 0..2 {
        tally.call(0);
        syscall(libc::SYS_ppoll, [0, 0, now.as_ptr() as u64, 0, 8, 0])?;
        tally.call(0);
        syscall(libc::SYS_pselect6, [0, 0, 0, 0, now.as_ptr() as u64, 0])?;
    }
    Ok(())
}

/// A file system of its own while `with` runs.
fn on_ramfs(place: &str, with: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    fs::create_dir_all(place)?;
    let (kind, place) = (path("ramfs")?, path(place)?);
    syscall(libc::SYS_mount, [kind.as_ptr() as u64, place.as_ptr() as u64, kind.as_ptr() as u64, 0, 0, 0])?;
    let result = with();
    syscall(libc::SYS_umount2, [place.as_ptr() as u64, 0, 0, 0, 0, 0])?;
    result
}

fn filelife(tally: &mut Tally) -> io::Result<()> {
    on_ramfs("/tmp/tools-ramfs", || {
        let at = |name: &str| format!("/tmp/tools-ramfs/{name}");
        for name in ["one", "three", "seven77", "nine"] {
            File::create(at(name))?;
        }
        // The parent is the file system's root: its name is "/".
        for name in ["one", "three"] {
            tally.call(name.len() as u64 + 1);
            let name = path(&at(name))?;
            syscall(libc::SYS_unlinkat, [libc::AT_FDCWD as u64, name.as_ptr() as u64, 0, 0, 0, 0])?;
        }
        // What a rename replaces is removed.
        tally.call("seven77".len() as u64 + 1);
        let (from, to) = (path(&at("nine"))?, path(&at("seven77"))?);
        let here = libc::AT_FDCWD as u64;
        syscall(libc::SYS_renameat2, [here, from.as_ptr() as u64, here, to.as_ptr() as u64, 0, 0]).map(drop)
    })
}

fn dirsnoop(tally: &mut Tally) -> io::Result<()> {
    let here = libc::AT_FDCWD as u64;
    let (folder, file, link) = (path("/tmp/tools-folder")?, path("/tmp/tools-node")?, path("/tmp/tools-symlink")?);
    let len = |name: &str| name.len() as u64;
    for _ in 0..2 {
        tally.call(len("tools-folder"));
        syscall(libc::SYS_mkdirat, [here, folder.as_ptr() as u64, 0o700, 0, 0, 0])?;
        tally.call(len("tools-node"));
        syscall(libc::SYS_mknodat, [here, file.as_ptr() as u64, u64::from(libc::S_IFREG | 0o600), 0, 0, 0])?;
        tally.call(len("tools-symlink"));
        syscall(libc::SYS_symlinkat, [file.as_ptr() as u64, here, link.as_ptr() as u64, 0, 0, 0])?;
        tally.call(len("tools-folder"));
        syscall(libc::SYS_unlinkat, [here, folder.as_ptr() as u64, libc::AT_REMOVEDIR as u64, 0, 0, 0])?;
        for (path, name) in [(&file, "tools-node"), (&link, "tools-symlink")] {
            tally.call(len(name));
            syscall(libc::SYS_unlinkat, [here, path.as_ptr() as u64, 0, 0, 0, 0])?;
        }
    }
    Ok(())
}

fn createsnoop(tally: &mut Tally) -> io::Result<()> {
    let here = libc::AT_FDCWD as u64;
    let names = ["create-folder", "create-node", "create-symlink", "create-link"];
    let paths = names.map(|name| path(&format!("/tmp/{name}")));
    let [folder, file, symlink, link] = paths;
    let (folder, file, symlink, link) = (folder?, file?, symlink?, link?);
    for name in names {
        tally.call(name.len() as u64);
    }
    syscall(libc::SYS_mkdirat, [here, folder.as_ptr() as u64, 0o700, 0, 0, 0])?;
    syscall(libc::SYS_mknodat, [here, file.as_ptr() as u64, u64::from(libc::S_IFREG | 0o600), 0, 0, 0])?;
    syscall(libc::SYS_symlinkat, [file.as_ptr() as u64, here, symlink.as_ptr() as u64, 0, 0, 0])?;
    syscall(libc::SYS_linkat, [here, file.as_ptr() as u64, here, link.as_ptr() as u64, 0, 0])?;
    for path in [&file, &symlink, &link] {
        syscall(libc::SYS_unlinkat, [here, path.as_ptr() as u64, 0, 0, 0, 0])?;
    }
    syscall(libc::SYS_unlinkat, [here, folder.as_ptr() as u64, libc::AT_REMOVEDIR as u64, 0, 0, 0]).map(drop)
}

fn mountsnoop(tally: &mut Tally) -> io::Result<()> {
    fs::create_dir_all("/tmp/tools-mount")?;
    let (kind, place) = (path("ramfs")?, path("/tmp/tools-mount")?);
    for flags in [libc::MS_NOSUID, libc::MS_NODEV | libc::MS_NOEXEC] {
        // The second letter of the folder, and the first of the type.
        tally.call(flags + (u64::from(b't') << 32) + (u64::from(b'r') << 40));
        let texts = (kind.as_ptr() as u64, place.as_ptr() as u64);
        syscall(libc::SYS_mount, [texts.0, texts.1, texts.0, flags, 0, 0])?;
        syscall(libc::SYS_umount2, [texts.1, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn procsnoop(tally: &mut Tally) -> io::Result<()> {
    // seq_open() itself, by single_open(), and by __seq_open_private().
    for (folder, name) in [("/proc", "cpuinfo"), ("/proc", "version"), ("/proc", "uptime"), ("/proc/self", "maps")] {
        for _ in 0..2 {
            tally.call(name.len() as u64);
            drop(File::open(format!("{folder}/{name}"))?);
        }
    }
    Ok(())
}

fn xattrsnoop(tally: &mut Tally) -> io::Result<()> {
    let file = memfd("xattr", 0)?;
    for name in ["trusted.one", "trusted.two"] {
        tally.call("memfd:xattr".len() as u64);
        let name = path(name)?;
        fails(syscall(libc::SYS_fgetxattr, [number(&file), name.as_ptr() as u64, 0, 0, 0, 0]), libc::ENODATA)?;
    }
    Ok(())
}

/// A file of tmpfs with so many bytes.
fn filled(name: &str, bytes: u64) -> io::Result<std::os::fd::OwnedFd> {
    let file = memfd(name, 0)?;
    let data = vec![7u8; bytes as usize];
    syscall(libc::SYS_pwrite64, [number(&file), data.as_ptr() as u64, bytes, 0, 0, 0])?;
    Ok(file)
}

fn truncsnoop(tally: &mut Tally) -> io::Result<()> {
    let page = page_size();
    let file = filled("truncate", 4 * page)?;
    for size in [3 * page + 5, 2 * page] {
        tally.call(size);
        syscall(libc::SYS_ftruncate, [number(&file), size, 0, 0, 0, 0])?;
    }
    let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u64;
    tally.call(page);
    syscall(libc::SYS_fallocate, [number(&file), punch, page, page, 0, 0])?;
    // When the last descriptor goes the file goes, from 0.
    tally.call(0);
    drop(file);
    Ok(())
}

fn fadvise(tally: &mut Tally) -> io::Result<()> {
    let file = filled("fadvise", 2 * page_size())?;
    for (offset, len, advice) in [(0u64, 100u64, libc::POSIX_FADV_RANDOM), (50, 5000, libc::POSIX_FADV_NORMAL)] {
        tally.call(offset + len + advice as u64);
        syscall(libc::SYS_fadvise64, [number(&file), offset, len, advice as u64, 0, 0])?;
    }
    // readahead() is vfs_fadvise() with POSIX_FADV_WILLNEED, in another source file: the symbol.
    for (offset, len) in [(0u64, 4096u64), (4096, 77)] {
        tally.call(offset + len + libc::POSIX_FADV_WILLNEED as u64);
        syscall(libc::SYS_readahead, [number(&file), offset, len, 0, 0, 0])?;
    }
    Ok(())
}

fn filetop(tally: &mut Tally) -> io::Result<()> {
    let file = filled("top", 2 * page_size())?;
    let mut data = vec![0u8; 1000];
    for (bytes, at) in [(1000u64, 0u64), (500, 4096), (1, 8000)] {
        tally.call(bytes + at);
        syscall(libc::SYS_pread64, [number(&file), data.as_mut_ptr() as u64, bytes, at, 0, 0])?;
    }
    Ok(())
}
