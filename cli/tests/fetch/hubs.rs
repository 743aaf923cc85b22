// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Hubs that are in order: what is in one is fetched, signed by a key that is trusted, with its modules.

use super::*;

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
fn hubs_that_cannot_be_made() {
    let folder = folder("hub-bad");
    fs::write(folder.join("1.sites"), site_file(1, 1)).unwrap();
    fs::write(folder.join("not.sites"), b"hello").unwrap();
    assert!(run(&folder, &["hub", "add", "hub", "not.sites"], false).contains("not an ELF file"));
    assert!(run(&folder, &["hub", "add", "hub", "none.sites"], false).contains("none.sites"));
    assert!(run(&folder, &["hub", "add", "hub", "1.sites", "--key", "none"], false).contains("none"));
    run(&folder, &["hub", "add", "hub", "1.sites"], true);
    fs::write(folder.join("hub/index.json"), "{\"version\": 4, \"kernels\": []}").unwrap();
    assert!(run(&folder, &["hub", "list", "hub"], false).contains("version 4"));
    assert!(run(&folder, &["hub", "serve", "none"], false).contains("not a folder"));
}
