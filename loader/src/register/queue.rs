// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One descriptor that stands for many: files that lie in the queue of a socket (`SCM_RIGHTS`, unix(7)) live as long as
//! the socket, and are closed by the kernel when its last descriptor is (`unix_release_sock()` in net/unix/af_unix.c),
//! before that `close()` returns to user space.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The most that go in one message (`SCM_MAX_FD`, include/net/scm.h).
const EACH: usize = 253;

/// A socket with files in it.
#[derive(Debug)]
pub(super) struct Queue {
    /// Closing it closes them.
    pub(super) holder: OwnedFd,
    /// The other end: it hangs up when they are closed.
    pub(super) peer: OwnedFd,
}

impl Queue {
    /// Makes one descriptor hold files. It then has the only reference to each.
    pub(super) fn of(files: Vec<OwnedFd>) -> io::Result<Queue> {
        let mut pair: [RawFd; 2] = [-1; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the array has room for both descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are new, and nobody else's.
        let [holder, peer] = pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        for some in files.chunks(EACH) {
            send(peer.as_fd(), some)?;
        }
        Ok(Queue { holder, peer })
    }
}

/// Sends files, no more than [`EACH`].
fn send(to: BorrowedFd<'_>, files: &[OwnedFd]) -> io::Result<()> {
    let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let len = size_of_val(numbers.as_slice());
    // SAFETY: arithmetic.
    let (space, cmsg_len) = unsafe { (libc::CMSG_SPACE(len as u32) as usize, libc::CMSG_LEN(len as u32) as usize) };
    // Of words, so that it is aligned as its header must be.
    let mut control = vec![0u64; space.div_ceil(size_of::<u64>())];
    let mut byte = 0u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the message's buffers live through the call. The first header lies at the start of the control buffer,
    // which has room for it and for the numbers.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = space as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = cmsg_len as _;
        std::ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), len);
        if libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether the other end of a peer is closed.
pub(super) fn is_closed(peer: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: peer.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one structure, which lives through the call, which does not wait.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & libc::POLLHUP != 0
}

/// What tells an open file from others: where its inode is, and which it is. `None` if the descriptor is not open.
pub(super) fn identity(file: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the structure is plain bytes, lives through the call, and is filled where that says so.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &raw mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Pipes whose writing ends are in the queue: the reading ends tell when they are closed.
    fn pipes(count: usize) -> (Vec<io::PipeReader>, Vec<OwnedFd>) {
        let made = (0..count).map(|_| io::pipe().unwrap()).map(|(read, write)| (read, OwnedFd::from(write)));
        made.unzip()
    }

    fn is_open(reader: &io::PipeReader) -> bool {
        !is_closed(reader.as_fd())
    }

    // Proves S23.3.
    #[test]
    fn files_live_as_long_as_their_socket() {
        for count in [0, 1, EACH, EACH + 1] {
            let (mut readers, files) = pipes(count);
            let Queue { holder, peer } = Queue::of(files).unwrap();
            assert!(readers.iter().all(is_open), "{count}");
            let copy = holder.try_clone().unwrap();
            drop(holder);
            assert!(!is_closed(peer.as_fd()) && readers.iter().all(is_open), "{count}");
            drop(copy);
            // Without waiting: it is done when close() returns.
            assert!(is_closed(peer.as_fd()) && !readers.iter().any(is_open), "{count}");
            for reader in &mut readers {
                assert_eq!(reader.read(&mut [0]).unwrap(), 0);
            }
        }
    }

    #[test]
    fn open_files_are_told_apart() {
        let a = Queue::of(Vec::new()).unwrap();
        let b = Queue::of(Vec::new()).unwrap();
        let of = |fd: &OwnedFd| identity(fd.as_raw_fd());
        assert_eq!(of(&a.holder), of(&a.holder.try_clone().unwrap()));
        assert_ne!(of(&a.holder), of(&b.holder));
        assert_ne!(of(&a.holder), of(&a.peer));
        assert_eq!(identity(-1), None);
    }
}
