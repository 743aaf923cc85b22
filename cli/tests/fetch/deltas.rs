// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Files of a hub that are stored as the difference from another kernel's: they are fetched with their base; a base
//! that is missing, wrong or a difference itself leaves nothing.

use super::*;
use serde_json::{Value, json};

/// A hub without signatures: kernel 2 of release 6.1.1-made is whole, and kernel 1 of 6.1.2-made is stored over it.
fn hub(name: &str) -> PathBuf {
    let folder = folder(name);
    for (number, release) in [(2, "6.1.1-made"), (1, "6.1.2-made")] {
        fs::write(folder.join(format!("{number}.sites")), site_file(number, 3000)).unwrap();
        run(&folder, &["hub", "add", "hub", &format!("{number}.sites"), "--release", release], true);
    }
    folder
}

fn index(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("hub/index.json")).unwrap()).unwrap()
}

/// A server of a folder's hub, with other contents for one path.
fn served(folder: &Path, path: &str, contents: Option<Vec<u8>>) -> String {
    let (hub, changed) = (folder.join("hub"), path.to_owned());
    liar(move |path, _, stream| {
        let path = path.trim_start_matches('/');
        let data = match path == changed {
            true => contents.clone(),
            false => fs::read(hub.join(path)).ok(),
        };
        match data {
            Some(data) => send(stream, "200 OK", "", &data),
            None => send(stream, "404 Not Found", "", b""),
        }
    })
}

fn path(number: u8, file: &str) -> String {
    format!("buildid/{}/{file}", build_id(number))
}

