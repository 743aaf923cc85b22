// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Commands that find no site data, with --fetch and without it.

use super::*;

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

/// A command that finds no site data for the running kernel says so, and fetches it if it is told to.
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
    assert!(text.contains("fetched /") && !text.contains("no site data for this kernel"), "{text}");
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
