// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Imports between the parts of a crate go one way.
//!
//! A crate's parts are the modules that its lib.rs declares, most of them folders. Each crate states their order,
//! bottom up; a part uses those below it. What is used is read from the sources' tokens: paths that begin with `crate`
//! or `super`, in `use` items and in code, in tests and in macros.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, and the order of its parts.
struct Layers {
    /// The folder of lib.rs, in the workspace.
    folder: &'static str,
    /// From the bottom up. Those of one line are one part.
    order: &'static [&'static [&'static str]],
}

const LAYERS: [Layers; 6] = [
    Layers {
        folder: "loader/src",
        order: &[
            &["forked"],
            &["bpf"],
            &["site"],
            &["program"],
            &["trampoline"],
            &["kernel"],
            &["source"],
            &["target"],
            &["plan"],
            &["explain"],
            &["compile"],
            &["attach"],
            &["register"],
            &["error"],
            &["internals"],
        ],
    },
    Layers {
        folder: "encoder/src",
        order: &[
            &["threads"],
            &["observe"],
            &["elf"],
            &["error"],
            &["text"],
            &["debug"],
            &["lower"],
            &["types"],
            &["unit"],
            &["merge"],
            &["lines"],
        ],
    },
    Layers {
        folder: "sites/src",
        order: &[
            &["machine"],
            &["sums", "code"],
            &["doubt"],
            &["location"],
            &["btf"],
            &["site"],
            &["set"],
            &["both"],
            &["ranges"],
            &["file"],
            &["subset"],
            &["access"],
            &["evaluate"],
            &["abi"],
            &["earlier"],
            &["causes"],
        ],
    },
    Layers {
        folder: "kernels/src",
        order: &[
            &["arch"],
            &["child", "causes", "log"],
            &["cache", "workspace"],
            &["image"],
            &["matrix", "config"],
            &["error"],
            &["lock", "partial"],
            &["record"],
            &["module_tree"],
            &["debian"],
            &["buildroot"],
            &["build"],
            &["modules"],
            &["get"],
            &["chosen", "wanted", "own_data"],
        ],
    },
    Layers {
        folder: "vmtest/src",
        order: &[
            &["machine"],
            &["frame"],
            &["handover"],
            &["splat"],
            &["console"],
            &["accel"],
            &["initramfs"],
            &["guest"],
            &["guest_build"],
            &["go_build"],
            &["outcome"],
            &["error"],
            &["qemu", "turn"],
            &["vm"],
        ],
    },
    // No folders: what each handle is laid out as, and the numbers and texts of all.
    Layers {
        folder: "capi/src",
        order: &[
            &["text", "error"],
            &["layout", "options", "argument", "report", "link", "changes"],
            &["register"],
            &["target"],
            &["print"],
        ],
    },
];

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tokens(path: &Path) -> Vec<TokenTree> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    stream.into_iter().collect()
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// Whether `::` begins here.
fn is_path(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    tokens.len() > 2 && tokens[..2].iter().all(is_colon)
}

/// Paths of the crate that are used in a module: `["plan", "report"]` for `crate::plan::report`, as far as it matters,
/// two names.
fn used(tokens: &[TokenTree], module: &[String], found: &mut BTreeSet<Vec<String>>) {
    let mut at = 0;
    while at < tokens.len() {
        let here = &tokens[at..];
        at += 1;
        match &here[0] {
            TokenTree::Group(group) => {
                used(&group.stream().into_iter().collect::<Vec<_>>(), module, found);
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(name), Some(TokenTree::Group(body))) = (ident(here.get(1)), here.get(2)) {
                    let inner = [module, &[name]].concat();
                    used(&body.stream().into_iter().collect::<Vec<_>>(), &inner, found);
                    at += 2;
                }
            }
            TokenTree::Ident(word) if (word == "crate" || word == "super") && is_path(&here[1..]) => {
                let mut base = if word == "crate" { Vec::new() } else { parent(module) };
                let mut rest = &here[3..];
                while ident(rest.first()).as_deref() == Some("super") && is_path(&rest[1..]) {
                    base = parent(&base);
                    rest = &rest[3..];
                }
                at = tokens.len() - rest.len();
                found.extend(named(rest).into_iter().map(|name| [base.as_slice(), &[name]].concat()));
            }
            _ => {}
        }
    }
}

fn parent(module: &[String]) -> Vec<String> {
    module.split_last().map(|(_, above)| above.to_vec()).unwrap_or_default()
}

/// What comes first after `::`: a name, or each in braces.
fn named(tokens: &[TokenTree]) -> Vec<String> {
    match tokens.first() {
        Some(TokenTree::Ident(name)) => vec![name.to_string()],
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            inner.split(is_comma).filter_map(|item| ident(item.first())).collect()
        }
        _ => Vec::new(),
    }
}

/// The modules that lib.rs declares, and in which of them the names are that it re-exports.
fn library(folder: &Path) -> (BTreeSet<String>, BTreeMap<String, String>) {
    let tokens = tokens(&folder.join("lib.rs"));
    let (mut modules, mut names) = (BTreeSet::new(), BTreeMap::new());
    for (at, token) in tokens.iter().enumerate() {
        let word = ident(Some(token));
        let ends = |nth: usize| matches!(tokens.get(at + nth), Some(TokenTree::Punct(punct)) if punct.as_char() == ';');
        match word.as_deref() {
            Some("mod") if ends(2) => modules.extend(ident(tokens.get(at + 1))),
            Some("use") => {
                let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
                let item: Vec<TokenTree> =
                    tokens[at + 1..].iter().take_while(|token| !is_end(token)).cloned().collect();
                // `pub use self::{frame::Frame, vm::Vm}` or `pub use frame::{self, Frame}`.
                let item = if ident(item.first()).as_deref() == Some("self") { &item[3..] } else { &item[..] };
                reexported(item, None, &mut names);
            }
            _ => {}
        }
    }
    (modules, names)
}

