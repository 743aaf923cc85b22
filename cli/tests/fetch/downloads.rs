// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Downloads that break off, that are of another file meanwhile, that do not fit on the disk, or are made twice at
//! once.

use super::*;

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
