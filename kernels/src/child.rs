// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Child processes that do not outlive the thread that started them, even if that is killed.

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::{
    sys::{prctl::set_pdeathsig, signal::Signal},
    unistd::{getpid, getppid},
};

/// Has the process that `command` starts killed when the starting thread ends.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = getpid();
    // SAFETY: between fork and exec only prctl(2) and getppid(2) are called, which are async-signal-safe, and nothing
    // is allocated.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the request took effect.
            if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        })
    }
}
