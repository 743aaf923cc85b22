// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Installing siteseer into a folder, and building programs against what was installed.
//!
//! The guest has no libraries, so all is linked statically; that is the one way in which the programs are not built as
//! their pages say.

use siteseer_conformance::guest::examples::LIBBPFS;
use siteseer_conformance::install;
use siteseer_sites::with_causes;
use siteseer_vmtest::build_guest;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel whose types the C examples' vmlinux.h has. CO-RE makes them fit the others.
const TYPES_OF: &str = "deb-7.3-x86_64";
/// Examples in C, by their folders.
const IN_C: [&str; 2] = ["opensnoop", "fsynclat"];
/// The program of README.md.
const OF_README: &str = "fchmods";

/// What was built.
pub(super) struct Built {
    /// Programs by the names that the guest knows them by.
    pub(super) programs: BTreeMap<String, PathBuf>,
    /// The installed tool.
    pub(super) tool: PathBuf,
    pub(super) folder: PathBuf,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(super) fn words(text: impl std::fmt::Display) -> impl Fn(std::io::Error) -> String {
    let text = text.to_string();
    move |error| format!("{text}: {error}")
}

/// Runs a command that must succeed, and returns what it said.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(words(format_args!("{command:?}")))?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(said) } else { Err(format!("{command:?}: {}\n{said}", output.status)) }
}

/// `CLANG`, or the newest clang that is found.
fn clang() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
    let names = (14..=22).rev().map(|version| format!("clang-{version}")).chain(["clang".to_owned()]);
    let named = env::var("CLANG").ok();
    let found = named.as_deref().map_or_else(|| names.into_iter().find_map(|name| find(&name)), find);
    found.ok_or_else(|| "no clang found".to_owned())
}

/// The folder that cargo gives to tests.
pub(super) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// `make` in a folder of the tree.
pub(super) fn make(folder: &Path) -> Command {
    install::make(folder, scratch())
}

pub(super) fn assignment(name: &str, value: &Path) -> String {
    format!("{name}={}", value.display())
}

/// A shared library exports siteseer's functions, each with a version, and nothing else.
fn check_versions(library: &Path) -> Result<(), String> {
    if !library.exists() {
        return Ok(());
    }
    let printed = run(Command::new("readelf").args(["--wide", "--dyn-syms"]).arg(library))?;
    // Num: Value Size Type Bind Vis Ndx Name
    let columns = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let defined = columns.filter(|columns| columns.len() >= 8 && columns[3] == "FUNC" && columns[6] != "UND");
    let names: Vec<String> = defined.map(|columns| columns[7].to_owned()).collect();
    let wrong = names.iter().find(|name| !(name.starts_with("siteseer_") && name.contains("@@SITESEER_")));
    match wrong {
        None if names.iter().any(|name| name.starts_with("siteseer_register@@")) => Ok(()),
        _ => Err(format!("{}: functions without a version, or foreign ones: {names:?}", library.display())),
    }
}

pub(super) fn build() -> Result<Built, String> {
    let folder = scratch().join("examples");
    fs::create_dir_all(&folder).map_err(words(folder.display()))?;
    let kernel = siteseer_kernels::cached(TYPES_OF).ok_or_else(|| format!("no kernel: run ci/kernel {TYPES_OF}"))?;
    let clang = clang()?;
    let mut programs = BTreeMap::new();
    let mut tool = PathBuf::new();
    for libbpf in LIBBPFS {
        let prefix = folder.join(format!("prefix-{libbpf}"));
        run(make(&root()).arg("install").arg(assignment("PREFIX", &prefix)).arg(format!("LIBBPF={libbpf}")))?;
        tool = prefix.join("bin/siteseer");
        check_versions(&prefix.join("lib/libsiteseer.so"))?;
        let packages = prefix.join("lib/pkgconfig");
        for name in IN_C {
            let output = folder.join(format!("{name}-{libbpf}"));
            let mut command = make(&root().join("examples").join(name));
            command.args(["STATIC=1", "CFLAGS=-O2 -g -Wall -Wextra -Werror"]).env("PKG_CONFIG_PATH", &packages);
            command.arg(assignment("OUTPUT", &output)).arg(assignment("CLANG", &clang));
            command.arg(assignment("VMLINUX_BTF", &kernel.vmlinux));
            // Make does not know that the installed library is another one now.
            command.arg("-B");
            run(&mut command)?;
            programs.insert(format!("{name}-{libbpf}"), output.join(name));
        }
        let work = folder.join(format!("{OF_README}-{libbpf}"));
        programs.insert(format!("{OF_README}-{libbpf}"), readme(&work, &packages, &clang, &kernel.vmlinux)?);
    }
    let rust = build_guest("siteseer-example-capsnoop", "capsnoop", "guest").map_err(|error| with_causes(&error))?;
    programs.insert("capsnoop".to_owned(), rust);
    Ok(Built { programs, tool, folder })
}

