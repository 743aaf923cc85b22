// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer hub` and `siteseer fetch`, on the loopback alone: what is fetched is what was put there; a server that
//! lies, stops, hangs or sends something else leaves what was there before.
#![cfg(feature = "network")]

mod archive;
mod debuginfod;
mod deltas;
mod downloads;
mod hubs;
#[path = "../made/mod.rs"]
mod made;
mod missing;
mod servers;

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

/// The contents of a section of a site file.
fn section(data: &[u8], name: &str) -> Vec<u8> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(data).unwrap();
    file.section_by_name(name).unwrap().data().unwrap().to_vec()
}
