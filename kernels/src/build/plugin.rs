// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Plugins of compilers (tests/truth/plugins), with which a kernel is compiled that writes down where its parameters
//! are.
//!
//! A plugin is compiled in the row's build root, against the headers of the compiler that loads it. Its sources are
//! part of the kernel's recipe: another plugin makes another kernel. Such a kernel is read and not booted, so only its
//! vmlinux is made.

use std::{fs, path::Path};

use crate::{arch::Arch, error::GetError, matrix::Plugin};

/// Where the build root has the plugins' sources.
pub(crate) const SOURCES: &str = "/build/plugins";

/// The file that both plugins share.
const RECORD: &str = "record.h";

impl Plugin {
    fn source(self) -> &'static str {
        match self {
            Plugin::Gcc => "marker_gcc.cc",
            Plugin::Llvm => "marker_llvm.cpp",
        }
    }

    /// The packages of the build root that shape what is compiled with it, besides those of any kernel.
    pub(crate) fn tools(self, arch: Arch) -> &'static [&'static str] {
        match (self, arch) {
            (Plugin::Gcc, Arch::X86_64) => &["gcc-14"],
            (Plugin::Gcc, Arch::Arm64) => &["gcc-14-aarch64-linux-gnu"],
            (Plugin::Llvm, _) => &[],
        }
    }

    /// Its sources, and their names.
    pub(crate) fn read(self, directory: &Path) -> Result<Vec<(String, String)>, GetError> {
        let read = |name: &str| {
            let path = directory.join(name);
            let text = fs::read_to_string(&path).map_err(GetError::io(format!("cannot read {}", path.display())))?;
            Ok((name.to_owned(), text))
        };
        [RECORD, self.source()].into_iter().map(read).collect()
    }

    /// A shell's command that compiles it to a file.
    pub(crate) fn compile(self, arch: Arch, to: &str) -> String {
        let source = format!("{SOURCES}/{}", self.source());
        match (self, arch) {
            (Plugin::Gcc, Arch::X86_64) => gcc("gcc-14", "", &source, to),
            (Plugin::Gcc, Arch::Arm64) => gcc("aarch64-linux-gnu-gcc-14", "-DSITESEER_ARM64", &source, to),
            (Plugin::Llvm, _) => {
                format!("clang++-22 $(llvm-config-22 --cxxflags) -O1 -shared -fPIC {source} -o {to}")
            }
        }
    }

    /// Words for make: the compiler loads the plugin from a file, and the linker takes what it wrote. An operand may
    /// refer to a variable that this configuration lacks, where all code that needs it was removed.
    pub(crate) fn words(self, arch: Arch, file: &str) -> [String; 2] {
        let (flag, linker) = match (self, arch) {
            (Plugin::Gcc, Arch::X86_64) => ("-fplugin", "ld"),
            (Plugin::Gcc, Arch::Arm64) => ("-fplugin", "aarch64-linux-gnu-ld"),
            (Plugin::Llvm, _) => ("-fpass-plugin", "ld.lld-22"),
        };
        [format!("KCFLAGS={flag}={file}"), format!("LD={linker} --warn-unresolved-symbols")]
    }
}

/// The compiler that loads a plugin says where the headers for it are; it is the host's that compiles it.
fn gcc(loads: &str, defines: &str, source: &str, to: &str) -> String {
    let headers = format!("$({loads} -print-file-name=plugin)/include");
    format!("g++-14 -O1 -shared -fPIC -fno-rtti {defines} -I\"{headers}\" {source} -o {to}")
}