/// Notes the last name of each path of a `use` item, and the first.
fn reexported(item: &[TokenTree], first: Option<&str>, names: &mut BTreeMap<String, String>) {
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    for path in item.split(is_comma) {
        let own = ident(path.first());
        let Some(module) = first.map(str::to_owned).or(own) else {
            if let Some(TokenTree::Group(group)) = path.first() {
                reexported(&group.stream().into_iter().collect::<Vec<_>>(), first, names);
            }
            continue;
        };
        match path.last() {
            Some(TokenTree::Group(group)) => {
                reexported(&group.stream().into_iter().collect::<Vec<_>>(), Some(&module), names);
            }
            Some(TokenTree::Ident(name)) => {
                names.insert(name.to_string(), module);
            }
            _ => {}
        }
    }
}

/// The source files below a folder, with the paths of their modules.
fn files(folder: &Path, module: &[String], found: &mut Vec<(PathBuf, Vec<String>)>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            files(&path, &[module, &[name]].concat(), found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let own = if name == "mod" { module.to_vec() } else { [module, &[name]].concat() };
            found.push((path, own));
        }
    }
}

/// What a crate has against its order.
fn wrong(layers: &Layers) -> Vec<String> {
    let folder = root().join(layers.folder);
    let (modules, names) = library(&folder);
    let rank = |part: &str| layers.order.iter().position(|line| line.contains(&part));
    let mut wrong: Vec<String> =
        modules.iter().filter(|part| rank(part).is_none()).map(|part| format!("{part} has no place")).collect();
    let stated = layers.order.iter().copied().flatten();
    wrong.extend(stated.filter(|part| !modules.contains(**part)).map(|part| format!("{part} is not there")));
    let mut sources = Vec::new();
    files(&folder, &[], &mut sources);
    for (path, module) in sources {
        let Some(own) = module.first().and_then(|part| Some((part, rank(part)?))) else { continue };
        let mut found = BTreeSet::new();
        used(&tokens(&path), &module, &mut found);
        for path in found {
            let Some(first) = path.first() else { continue };
            let part = if modules.contains(first) { first } else { names.get(first).unwrap_or(first) };
            // What lib.rs itself defines is above everything.
            if rank(part).is_none_or(|theirs| theirs > own.1) {
                wrong.push(format!("{} uses crate::{}: {} is below {part}", module.join("::"), path.join("::"), own.0));
            }
        }
    }
    wrong.into_iter().map(|line| format!("{}: {line}", layers.folder)).collect()
}

#[test]
fn imports_go_one_way() {
    let wrong: Vec<String> = LAYERS.iter().flat_map(wrong).collect();
    assert!(wrong.is_empty(), "{} imports go up:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_used_is_found_wherever_it_stands() {
    let text = "use crate::a::b; use crate::{c::d, e}; //! crate::no\n \
                fn f() -> super::g::H { println!(\"crate::no {}\", crate::i::j()) } \
                mod tests { use super::super::k; use super::{l, m::n}; }";
    let mut found = BTreeSet::new();
    let stream: TokenStream = text.parse().expect("it is Rust");
    let module = ["x".to_owned(), "y".to_owned()];
    used(&stream.into_iter().collect::<Vec<_>>(), &module, &mut found);
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a", "c", "e", "i", "x::g", "x::k", "x::y::l", "x::y::m"]);
}

/// Where a function is called that makes a system call of BPF's.
fn calls_of_bpf(tokens: &[TokenTree], found: &mut Vec<String>) {
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                // `syscall(libc::SYS_bpf, ...)`
                let number = ident(inner.get(3)).filter(|name| name == "SYS_bpf" || name == "SYS_perf_event_open");
                let is_call = at > 0 && ident(tokens.get(at - 1)).as_deref() == Some("syscall");
                found.extend(number.filter(|_| is_call));
                calls_of_bpf(&inner, found);
            }
            TokenTree::Ident(word) if word == "sys" && is_path(&tokens[at + 1..]) => {
                let name = ident(tokens.get(at + 3)).unwrap_or_default();
                // libbpf's names: `bpf_OBJECT_VERB()` is the system call, `bpf_object__verb()` and structures are not.
                let object = ["map", "prog", "link", "btf", "obj"].iter().any(|object| {
                    name.strip_prefix("bpf_")
                        .and_then(|name| name.strip_prefix(object))
                        .is_some_and(|rest| rest.starts_with('_') && !rest.starts_with("__"))
                });
                let ends =
                    ["_info", "_opts", "_type"].iter().any(|end| name.ends_with(end)) && !name.ends_with("run_opts");
                found.extend((object && !ends).then_some(name));
            }
            _ => {}
        }
    }
}

#[test]
fn one_folder_calls_bpf() {
    let mut sources = Vec::new();
    files(&root().join("loader/src"), &[], &mut sources);
    let (mut there, mut elsewhere) = (0, Vec::new());
    for (path, module) in sources {
        let mut found = Vec::new();
        calls_of_bpf(&tokens(&path), &mut found);
        if module.first().is_some_and(|part| part == "bpf") {
            there += found.len();
        } else {
            elsewhere.extend(found.iter().map(|call| format!("{}: {call}", module.join("::"))));
        }
    }
    assert!(there > 10, "only {there} calls were found where they are");
    assert!(elsewhere.is_empty(), "calls outside of bpf/: {}", elsewhere.join(", "));
}
