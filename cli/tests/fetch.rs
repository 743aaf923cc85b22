// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer hub` and `siteseer fetch`, on the loopback alone: what is fetched is what was put there; a server that
//! lies, stops, hangs or sends something else leaves what was there before.
#![cfg(feature = "network")]

mod made;

use made::{build_id, folder, module_file, said, site_file, site_file_over, siteseer};
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

/// The part that an earlier attempt left is of a file that the server has replaced since.
#[test]
fn what_was_replaced_meanwhile_is_fetched_again() {
    let hub = Hub::new("fetch-replaced");
    let folder = hub.folder.as_path();
    let (packed, signature) = (hub.file(1, "sites.zst"), hub.file(1, "sites.zst.minisig"));
    let (old, total) = (vec![7u8; packed.len() / 3], packed.len());
    let asked: Arc<Mutex<Vec<Option<u64>>>> = Arc::default();
    // How a server answers that is asked for the rest of the old version: by all of the new one, as If-Range wants it;
    // by the rest of the new one; by a refusal; by a part from elsewhere in the file; by a part that is none.
    type Answer = fn(&mut TcpStream, &[u8], u64);
    let whole: Answer = |stream, packed, _| send(stream, "200 OK", "ETag: \"2\"\r\n", packed);
    let rest: Answer = |stream, packed, from| {
        let headers = format!("ETag: \"2\"\r\nContent-Range: bytes {from}-{}/{}\r\n", packed.len() - 1, packed.len());
        send(stream, "206 Partial Content", &headers, &packed[from as usize..]);
    };
    let refusal: Answer = |stream, _, _| send(stream, "416 Range Not Satisfiable", "", b"");
    let elsewhere: Answer = |stream, packed, from| {
        let headers = format!("ETag: \"1\"\r\nContent-Range: bytes 0-{}/{}\r\n", packed.len() - 1, packed.len());
        let _ = from;
        send(stream, "206 Partial Content", &headers, packed);
    };
    let unnamed: Answer = |stream, packed, from| send(stream, "206 Partial Content", "", &packed[from as usize..]);
    for (answer, times) in [(whole, 1), (rest, 2), (refusal, 2), (elsewhere, 2), (unnamed, 2)] {
        let (packed, signature, asked_of) = (packed.clone(), signature.clone(), Arc::clone(&asked));
        let url = liar(move |path, range, stream| {
            if path.ends_with(".minisig") {
                return send(stream, "200 OK", "", &signature);
            }
            asked_of.lock().unwrap().push(range);
            match range {
                Some(from) => answer(stream, &packed, from),
                None => send(stream, "200 OK", "ETag: \"2\"\r\n", &packed),
            }
        });
        let _ = fs::remove_dir_all(folder.join("out"));
        fs::create_dir_all(folder.join("out")).unwrap();
        let id = build_id(1);
        fs::write(folder.join(format!("out/.{id}.sites.zst.part")), &old).unwrap();
        let from = format!("{url}/buildid/{id}/sites.zst\n\"1\"");
        fs::write(folder.join(format!("out/.{id}.sites.zst.from")), from).unwrap();
        asked.lock().unwrap().clear();
        let output = fetch(folder, &url, &["--key", &hub.key]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(fs::read(folder.join(format!("out/{id}.sites"))).unwrap(), site_file(1, 3000));
        assert_eq!(left(folder), [format!("{id}.sites")]);
        let asked = asked.lock().unwrap();
        assert_eq!((asked.len(), asked[0]), (times, Some(old.len() as u64)), "{total}: {asked:?}");
    }
}

/// A server that has neither ranges nor versions: what breaks off begins again, and nothing is joined.
#[test]
fn a_server_without_ranges() {
    let hub = Hub::new("fetch-rangeless");
    let folder = hub.folder.as_path();
    let (packed, signature) = (hub.file(1, "sites.zst"), hub.file(1, "sites.zst.minisig"));
    let count: Arc<Mutex<usize>> = Arc::default();
    let serve = |versioned: bool, breaks: usize| {
        let (packed, signature, counter) = (packed.clone(), signature.clone(), Arc::clone(&count));
        *counter.lock().unwrap() = 0;
        liar(move |path, _, stream| {
            if path.ends_with(".minisig") {
                return send(stream, "200 OK", "", &signature);
            }
            let mut count = counter.lock().unwrap();
            *count += 1;
            let version = if versioned { "ETag: \"1\"\r\n" } else { "" };
            let head = format!("HTTP/1.1 200 OK\r\n{version}Content-Length: {}\r\n\r\n", packed.len());
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(if *count <= breaks { &packed[..packed.len() / 2] } else { &packed });
        })
    };
    // It breaks off once. With a version the client tries again by itself; it gets all, and keeps nothing of before.
    let output = fetch(folder, &serve(true, 1), &["--key", &hub.key]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!((*count.lock().unwrap(), left(folder).len()), (2, 1));
    assert_eq!(fs::read(folder.join(format!("out/{}.sites", build_id(1)))).unwrap(), site_file(1, 3000));
    // Without one, a later attempt begins again, and nothing is left meanwhile.
    let url = serve(false, 2);
    refused(folder, &url, &["--key", &hub.key, "--force"], "the connection broke");
    let output = fetch(folder, &url, &["--key", &hub.key, "--force"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(left(folder).len(), 1);
    // It breaks off each time: the client gives up, and what has come is kept apart from what is read.
    fs::write(folder.join(format!("out/{}.sites", build_id(1))), b"old data").unwrap();
    let output = fetch(folder, &serve(true, usize::MAX), &["--key", &hub.key, "--force"]);
    assert!(!output.status.success() && said(&output).contains("the connection broke"), "{}", said(&output));
    assert_eq!(fs::read(folder.join(format!("out/{}.sites", build_id(1)))).unwrap(), b"old data");
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
        &serve(b"{\"version\": 3, \"images\": {}}".to_vec(), None),
        &unsigned,
        &["version 3", "reads versions up to 2"],
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

/// The contents of a section of a site file.
fn section(data: &[u8], name: &str) -> Vec<u8> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(data).unwrap();
    file.section_by_name(name).unwrap().data().unwrap().to_vec()
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

/// Runs a script in which `siteseer` is the tool. Root's site data goes to a folder of the system: root runs it where
/// this folder is another. `None` if that cannot be done.
fn script(folder: &Path, text: &str) -> Option<Output> {
    let tool = env!("CARGO_BIN_EXE_siteseer");
    let mut command = match nix::unistd::geteuid().is_root() {
        true => {
            let mut command = std::process::Command::new("unshare");
            command.args(["--mount", "sh", "-c", "mount -t tmpfs -o mode=755 none /var/cache && exec sh -c \"$0\""]);
            let mut probe = std::process::Command::new("unshare");
            probe.args(["--mount", "mount", "-t", "tmpfs", "none", "/var/cache"]);
            if !probe.output().is_ok_and(|output| output.status.success()) {
                eprintln!("root cannot have another /var/cache here: not tested");
                return None;
            }
            command
        }
        false => {
            let mut command = std::process::Command::new("sh");
            command.arg("-c");
            command
        }
    };
    command.arg(format!("siteseer() {{ '{tool}' \"$@\"; }}\n{text}"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CACHE_HOME").env_remove("DEBUGINFOD_URLS");
    command.env("SITESEER_CONFIG", folder.join("fetch.toml")).env_remove("SITESEER_URLS");
    Some(command.output().unwrap())
}

/// A command that finds no site data of the running kernel says so, and fetches it if it is told to.
#[test]
fn what_is_missing_is_fetched_if_that_is_asked_for() {
    let running = siteseer::internals::source::BaseTypes::running();
    let Some(running) = running.ok().filter(|running| !running.build_id.0.is_empty()) else {
        eprintln!("the running kernel shows no types or no build id: nothing to fetch for it");
        return;
    };
    let folder = folder("fetch-running");
    let key = run(&folder, &["hub", "key", "secret"], true);
    let add = |hub: &str, btf: &[u8]| {
        fs::write(folder.join("running.sites"), site_file_over(&running.build_id.0, btf)).unwrap();
        run(&folder, &["hub", "add", hub, "running.sites", "--release", "made", "--key", "secret"], true);
    };
    add("right", &running.btf);
    // Of this build id, and over other types.
    let other = site_file(1, 0);
    add("lies", &section(&other, ".BTF"));
    let serve = |hub: &str| {
        let (served, count) = (folder.join(hub), Arc::new(Mutex::new(0)));
        let counter = Arc::clone(&count);
        let url = liar(move |path, _, stream| {
            *counter.lock().unwrap() += 1;
            match fs::read(served.join(path.trim_start_matches('/'))) {
                Ok(data) => send(stream, "200 OK", "", &data),
                Err(_) => send(stream, "404 Not Found", "", b""),
            }
        });
        (url, count)
    };
    let ((right, asked), (lies, _)) = (serve("right"), serve("lies"));
    let configure = |url: &str| {
        fs::write(folder.join("fetch.toml"), format!("urls = [\"{url}\"]\nkeys = [\"{}\"]\n", key.trim())).unwrap();
    };
    configure(&right);
    let Some(output) = script(&folder, "siteseer list vfs_read") else { return };
    if output.status.success() {
        eprintln!("this machine has site data of the running kernel, which cannot be hidden: not tested");
        return;
    }
    let output = script(&folder, "siteseer list made_up_function").unwrap();
    let text = said(&output);
    assert!(!output.status.success() && text.contains("or give --fetch"), "{text}");
    assert_eq!(*asked.lock().unwrap(), 0, "nothing uses the network without being asked");
    let twice = "siteseer list made_up_function --fetch && siteseer list made_up_function";
    let output = script(&folder, twice).unwrap();
    let text = said(&output);
    assert!(output.status.success() && text.matches("made_up_function").count() == 2, "{text}");
    assert!(text.contains("fetched /") && text.contains(&format!("from {right}")), "{text}");
    // `trace` goes on without site data unless it is told to fetch it. The function is at no place of this kernel, so
    // that nothing is attached.
    let trace = "siteseer trace made_up_function --duration 1";
    let text = said(&script(&folder, trace).unwrap());
    assert!(text.contains("with --fetch, siteseer fetches it first") && !text.contains("fetched /"), "{text}");
    let text = said(&script(&folder, &format!("{trace} --fetch")).unwrap());
    assert!(text.contains("fetched /") && !text.contains("no site data of this kernel"), "{text}");
    let text = said(&script(&folder, "siteseer trace made_up_* --duration 1").unwrap());
    assert!(
        text.contains("is looked up in site data, and there is no site data") && text.contains("--fetch"),
        "{text}"
    );
    // What is there is not fetched again.
    *asked.lock().unwrap() = 0;
    let again = "siteseer list made_up_function --fetch && siteseer list made_up_function --fetch";
    let text = said(&script(&folder, &format!("siteseer fetch && {again}")).unwrap());
    assert_eq!((text.matches("fetched ").count(), *asked.lock().unwrap()), (0, 2), "{text}");
    // A hub that lies is refused, and nothing is put there.
    configure(&lies);
    for command in ["siteseer list made_up_function --fetch", "siteseer fetch --no-archive"] {
        let look = "find /var/cache/siteseer \"$HOME/.cache/siteseer\" -name '*.sites' 2>/dev/null | wc -l";
        let text = said(&script(&folder, &format!("{command}; {look}")).unwrap());
        assert!(text.contains("its .BTF is not the running kernel's, though the build id is"), "{text}");
        // Of any other user, the data of before is still there.
        let count = if nix::unistd::geteuid().is_root() { "0" } else { "1" };
        assert!(text.lines().any(|line| line == count), "{text}");
    }
}

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
