// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Files and folders of this user stand for those of root: the walk is the same for any owner.

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

fn me() -> u32 {
    // SAFETY: plain call.
    unsafe { libc::geteuid() }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn open(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = open_owned(path, me());
    file.and_then(|mut file| file.read_to_end(&mut bytes)).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// A folder with a folder with a file.
fn tree() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("cache");
    fs::create_dir(&folder).unwrap();
    chmod(&folder, 0o755);
    let file = folder.join("a.sites");
    fs::write(&file, "sites").unwrap();
    chmod(&file, 0o644);
    (top, folder, file)
}

#[test]
fn nobody_else_may_write_to_the_file_or_its_folders() {
    let (top, folder, file) = tree();
    assert_eq!(open(&file).unwrap(), b"sites");
    for (path, wrong, right) in [(&file, 0o664, 0o644), (&file, 0o646, 0o644), (&folder, 0o775, 0o755)] {
        chmod(path, wrong);
        let error = open(&file).unwrap_err();
        assert!(error.contains(&format!("{} has owner {}, mode {wrong:o}", path.display(), me())), "{error}");
        chmod(path, right);
    }
    chmod(top.path(), 0o777);
    assert!(open(&file).unwrap_err().contains("mode 777"));
    chmod(top.path(), 0o700);
    assert_eq!(open(&file).unwrap(), b"sites");
    assert_eq!(open(&folder.join("../cache/./a.sites")).unwrap(), b"sites");
    assert!(open(&folder.join("none")).unwrap_err().contains("No such file"));
    assert!(open(&folder).unwrap_err().contains("not a regular file"));
}

#[test]
fn others_files_are_not_roots() {
    let (_top, _, file) = tree();
    let error = open_owned(&file, me() + 1);
    // Root's own files are everybody's.
    assert_eq!(error.is_err(), me() != 0, "{error:?}");
    if me() == 0 {
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        assert!(open_roots(&file).unwrap_err().to_string().contains("has owner 65534"));
        std::os::unix::fs::lchown(&file, Some(0), None).unwrap();
        assert!(open_roots(&file).is_ok());
    } else {
        assert!(open_roots(&file).is_err());
    }
}

#[test]
fn links_lead_where_all_is_checked() {
    let (_top, folder, file) = tree();
    let link = folder.join("link");
    symlink(&file, &link).unwrap();
    assert_eq!(open(&link).unwrap(), b"sites");
    let away = folder.join("away");
    symlink("../cache", &away).unwrap();
    assert_eq!(open(&away.join("a.sites")).unwrap(), b"sites");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("b"), "others").unwrap();
    let out = folder.join("out");
    symlink(elsewhere.path().join("b"), &out).unwrap();
    assert_eq!(open(&out).unwrap(), b"others");
    chmod(elsewhere.path(), 0o777);
    assert!(open(&out).unwrap_err().contains("mode 777"), "where a link leads counts");
    symlink("loop", folder.join("loop")).unwrap();
    assert!(open(&folder.join("loop")).unwrap_err().contains("Too many levels"));
}

#[test]
fn a_folder_for_everybody_is_passed_through_but_nothing_is_read_in_it() {
    let top = tempfile::tempdir().unwrap();
    chmod(top.path(), 0o1777);
    let shared_is_roots = me() == 0;
    let file = top.path().join("a.sites");
    fs::write(&file, "sites").unwrap();
    assert!(open(&file).is_err(), "somebody may have linked it there");
    let own = top.path().join("own");
    fs::create_dir(&own).unwrap();
    chmod(&own, 0o700);
    fs::write(own.join("a.sites"), "sites").unwrap();
    assert_eq!(open(&own.join("a.sites")).is_ok(), shared_is_roots);
}

#[test]
fn what_is_no_regular_file_is_not_opened() {
    let (_top, folder, _) = tree();
    let fifo = folder.join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for chosen in [Chosen::ByCaller, Chosen::BySearch] {
        let error = read_as(&fifo, chosen, false).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
    assert!(read_as("/dev/zero".as_ref(), Chosen::ByCaller, true).is_err());
}

/// What others can change is read as it was when it was opened: a mapped file that is truncated ends the process.
#[test]
fn files_that_others_can_change_are_copied() {
    let top = tempfile::tempdir().unwrap();
    chmod(top.path(), 0o777);
    let file = top.path().join("a.sites");
    fs::write(&file, vec![7; 10_000]).unwrap();
    let contents = read_as(&file, Chosen::ByCaller, true).unwrap();
    fs::write(&file, "").unwrap();
    assert!(matches!(contents, Contents::Copied(_)));
    assert!(contents.len() == 10_000 && contents.iter().all(|&byte| byte == 7));
    assert!(read_as(&file, Chosen::BySearch, true).is_err(), "it is not looked at with privileges");
    assert!(read_as(&file, Chosen::BySearch, false).is_ok());
    assert!(matches!(
        read_as("/proc/self/exe".as_ref(), Chosen::ByCaller, false),
        Ok(Contents::Copied(_)) | Ok(Contents::Mapped(_))
    ));
    let own = std::env::current_exe().unwrap();
    let roots = open_roots(&own).is_ok();
    assert_eq!(matches!(read_as(&own, Chosen::ByCaller, false).unwrap(), Contents::Mapped(_)), roots);
}

#[test]
fn root_is_privileged() {
    // SAFETY: plain call.
    assert!(me() != 0 || is_privileged());
}
