// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The distribution's archive, by a stand-in for apt.

use super::*;

/// The debug package that Ubuntu has, by an apt that has no other.
#[test]
fn the_archive_has_packages_of_other_names() {
    if !["/usr/bin/apt-get", "/usr/bin/dpkg-deb"].iter().all(|path| Path::new(path).exists()) {
        eprintln!("this is not a system with apt: not tested");
        return;
    }
    let folder = folder("fetch-archive");
    let release = "6.8.0-40-made";
    for name in [format!("linux-image-unsigned-{release}-dbgsym"), "linux-image-6.9-made-dbg".to_owned()] {
        let root = folder.join("package");
        let _ = fs::remove_dir_all(&root);
        let of = name.trim_start_matches("linux-image-").trim_start_matches("unsigned-");
        let of = of.rsplit_once('-').unwrap().0;
        let debug = root.join("usr/lib/debug");
        for (path, data) in [
            (
                root.join("DEBIAN/control"),
                format!("Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: made\n")
                    .into_bytes(),
            ),
            (debug.join(format!("boot/vmlinux-{of}")), site_file(1, 30)),
            (debug.join(format!("lib/modules/{of}/kernel/toy.ko")), module_file(1, 0xa)),
        ] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
        }
        let file = if name.ends_with("dbgsym") { format!("{name}.ddeb") } else { format!("{name}.deb") };
        let mut dpkg = std::process::Command::new("dpkg-deb");
        let output = dpkg
            .args(["--root-owner-group", "-Zgzip", "--build", "package", &file])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    fs::create_dir_all(folder.join("bin")).unwrap();
    for (program, text) in [
        (
            "apt-cache",
            "case \"$1\" in show) ls \"$PACKAGES/$2\".*deb >/dev/null 2>&1 && echo \"Package: $2\" || exit 100;; esac",
        ),
        ("apt-get", "case \"$1 $2\" in '--quiet download') cp \"$PACKAGES/$3\".*deb .;; *) exit 100;; esac"),
    ] {
        let path = folder.join("bin").join(program);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let fetch = |release: &str| {
        let mut command = siteseer(&folder);
        let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
        command.args(["fetch", "--release", release, "--output", "out", "--modules", "--force"]);
        command.env("PATH", path).env("PACKAGES", &folder).output().unwrap()
    };
    let files = [format!("{}.sites", build_id(1)), format!("{}.sites", build_id(0xa))];
    for release in [release, "6.9-made"] {
        let _ = fs::remove_dir_all(folder.join("out"));
        let output = fetch(release);
        assert!(output.status.success() && said(&output).contains("those of 1 module"), "{}", said(&output));
        assert_eq!(left(&folder), files);
        assert_eq!(fs::read(folder.join("out").join(&files[0])).unwrap(), site_file(1, 30));
    }
    // No such package, a package of another release, and one that is cut: what was there stays.
    fs::copy(folder.join("linux-image-6.9-made-dbg.deb"), folder.join("linux-image-6.10-made-dbg.deb")).unwrap();
    let whole = fs::read(folder.join("linux-image-6.9-made-dbg.deb")).unwrap();
    fs::write(folder.join("linux-image-6.11-made-dbg.deb"), &whole[..whole.len() - whole.len() / 3]).unwrap();
    for (release, words) in [
        ("6.7-made", "it does not know the package"),
        ("6.10-made", "there is no vmlinux of 6.10-made in the package"),
        ("6.11-made", "dpkg-deb"),
    ] {
        let output = fetch(release);
        let text = said(&output);
        assert!(!output.status.success() && text.contains(words) && text.contains(release), "{words:?}: {text}");
        assert_eq!(left(&folder), files, "{text}");
        assert_eq!(fs::read(folder.join("out").join(&files[0])).unwrap(), site_file(1, 30));
    }
}
