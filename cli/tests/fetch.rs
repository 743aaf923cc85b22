// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer hub` and `siteseer fetch`, on the loopback alone: what is fetched is what was put there; a server that
//! lies, stops, hangs or sends something else leaves what was there before.
#![cfg(feature = "network")]

mod made;

use made::{build_id, folder, module_file, said, site_file, siteseer};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A hub, served by the tool itself.
struct Hub {
    folder: PathBuf,
    server: Child,
    url: String,
    key: String,
}

impl Hub {
    /// With the made-up kernels 1 and 2, of releases 6.1-made and 6.2-made.
    fn new(name: &str) -> Hub {
        let folder = folder(name);
        let key = run(&folder, &["hub", "key", "secret"], true);
        for number in [1, 2] {
            fs::write(folder.join(format!("{number}.sites")), site_file(number, 3000)).unwrap();
            let (image, release) = (format!("{number}.sites"), format!("6.{number}-made"));
            run(&folder, &["hub", "add", "hub", &image, "--release", &release, "--key", "secret"], true);
        }
        let mut server = siteseer(&folder)
            .args(["hub", "serve", "hub", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Hub { folder, server, url: url.trim().to_owned(), key: key.trim().to_owned() }
    }

    fn file(&self, number: u8, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(format!("hub/buildid/{}/{name}", build_id(number)))).unwrap()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn run(folder: &Path, arguments: &[&str], success: bool) -> String {
    let output = siteseer(folder).args(arguments).output().expect("the tool starts");
    assert_eq!(output.status.success(), success, "{arguments:?}: {}", said(&output));
    said(&output)
}

/// Fetches kernel 1 from a place.
fn fetch(folder: &Path, url: &str, more: &[&str]) -> Output {
    let id = build_id(1);
    let mut command = siteseer(folder);
    command
        .args(["fetch", "--build-id", &id, "--output", "out", "--no-archive", "--timeout", "2", "--url", url])
        .args(more);
    command.output().expect("the tool starts")
}

/// What is in the folder that is fetched into, without the locks.
fn left(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder.join("out")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}

/// Fetching must fail with these words, and leave nothing; then the same with old data there, which must stay.
fn refused(folder: &Path, url: &str, more: &[&str], words: &str) {
    let _ = fs::remove_dir_all(folder.join("out"));
    for old in [None, Some(b"old data")] {
        if let Some(old) = old {
            fs::write(folder.join("out").join(format!("{}.sites", build_id(1))), old).unwrap();
        }
        let output = fetch(folder, url, more);
        let text = said(&output);
        assert!(!output.status.success() && text.contains(words), "{words:?}: {text}");
        let expected: Vec<String> = old.iter().map(|_| format!("{}.sites", build_id(1))).collect();
        assert_eq!(left(folder), expected, "{text}");
        if let Some(old) = old {
            assert_eq!(fs::read(folder.join("out").join(&expected[0])).unwrap(), old);
        }
    }
}

/// A server that answers as it is told: by the path and the range that is asked for.
fn liar(answer: impl Fn(&str, Option<u64>, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, mut stream) = (Arc::clone(&answer), stream.unwrap());
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut range) = (String::new(), None);
                reader.read_line(&mut first).unwrap();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                        break;
                    }
                    if let Some(from) = line.to_lowercase().strip_prefix("range: bytes=") {
                        range = from.trim().trim_end_matches('-').parse().ok();
                    }
                }
                answer(first.split(' ').nth(1).unwrap_or_default(), range, &mut stream);
            });
        }
    });
    url
}

/// An answer with a body; what the client does not read is not our concern.
fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

