// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Servers of debuginfod: debug images, and sections of them.

use super::*;

#[test]
fn what_debuginfod_has() {
    let folder = folder("fetch-debuginfod");
    // An image with sites in it needs no encoding.
    let server = liar(|path, _, stream| match path.strip_suffix("/debuginfo") {
        Some(path) if path.ends_with(&build_id(1)) => send(stream, "200 OK", "", &site_file(1, 3)),
        _ => send(stream, "404 Not Found", "", b""),
    });
    let fetch = |id: u8, more: &[&str]| {
        let mut command = siteseer(&folder);
        command.args(["fetch", "--output", "out", "--no-archive", "--build-id", &build_id(id)]).args(more);
        command.env("DEBUGINFOD_URLS", &server).output().unwrap()
    };
    let refused = said(&fetch(1, &[]));
    assert!(refused.contains("debuginfod does not sign") && refused.contains("--allow-unsigned"), "{refused}");
    assert!(said(&fetch(2, &["--allow-unsigned"])).contains("not there"));
    assert!(fetch(1, &["--allow-unsigned"]).status.success());
    assert_eq!(fs::read(folder.join("out").join(format!("{}.sites", build_id(1)))).unwrap(), site_file(1, 3));
    assert_eq!(left(&folder).len(), 1);
}

/// A debuginfod server with sections, and no debug image. What is asked for is noted.
fn sections(
    image: Vec<u8>,
    of: u8,
    altered: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
) -> (String, Asked) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let url = liar(move |path, _, stream| {
        noted.lock().unwrap().push(path.rsplit('/').next().unwrap().to_owned());
        match path.strip_prefix(&format!("/buildid/{}/section/", build_id(of))) {
            Some(name) => send(stream, "200 OK", "", &altered(name, section(&image, name))),
            None => send(stream, "404 Not Found", "", b""),
        }
    });
    (url, asked)
}

type Asked = Arc<Mutex<Vec<String>>>;

#[test]
fn debuginfod_sends_sections() {
    let folder = folder("fetch-sections");
    let fetch = |server: &str, more: &[&str]| {
        let mut command = siteseer(&folder);
        command
            .args(["fetch", "--output", "out", "--no-archive", "--timeout", "2", "--build-id", &build_id(1)])
            .args(more);
        command.env("DEBUGINFOD_URLS", server).output().unwrap()
    };
    let name = format!("{}.sites", build_id(1));
    let (server, asked) = sections(site_file(1, 300), 1, |_, data| data);
    let refused = said(&fetch(&server, &[]));
    assert!(refused.contains("debuginfod does not sign") && asked.lock().unwrap().is_empty(), "{refused}");
    let output = fetch(&server, &["--allow-unsigned"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(*asked.lock().unwrap(), [".BTF.inline.ext", ".BTF.inline", ".BTF"]);
    assert_eq!(fs::read(folder.join("out").join(&name)).unwrap(), site_file(1, 300));
    assert_eq!(left(&folder), std::slice::from_ref(&name));
    // Sections that lie, are cut, or are none: the debug image is asked for, which is not there either. What was there
    // stays.
    fs::write(folder.join("out").join(&name), b"old data").unwrap();
    let other = |of: u8, part: &'static str| {
        let other = site_file(of, 300);
        sections(site_file(1, 300), 1, move |name, data| if name == part { section(&other, name) } else { data }).0
    };
    let cut = |part: &'static str| {
        sections(
            site_file(1, 300),
            1,
            move |name, data| if name == part { data[..data.len() / 2].to_vec() } else { data },
        )
        .0
    };
    let flipped = |part: &'static str| {
        let flip = move |name: &str, mut data: Vec<u8>| {
            let middle = data.len() / 2;
            data[middle] ^= if name == part { 1 } else { 0 };
            data
        };
        sections(site_file(1, 300), 1, flip).0
    };
    for (server, words) in [
        (sections(site_file(2, 300), 1, |_, data| data).0, "do not belong together"),
        (other(2, ".BTF.inline.ext"), "do not belong together"),
        (other(2, ".BTF"), ".BTF is damaged"),
        (cut(".BTF.inline"), "do not belong together"),
        (cut(".BTF.inline.ext"), "malformed"),
        (flipped(".BTF.inline"), ".BTF.inline is damaged"),
        (flipped(".BTF"), ".BTF is damaged"),
        (flipped(".BTF.inline.ext"), ".BTF.inline.ext is damaged"),
        (sections(site_file(1, 300), 1, |_, _| b"hello".to_vec()).0, "malformed header"),
        (sections(site_file(1, 300), 1, |_, _| Vec::new()).0, "it is truncated"),
    ] {
        let output = fetch(&server, &["--allow-unsigned"]);
        let text = said(&output);
        assert!(!output.status.success() && text.contains(words) && text.contains("not there"), "{words:?}: {text}");
        assert!(text.contains("/section: ") && text.contains("the debug image is fetched in its place"), "{text}");
        assert_eq!(
            (left(&folder), fs::read(folder.join("out").join(&name)).unwrap()),
            (vec![name.clone()], b"old data".to_vec())
        );
    }
    // A section that is as large as it likes, and one that never comes: no image is asked for then.
    let huge = liar(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    });
    let text = said(&fetch(&huge, &["--allow-unsigned"]));
    assert!(text.contains("is larger than"), "{text}");
    let hangs = liar(|_, _, _| thread::sleep(Duration::from_secs(60)));
    let text = said(&fetch(&hangs, &["--allow-unsigned"]));
    assert!(text.contains(".BTF.inline.ext: the server sent nothing for 2 s"), "{text}");
    assert_eq!((left(&folder), fs::read(folder.join("out").join(&name)).unwrap()), (vec![name], b"old data".to_vec()));
}

/// Servers that have no sections, or do not know what they are, are asked for the debug image.
#[test]
fn debuginfod_without_sections() {
    let folder = folder("fetch-sectionless");
    for status in ["404 Not Found", "400 Bad Request", "406 Not Acceptable", "501 Not Implemented"] {
        for lacks in [".BTF.inline.ext", ".BTF.inline", ".BTF"] {
            let server = liar(move |path, _, stream| match path.rsplit('/').next() {
                Some("debuginfo") => send(stream, "200 OK", "", &site_file(1, 3)),
                Some(name) if name != lacks => send(stream, "200 OK", "", &section(&site_file(1, 3), name)),
                _ => send(stream, status, "", b""),
            });
            let mut command = siteseer(&folder);
            command.args(["fetch", "--output", "out", "--force", "--no-archive", "--allow-unsigned", "--modules"]);
            let output = command.args(["--build-id", &build_id(1)]).env("DEBUGINFOD_URLS", &server).output().unwrap();
            assert!(output.status.success(), "{status}, {lacks}: {}", said(&output));
            assert!(said(&output).contains("is not asked for modules"), "{}", said(&output));
            assert_eq!(left(&folder), [format!("{}.sites", build_id(1))]);
        }
    }
}