#[test]
fn a_difference_is_fetched_with_its_base() {
    let folder = hub("deltas");
    let listed = run(&folder, &["hub", "list", "hub"], true);
    assert!(listed.contains("1 kernels have files that are stored as differences"), "{listed}");
    assert!(run(&folder, &["hub", "list", "hub", "--parts"], true).contains("sites.zst"));
    assert!(run(&folder, &["hub", "check", "hub"], true).contains("2 kernels can be fetched"));
    assert_eq!(index(&folder)["version"], 3);
    let size = |path: String| fs::metadata(folder.join("hub").join(path)).unwrap().len();
    assert!(size(path(1, "sites.delta.zst")) * 2 < size(path(2, "sites.zst")));
    assert!(!folder.join("hub").join(path(1, "sites.zst")).exists());
    let again = run(&folder, &["hub", "add", "hub", "1.sites"], true);
    assert!(again.contains("(was there)"), "{again}");

    let name = |number: u8| format!("{}.sites", build_id(number));
    let output = fetch(&folder, &served(&folder, "", None), &["--allow-unsigned"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(folder.join("out").join(name(1))).unwrap(), site_file(1, 3000));
    assert_eq!(left(&folder), [name(1)]);
    // The site file of the base is at hand: its file is not fetched.
    let url = served(&folder, &path(2, "sites.zst"), None);
    fs::write(folder.join("out").join(name(2)), site_file(2, 3000)).unwrap();
    let output = fetch(&folder, &url, &["--allow-unsigned", "--force"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(folder.join("out").join(name(1))).unwrap(), site_file(1, 3000));
    // It is of the right build, and has other bytes.
    fs::write(folder.join("out").join(name(2)), site_file(2, 1)).unwrap();
    let output = fetch(&folder, &served(&folder, "", None), &["--allow-unsigned", "--force"]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn each_file_is_signed() {
    let folder = folder("deltas-signed");
    let key = run(&folder, &["hub", "key", "secret"], true);
    for (number, release) in [(2, "6.1.1-made"), (1, "6.1.2-made")] {
        fs::write(folder.join(format!("{number}.sites")), site_file(number, 3000)).unwrap();
        let image = format!("{number}.sites");
        run(&folder, &["hub", "add", "hub", &image, "--release", release, "--key", "secret"], true);
    }
    let key = key.trim();
    for changed in [path(1, "sites.delta.zst"), path(2, "sites.zst"), "index.json".to_owned()] {
        let mut data = fs::read(folder.join("hub").join(&changed)).unwrap();
        let last = data.len() - 1;
        data[last] ^= 1;
        refused(&folder, &served(&folder, &changed, Some(data)), &["--key", key], "its signature is not right");
    }
    let _ = fs::remove_dir_all(folder.join("out"));
    let output = fetch(&folder, &served(&folder, "", None), &["--key", key]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_base_that_is_not_right_leaves_nothing() {
    let folder = hub("deltas-bad");
    let over = |file: &str, contents: Option<Vec<u8>>, words: &str| {
        refused(&folder, &served(&folder, file, contents), &["--allow-unsigned"], words);
    };
    let base = path(2, "sites.zst");
    over(&base, None, "not there");
    over(&base, None, "it is stored as the difference from kernel");
    over(&base, Some(b"hello".to_vec()), "cannot be decompressed");
    // Of another kernel.
    fs::write(folder.join("3.sites"), site_file(3, 3000)).unwrap();
    run(&folder, &["hub", "add", "other", "3.sites"], true);
    let other = fs::read(folder.join("other").join(path(3, "sites.zst"))).unwrap();
    over(&base, Some(other), "its bytes are not those that the difference was made from");
    let delta = fs::read(folder.join("hub").join(path(1, "sites.delta.zst"))).unwrap();
    over(&path(1, "sites.delta.zst"), Some(delta[..delta.len() - 5].to_vec()), "cannot be decompressed");
    over(&path(1, "sites.delta.zst"), None, "not there");

    let whole = index(&folder);
    let unpacked = whole["kernels"][1]["image"]["base"]["unpacked"].as_u64().unwrap();
    let changed = |change: &dyn Fn(&mut Value), words: &str| {
        let mut index = whole.clone();
        change(&mut index);
        over("index.json", Some(serde_json::to_vec(&index).unwrap()), words);
    };
    let image = |index: &mut Value, nth: usize, value: Value| index["kernels"][nth]["image"]["base"] = value;
    let to = |id: String, unpacked: u64| json!({ "build_id": id, "sha256": whole["kernels"][1]["image"]["base"]["sha256"], "unpacked": unpacked });
    // A bomb: more comes out than the index says. Less, and more than can be.
    changed(&|index| image(index, 1, to(build_id(2), unpacked - 1)), "is larger than");
    changed(&|index| image(index, 1, to(build_id(2), unpacked + 1)), "the index says");
    changed(&|index| image(index, 1, to(build_id(2), u64::MAX)), "is larger than");
    // A base that is a difference itself, in a circle and not.
    changed(&|index| image(index, 0, to(build_id(1), 1)), "that is stored as a difference itself");
    changed(&|index| image(index, 0, to(build_id(7), 1)), "that is stored as a difference itself");
    changed(&|index| image(index, 1, to(build_id(1), unpacked)), "that is stored as a difference itself");
    changed(&|index| image(index, 1, to(build_id(7), unpacked)), "the index of the hub has no such kernel");
    changed(&|index| image(index, 1, to("../x".to_owned(), unpacked)), "the index of the hub has no such kernel");
    changed(&|index| index["version"] = json!(4), "an index of version 4");
    changed(&|index| image(index, 1, Value::Null), "not there");
}

#[test]
fn kernels_that_others_are_stored_over_stay_or_free_them() {
    let folder = hub("deltas-kept");
    let (id, other) = (build_id(2), build_id(1));
    let text = run(&folder, &["hub", "remove", "hub", &id], false);
    assert!(text.contains("are stored as differences from it") && text.contains(&other), "{text}");
    assert!(run(&folder, &["hub", "remove", "hub", &build_id(7)], false).contains("not there"));
    // The base is damaged.
    let file = folder.join("hub").join(path(2, "sites.zst"));
    let good = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let text = run(&folder, &["hub", "check", "hub"], false);
    assert!(text.contains("2 of 2 kernels cannot be fetched"), "{text}");
    fs::write(&file, good).unwrap();
    // The same build id, with other sites.
    fs::write(folder.join("2.sites"), site_file(2, 2000)).unwrap();
    run(&folder, &["hub", "add", "hub", "2.sites", "--release", "6.1.1-made", "--force"], true);
    assert!(folder.join("hub").join(path(1, "sites.zst")).exists());
    assert_eq!(index(&folder)["version"], 2);
    assert!(run(&folder, &["hub", "check", "hub"], true).contains("2 kernels can be fetched"));
    let output = fetch(&folder, &served(&folder, "", None), &["--allow-unsigned"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(folder.join("out").join(format!("{other}.sites"))).unwrap(), site_file(1, 3000));
    run(&folder, &["hub", "remove", "hub", &id], true);
    assert!(!folder.join("hub/buildid").join(&id).exists());
    assert!(run(&folder, &["hub", "check", "hub"], true).contains("1 kernels can be fetched"));
}