/// A fenced block of a page, by the fence's word, from a place on; and where it ends.
fn block<'p>(page: &'p str, from: usize, word: &str) -> Option<(&'p str, usize)> {
    let fence = format!("```{word}\n");
    let begin = page.get(from..)?.find(&fence)? + from + fence.len();
    let end = page.get(begin..)?.find("```")? + begin;
    Some((page.get(begin..end)?, end))
}

/// Takes the program out of README.md, and builds it by the commands that follow it there.
fn readme(work: &Path, packages: &Path, clang: &Path, vmlinux: &Path) -> Result<PathBuf, String> {
    let page = fs::read_to_string(root().join("README.md")).map_err(words("README.md"))?;
    let at = page.find(&format!("```c\n/* {OF_README}.c")).ok_or("README.md has no such program")?;
    let (source, end) = block(&page, at, "c").ok_or("README.md: the program does not end")?;
    let (commands, _) = block(&page, end, "sh").ok_or("README.md: no commands follow the program")?;
    if source.lines().count() > 30 {
        return Err(format!("the program in README.md has {} lines, 30 were promised", source.lines().count()));
    }
    // The folder of the commands that stand for those of a machine where all is in place.
    let bin = work.join("bin");
    let _ = fs::remove_dir_all(work);
    fs::create_dir_all(&bin).map_err(words(bin.display()))?;
    symlink(clang, bin.join("clang")).map_err(words("clang"))?;
    for (name, line) in [("cc", "gcc -static \"$@\""), ("pkg-config", "/usr/bin/pkg-config --static \"$@\"")] {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\nexec {line}\n")).map_err(words(path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(words(path.display()))?;
    }
    fs::write(work.join(format!("{OF_README}.c")), source).map_err(words(work.display()))?;
    // The machine that runs this may have no BTF.
    let commands = commands.replace("/sys/kernel/btf/vmlinux", &vmlinux.to_string_lossy());
    let mut path = vec![bin];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    path.push("/usr/sbin".into());
    let path = env::join_paths(path).map_err(|error| error.to_string())?;
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &commands]).current_dir(work).env("PATH", path).env("PKG_CONFIG_PATH", packages);
    run(&mut shell)?;
    let program = work.join(OF_README);
    if program.is_file() { Ok(program) } else { Err(format!("the commands of README.md made no {OF_README}")) }
}

impl Built {
    /// Site data of a kernel, by the installed tool; kept, as they are of one build id.
    pub(super) fn encode(&self, vmlinux: &Path, build_id: &str) -> Result<PathBuf, String> {
        let sites = self.folder.join(format!("{build_id}.sites"));
        run(Command::new(&self.tool).arg("encode").arg(vmlinux).arg("-o").arg(&sites))?;
        Ok(sites)
    }

    /// Sites of a function, as the installed tool prints them.
    pub(super) fn sites(&self, function: &str, sites: &Path) -> Result<String, String> {
        run(Command::new(&self.tool).args(["sites", function, "--sites"]).arg(sites))
    }
}
