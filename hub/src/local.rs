// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Images and modules that are at hand: what they are, and encoding them.

use crate::error::{Cause, HubError, io};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use siteseer::internals::kernel::BuildId;
use siteseer::internals::source::{Chosen, Contents, read};
use siteseer_encoder::{BaseKernel, Options};
use siteseer_sites::file::{self, SiteFile};
use std::path::Path;

/// A file with site data, or with the DWARF to make site data of.
pub(crate) struct Local {
    bytes: Contents,
    what: String,
    pub(crate) build_id: BuildId,
    has_sites: bool,
}

impl Local {
    pub(crate) fn open(path: &Path) -> Result<Local, HubError> {
        let bad = |why: Cause| HubError::Malformed { what: path.display().to_string(), why };
        let bytes = read(path, Chosen::ByCaller).map_err(io(path))?;
        let elf = ElfFile64::<LittleEndian>::parse(&*bytes)
            .map_err(|error| bad(format!("not an ELF file: {error}").into()))?;
        let build_id = BuildId(elf.build_id().ok().flatten().unwrap_or_default().to_vec());
        if build_id.0.is_empty() {
            return Err(bad("it has no build id".into()));
        }
        let has = |name: &str| elf.section_by_name(name).is_some();
        let has_sites = has(".BTF.inline.ext");
        if !has_sites && !has(".debug_info") {
            return Err(bad("it has neither sites nor debug information".into()));
        }
        Ok(Local { bytes, what: path.display().to_string(), build_id, has_sites })
    }

    /// The release that an image says it is: `Linux version RELEASE `.
    pub(crate) fn release(&self) -> Option<String> {
        const BANNER: &[u8] = b"Linux version ";
        let elf = ElfFile64::<LittleEndian>::parse(&*self.bytes).ok()?;
        let data = elf.section_by_name(".rodata")?.data().ok()?;
        let at = memchr::memmem::find(data, BANNER)? + BANNER.len();
        let release = data.get(at..)?.split(|byte| *byte == b' ').next()?;
        let text = std::str::from_utf8(release).ok()?;
        (text.len() < 65 && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
    }

    /// The site file; `kernel` is what a module is for.
    pub(crate) fn sites(&self, kernel: Option<BaseKernel<'_>>) -> Result<Vec<u8>, HubError> {
        if self.has_sites {
            return Ok(self.bytes.to_vec());
        }
        let bad = |why: Cause| HubError::Malformed { what: self.what.clone(), why };
        let options = Options { kernel, ..Options::default() };
        let encoded = siteseer_encoder::encode(&self.bytes, &options).map_err(|error| bad(error.into()))?;
        file::write(&encoded.0).map_err(|error| bad(error.into()))
    }

    /// Whether it is a module: an ELF file that is not linked yet.
    pub(crate) fn is_module(&self) -> bool {
        match self.has_sites {
            true => file::module_kernel(&self.bytes).is_ok_and(|kernel| kernel.is_some()),
            false => siteseer_encoder::is_module(&self.bytes),
        }
    }
}

/// The machine of a site file, and what is in it.
pub(crate) fn look<R>(what: &str, data: &[u8], with: impl FnOnce(&SiteFile<'_>) -> R) -> Result<R, HubError> {
    let bad = |error: file::FileError| HubError::Malformed { what: what.to_owned(), why: error.into() };
    let file = SiteFile::parse(data).map_err(bad)?;
    let found = with(&file);
    file.whole().map_err(bad)?;
    Ok(found)
}

/// The build id of an ELF file.
pub(crate) fn build_id(data: &[u8]) -> Option<BuildId> {
    let elf = ElfFile64::<LittleEndian>::parse(data).ok()?;
    Some(BuildId(elf.build_id().ok().flatten()?.to_vec()))
}
