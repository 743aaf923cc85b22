// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The site data that a kernel of ours carries in its section `.BTF.inline` (`kernels/patches/btf-inline.patch`).
//!
//! Upstream's build has it made by pahole, of the objects. No pahole that was released can, so our encoder makes it of
//! the linked vmlinux. The data then moves what the linker places after it, and some locations are addresses: so
//! vmlinux is linked and its data made again, until the data is that of the very vmlinux that carries it.

use std::fs;

use super::Make;
use crate::{config::is_inline_option, error::GetError};

/// The file in the folder of objects that the patched kbuild links into vmlinux.
const FILE: &str = "vmlinux.inline";

/// How often vmlinux is linked. The second link has data of the right size, and the third the right data, unless the
/// addresses changed the size.
const MOST_LINKS: usize = 5;

/// Whether a configuration asks for the data.
pub(super) fn is_configured(config: &str) -> bool {
    config.lines().any(is_inline_option)
}

/// Makes vmlinux with its own data.
pub(super) fn put_in(make: &Make<'_>, say: &mut dyn FnMut(&str)) -> Result<(), GetError> {
    let path = make.output.join(FILE);
    let failed = |said: String| GetError::SiteData { name: make.row.name.clone(), said };
    let mut carried = Vec::new();
    for _ in 0..MOST_LINKS {
        make.run(&["vmlinux"])?;
        let vmlinux = make.output.join("vmlinux");
        let image = fs::read(&vmlinux).map_err(GetError::io(format!("cannot read {}", vmlinux.display())))?;
        let data = encoded(&image).map_err(failed)?;
        if data == carried {
            return Ok(());
        }
        say(&format!("{}: linking again with {} bytes of site data", make.row.name, data.len()));
        fs::write(&path, &data).map_err(GetError::io(format!("cannot write {}", path.display())))?;
        carried = data;
    }
    Err(failed(format!("vmlinux was linked {MOST_LINKS} times, and each time its site data was different")))
}

/// The sites of an image as split BTF over its own.
fn encoded(image: &[u8]) -> Result<Vec<u8>, String> {
    let words = |error: &dyn std::error::Error| siteseer_sites::with_causes(error);
    let (set, _) =
        siteseer_encoder::encode(image, &siteseer_encoder::Options::default()).map_err(|error| words(&error))?;
    siteseer_sites::file::write_raw(&set).map_err(|error| words(&error))
}
