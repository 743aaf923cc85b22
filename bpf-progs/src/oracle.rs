// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `oracle.bpf.c` knows: `oracle.h` in Rust.

/// An index into the map `seen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Oracle {
    /// `do_fcntl()`'s `filp`.
    FcntlFile = 0,
    /// The pipe of `pipe_fcntl()`'s file.
    Pipe = 1,
    /// The seq_file that is read.
    SeqFile = 2,
    /// The address of its index.
    SeqIndex = 3,
    /// `do_sys_poll()`'s `end_time`.
    PollEndTime = 4,
}
