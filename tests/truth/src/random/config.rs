// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! In how many ways a program is compiled.

use crate::random::prng::Prng;
use siteseer_sites::Machine;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which compilers are asked for, where one is to be found: gcc's and clang's major versions.
const GCC: std::ops::RangeInclusive<u32> = 12..=18;
const CLANG: std::ops::RangeInclusive<u32> = 18..=26;

/// A compiler that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiler {
    /// `gcc-12`, `clang-22`: for which machine does not matter.
    pub(crate) name: String,
    pub(crate) program: String,
    pub(crate) version: u32,
    pub(crate) is_clang: bool,
    pub(crate) machine: Machine,
    /// The build root that it is in; `None` for the host's own.
    pub(crate) root: Option<PathBuf>,
    /// `ld.lld` of the same version.
    pub(crate) lld: Option<String>,
}

/// How a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// Each unit by itself.
    Units,
    /// Optimised as a whole, fully or thinly.
    Full,
    Thin,
    /// As a module is: relocatable.
    Module,
}

/// One way to compile a program.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) compiler: Compiler,
    pub(crate) flags: Vec<String>,
    pub(crate) link: Link,
    /// Whether the program lies where kernels do.
    pub(crate) is_high: bool,
}

/// The compilers of the host and of build roots.
pub(crate) fn compilers(roots: &[PathBuf]) -> Vec<Compiler> {
    let mut found: Vec<Compiler> = Vec::new();
    for root in roots.iter().map(Some).chain([None]) {
        for (is_clang, versions) in [(false, GCC), (true, CLANG)] {
            for version in versions {
                for machine in [Machine::X86_64, Machine::Aarch64] {
                    if let Some(compiler) = compiler(root.map(PathBuf::as_path), is_clang, version, machine)
                        && !found.iter().any(|known| known.name == compiler.name && known.machine == machine)
                    {
                        found.push(compiler);
                    }
                }
            }
        }
    }
    found
}

fn compiler(root: Option<&Path>, is_clang: bool, version: u32, machine: Machine) -> Option<Compiler> {
    let has = |program: &str| match root {
        Some(root) => root.join("usr/bin").join(program).symlink_metadata().is_ok(),
        None => {
            let mut command = Command::new(program);
            command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        }
    };
    let lld = Some(format!("ld.lld-{version}")).filter(|lld| is_clang && has(lld));
    let (name, program) = match (is_clang, machine) {
        (true, _) => (format!("clang-{version}"), format!("clang-{version}")),
        (false, Machine::X86_64) => (format!("gcc-{version}"), format!("gcc-{version}")),
        (false, Machine::Aarch64) => (format!("gcc-{version}"), format!("aarch64-linux-gnu-gcc-{version}")),
    };
    // GNU ld links for one machine only.
    let can_link = !is_clang || machine == Machine::X86_64 || lld.is_some();
    (has(&program) && can_link).then(|| Compiler {
        name,
        program,
        version,
        is_clang,
        machine,
        root: root.map(Path::to_owned),
        lld,
    })
}

impl Config {
    /// A random way to compile with a compiler.
    pub(crate) fn draw(compiler: &Compiler, prng: &mut Prng) -> Config {
        let mut words = vec![compiler.name.clone(), compiler.machine.to_string()];
        words.push((*prng.pick(&["O1", "O2", "O2", "O2", "O3", "Os"])).to_owned());
        words.push((*prng.pick(&["dwarf4", "dwarf5", "dwarf5"])).to_owned());
        let can_lto = !compiler.is_clang || compiler.lld.is_some();
        match prng.below(10) {
            0 if can_lto => words.push("lto".to_owned()),
            1 if can_lto && compiler.is_clang => words.push("thinlto".to_owned()),
            2 => words.push("module".to_owned()),
            _ => {}
        }
        if prng.chance(50) {
            words.push("kernel".to_owned());
        }
        for (word, percent, _) in extras(compiler) {
            if prng.chance(percent) {
                words.push(word.to_owned());
            }
        }
        Config::of(compiler, &words)
    }

