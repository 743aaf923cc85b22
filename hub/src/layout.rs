// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The files of a hub, and its index. docs/hub.md describes them.

use serde::{Deserialize, Serialize};
use siteseer::internals::kernel::BuildId;

/// The site file of a kernel's image, packed and compressed.
pub const SITES: &str = "sites.zst";
/// The kernel's `.BTF`, which the site file then lacks; packed and compressed.
pub const BTF: &str = "btf.zst";
/// The site files of its modules, packed together and compressed.
pub const MODULES: &str = "modules.zst";
/// Those of a hub of version 1: in one compressed archive.
pub const MODULES_1: &str = "modules.tar.zst";
/// What there is.
pub const INDEX: &str = "index.json";
/// The same for people.
pub const PAGE: &str = "index.html";
/// What follows the name of a file in that of its signature, as minisign(1) has it.
pub const SIGNATURE: &str = ".minisig";
/// The version of the index. Version 1 is read too: its site files are not packed.
pub const VERSION: u32 = 2;
/// The version of what signatures say.
const SIGNED: u32 = 1;

/// Where a file of a kernel is, from the hub's top.
pub fn path(id: &BuildId, file: &str) -> String {
    format!("buildid/{id}/{file}")
}

/// What the signature of a file says besides: which file it is of. A server cannot answer with another signed file.
pub fn comment(path: &str) -> String {
    format!("siteseer {SIGNED} {path}")
}

/// A build id in hexadecimal digits.
pub fn parse_id(text: &str) -> Option<BuildId> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let bytes = digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    (is_hex && digits.len().is_multiple_of(2) && (1..=64).contains(&bytes.len())).then_some(BuildId(bytes))
}

/// What a hub has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// [`VERSION`].
    pub version: u32,
    /// By release, then by build id.
    pub kernels: Vec<Kernel>,
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// What `uname -r` prints; empty if it is not known.
    pub release: String,
    /// In hexadecimal digits.
    pub build_id: String,
    /// `x86_64` or `aarch64`.
    pub machine: String,
    /// The version of the siteseer that encoded it: that of another version is encoded again.
    pub encoder: String,
    /// The version of the index that its files are of.
    #[serde(default = "first_version")]
    pub format: u32,
    /// Bytes of the site file, and as it is stored, without its `.BTF` if that is stored beside it.
    pub image: Sizes,
    /// The same of the `.BTF`; 0 if it is in the site file.
    #[serde(default)]
    pub btf: Sizes,
    /// The same for all of its modules together; 0 without modules.
    pub modules: Sizes,
    /// The package that it was encoded from: name, architecture and version; absent if it was added by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// What is in it.
    pub census: Census,
}

fn first_version() -> u32 {
    1
}

impl Kernel {
    /// Bytes in the hub, without signatures.
    pub fn stored(&self) -> u64 {
        self.image.stored + self.btf.stored + self.modules.stored
    }
}

/// How large something is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// How many files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes after compression.
    pub stored: u64,
}

/// What is in the site data of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Functions with sites.
    pub functions: u64,
    /// Sites.
    pub sites: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids() {
        assert_eq!(parse_id("00fF"), Some(BuildId(vec![0, 0xff])));
        for bad in ["", "0", "0g", "+1", "../..", &"00".repeat(65)] {
            assert_eq!(parse_id(bad), None, "{bad}");
        }
    }
}
