// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/supply-chain.md.

use crate::graph::{Graph, Package, duplicates};
use crate::licence::normal;
use crate::{SupplyError, count};
use std::fmt::Write as _;

/// The page, in the repository.
pub const PAGE: &str = "docs/supply-chain.md";

/// Code in other languages that crates bring along, which their own licence does not always name.
pub const NATIVE: [(&str, &str, &str); 6] = [
    ("libbpf-sys", "libbpf, if it is built with `vendored` or `static`", "LGPL-2.1 OR BSD-2-Clause"),
    ("libbpf-sys", "libelf of elfutils, if it is built with `static`", "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    ("libbpf-sys", "zlib, if it is built with `static`", "Zlib"),
    ("libmimalloc-sys", "mimalloc", "MIT"),
    ("ring", "cryptography of BoringSSL and fiat", "Apache-2.0 AND ISC AND MIT"),
    ("zstd-sys", "zstd", "BSD-3-Clause OR GPL-2.0-only"),
];

const HEAD: &str = "# What siteseer is built from

This page lists the crates that are linked into the command and the libraries, with their licences, and counts `unsafe`
in our own crates. `SITESEER_UPDATE_DOCS=1 cargo test -p siteseer-supply` writes it. The same test fails if a crate
comes from elsewhere than crates.io, has no licence, or has a licence that does not allow linking.

`ci/test` runs `cargo-deny` with `deny.toml`, also for the crates that only build and test siteseer: licences, sources,
and crates that are present in two versions. It does not check advisories: their database is a repository that changes
every day, and `ci/test` requires no network. `cargo deny check advisories` fetches the database and checks them.

`ci/supply notices` prints the notices that packages contain, and `ci/supply bill` prints a bill of materials (CycloneDX
1.5, JSON) with the checksum of every crate. Neither contains a time, so the same sources give the same text.

";

/// The text of the page.
///
/// # Errors
/// [`SupplyError`].
pub fn page(graph: &Graph) -> Result<String, SupplyError> {
    let mut out = HEAD.to_owned();
    let shipped = graph.shipped();
    out += "## Unsafe code\n\n`unsafe` in our own crates that are linked, without tests. Each block has a line that says why it is sound.\n\n";
    out += "| crate | blocks | functions | impls |\n|---|---:|---:|---:|\n";
    let linked = graph.reached().into_iter().filter(|package| graph.is_own(package));
    for package in linked {
        let source = package.folder().join("src");
        if source.is_dir() {
            let count::Unsafe { blocks, functions, impls } = count::in_folder(&source)?;
            let _ = writeln!(out, "| {} | {blocks} | {functions} | {impls} |", package.name);
        }
    }
    let _ = write!(
        out,
        "\n## Crates of others\n\n{} crates are linked into the command or the C library. {} more are used to build or to test.\n\n",
        shipped.len(),
        graph.foreign().len() - shipped.len()
    );
    out += "| crate | version | licence |\n|---|---|---|\n";
    for Package { name, version, license, .. } in &shipped {
        let _ = writeln!(out, "| {name} | {version} | {} |", license.as_deref().map_or_else(String::new, normal));
    }
    out += "\n## Code in other languages\n\n| crate | what it brings along | licence |\n|---|---|---|\n";
    for (name, what, licence) in NATIVE {
        let _ = writeln!(out, "| {name} | {what} | {licence} |");
    }
    out +=
        "\n## Several versions of one crate\n\nAmong the crates that are linked.\n\n| crate | versions |\n|---|---|\n";
    for (name, versions) in duplicates(&shipped) {
        let _ = writeln!(out, "| {name} | {} |", versions.join(", "));
    }
    Ok(out)
}
