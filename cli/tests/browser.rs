// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The pages of `siteseer explain --html` and `siteseer map --html` in a browser: headless Chromium opens them, with
//! scripts and without, reports nothing on its console, and draws them. `ci/pages` runs this, since the build root with
//! the browser is large. What is on the pages is tested in html.rs.

use siteseer_kernels::buildroot::{BuildRoot, Mount, workspace_rows};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the browser finds the pages, and writes pictures.
const INSIDE: &str = "/build/pages";

/// The pages: name, arguments, height of the window, a text that must be there, and the picture under docs/.
const PAGES: [(&str, &[&str], u32, &str, &str); 2] = [
    ("explain", &["explain", "ns_capable"], 1500, "What can be attached", "explain-page.png"),
    ("map", &["map"], 960, "A treemap of the folders", "map-page.png"),
];

/// The height of a window.
const HEIGHT: u32 = 900;

/// A picture of the documentation has fewer bytes.
const MOST_BYTES: usize = 300_000;

/// The browser's messages about a page, as `--enable-logging=stderr` prints them.
const CONSOLE: &str = ":CONSOLE";

/// A page on which a script changes the text, after an error.
const BAD: &str = "<!DOCTYPE html><title>bad</title><p id=\"text\">as it was</p>\
                   <script>console.error('wrong'); document.getElementById('text').textContent = 'changed';</script>";

struct Browser<'a> {
    root: BuildRoot,
    folder: &'a Path,
}

/// What the browser printed.
struct Opened {
    output: String,
    console: Vec<String>,
}

impl Browser<'_> {
    /// Opens a page of the folder with more options.
    fn open(&self, page: &str, height: u32, options: &[&str]) -> Opened {
        let size = format!("--window-size=1200,{height}");
        let address = format!("file://{INSIDE}/{page}.html");
        let mut words = vec!["timeout", "120", "chromium-headless-shell", "--no-sandbox", "--disable-gpu"];
        words.extend(["--hide-scrollbars", "--enable-logging=stderr", &size]);
        words.extend(options.iter().copied().chain([address.as_str()]));
        let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
        let mounts = [Mount::writable(self.folder, INSIDE)];
        let environment = [("HOME".to_owned(), "/build".to_owned())];
        let output = self.root.command(&mounts, &environment, &words).output().expect("unshare starts");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: {}\n{messages}", output.status);
        let console = messages.lines().filter(|line| line.contains(CONSOLE)).map(str::to_owned).collect();
        Opened { output: String::from_utf8_lossy(&output.stdout).into_owned(), console }
    }

    /// The page's document after it was loaded.
    fn document(&self, page: &str) -> Opened {
        self.open(page, HEIGHT, &["--dump-dom"])
    }

    /// A picture of the page as PNG, and what is on the console.
    fn picture(&self, page: &str, height: u32) -> (Vec<u8>, Vec<String>) {
        let name = format!("{page}.png");
        let opened = self.open(page, height, &[&format!("--screenshot={INSIDE}/{name}")]);
        let path = self.folder.join(name);
        let picture = fs::read(&path).expect("a picture");
        fs::remove_file(path).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{page}: not a picture");
        (picture, opened.console)
    }

    /// The same of the page in a frame, with scripts or without. Headless Chromium draws by a script of its own:
    /// scripts can be switched off only in a part of a page.
    fn framed(&self, page: &str, with_scripts: bool) -> (Vec<u8>, Vec<String>) {
        let allowed = if with_scripts { "allow-scripts" } else { "" };
        let frame = format!(
            "<!DOCTYPE html><style>body {{ margin: 0 }} iframe {{ border: 0; width: 1200px; height: {HEIGHT}px }}\
             </style>\
             <iframe sandbox=\"{allowed}\" src=\"{page}.html\"></iframe>"
        );
        fs::write(self.folder.join("frame.html"), frame).unwrap();
        self.picture("frame", HEIGHT)
    }
}

/// What the tool prints; it must succeed.
fn siteseer(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
    let output = command.current_dir(folder).args(arguments).output().expect("the tool starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
#[ignore = "it requires root and a build root with a browser: ci/pages"]
fn the_pages_open_in_a_browser() {
    let vmlinux =
        std::env::var("SITESEER_TEST_VMLINUX").expect("SITESEER_TEST_VMLINUX names a vmlinux (ci/pages sets it)");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    fs::create_dir_all(&folder).unwrap();
    let folder = folder.as_path();
    let row = workspace_rows().and_then(|rows| rows.row("browser")).expect("a row for the browser");
    let root = BuildRoot::get(row, false, |line| eprintln!("{line}")).expect("a build root");
    let browser = Browser { root, folder };

    // A page with an error is recognised, and scripts are off if they are to be.
    fs::write(folder.join("bad.html"), BAD).unwrap();
    let bad = browser.document("bad");
    assert!(bad.output.contains("<p id=\"text\">changed"), "{}", bad.output);
    assert!(bad.console.iter().any(|line| line.contains("wrong")), "{:?}", bad.console);
    let (bad, console) = browser.framed("bad", false);
    assert!(console.iter().any(|line| line.contains("Blocked script execution")), "{console:?}");
    assert!(bad != browser.framed("bad", true).0, "scripts run in neither frame, or in both");
    fs::write(folder.join("empty.html"), "<!DOCTYPE html><title>empty</title>").unwrap();

    siteseer(folder, &["encode", &vmlinux, "-o", "vmlinux.sites"]);
    let source = std::env::var("SITESEER_TEST_SOURCE").ok();
    let mut code = vec!["--image", &vmlinux];
    code.extend(source.iter().flat_map(|source| ["--source", source]));
    for (name, arguments, height, text, picture) in PAGES {
        let code = if name == "explain" { &code[..] } else { &[] };
        let page = siteseer(folder, &[arguments, &["--html", "--sites", "vmlinux.sites"], code].concat());
        fs::write(folder.join(format!("{name}.html")), &page).unwrap();
        let opened = browser.document(name);
        assert!(opened.output.contains(text), "{name}: no {text:?} in {}", opened.output);
        assert!(opened.console.is_empty(), "{name}: {:?}", opened.console);
        let (framed, console) = browser.framed(name, false);
        assert!(console.is_empty(), "{name}: {console:?}");
        assert!(framed == browser.framed(name, true).0, "{name}: it looks different without scripts");
        let (empty, _) = browser.framed("empty", true);
        assert!(framed.len() > 4 * empty.len(), "{name}: {} bytes, and an empty page {}", framed.len(), empty.len());
        let (drawn, console) = browser.picture(name, height);
        assert!(console.is_empty(), "{name}: {console:?}");
        assert!(drawn.len() < MOST_BYTES, "{name}: the picture has {} bytes", drawn.len());
        if std::env::var_os("SITESEER_UPDATE_DOCS").is_some() {
            fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(picture), &drawn).unwrap();
        }
        eprintln!("{name}: {} bytes, its picture {}", page.len(), drawn.len());
    }
}