#[test]
fn what_is_in_a_hub_is_fetched() {
    let hub = Hub::new("fetch-hub");
    let folder = hub.folder.as_path();
    let listed = run(folder, &["hub", "list", "hub"], true);
    assert!(listed.contains("6.1-made") && listed.contains(&build_id(2)) && listed.contains("2 kernels"), "{listed}");
    let again = run(folder, &["hub", "add", "hub", "1.sites", "--key", "secret"], true);
    assert!(again.contains("(was there)") && again.contains("6.1-made"), "{again}");
    let page = fs::read_to_string(folder.join("hub/index.html")).unwrap();
    assert!(page.contains("6.2-made") && page.contains(&build_id(1)));

    let output = fetch(folder, &hub.url, &["--key", &hub.key]);
    assert!(output.status.success(), "{}", said(&output));
    let name = format!("{}.sites", build_id(1));
    let fetched = folder.join("out").join(&name);
    assert_eq!(fs::read(&fetched).unwrap(), site_file(1, 3000));
    assert_eq!(left(folder), [name]);
    let output = fetch(folder, &hub.url, &["--key", &hub.key]);
    assert!(said(&output).contains("was there"), "{}", said(&output));
    // What is there and is not right is fetched again.
    fs::write(&fetched, site_file(2, 1)).unwrap();
    let output = fetch(folder, &hub.url, &["--key", "secret.pub"]);
    assert!(output.status.success() && !said(&output).contains("was there"), "{}", said(&output));
    assert_eq!(fs::read(&fetched).unwrap(), site_file(1, 3000));
    // By release; by the environment and a file.
    fs::write(folder.join("fetch.toml"), format!("urls = [\"{}\"]\nkeys = [\"{}\"]\n", hub.url, hub.key)).unwrap();
    let mut command = siteseer(folder);
    command.args(["fetch", "--release", "6.2-made", "--output", "out", "--no-archive"]);
    let output = command.env("SITESEER_CONFIG", "fetch.toml").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(folder.join("out").join(format!("{}.sites", build_id(2)))).unwrap(), site_file(2, 3000));
    // A kernel that is not there, and a place that serves after one that does not.
    let absent = build_id(7);
    let text = run(
        folder,
        &["fetch", "--build-id", &absent, "--output", "out", "--no-archive", "--url", &hub.url, "--key", &hub.key],
        false,
    );
    assert!(text.contains(&absent) && text.contains("not there"), "{text}");
    let output = fetch(folder, "http://127.0.0.1:1", &["--force", "--url", &hub.url, "--key", &hub.key]);
    assert!(output.status.success() && said(&output).contains("passed over: http://127.0.0.1:1"), "{}", said(&output));
}

#[test]
fn who_signed_it_decides() {
    let hub = Hub::new("fetch-signed");
    let folder = hub.folder.as_path();
    let other = run(folder, &["hub", "key", "other"], true);
    refused(folder, &hub.url, &[], "no key is trusted");
    refused(folder, &hub.url, &["--key", other.trim()], "is by a key that is not trusted");
    // A wrong signature is not the same as none.
    refused(folder, &hub.url, &["--key", other.trim(), "--allow-unsigned"], "is by a key that is not trusted");
    run(folder, &["hub", "add", "unsigned", "1.sites"], true);
    let unsigned = folder.join("unsigned");
    let url = liar(move |path, _, stream| match fs::read(unsigned.join(path.trim_start_matches('/'))) {
        Ok(data) => send(stream, "200 OK", "", &data),
        Err(_) => send(stream, "404 Not Found", "", b""),
    });
    refused(folder, &url, &["--key", &hub.key], "it is not signed");
    let output = fetch(folder, &url, &["--allow-unsigned", "--force"]);
    assert!(output.status.success(), "{}", said(&output));
}

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
    refused(&folder, &to_file, &unsigned, "http://127.0.0.1");
    let circle = liar(|path, _, stream| send(stream, "302 Found", &format!("Location: {path}\r\n"), b""));
    refused(&folder, &circle, &unsigned, "redirect");
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

