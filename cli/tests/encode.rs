// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer encode`, on the image that SITESEER_TEST_VMLINUX names.

mod made;

use made::{folder, said, siteseer};
use std::fs::{self, File};

#[test]
fn standard_output_has_what_a_file_has() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to encode (ci/test sets it)");
        return;
    };
    let folder = folder("encode");
    let encode = || {
        let mut command = siteseer(&folder);
        command.arg("encode").arg(&vmlinux).arg("-o");
        command
    };
    let output = encode().arg("a.sites").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"a.sites\n");
    // A regular file that is appended to. The name in /dev is the machine's, and must not be replaced.
    fs::write(folder.join("b.sites"), "before").unwrap();
    let redirected = File::options().append(true).open(folder.join("b.sites")).unwrap();
    let status = encode().arg("/dev/stdout").stdout(redirected).status().unwrap();
    assert!(status.success());
    assert!(fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
    let after = [b"before", &*fs::read(folder.join("a.sites")).unwrap()].concat();
    assert!(fs::read(folder.join("b.sites")).unwrap() == after, "the same, after what was there");
}
