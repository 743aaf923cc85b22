// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Links of libbpf-rs: from those that a skeleton's `attach()` gives to the attachments that they stand for, and from
//! ours to such.

use super::{Attached, RegisterError};
use crate::attach::link::Link;
use libbpf_rs::AsRawLibbpf;

impl Attached {
    /// The attachment that a link of libbpf-rs stands for; `None` if it is libbpf's own.
    pub fn of(link: &libbpf_rs::Link) -> Option<Attached> {
        // SAFETY: what is borrowed owns a live `struct bpf_link`.
        unsafe { Attached::from_raw(link.as_libbpf_object()) }
    }
}

impl Link {
    /// Makes it a link of libbpf-rs. Dropping that link detaches every site. [`Attached::of`] answers what this link
    /// could be asked.
    ///
    /// # Errors
    /// [`RegisterError::Link`](super::RegisterError::Link); then everything is detached.
    pub fn into_libbpf_rs(self) -> Result<libbpf_rs::Link, RegisterError> {
        let raw = self.into_libbpf()?;
        // SAFETY: it was made just now, and nobody else has it.
        Ok(unsafe { libbpf_rs::Link::from_ptr(raw) })
    }
}
