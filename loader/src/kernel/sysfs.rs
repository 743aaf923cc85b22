// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What sysfs tells about a loaded module.

use crate::kernel::{BuildId, build_id};
use procfs::ProcError;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where the kernel tells about its modules.
pub const SYSFS: &str = "/sys/module";

/// A loaded module, as its folder in sysfs has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Name.
    pub name: String,
    /// Which loading of it this is: the folder's inode number, which sysfs gives to no other folder before it has gone
    /// through all others (`idr_alloc_cyclic()` in fs/kernfs/dir.c).
    pub instance: u64,
    /// The GNU build id of the file that it was loaded from; empty if that had none.
    pub build_id: BuildId,
    /// Where each of its sections is. What is freed once the module is initialised is among them.
    pub sections: BTreeMap<String, u64>,
}

impl Loaded {
    /// Reads `ROOT/NAME`, of the shape of [`SYSFS`]. `None` if no such module is loaded.
    ///
    /// # Errors
    /// If it is there and cannot be read, or addresses are hidden.
    pub fn read(root: &Path, name: &str) -> io::Result<Option<Loaded>> {
        let Some(instance) = instance(root, name)? else { return Ok(None) };
        let folder = root.join(name);
        let notes = match fs::read(folder.join("notes/.note.gnu.build-id")) {
            Ok(notes) => notes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut sections = BTreeMap::new();
        for entry in fs::read_dir(folder.join("sections"))? {
            let entry = entry?;
            let text = fs::read_to_string(entry.path())?;
            let address = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).map_err(io::Error::other)?;
            if let Ok(section) = entry.file_name().into_string() {
                sections.insert(section, address);
            }
        }
        if sections.values().all(|&address| address == 0) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "its addresses are hidden (CAP_SYSLOG is needed)",
            ));
        }
        // Unloaded, and perhaps loaded again, while it was read: then it is another's.
        if self::instance(root, name)? != Some(instance) {
            return Ok(None);
        }
        let build_id = build_id(&notes).unwrap_or_default();
        Ok(Some(Loaded { name: name.to_owned(), instance, build_id, sections }))
    }
}

/// Which loading of the module is there now. `None` if none is.
///
/// # Errors
/// If the folder cannot be looked at.
pub fn instance(root: &Path, name: &str) -> io::Result<Option<u64>> {
    let folder = root.join(name);
    // What is compiled into the image has a folder too if it has parameters, and no state. A module on its way out
    // still has both.
    match fs::read_to_string(folder.join("initstate")) {
        Ok(state) if state.trim() == "going" => return Ok(None),
        Ok(_) => {}
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    match fs::metadata(&folder) {
        Ok(metadata) => Ok(Some(metadata.ino())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The modules that are loaded now, and which loading of each it is, by name. A kernel without modules has none.
///
/// # Errors
/// If the kernel does not tell.
pub fn all() -> io::Result<BTreeMap<String, u64>> {
    let modules = match procfs::modules() {
        Ok(modules) => modules,
        Err(ProcError::NotFound(_)) => return Ok(BTreeMap::new()),
        Err(ProcError::Io(error, _)) => return Err(error),
        Err(error) => return Err(io::Error::other(error)),
    };
    let mut all = BTreeMap::new();
    for module in modules.into_values().filter(|module| module.state != "Unloading") {
        if let Some(instance) = instance(Path::new(SYSFS), &module.name)? {
            all.insert(module.name, instance);
        }
    }
    Ok(all)
}

/// Whether a file is not there, or goes away while it is read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_as_sysfs_has_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("loop");
        for path in ["sections", "notes"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        let write = |path: &str, text: &[u8]| fs::write(folder.join(path), text).unwrap();
        write("sections/.text", b"0xffffffffc0201000\n");
        write("sections/.init.text", b"0xffffffffc0300000\n");
        write("notes/.note.gnu.build-id", b"\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xab\xcd\xef\0");
        assert_eq!(Loaded::read(root.path(), "loop").unwrap(), None, "a folder without a state is the image's");
        write("initstate", b"live\n");
        let loaded = Loaded::read(root.path(), "loop").unwrap().unwrap();
        assert_eq!(loaded.build_id.to_string(), "abcdef");
        assert_eq!(loaded.sections.get(".text"), Some(&0xffff_ffff_c020_1000));
        assert_eq!(instance(root.path(), "loop").unwrap(), Some(loaded.instance));
        write("initstate", b"going\n");
        assert_eq!(instance(root.path(), "loop").unwrap(), None);
        assert_eq!(Loaded::read(root.path(), "none").unwrap(), None);
        write("initstate", b"live\n");
        write("sections/.text", b"0x0\n");
        write("sections/.init.text", b"0x0\n");
        assert_eq!(Loaded::read(root.path(), "loop").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
