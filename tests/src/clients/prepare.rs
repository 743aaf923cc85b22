// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the guest gets: the tools and the shared libraries of the build root, the plugs, and a disk.

use super::table::{self, Known};
use super::{JOBS, Job, PLUG_OWN, PLUG_SHARED, Way, linked};
use crate::case::Failure;
use object::read::elf::{Dyn, ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, elf};
use siteseer_kernels::buildroot::{BuildRoot, workspace_rows};
use siteseer_kernels::with_causes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The row of kernels/buildroot.toml.
const BUILD_ROOT: &str = "clients";
/// What Debian appends to the tools' names.
const ENDING: &str = "-libbpf";
/// Where the build root has shared libraries, and where the guest's linker looks for them.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The dynamic linker.
const LINKER: &str = "lib64/ld-linux-x86-64.so.2";
/// The size of the disk.
const DISK: u64 = 128 << 20;

/// Files for the guest.
pub struct Prepared {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// What is known about the tools.
    pub known: BTreeMap<String, Known>,
    /// Files of the host, by their places in the guest.
    pub files: BTreeMap<String, PathBuf>,
    /// The image of the disk.
    pub disk: PathBuf,
    /// The version of the package.
    pub version: String,
}

/// Makes everything in a folder. `installed` is where siteseer's library is; `wanted` are the names of tools, or none
/// for all.
///
/// # Errors
/// If a tool, a library or a program of the host is missing.
pub fn prepare(folder: &Path, installed: &Path, wanted: &[String], ways: &[Way]) -> Result<Prepared, Failure> {
    let rows = workspace_rows()?;
    let root = BuildRoot::get(rows.row(BUILD_ROOT)?, false, |line| eprintln!("{line}"))?;
    let root = root.directory();
    let libbpf = fs::read(root.join(LIBRARIES).join("libbpf.a"))?;
    let names = linked::names(&libbpf)?;
    let mut files = plugs(folder, installed, &names)?;
    let known = table::read()?;
    let mut jobs = Vec::new();
    for entry in fs::read_dir(root.join("usr/sbin"))? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(ENDING) else { continue };
        let of_tool = |(row, known): &(&String, &Known)| known.program.as_ref().unwrap_or(row) == name;
        let mut rows: BTreeMap<&str, &[String]> =
            known.iter().filter(of_tool).map(|(row, known)| (&row[..], &known.arguments[..])).collect();
        rows.entry(name).or_default();
        rows.retain(|row, _| wanted.is_empty() || wanted.iter().any(|wanted| wanted == row));
        if rows.is_empty() {
            continue;
        }
        // Many are links to one program with several names.
        let program = fs::canonicalize(&path)?;
        let functions = linked::find(&libbpf, &fs::read(&program)?).map_err(|why| format!("{file}: {why}"))?;
        let lines: String = functions.iter().map(|(name, address)| format!("{name} {address:x}\n")).collect();
        let map = folder.join(format!("{name}.map"));
        fs::write(&map, lines)?;
        let place = |folder: &str| format!("/clients/{folder}/{name}");
        files.insert(place("map"), map);
        files.insert(place("bin"), program);
        jobs.extend(rows.into_iter().map(|(row, arguments)| Job {
            name: row.to_owned(),
            program: place("bin"),
            arguments: arguments.to_vec(),
            map: place("map"),
            ways: ways.to_vec(),
        }));
    }
    jobs.sort_by(|one, other| one.name.cmp(&other.name));
    let exists = |name: &str| root.join("usr/sbin").join(format!("{name}{ENDING}")).exists();
    let tools = known.iter().map(|(row, known)| known.program.as_ref().unwrap_or(row));
    if let Some(name) = tools.chain(wanted.iter().filter(|row| !known.contains_key(*row))).find(|name| !exists(name)) {
        return Err(format!("the package has no tool {name}").into());
    }
    let list = folder.join("jobs.json");
    fs::write(&list, serde_json::to_vec(&jobs)?)?;
    files.insert(JOBS.to_owned(), list);
    let programs: Vec<PathBuf> = files.values().cloned().collect();
    libraries(root, installed, &programs, &mut files)?;
    files.insert(format!("/{LINKER}"), fs::canonicalize(root.join("usr").join(LINKER))?);
    let version = version(&fs::read_to_string(root.join("var/lib/dpkg/status"))?);
    let version = version.ok_or("the build root has no libbpf-tools")?;
    Ok(Prepared { jobs, known, files, disk: disk(folder)?, version })
}

