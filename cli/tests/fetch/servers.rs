// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Servers and indexes that lie, hang, or send something else.

use super::*;

#[test]
fn servers_that_lie() {
    let hub = Hub::new("fetch-lies");
    let folder = hub.folder.as_path();
    let key = ["--key", hub.key.as_str()];
    let unsigned = ["--allow-unsigned"];
    let (packed, signature) = (hub.file(1, "sites.zst"), hub.file(1, "sites.zst.minisig"));
    let (others, of_others) = (hub.file(2, "sites.zst"), hub.file(2, "sites.zst.minisig"));
    let serve = |data: &[u8], signature: Option<&[u8]>| {
        let (data, signature) = (data.to_vec(), signature.map(<[u8]>::to_vec));
        liar(move |path, _, stream| match (&signature, path.ends_with(".minisig")) {
            (Some(signature), true) => send(stream, "200 OK", "", signature),
            (None, true) => send(stream, "404 Not Found", "", b""),
            (_, false) => send(stream, "200 OK", "", &data),
        })
    };
    // Another build's data, with the right signature of it, and with none.
    refused(folder, &serve(&others, Some(&of_others)), &key, "its signature is that of another file");
    refused(folder, &serve(&others, Some(&signature)), &key, "is not right");
    refused(folder, &serve(&others, None), &unsigned, "of another build");
    // Data that is cut, altered, a bomb, or not site data.
    refused(folder, &serve(&packed[..packed.len() / 2], Some(&signature)), &key, "is not right");
    refused(folder, &serve(&packed[..packed.len() / 2], None), &unsigned, "cannot be decompressed");
    refused(folder, &serve(b"hello", None), &unsigned, "cannot be decompressed");
    let bomb = zstd::stream::encode_all(std::io::repeat(0).take(1 << 30), 1).unwrap();
    refused(folder, &serve(&bomb, None), &unsigned, "is larger than");
    refused(folder, &serve(&bomb, Some(&signature)), &key, "is not right");
    let program = zstd::stream::encode_all(&b"not site data"[..], 1).unwrap();
    refused(folder, &serve(&program, None), &unsigned, "not a readable ELF file");
}

#[test]
fn servers_that_do_something_else() {
    let folder = folder("fetch-bad");
    let unsigned = ["--allow-unsigned"];
    let page = liar(|_, _, stream| send(stream, "200 OK", "Content-Type: text/html; charset=utf-8\r\n", b"<html>"));
    refused(&folder, &page, &unsigned, "a page (text/html)");
    let to_file = liar(|_, _, stream| send(stream, "302 Found", "Location: file:///etc/passwd\r\n", b""));
    refused(&folder, &to_file, &unsigned, "redirected to file:///etc/passwd, which is neither https nor http");
    let nowhere = liar(|_, _, stream| send(stream, "302 Found", "", b""));
    refused(&folder, &nowhere, &unsigned, "redirected, without an address");
    let circle = liar(|path, _, stream| send(stream, "302 Found", &format!("Location: {path}\r\n"), b""));
    refused(&folder, &circle, &unsigned, "redirected more than 5 times, perhaps in a circle");
    // A redirection to a place that has it is followed.
    let target =
        liar(|_, _, stream| send(stream, "200 OK", "", &zstd::stream::encode_all(&site_file(1, 3)[..], 1).unwrap()));
    let leads = liar(move |path, _, stream| match path.ends_with(".minisig") {
        true => send(stream, "404 Not Found", "", b""),
        false => send(stream, "307 Temporary Redirect", &format!("Location: {target}{path}\r\n"), b""),
    });
    let output = fetch(&folder, &leads, &["--allow-unsigned", "--force"]);
    assert!(output.status.success(), "{}", said(&output));
    let failing = liar(|_, _, stream| send(stream, "500 Oops", "", b""));
    refused(&folder, &failing, &unsigned, "the server answered 500");
    let huge = liar(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    });
    refused(&folder, &huge, &unsigned, "is larger than");
    refused(&folder, "file:///etc", &unsigned, "not an address that is fetched from");
    refused(&folder, "/etc", &unsigned, "not an address that is fetched from");
    // One that never answers, and one that stops in the middle.
    let start = Instant::now();
    refused(
        &folder,
        &liar(|_, _, _| thread::sleep(Duration::from_secs(60))),
        &unsigned,
        "the server sent nothing for 2 s",
    );
    let stops = liar(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
        thread::sleep(Duration::from_secs(60));
    });
    let output = fetch(&folder, &stops, &unsigned);
    assert!(said(&output).contains("the server sent nothing for 2 s"), "{}", said(&output));
    assert!(start.elapsed() < Duration::from_secs(50));
}

