// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Boots a kernel in QEMU, runs one static program inside, and brings back what it said.
//!
//! Kernel code can only be tested on a kernel, and on more than the one that happens to run. This crate starts a
//! given kernel image in a virtual machine with an initramfs that holds a static program and the files it needs,
//! runs the program as root, streams the console, and returns the program's results and exit status. It knows
//! nothing of what is tested.
//!
//! # The two halves
//!
//! The *host* half ([`Vm`], feature `host`) writes the initramfs, starts QEMU, watches it, and kills it when its time
//! is up. The *guest* half ([`guest`], feature `guest`) is process 1 inside: it mounts what a kernel test wants
//! (`/proc`, `/sys`, tracefs, debugfs, bpffs, ...), runs the program as its child, reports how it ended and powers
//! off. A test program calls [`guest::main`] first and is then its own init, so that one static file is enough; the
//! binary `vmtest-init` is the same init for programs that know nothing of it.
//!
//! # Why an initramfs
//!
//! Distribution kernels have nearly everything as modules: 9p, virtio disks, file systems. What they all can do
//! without a module is unpack an archive into their root file system and talk to a serial port. So nothing else is
//! asked of a kernel, and a stock one boots to the test in seconds.
//!
//! # The results channel
//!
//! Results must not be mixed up with the console, where the kernel writes whenever it likes, in the middle of
//! anyone's line. So they have a port of their own: a second 16550 UART, on the ISA bus on x86-64 (`ttyS1`) and on PCI
//! on arm64 (the `virt` board has a single PL011). Its driver is built in wherever the serial console is;
//! virtio-serial, the obvious other choice, is a module in many kernels. What travels there is [`frame`]s: lines with a
//! marker that is random per run, a sequence number, a length and a checksum.
//!
//! A kernel without a driver for that port still gets its results out: init then writes the same frames, each twice,
//! to `/dev/kmsg`. A kernel message is printed whole, so other messages cannot cut it in two; output of programs
//! can, which the checksum sees and the second copy mends. It is the slower way, and fills the log, and hence not the
//! first choice. [`Outcome::carrier`] says which was used. A frame that did arrive on neither is an error, never a
//! shorter result.
//!
//! # What counts as failure
//!
//! A kernel that complains has failed, whatever the program says: the console is searched for [`splat`]s, and the
//! taint flags that init reads at the end catch one whose text was lost.

pub mod frame;
mod handover;

#[cfg(feature = "host")]
mod accel;
#[cfg(feature = "host")]
mod console;
#[cfg(feature = "host")]
mod error;
#[cfg(feature = "host")]
mod go_build;
#[cfg(feature = "guest")]
pub mod guest;
#[cfg(feature = "host")]
mod guest_build;
#[cfg(feature = "host")]
pub mod initramfs;
#[cfg(feature = "host")]
mod machine;
#[cfg(feature = "host")]
mod outcome;
#[cfg(feature = "host")]
mod qemu;
#[cfg(feature = "host")]
pub mod splat;
#[cfg(feature = "host")]
mod turn;
#[cfg(feature = "host")]
mod vm;

#[cfg(feature = "host")]
pub use self::{
    accel::{Accel, Accelerator},
    error::VmError,
    go_build::build_go,
    guest_build::{BuildError, build_guest, build_guest_for, build_release},
    outcome::{Carrier, ExitStatus, Outcome},
    vm::Vm,
};
#[cfg(feature = "host")]
pub use siteseer_kernels::{Arch, UnknownArch, with_causes};