/// Compiles the plugs.
fn plugs(folder: &Path, installed: &Path, names: &BTreeSet<String>) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/plug.c");
    let list = folder.join("names.h");
    fs::write(&list, names.iter().map(|name| format!("NAME({name})\n")).collect::<String>())?;
    let compile = |output: &str, options: &[String], libraries: &[String]| {
        let output = folder.join(output);
        let mut command = Command::new("cc");
        command.args([
            "-shared",
            "-fPIC",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wl,-z,defs",
            "-Wl,--gc-sections",
            "-s",
        ]);
        command.arg("-I").arg(installed.join("include")).args(options).arg("-o").arg(&output).arg(&source);
        command.args(libraries).args(["-static-libgcc", "-lgcc_eh", "-lpthread", "-lm", "-ldl"]);
        run(&mut command).map(|()| output)
    };
    let library = installed.join("lib");
    // The program must not find siteseer's functions, and siteseer must not find the program's.
    let own = [format!("-DNAMES=\"{}\"", list.display()), "-Wl,--exclude-libs,ALL".to_owned()];
    let own = compile("plug-own.so", &own, &[library.join("libsiteseer.a").display().to_string()])?;
    let with_shared = [format!("-L{}", library.display()), "-lsiteseer".to_owned(), "-lbpf".to_owned()];
    let shared = compile("plug-shared.so", &["-DSHARED".to_owned()], &with_shared)?;
    Ok(BTreeMap::from([(PLUG_OWN.to_owned(), own), (PLUG_SHARED.to_owned(), shared)]))
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}\n{said}", output.status).into()) }
}

/// The shared libraries that the programs need, and those that these need.
fn libraries(
    root: &Path,
    installed: &Path,
    programs: &[PathBuf],
    files: &mut BTreeMap<String, PathBuf>,
) -> Result<(), Failure> {
    let mut open: Vec<PathBuf> = programs.to_vec();
    while let Some(path) = open.pop() {
        for name in needed(&fs::read(&path)?) {
            let place = format!("/{LIBRARIES}/{name}");
            if files.contains_key(&place) || LINKER.ends_with(&name) {
                continue;
            }
            let folders = [root.join(LIBRARIES), installed.join("lib")];
            let found = folders.iter().map(|folder| folder.join(&name)).find(|library| library.exists());
            let found = found.ok_or_else(|| format!("{} needs {name}, which is not there", path.display()))?;
            let found = fs::canonicalize(found)?;
            open.push(found.clone());
            files.insert(place, found);
        }
    }
    Ok(())
}

/// The names in a file's DT_NEEDED. A file that is not ELF needs nothing.
fn needed(file: &[u8]) -> Vec<String> {
    let Ok(parsed) = ElfFile64::<Endianness>::parse(file) else { return Vec::new() };
    let (header, endian) = (parsed.elf_header(), parsed.endian());
    let names = || -> Option<Vec<String>> {
        let sections = header.sections(endian, file).ok()?;
        let (entries, link) = sections.iter().find_map(|section| section.dynamic(endian, file).ok()?)?;
        let strings = sections.strings(endian, file, link).ok()?;
        let needed = entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
        Some(
            needed
                .filter_map(|entry| Some(String::from_utf8_lossy(entry.string(endian, strings).ok()?).into_owned()))
                .collect(),
        )
    };
    names().unwrap_or_default()
}

fn version(status: &str) -> Option<String> {
    let paragraph = status.split("\n\n").find(|paragraph| paragraph.lines().any(|l| l == "Package: libbpf-tools"))?;
    paragraph.lines().find_map(|line| line.strip_prefix("Version: ")).map(str::to_owned)
}

/// An empty ext4 file system.
fn disk(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("disk");
    fs::File::create(&path)?.set_len(DISK)?;
    run(Command::new("mkfs.ext4").env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").arg("-q").arg(&path))
        .map_err(|why| with_causes(&*why))?;
    Ok(path)
}
