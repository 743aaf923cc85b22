// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiles and links a program.
//!
//! What comes out looks like a kernel to the encoder: `_text`, `.BTF`, no library. It has a BTF of base types alone, so
//! that the encoder makes a site for each out-of-line function instead of leaving those to their names for which the
//! calling convention is right: its rules for all of them are checked. A module is compiled to one relocatable file,
//! which is encoded, and then linked, which is run: the sections of the one are those of the other, so addresses
//! translate.

use crate::random::config::{Compiler, Config, Link};
use crate::random::program::{Program, UNITS};
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, IntEncoding, SplitBtf};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where an image's text and memory are: as kernels' are, or low.
pub(crate) const TEXT: [u64; 2] = [0x100_0040, 0xffff_ffff_8100_0040];
pub(crate) const WORLD: [u64; 2] = [0x800_0000, 0xffff_ffff_8800_0000];
/// The same on arm64, which has no code model for the top of memory: small addresses differ by less than 4 GiB there.
pub(crate) const TEXT_ARM64: [u64; 2] = [0x100_0040, 0xffff_8000_8000_0040];
pub(crate) const WORLD_ARM64: [u64; 2] = [0x800_0000, 0xffff_8000_8800_0000];

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// A file cannot be written or read.
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The shell cannot be started.
    #[error("cannot run {program}")]
    Start {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// A compiler or linker failed.
    #[error("{config}: {said}")]
    Failed { config: String, said: String },
}

/// A linked program.
pub(crate) struct Built {
    /// What is run.
    pub(crate) image: Vec<u8>,
    /// What is encoded, if that is a relocatable file.
    pub(crate) module: Option<Vec<u8>>,
    /// Where its memory is.
    pub(crate) world: u64,
}

/// The BTF of what programs are modules for.
pub(crate) fn base_btf() -> Vec<u8> {
    let mut btf = SplitBtf::standalone();
    btf.int("int", 4, 32, IntEncoding::SIGNED);
    btf.int("long int", 8, 64, IntEncoding::SIGNED);
    btf.to_bytes()
}

const COMMON: &[&str] = &[
    "-std=gnu11",
    "-w",
    "-g",
    "-ffreestanding",
    "-fwrapv",
    "-fno-pic",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
];
const COMMON_X86_64: &[&str] = &["-mno-sse", "-mno-sse2", "-mno-mmx", "-mno-80387", "-fcf-protection=none"];
const COMMON_AARCH64: &[&str] = &["-mgeneral-regs-only"];

fn common(compiler: &Compiler) -> String {
    let mut flags = COMMON.to_vec();
    flags.extend(match compiler.machine {
        Machine::X86_64 => COMMON_X86_64,
        Machine::Aarch64 => COMMON_AARCH64,
    });
    if compiler.is_clang && compiler.machine == Machine::Aarch64 {
        flags.push("--target=aarch64-linux-gnu");
    }
    flags.join(" ")
}

/// The build with the log that is the truth.
pub(crate) fn build_truth(directory: &Path, program: &Program, compiler: &Compiler) -> Result<Built, BuildError> {
    let config = Config {
        name: "truth".to_owned(),
        compiler: compiler.clone(),
        flags: vec!["-O0".to_owned(), "-DTRUTH".to_owned()],
        link: Link::Units,
        is_high: false,
    };
    build(directory, program, &config)
}

/// Builds a program in a folder of its own.
pub(crate) fn build(directory: &Path, program: &Program, config: &Config) -> Result<Built, BuildError> {
    let file = |name: &str| directory.join(name);
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(file(name), bytes).map_err(|source| BuildError::File { path: file(name), source })
    };
    for unit in 0..UNITS {
        write(&format!("unit{unit}.c"), program.source(unit).as_bytes())?;
    }
    write("runtime.c", include_bytes!("runtime.c"))?;
    let base = base_btf();
    let btf = match config.link {
        Link::Module => Btf::parse(&base).map(|base| SplitBtf::new(&base).to_bytes()).unwrap_or_default(),
        _ => base,
    };
    write("btf.bin", &btf)?;
    write("btf.s", b".section .BTF,\"a\"\n.incbin \"btf.bin\"\n.section .note.GNU-stack,\"\",%progbits\n")?;
    write("build.sh", script(config).as_bytes())?;
    run(directory, config)?;
    let read = |name: &str| std::fs::read(file(name)).map_err(|source| BuildError::File { path: file(name), source });
    Ok(Built {
        image: read("image")?,
        module: (config.link == Link::Module).then(|| read("module.o")).transpose()?,
        world: places(config).1,
    })
}

