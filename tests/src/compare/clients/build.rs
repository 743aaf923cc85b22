// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Builds the tools in the build root, by tests/clients/build.mk. What is compiled stays in the cache; what is linked
//! stays beside siteseer's library.

use super::Way;
use crate::guest::case::Failure;
use siteseer_kernels::buildroot::{BuildRoot, Mount};
use siteseer_kernels::cache;
use siteseer_kernels::log::last_lines;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The source package.
const PACKAGE: &str = "bpfcc";
/// Where the build root has the objects, this workspace's files, and siteseer's library.
const OBJECTS: &str = "/build/objects";
const RULES: &str = "/build/rules";
const SITESEER: &str = "/build/siteseer";

/// The build of a version of the sources in a build root.
pub struct Build<'r> {
    root: &'r BuildRoot,
    installed: &'r Path,
    objects: PathBuf,
    /// The version of the sources.
    pub version: String,
    // Others build in the same folder.
    _lock: File,
}

impl Build<'_> {
    /// Makes the folder of the build. `installed` is where siteseer's library is.
    ///
    /// # Errors
    /// If there are no sources, or no folder.
    pub fn new<'r>(root: &'r BuildRoot, installed: &'r Path) -> Result<Build<'r>, Failure> {
        let version = root.source_version(PACKAGE)?;
        let cache = cache::directory().ok_or("neither HOME nor XDG_CACHE_HOME is set")?;
        let objects = cache.join("clients").join(format!("{}-{version}", root.key()));
        let failed = |error| format!("{}: {error}", objects.display());
        fs::create_dir_all(&objects).map_err(failed)?;
        let lock = File::create(objects.join("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let build = Build { root, installed, objects, version, _lock: lock };
        build.run(&format!(
            "cd {OBJECTS}; [ -d tools ] || {{ rm -rf new; cp -a /usr/src/{PACKAGE}/libbpf-tools new; mv new tools; }}"
        ))?;
        Ok(build)
    }

    /// All tools, each with the one that it is another name of.
    ///
    /// # Errors
    /// If the makefile does not tell.
    pub fn tools(&self) -> Result<BTreeMap<String, String>, Failure> {
        let names = self.make("names")?;
        Ok(names.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect())
    }

    /// Builds tools, and returns why some of them cannot be built: what make or the build root says.
    pub fn build(&self, tools: &BTreeSet<&str>, ways: &[Way]) -> BTreeMap<String, String> {
        let goals = |tool: &str| ways.iter().map(|way| format!(" {SITESEER}/tools/{}/{tool}", way.folder())).collect();
        let all: String = tools.iter().map(|tool| goals(tool)).collect::<Vec<String>>().concat();
        if self.make(&all).is_ok() {
            return BTreeMap::new();
        }
        let why = |tool: &&str| Some(((*tool).to_owned(), self.make(&goals(tool)).err()?.to_string()));
        tools.iter().filter_map(why).collect()
    }

    /// Where a tool is.
    pub fn program(&self, way: Way, tool: &str) -> PathBuf {
        self.installed.join("tools").join(way.folder()).join(tool)
    }

    fn make(&self, goals: &str) -> Result<String, Failure> {
        self.run(&format!("cd {OBJECTS}/tools; make -s -k -j$(nproc) -f {RULES}/build.mk SITESEER={SITESEER} {goals}"))
    }

    fn run(&self, script: &str) -> Result<String, Failure> {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let mounts = [
            Mount::writable(&self.objects, OBJECTS),
            Mount::read_only(&rules, RULES),
            Mount::writable(self.installed, SITESEER),
        ];
        let output = self.root.command(&mounts, &[], &["sh", "-ec", script].map(OsStr::new)).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(last_lines(&said, 20).into())
        }
    }
}
