// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a command may still do after it has named its files: landlock(7).
//!
//! DWARF is a large format, and an image may come from anywhere. A mistake in what reads it should lead no further than
//! to wrong site data: other files are neither read nor written, no program is started, and nothing is sent. The kernel
//! holds the thread to that, and all threads that it starts. Nothing takes it back.

use crate::output::is_in_place;
use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The newest version of the kernel's interface that is used: Linux 6.12. An older kernel restricts what it knows.
const NEWEST: ABI = ABI::V6;

/// From now on, this thread and those that it starts may read these files and what is in these folders, and write these
/// files. One that is written as it is may be opened for that; any other is replaced, so its folder may be written to.
/// All else is denied. What is open stays open. Returns how much of that the kernel does: nothing before Linux 5.13, or
/// without Landlock.
///
/// Files that are not there are left out: whoever opens them finds that out.
///
/// # Errors
/// If the kernel has Landlock, and refuses.
pub(crate) fn enter(read: &[&Path], written: &[&Path]) -> Result<RulesetStatus, RulesetError> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    // A pipe has no path, and needs no rule.
    let in_place = written.iter().filter(|path| is_in_place(path)).filter_map(|path| fs::canonicalize(path).ok());
    let replaced = written.iter().filter(|path| !is_in_place(path)).map(|path| folder_of(path));
    let replace = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    let restricted = rules
        .add_rules(path_beneath_rules(read, AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(in_place, AccessFs::WriteFile | AccessFs::Truncate))?
        .add_rules(path_beneath_rules(replaced, replace))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::write_whole;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    #[test]
    fn only_what_was_named_can_be_read_and_written() {
        let folder = std::env::temp_dir().join(format!("siteseer-sandbox-{}", std::process::id()));
        let path = |name: &str| folder.join(name);
        fs::create_dir_all(path("out")).unwrap();
        for name in ["image", "secret", "out/sites"] {
            fs::write(path(name), name).unwrap();
        }
        // The threads of other tests stay as they are.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let restricted = std::thread::spawn({
            let folder = folder.clone();
            move || {
                let path = |name: &str| folder.join(name);
                let status = enter(&[&path("image"), &path("no such file")], &[&path("out/sites")]).unwrap();
                if status == RulesetStatus::NotEnforced {
                    return false;
                }
                let denied = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                assert_eq!(fs::read(path("image")).unwrap(), b"image");
                denied(fs::read(path("secret")).unwrap_err());
                denied(fs::read(path("out/sites")).unwrap_err());
                write_whole(&path("out/sites"), |out| Ok(out.write_all(b"new")?)).unwrap();
                assert!(write_whole(&path("sites"), |out| Ok(out.write_all(b"new")?)).is_err());
                denied(fs::write(path("image"), "").unwrap_err());
                denied(fs::remove_file(path("secret")).unwrap_err());
                denied(Command::new("true").status().unwrap_err());
                // An older kernel does not know of the network.
                if status == RulesetStatus::FullyEnforced {
                    denied(TcpStream::connect(address).unwrap_err());
                }
                true
            }
        });
        if restricted.join().unwrap() {
            assert_eq!(fs::read(path("out/sites")).unwrap(), b"new");
        } else {
            println!("not shown: this kernel has no Landlock");
        }
        assert_eq!(fs::read(path("image")).unwrap(), b"image");
        assert!(TcpStream::connect(address).is_ok(), "this thread is not restricted");
        fs::remove_dir_all(&folder).unwrap();
    }
}