#[test]
fn what_breaks_off_goes_on() {
    let hub = Hub::new("fetch-resume");
    let folder = hub.folder.as_path();
    let (packed, signature) = (hub.file(1, "sites.zst"), hub.file(1, "sites.zst.minisig"));
    let asked: Arc<Mutex<Vec<Option<u64>>>> = Arc::default();
    let half = packed.len() as u64 / 2;
    let serve = |beginning: Vec<u8>| {
        let (packed, signature, asked) = (packed.clone(), signature.clone(), Arc::clone(&asked));
        liar(move |path, range, stream| {
            if path.ends_with(".minisig") {
                return send(stream, "200 OK", "", &signature);
            }
            asked.lock().unwrap().push(range);
            let whole = packed.len();
            match range {
                None if beginning.is_empty() => send(stream, "200 OK", "ETag: \"1\"\r\n", &packed),
                None => {
                    let head = format!("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: {whole}\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes());
                    let _ = stream.write_all(&beginning);
                }
                Some(from) => {
                    let headers = format!("ETag: \"1\"\r\nContent-Range: bytes {from}-{}/{whole}\r\n", whole - 1);
                    send(stream, "206 Partial Content", &headers, &packed[from as usize..]);
                }
            }
        })
    };
    let output = fetch(folder, &serve(packed[..half as usize].to_vec()), &["--key", &hub.key]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(*asked.lock().unwrap(), [None, Some(half)]);
    let file = folder.join("out").join(format!("{}.sites", build_id(1)));
    assert_eq!(fs::read(&file).unwrap(), site_file(1, 3000));
    assert_eq!(left(folder).len(), 1);
    // What an earlier attempt left, of this place and version, and of another version under the same name.
    let kept = |url: &str, data: &[u8]| {
        fs::remove_file(&file).unwrap();
        let id = build_id(1);
        fs::write(folder.join(format!("out/.{id}.sites.zst.part")), data).unwrap();
        let from = format!("{url}/buildid/{id}/sites.zst\n\"1\"");
        fs::write(folder.join(format!("out/.{id}.sites.zst.from")), from).unwrap();
        asked.lock().unwrap().clear();
        let output = fetch(folder, url, &["--key", &hub.key]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(fs::read(&file).unwrap(), site_file(1, 3000));
        assert_eq!(left(folder).len(), 1);
        asked.lock().unwrap().clone()
    };
    let url = serve(Vec::new());
    assert_eq!(kept(&url, &packed[..100]), [Some(100)]);
    assert_eq!(kept(&url, &[7; 100]), [Some(100), None], "the signature tells, and all is fetched again");
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    let hub = Hub::new("fetch-full");
    let folder = hub.folder.as_path();
    let name = format!("{}.sites", build_id(1));
    fs::create_dir_all(folder.join("out")).unwrap();
    fs::write(folder.join("out").join(&name), site_file(1, 1)).unwrap();
    let packed = hub.file(1, "sites.zst").len();
    // Too small for what is sent, and large enough for that and too small for what it becomes.
    for kilobytes in [packed / 2048, packed / 1024 + 8] {
        let tool = env!("CARGO_BIN_EXE_siteseer");
        let script = format!(
            "ulimit -f {kilobytes}; exec '{tool}' fetch --force --build-id {} --output out --no-archive --url {} --key {}",
            build_id(1),
            hub.url,
            hub.key
        );
        let mut command = std::process::Command::new("bash");
        let output = command.args(["-c", &script]).current_dir(folder).env("HOME", folder).output().unwrap();
        assert!(!output.status.success() && said(&output).contains("too large"), "{}", said(&output));
        assert_eq!(left(folder), [name.as_str()], "{}", said(&output));
        assert_eq!(fs::read(folder.join("out").join(&name)).unwrap(), site_file(1, 1));
    }
}

#[test]
fn two_fetches_at_once() {
    let hub = Hub::new("fetch-two");
    let folder = hub.folder.as_path();
    let (packed, signature) = (hub.file(1, "sites.zst"), hub.file(1, "sites.zst.minisig"));
    let count: Arc<Mutex<usize>> = Arc::default();
    let counter = Arc::clone(&count);
    let url = liar(move |path, _, stream| {
        if path.ends_with(".minisig") {
            return send(stream, "200 OK", "", &signature);
        }
        *counter.lock().unwrap() += 1;
        thread::sleep(Duration::from_secs(1));
        send(stream, "200 OK", "", &packed);
    });
    thread::scope(|scope| {
        let one = || fetch(folder, &url, &["--key", &hub.key]);
        let both = [scope.spawn(one), scope.spawn(one)].map(|thread| thread.join().unwrap());
        let text: String = both.iter().map(said).collect();
        assert!(both.iter().all(|output| output.status.success()), "{text}");
        assert!(text.contains("waiting for it") && text.contains("was there"), "{text}");
    });
    assert_eq!(*count.lock().unwrap(), 1);
    assert_eq!(fs::read(folder.join("out").join(format!("{}.sites", build_id(1)))).unwrap(), site_file(1, 3000));
}

#[test]
fn modules_come_with_their_kernel() {
    let folder = folder("fetch-modules");
    fs::write(folder.join("1.sites"), site_file(1, 3)).unwrap();
    fs::create_dir_all(folder.join("modules/deeper")).unwrap();
    fs::write(folder.join("modules/a.sites"), module_file(1, 0xa)).unwrap();
    fs::write(folder.join("modules/deeper/b.sites"), module_file(1, 0xb)).unwrap();
    // A module of another kernel, and a file that is not a module.
    fs::write(folder.join("modules/other.sites"), module_file(2, 0xc)).unwrap();
    fs::write(folder.join("modules/rubbish.ko"), b"hello").unwrap();
    let added = run(&folder, &["hub", "add", "hub", "1.sites", "--modules", "modules"], true);
    assert!(added.contains("2 modules") && added.contains("2 files of modules were left out"), "{added}");
    let served = folder.join("hub");
    let url = liar(move |path, _, stream| match fs::read(served.join(path.trim_start_matches('/'))) {
        Ok(data) => send(stream, "200 OK", "", &data),
        Err(_) => send(stream, "404 Not Found", "", b""),
    });
    let output = fetch(&folder, &url, &["--allow-unsigned", "--modules"]);
    assert!(said(&output).contains("those of 2 modules"), "{}", said(&output));
    let name = |number: u8| format!("{}.sites", build_id(number));
    assert_eq!(left(&folder), [name(1), name(0xa), name(0xb)]);
    assert_eq!(fs::read(folder.join("out").join(name(0xb))).unwrap(), module_file(1, 0xb));
    // An archive with something wrong in it: nothing of it is written, nor the image.
    let archive = |files: &[(&str, Vec<u8>)]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, data) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(data.len() as u64);
            builder.append_data(&mut header, name, &data[..]).unwrap();
        }
        zstd::stream::encode_all(&builder.into_inner().unwrap()[..], 1).unwrap()
    };
    let good = name(0xa);
    for (files, words) in [
        (vec![(good.as_str(), module_file(1, 0xa)), (&name(0xc), module_file(2, 0xc))], "of another build"),
        (vec![(good.as_str(), module_file(1, 0xb))], "of another build"),
        (vec![(good.as_str(), site_file(1, 0))], "not a module's"),
        (vec![("vmlinux.sites", module_file(1, 0xa))], "not a name of a module's site file"),
        (vec![("folder/a.sites", module_file(1, 0xa))], "is not a plain file"),
        (vec![(good.as_str(), b"hello".to_vec())], "not a readable ELF file"),
    ] {
        let (image, modules) =
            (fs::read(folder.join("hub/buildid").join(build_id(1)).join("sites.zst")).unwrap(), archive(&files));
        let url = liar(move |path, _, stream| match path.rsplit('/').next() {
            Some("sites.zst") => send(stream, "200 OK", "", &image),
            Some("modules.tar.zst") => send(stream, "200 OK", "", &modules),
            _ => send(stream, "404 Not Found", "", b""),
        });
        refused(&folder, &url, &["--allow-unsigned", "--modules"], words);
    }
}

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

#[test]
fn hubs_that_cannot_be_made() {
    let folder = folder("hub-bad");
    fs::write(folder.join("1.sites"), site_file(1, 1)).unwrap();
    fs::write(folder.join("not.sites"), b"hello").unwrap();
    assert!(run(&folder, &["hub", "add", "hub", "not.sites"], false).contains("not an ELF file"));
    assert!(run(&folder, &["hub", "add", "hub", "none.sites"], false).contains("none.sites"));
    assert!(run(&folder, &["hub", "add", "hub", "1.sites", "--key", "none"], false).contains("none"));
    run(&folder, &["hub", "add", "hub", "1.sites"], true);
    fs::write(folder.join("hub/index.json"), "{\"version\": 3, \"kernels\": []}").unwrap();
    assert!(run(&folder, &["hub", "list", "hub"], false).contains("version 3"));
    assert!(run(&folder, &["hub", "serve", "none"], false).contains("not a folder"));
}