/// Indexes that are wrong: by a release nothing is fetched then, and the place is named with the reason.
#[test]
fn indexes_that_are_wrong() {
    let hub = Hub::new("fetch-index");
    let folder = hub.folder.as_path();
    let index = fs::read(folder.join("hub/index.json")).unwrap();
    let signature = fs::read(folder.join("hub/index.json.minisig")).unwrap();
    let text = String::from_utf8(index.clone()).unwrap();
    let release = |url: &str, more: &[&str]| {
        let mut command = siteseer(folder);
        command.args([
            "fetch",
            "--release",
            "6.1-made",
            "--output",
            "out",
            "--no-archive",
            "--timeout",
            "2",
            "--url",
            url,
        ]);
        command.args(more).output().unwrap()
    };
    let serve = |index: Vec<u8>, signature: Option<Vec<u8>>| {
        let served = folder.join("hub");
        liar(move |path, _, stream| match (path, &signature) {
            ("/index.json", _) => send(stream, "200 OK", "", &index),
            ("/index.json.minisig", Some(signature)) => send(stream, "200 OK", "", signature),
            ("/index.json.minisig", None) => send(stream, "404 Not Found", "", b""),
            _ => match fs::read(served.join(path.trim_start_matches('/'))) {
                Ok(data) => send(stream, "200 OK", "", &data),
                Err(_) => send(stream, "404 Not Found", "", b""),
            },
        })
    };
    fs::create_dir_all(folder.join("out")).unwrap();
    let old = folder.join("out").join(format!("{}.sites", build_id(1)));
    fs::write(&old, b"old data").unwrap();
    let refused = |url: &str, more: &[&str], words: &[&str]| {
        let output = release(url, more);
        let text = said(&output);
        assert!(!output.status.success() && words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        assert!(text.contains(url.trim_start_matches("http://")) && text.contains("6.1-made"), "{text}");
        assert_eq!(left(folder), [format!("{}.sites", build_id(1))], "{text}");
        assert_eq!(fs::read(&old).unwrap(), b"old data");
    };
    let key = ["--key", hub.key.as_str()];
    let unsigned = ["--allow-unsigned"];
    // Another version, which need not have the members of this one.
    refused(
        &serve(b"{\"version\": 4, \"images\": {}}".to_vec(), None),
        &unsigned,
        &["version 4", "reads versions up to 3"],
    );
    refused(&serve(b"<html>".to_vec(), None), &unsigned, &["not an index of a hub"]);
    refused(&serve(index[..index.len() / 2].to_vec(), None), &unsigned, &["not an index of a hub"]);
    refused(&serve(b"{\"version\": 1, \"kernels\": []}".to_vec(), None), &unsigned, &["it has no kernel 6.1-made"]);
    // A build id that is a path, or of a kernel that is not there.
    let with = |id: &str| text.replace(&build_id(1), id).into_bytes();
    refused(&serve(with("../../etc"), None), &unsigned, &["\"../../etc\", which is not a build id"]);
    refused(&serve(with(&build_id(9)), None), &unsigned, &["not there"]);
    // Two builds of one release; which is meant the user says.
    let twice = text.replace("6.2-made", "6.1-made").into_bytes();
    refused(&serve(twice, None), &unsigned, &["there are several builds", "--build-id"]);
    // An index that was altered after it was signed, and one with another file's signature.
    refused(&serve(with(&build_id(2)), Some(signature.clone())), &key, &["its signature is not right"]);
    let of_image = hub.file(1, "sites.zst.minisig");
    refused(&serve(index.clone(), Some(of_image)), &key, &["its signature is not right"]);
    // What a right index leads to is checked by itself.
    let output = release(&serve(index, Some(signature)), &key);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(&old).unwrap(), site_file(1, 3000));
}
