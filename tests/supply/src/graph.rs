// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The crates, and which of them are linked into what is shipped: the command, and the libraries.

use crate::SupplyError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that are shipped.
pub const SHIPPED: [&str; 2] = ["siteseer-cli", "siteseer-capi"];

/// The only place that crates come from.
pub const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What `cargo metadata` prints, as far as it is looked at.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// A crate.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Package {
    id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it says of its licence: an SPDX expression.
    pub license: Option<String>,
    /// Where it comes from; `None` for a crate of ours.
    pub source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Clone, Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl Package {
    /// The folder of its sources.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Whether it runs in the compiler alone.
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

/// All crates.
#[derive(Debug)]
pub struct Graph {
    packages: BTreeMap<String, Package>,
    members: BTreeSet<String>,
    /// By package: what it links, and what it only needs to be built or tested.
    links: BTreeMap<String, Vec<String>>,
}

impl Graph {
    /// What cargo says of the workspace, for Linux.
    ///
    /// # Errors
    /// [`SupplyError::Cargo`], [`SupplyError::Malformed`].
    pub fn read() -> Result<Graph, SupplyError> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ]);
        let output = command.current_dir(crate::root()).output();
        let output = output.map_err(|error| SupplyError::Cargo { said: error.to_string() })?;
        if !output.status.success() {
            return Err(SupplyError::Cargo { said: String::from_utf8_lossy(&output.stderr).into_owned() });
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout)
            .map_err(|why| SupplyError::Malformed { what: "what cargo metadata printed", why: why.into() })?;
        Ok(Graph::of(metadata))
    }

    fn of(metadata: Metadata) -> Graph {
        let linked = |dependency: &Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
        let links = metadata.resolve.nodes.into_iter().map(|node| {
            let linked = node.deps.into_iter().filter(linked).map(|dependency| dependency.pkg);
            (node.id, linked.collect())
        });
        Graph {
            links: links.collect(),
            members: metadata.workspace_members,
            packages: metadata.packages.into_iter().map(|package| (package.id.clone(), package)).collect(),
        }
    }

    /// Crates of others, by name and version.
    pub fn foreign(&self) -> Vec<&Package> {
        by_name(self.packages.values().filter(|package| !self.is_own(package)))
    }

    /// Our own crates.
    fn own(&self) -> Vec<&Package> {
        by_name(self.packages.values().filter(|package| self.is_own(package)))
    }

    /// Whether a crate is our own.
    pub fn is_own(&self, package: &Package) -> bool {
        self.members.contains(&package.id)
    }

    /// Crates of others that are linked into what is shipped.
    pub fn shipped(&self) -> Vec<&Package> {
        let shipped = self.reached();
        by_name(shipped.into_iter().filter(|package| !self.is_own(package)))
    }

    /// What a crate links.
    pub fn links_of(&self, package: &Package) -> Vec<&Package> {
        let links = self.links.get(&package.id).into_iter().flatten();
        by_name(links.filter_map(|id| self.packages.get(id)).filter(|linked| !linked.is_macro()))
    }

    /// What is shipped, with all that it links.
    pub fn reached(&self) -> Vec<&Package> {
        let mut left: Vec<&Package> =
            self.own().into_iter().filter(|package| SHIPPED.contains(&&*package.name)).collect();
        let mut reached = BTreeMap::new();
        while let Some(package) = left.pop() {
            if reached.insert(&package.id, package).is_none() {
                left.extend(self.links_of(package));
            }
        }
        by_name(reached.into_values())
    }
}

fn by_name<'p>(packages: impl Iterator<Item = &'p Package>) -> Vec<&'p Package> {
    let mut packages: Vec<&Package> = packages.collect();
    packages.sort_by_key(|package| (&package.name, &package.version));
    packages
}

/// Names that several versions of have.
pub fn duplicates<'p>(packages: &[&'p Package]) -> BTreeMap<&'p str, Vec<&'p str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_told_from_what_only_builds() {
        let package = |id: &str, kind: &str| {
            serde_json::json!({
                "id": id, "name": id, "version": "1.0.0", "license": "MIT", "source": REGISTRY,
                "manifest_path": "/x/Cargo.toml", "targets": [{"kind": [kind]}]
            })
        };
        let needs = |pkg: &str, kind: Option<&str>| serde_json::json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]});
        let metadata = serde_json::json!({
            "packages": [
                package("siteseer-cli", "bin"), package("linked", "lib"), package("deeper", "lib"), package("built", "lib"),
                package("tested", "lib"), package("macros", "proc-macro"), package("in_macros", "lib")
            ],
            "workspace_members": ["siteseer-cli"],
            "resolve": {"nodes": [
                {"id": "siteseer-cli", "deps": [
                    needs("linked", None), needs("built", Some("build")), needs("tested", Some("dev")), needs("macros", None)
                ]},
                {"id": "linked", "deps": [needs("deeper", None)]},
                {"id": "macros", "deps": [needs("in_macros", None)]}
            ]}
        });
        let graph = Graph::of(serde_json::from_value(metadata).unwrap());
        let names: Vec<&str> = graph.shipped().iter().map(|package| &*package.name).collect();
        assert_eq!(names, ["deeper", "linked"]);
        assert_eq!(graph.foreign().len(), 6);
    }
}
