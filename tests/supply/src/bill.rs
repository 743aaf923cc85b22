// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A bill of materials of what is shipped: CycloneDX 1.5, JSON.
//!
//! It has no time and no serial number, so that the same sources give the same bytes.

use crate::graph::{Graph, Package};
use crate::licence::normal;
use crate::{SupplyError, read, root};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The checksums of Cargo.lock, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>, SupplyError> {
    let malformed = |why: Box<dyn std::error::Error + Send + Sync>| SupplyError::Malformed { what: "Cargo.lock", why };
    let lock: toml::Table =
        read(&root().join("Cargo.lock"))?.parse().map_err(|why: toml::de::Error| malformed(why.into()))?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).ok_or_else(|| malformed("no packages".into()))?;
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let one = |package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?));
    Ok(packages.iter().filter_map(one).collect())
}

/// A package URL, which names it.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// The bill.
///
/// # Errors
/// [`SupplyError::Read`], [`SupplyError::Malformed`].
pub fn bill(graph: &Graph) -> Result<Value, SupplyError> {
    let checksums = checksums()?;
    let component = |package: &Package| {
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(package),
            "name": package.name,
            "version": package.version,
            "purl": reference(package),
        });
        if let Some(licence) = &package.license {
            component["licenses"] = json!([{ "expression": normal(licence) }]);
        }
        if let Some(sum) = checksums.get(&(package.name.clone(), package.version.clone())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let reached = graph.reached();
    let depends = |package: &&Package| {
        let on: Vec<String> = graph.links_of(package).into_iter().map(reference).collect();
        json!({ "ref": reference(package), "dependsOn": on })
    };
    let version = reached.iter().find(|package| package.name == "siteseer").map(|package| package.version.clone());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "siteseer", "version": version } },
        "components": reached.iter().map(|package| component(package)).collect::<Vec<Value>>(),
        "dependencies": reached.iter().map(depends).collect::<Vec<Value>>(),
    }))
}
