// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Architectures, and the names that each has.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// An architecture that kernels of the matrix run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arch {
    /// x86-64.
    #[serde(rename = "x86_64")]
    X86_64,
    /// arm64.
    #[serde(rename = "arm64")]
    Arm64,
}

/// One row of the table.
#[derive(Debug)]
struct Names {
    /// As the kernel and Rust name it.
    machine: &'static str,
    /// As Debian names it.
    debian: &'static str,
    triple: &'static str,
    gnu_triple: &'static str,
}

const X86_64: Names =
    Names { machine: "x86_64", debian: "amd64", triple: "x86_64-unknown-linux-gnu", gnu_triple: "x86_64-linux-gnu" };

const ARM64: Names =
    Names { machine: "aarch64", debian: "arm64", triple: "aarch64-unknown-linux-gnu", gnu_triple: "aarch64-linux-gnu" };

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Arm64];

    /// The one that this program was built for, if it is in the table.
    pub fn host() -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.names().machine == std::env::consts::ARCH)
    }

    fn names(self) -> &'static Names {
        match self {
            Arch::X86_64 => &X86_64,
            Arch::Arm64 => &ARM64,
        }
    }

    /// The Rust target that guest programs are built for.
    pub fn triple(self) -> &'static str {
        self.names().triple
    }

    /// GNU's name of the platform, which prefixes its compilers.
    pub fn gnu_triple(self) -> &'static str {
        self.names().gnu_triple
    }

    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub fn debian(self) -> &'static str {
        self.names().debian
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86_64",
            Arch::Arm64 => "arm64",
        })
    }
}

/// The name of no architecture in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture {0:?} (there are x86_64 and arm64)")]
pub struct UnknownArch(String);

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(name: &str) -> Result<Arch, UnknownArch> {
        Arch::ALL
            .into_iter()
            .find(|arch| {
                let names = arch.names();
                name == arch.to_string() || name == names.machine || name == names.debian
            })
            .ok_or_else(|| UnknownArch(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_name_is_known() {
        for (name, arch) in
            [("x86_64", Arch::X86_64), ("amd64", Arch::X86_64), ("arm64", Arch::Arm64), ("aarch64", Arch::Arm64)]
        {
            assert_eq!(name.parse(), Ok(arch));
        }
        assert!("riscv64".parse::<Arch>().unwrap_err().to_string().contains("riscv64"));
    }
}
