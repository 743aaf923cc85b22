// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ELF file of a kernel or a module, and what the kernel itself keeps in it.
//!
//! [`image`] has the sections, relocated where the file is a module; [`symbols`] is the symbol table as kallsyms has
//! it; [`tables`] are those by which the kernel patches its text at run time (jump labels, alternatives, static calls,
//! the blacklist of kprobes), and `changes` is all text that this may concern; `noreturn` names the functions that
//! never return.

pub(crate) mod changes;
pub mod image;
pub(crate) mod noreturn;
pub(crate) mod relocate;
pub mod symbols;
pub mod tables;
#[cfg(test)]
pub(crate) mod test_image;