    /// The configuration of a name, if the compiler is there. A name says how much is optimised and which DWARF is
    /// written.
    pub(crate) fn parse(name: &str, compilers: &[Compiler]) -> Option<Config> {
        let words: Vec<String> = name.split('/').map(str::to_owned).collect();
        let [compiler, machine, rest @ ..] = &words[..] else { return None };
        if !["O", "dwarf"].iter().all(|said| rest.iter().any(|word| word.starts_with(said))) {
            return None;
        }
        let is_it = |known: &&Compiler| known.name == *compiler && known.machine.to_string() == *machine;
        compilers.iter().find(is_it).map(|compiler| Config::of(compiler, &words))
    }

    /// What the words of a name mean.
    fn of(compiler: &Compiler, words: &[String]) -> Config {
        let mut flags = Vec::new();
        let mut link = Link::Units;
        let mut is_high = false;
        let extras = extras(compiler);
        for word in words.iter().skip(2) {
            match &**word {
                "lto" => {
                    link = Link::Full;
                    flags.push("-flto".to_owned());
                }
                "thinlto" => {
                    link = Link::Thin;
                    flags.push("-flto=thin".to_owned());
                }
                "module" => link = Link::Module,
                "kernel" => {
                    is_high = true;
                    flags.extend(kernel_flags(compiler).iter().map(|flag| (*flag).to_owned()));
                }
                level if level.starts_with('O') => flags.push(format!("-{level}")),
                word => match (word.strip_prefix("dwarf"), extras.iter().find(|extra| extra.0 == word)) {
                    (Some(version), _) => flags.push(format!("-gdwarf-{version}")),
                    (_, Some(extra)) => flags.extend(extra.2.iter().map(|flag| (*flag).to_owned())),
                    _ => flags.push(format!("-f{word}")),
                },
            }
        }
        Config { name: words.join("/"), compiler: compiler.clone(), flags, link, is_high }
    }
}

fn kernel_flags(compiler: &Compiler) -> &'static [&'static str] {
    match (compiler.machine, compiler.is_clang) {
        (Machine::X86_64, false) => &[
            "-mcmodel=kernel",
            "-mno-red-zone",
            "-fno-strict-aliasing",
            "-fno-jump-tables",
            "-falign-jumps=1",
            "-falign-loops=1",
            "-mpreferred-stack-boundary=3",
            "-fno-allow-store-data-races",
            "-fno-delete-null-pointer-checks",
        ],
        (Machine::X86_64, true) => &[
            "-mcmodel=kernel",
            "-mno-red-zone",
            "-fno-strict-aliasing",
            "-fno-jump-tables",
            "-mstack-alignment=8",
            "-fno-delete-null-pointer-checks",
        ],
        (Machine::Aarch64, _) => &[
            "-fno-strict-aliasing",
            "-fno-jump-tables",
            "-fno-omit-frame-pointer",
            "-mbranch-protection=pac-ret",
            "-fno-delete-null-pointer-checks",
        ],
    }
}

type Extra = (&'static str, usize, &'static [&'static str]);

fn extras(compiler: &Compiler) -> Vec<Extra> {
    let mut extras: Vec<Extra> = vec![("autoinit", 25, &["-ftrivial-auto-var-init=zero"])];
    match compiler.machine {
        Machine::X86_64 => {
            extras.push(("mfentry", 20, &["-pg", "-mfentry"]));
            if compiler.is_clang {
                extras.push(("retpoline", 15, &["-mretpoline-external-thunk"]));
                extras.push(("kcfi", 15, &["-fsanitize=kcfi", "-fpatchable-function-entry=16,16"]));
            } else {
                extras.push((
                    "retpoline",
                    15,
                    &["-mindirect-branch=thunk-extern", "-mindirect-branch-register", "-fcf-protection=none"],
                ));
            }
        }
        Machine::Aarch64 => {
            extras.push(("patchable", 25, &["-fpatchable-function-entry=2"]));
            if compiler.is_clang {
                extras.push(("kcfi", 15, &["-fsanitize=kcfi"]));
            }
        }
    }
    if !compiler.is_clang {
        extras.push(("noipa-sra", 8, &["-fno-ipa-sra", "-fno-ipa-cp"]));
        extras.push(("stackprotector", 10, &["-fno-stack-protector", "-fconserve-stack"]));
    }
    extras
}
