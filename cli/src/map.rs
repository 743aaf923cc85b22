// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer map`: which functions of a kernel are inlined, by folder of the source.

mod html;
mod treemap;

use crate::Failure;
use crate::target::About;
use clap::Args;
use siteseer::internals::target::Folder;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Count the functions of the kernel that are wholly, partly or not inlined, by folder of the source
///
/// A kprobe or fentry program on the symbol sees no calls of a function that is wholly inlined, and only some calls of
/// one that is partly inlined. Everything is read from the site data of the image, which requires no privileges.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print an HTML page with a treemap; it has no scripts and loads nothing
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// How many parts of a folder's path to keep: 1 gives drivers, 2 gives drivers/net
    #[arg(long, value_name = "PARTS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    depth: u32,
    #[command(flatten)]
    about: About,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What functions without a known folder are listed under.
const UNKNOWN: &str = "(folder not known)";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = arguments.about.described(&[])?;
    let folders = gathered(target.folders()?, arguments.depth as usize);
    let text = if arguments.html {
        html::text(&folders, &target.data().origin().to_string())
    } else if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&folders.iter().map(json).collect::<Vec<_>>())?)
    } else {
        table(&folders)
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// Takes folders together by the first parts of their paths; the largest first.
fn gathered(folders: Vec<Folder>, depth: usize) -> Vec<Folder> {
    let mut found: BTreeMap<String, Folder> = BTreeMap::new();
    for folder in folders {
        let path = folder.path.as_deref().map_or(UNKNOWN.to_owned(), |path| {
            path.split('/').take(depth + usize::from(path.starts_with('/'))).collect::<Vec<_>>().join("/")
        });
        let sum = found.entry(path).or_default();
        sum.wholly += folder.wholly;
        sum.partly += folder.partly;
        sum.never += folder.never;
    }
    let mut all: Vec<Folder> = found.into_iter().map(|(path, folder)| Folder { path: Some(path), ..folder }).collect();
    all.sort_by(|a, b| b.functions().cmp(&a.functions()).then_with(|| a.path.cmp(&b.path)));
    all
}

/// All folders together.
fn sum(folders: &[Folder]) -> Folder {
    folders.iter().fold(Folder::default(), |sum, folder| Folder {
        path: None,
        wholly: sum.wholly + folder.wholly,
        partly: sum.partly + folder.partly,
        never: sum.never + folder.never,
    })
}

fn path(folder: &Folder) -> &str {
    folder.path.as_deref().unwrap_or("all")
}

fn table(folders: &[Folder]) -> String {
    let mut text = format!("{:>9} {:>7} {:>7} {:>7}  FOLDER\n", "FUNCTIONS", "WHOLLY", "PARTLY", "NOT");
    for folder in folders.iter().chain([&sum(folders)]) {
        let Folder { wholly, partly, never, .. } = folder;
        let _ = writeln!(text, "{:>9} {wholly:>7} {partly:>7} {never:>7}  {}", folder.functions(), path(folder));
    }
    text
}

fn json(folder: &Folder) -> serde_json::Value {
    serde_json::json!({
        "folder": folder.path.as_deref().filter(|path| *path != UNKNOWN),
        "functions": folder.functions(),
        "wholly_inlined": folder.wholly,
        "partly_inlined": folder.partly,
        "not_inlined": folder.never,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_taken_together() {
        let folder =
            |path: Option<&str>, wholly, partly, never| Folder { path: path.map(str::to_owned), wholly, partly, never };
        let all = vec![folder(None, 0, 0, 3), folder(Some("fs"), 1, 2, 3), folder(Some("fs/ext4"), 1, 0, 0)];
        let deep = gathered(all.clone(), 2);
        assert_eq!(deep.iter().map(path).collect::<Vec<_>>(), ["fs", UNKNOWN, "fs/ext4"]);
        let flat = gathered(all, 1);
        assert_eq!(flat, [folder(Some("fs"), 2, 2, 3), folder(Some(UNKNOWN), 0, 0, 3)]);
        assert_eq!(sum(&flat).functions(), 10);
        // A compiler's own sources are elsewhere.
        assert_eq!(path(&gathered(vec![folder(Some("/usr/src/rust"), 1, 0, 0)], 1)[0]), "/usr");
        assert_eq!(table(&flat).lines().last(), Some("       10       2       2       6  all"));
        assert_eq!(json(&flat[1])["folder"], serde_json::Value::Null);
    }
}
