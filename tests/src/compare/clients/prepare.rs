// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the guest gets: the tools, the shared libraries of the build root, and a disk.

use super::build::Build;
use super::table::{self, Known};
use super::{JOBS, Job, Way};
use crate::guest::case::Failure;
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
    /// The version of the sources.
    pub version: String,
    /// Tools that cannot be built, and why.
    pub unbuilt: BTreeMap<String, String>,
}

/// Makes everything in a folder. `installed` is where siteseer's library is; `wanted` are the names of tools, or none
/// for all.
///
/// # Errors
/// If a tool, a library or a program of the host is missing.
pub fn prepare(folder: &Path, installed: &Path, wanted: &[String], ways: &[Way]) -> Result<Prepared, Failure> {
    let rows = workspace_rows()?;
    let root = BuildRoot::get(rows.row(BUILD_ROOT)?, false, |line| eprintln!("{line}"))?;
    let build = Build::new(&root, installed)?;
    let known = table::read()?;
    let tools = build.tools()?;
    let tool_of = |row: &str| known.get(row).and_then(|known| known.program.clone()).unwrap_or_else(|| row.to_owned());
    let rows: BTreeSet<&String> =
        if wanted.is_empty() { tools.keys().chain(known.keys()).collect() } else { wanted.iter().collect() };
    let mut jobs = Vec::new();
    for row in rows {
        let tool = tool_of(row);
        let Some(file) = tools.get(&tool).cloned() else {
            let missing = format!("libbpf-tools {} has no tool {tool}", build.version);
            // Other versions have more tools.
            if wanted.is_empty() {
                eprintln!("{missing}: its row of tools.toml is passed over");
                continue;
            }
            return Err(missing.into());
        };
        let arguments = known.get(row).map(|known| known.arguments.clone()).unwrap_or_default();
        jobs.push(Job { name: row.clone(), tool, file, arguments, ways: ways.to_vec() });
    }
    let unbuilt = build.build(&jobs.iter().map(|job| &job.file[..]).collect(), ways);
    jobs.retain(|job| !unbuilt.contains_key(&job.file));
    let mut files = BTreeMap::new();
    for (job, way) in jobs.iter().flat_map(|job| job.ways.iter().map(move |way| (job, *way))) {
        files.insert(way.program(&job.file), build.program(way, &job.file));
    }
    let version = build.version.clone();
    let root = root.directory();
    let list = folder.join("jobs.json");
    fs::write(&list, serde_json::to_vec(&jobs)?)?;
    files.insert(JOBS.to_owned(), list);
    let programs: Vec<PathBuf> = files.values().cloned().collect();
    libraries(root, installed, &programs, &mut files)?;
    files.insert(format!("/{LINKER}"), fs::canonicalize(root.join("usr").join(LINKER))?);
    Ok(Prepared { jobs, known, files, disk: disk(folder)?, version, unbuilt })
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

/// An empty ext4 file system.
fn disk(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("disk");
    fs::File::create(&path)?.set_len(DISK)?;
    run(Command::new("mkfs.ext4").env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").arg("-q").arg(&path))
        .map_err(|why| with_causes(&*why))?;
    Ok(path)
}