fn places(config: &Config) -> (u64, u64) {
    let (texts, worlds) = match config.compiler.machine {
        Machine::X86_64 => (TEXT, WORLD),
        Machine::Aarch64 => (TEXT_ARM64, WORLD_ARM64),
    };
    let index = usize::from(config.is_high);
    (texts[index], worlds[index])
}

/// The commands that make `image`.
fn script(config: &Config) -> String {
    let compiler = &config.compiler;
    let (program, common, flags) = (&compiler.program, common(compiler), config.flags.join(" "));
    let (text, world) = places(config);
    let mut out = String::from("set -e\n");
    let mut objects = Vec::new();
    for unit in 0..UNITS {
        let _ = writeln!(out, "{program} {common} {flags} -c unit{unit}.c -o unit{unit}.o");
        objects.push(format!("unit{unit}.o"));
    }
    let truth = if config.flags.iter().any(|flag| flag == "-DTRUTH") { "-DTRUTH" } else { "" };
    let model = if config.flags.iter().any(|flag| flag == "-mcmodel=kernel") { "-mcmodel=kernel" } else { "" };
    let _ = writeln!(out, "{program} {common} {model} {truth} -g0 -O1 -fno-builtin -fno-lto -c runtime.c -o runtime.o");
    let _ = writeln!(out, "{program} {} -c btf.s -o btf.o", if compiler.is_clang { &common } else { "" });
    let linker = |arguments: &str| {
        let lld = compiler.lld.as_deref().unwrap_or("ld");
        match (compiler.is_clang, compiler.machine) {
            (false, Machine::Aarch64) => format!("aarch64-linux-gnu-ld {arguments}"),
            (false, _) => format!("ld {arguments}"),
            (true, Machine::Aarch64) => format!("{lld} -m aarch64elf {arguments}"),
            (true, _) => format!("{lld} -m elf_x86_64 {arguments}"),
        }
    };
    let ends = format!(
        "-nostdlib -static -e 0 --build-id -Ttext={text:#x} --section-start=.world={world:#x} --defsym=_text={text:#x} --defsym=_stext={text:#x}"
    );
    let objects = objects.join(" ");
    match config.link {
        Link::Module => {
            let _ = writeln!(out, "{}", linker(&format!("-r --build-id {objects} btf.o -o module.o")));
            let _ = writeln!(out, "{}", linker(&format!("{ends} module.o runtime.o -o image")));
        }
        Link::Full | Link::Thin if !compiler.is_clang => {
            let wrapped = ends.replace("-nostdlib -static ", "").replace("-e 0", "-e,0").replace(' ', " -Wl,");
            let _ = writeln!(
                out,
                "{program} {common} {flags} -nostdlib -static -no-pie -Wl,{wrapped} {objects} runtime.o btf.o -o image"
            );
        }
        _ => {
            let _ = writeln!(out, "{}", linker(&format!("{ends} {objects} runtime.o btf.o -o image")));
        }
    }
    out
}

/// Runs the script, on the host or in a build root.
fn run(directory: &Path, config: &Config) -> Result<(), BuildError> {
    const ENTER: &str = r#"mount --bind "$2" "$1/build" && exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin LC_ALL=C sh -c "cd /build && sh build.sh""#;
    let (name, mut command) = match &config.compiler.root {
        None => {
            let mut command = Command::new("sh");
            command.arg("build.sh").current_dir(directory).env("LC_ALL", "C");
            ("sh", command)
        }
        Some(root) => {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "--", "sh", "-ec", ENTER, "sh"]);
            command.arg(root).arg(directory);
            ("unshare", command)
        }
    };
    command.stdin(Stdio::null());
    let output = command.output().map_err(|source| BuildError::Start { program: name, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().filter(|line| !line.is_empty()).take(8).collect::<Vec<_>>().join("\n");
    Err(BuildError::Failed { config: config.name.clone(), said })
}
