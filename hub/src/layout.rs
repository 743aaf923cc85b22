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
/// The version of an index with files that are stored as differences. Older ones are read too.
pub const VERSION: u32 = 3;
/// The version of an index without such files, and of how files are packed. Those of version 1 are not packed.
pub const PACKED: u32 = 2;
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

/// What a release says about which kernels it is near to.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release<'r> {
    /// The numbers of the version, and of the distribution's own numbering.
    numbers: Vec<u64>,
    flavour: Vec<&'r str>,
}

impl Release<'_> {
    /// Whether it is of the same flavour and of the same series of upstream's, such as 6.12.
    pub(crate) fn is_near(&self, other: &Release<'_>) -> bool {
        let series = |release: &Self| release.numbers.iter().take(2).copied().collect::<Vec<u64>>();
        self.flavour == other.flavour
            && self.numbers.len() >= 2
            && series(self) == other.numbers.get(..2).unwrap_or(&[])
    }
}

/// Reads a release such as `6.12.115+deb13.1-cloud-amd64` or `6.1.0-50-amd64`. `None` if it does not begin with a
/// number.
pub(crate) fn release(text: &str) -> Option<Release<'_>> {
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let version = text.split('-').next().filter(|text| text.starts_with(|first: char| first.is_ascii_digit()))?;
    let (numbers, flavour): (Vec<&str>, Vec<&str>) = text.split('-').skip(1).partition(is_number);
    let numbers =
        std::iter::once(version).chain(numbers).flat_map(|part| part.split(|other: char| !other.is_ascii_digit()));
    Some(Release { numbers: numbers.filter_map(|number| number.parse().ok()).collect(), flavour })
}

/// What a hub has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// [`VERSION`], or [`PACKED`] if no file is stored as a difference: older releases of siteseer read that too.
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
    pub image: Part,
    /// The same of the `.BTF`; 0 if it is in the site file.
    #[serde(default)]
    pub btf: Part,
    /// The same for all of its modules together; 0 without modules.
    pub modules: Part,
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
    /// Its files, by their names where they are not differences.
    pub fn parts(&self) -> [(&'static str, &Part); 3] {
        [(SITES, &self.image), (BTF, &self.btf), (MODULES, &self.modules)]
    }

    /// The same, to be changed.
    pub(crate) fn part_mut(&mut self, file: &str) -> &mut Part {
        match file {
            SITES => &mut self.image,
            BTF => &mut self.btf,
            _ => &mut self.modules,
        }
    }

    /// One of its files.
    pub(crate) fn part(&self, file: &str) -> &Part {
        match file {
            SITES => &self.image,
            BTF => &self.btf,
            _ => &self.modules,
        }
    }

    /// Whether a file of it is stored as a difference from this kernel's.
    pub fn is_over(&self, build_id: &str) -> bool {
        self.parts().iter().any(|(_, part)| part.base.as_ref().is_some_and(|base| base.build_id == build_id))
    }

    /// Bytes in the hub, without signatures.
    pub fn stored(&self) -> u64 {
        self.parts().iter().fold(0, |sum, (_, part)| sum.saturating_add(part.stored))
    }
}

/// A file of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// How many site files are in it.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes after compression.
    pub stored: u64,
    /// What it is stored as a difference from; absent if it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

impl Part {
    /// The name of the file in the kernel's folder. `file` is its name if it is whole.
    pub fn name(&self, file: &'static str) -> &'static str {
        match file {
            _ if self.base.is_none() => file,
            SITES => "sites.delta.zst",
            BTF => "btf.delta.zst",
            _ => "modules.delta.zst",
        }
    }
}

/// What a file is stored as a difference from: the same file of another kernel, which is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The other kernel.
    pub build_id: String,
    /// SHA-256 of its file, decompressed, in hexadecimal digits.
    pub sha256: String,
    /// Bytes of the file at hand, decompressed.
    pub unpacked: u64,
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
    fn releases() {
        let near = |one: &str, other: &str| release(one).unwrap().is_near(&release(other).unwrap());
        assert!(near("6.12.115+deb13.1-cloud-amd64", "6.12.9+deb13-cloud-amd64"));
        assert!(near("6.1.0-50-amd64", "6.1.0-51-amd64"));
        assert!(!near("6.12.115+deb13-cloud-amd64", "6.12.115+deb13-amd64"));
        assert!(!near("6.12.115+deb13-amd64", "6.1.115+deb13-amd64"));
        assert!(!near("6", "6"));
        assert!(release("6.12.115+deb13-amd64") > release("6.12.9+deb13-amd64"));
        assert!(release("6.12.115+deb13.1-amd64") > release("6.12.115+deb13-amd64"));
        assert_eq!((release(""), release("x.6")), (None, None));
    }

    #[test]
    fn build_ids() {
        assert_eq!(parse_id("00fF"), Some(BuildId(vec![0, 0xff])));
        for bad in ["", "0", "0g", "+1", "../..", &"00".repeat(65)] {
            assert_eq!(parse_id(bad), None, "{bad}");
        }
    }
}
