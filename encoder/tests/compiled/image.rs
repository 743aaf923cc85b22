// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Small images that look like a kernel, and what their sources recorded.

use object::{Object, ObjectSection, ObjectSymbol};
use siteseer_sites::btf::{IntEncoding, SplitBtf};
use std::ops::Range;
use std::process::Command;

/// Where the text of an image is.
const TEXT: &str = "0x1000000";

/// What every source begins with. `TRUTH(a, b)` records its address and its operands.
#[cfg(target_arch = "x86_64")]
const PRELUDE: &str = r#"
#define TRUTH(a, b) __asm__ volatile( \
    "1: nop\n.pushsection .truth,\"a\"\n.quad 1b\n.asciz \"%0|%1\"\n.popsection" :: "ri"(a), "ri"(b) : "memory")
"#;
#[cfg(not(target_arch = "x86_64"))]
const PRELUDE: &str = r#"
#define TRUTH(a, b) __asm__ volatile("" :: "r"((long)(a)), "r"((long)(b)) : "memory")
"#;

/// How to make an image.
pub(crate) struct Build {
    compiler: String,
    flags: Vec<String>,
    sources: Vec<String>,
    btf: bool,
    ftrace: bool,
}

impl Build {
    /// With the compiler that Rust links with.
    pub(crate) fn gcc(flags: &[&str], sources: &[&str]) -> Build {
        Build::with("cc", flags, sources)
    }

    /// With a compiler.
    pub(crate) fn with(compiler: &str, flags: &[&str], sources: &[&str]) -> Build {
        Build {
            compiler: compiler.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            sources: sources.iter().map(|source| format!("{PRELUDE}\n{source}")).collect(),
            btf: true,
            ftrace: false,
        }
    }

    /// Without a `.BTF` section.
    pub(crate) fn without_btf(mut self) -> Build {
        self.btf = false;
        self
    }

    /// With the kernel's symbols for the table of what ftrace patches, which the compiler writes (`-mrecord-mcount`).
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn recording_ftrace(mut self) -> Build {
        self.ftrace = true;
        self
    }

    /// Compiles and links. The image has the symbols and sections that the encoder needs from a kernel.
    pub(crate) fn link(&self) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("a directory for the image");
        let path = |name: &str| dir.path().join(name);
        let mut inputs = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let (input, output) = (path(&format!("{index}.c")), path(&format!("{index}.o")));
            std::fs::write(&input, source).expect("the source is written");
            let mut command = Command::new(&self.compiler);
            command.args([
                "-g",
                "-ffreestanding",
                "-fno-pic",
                "-fno-stack-protector",
                "-fno-asynchronous-unwind-tables",
            ]);
            #[cfg(target_arch = "x86_64")]
            command.arg("-fcf-protection=none");
            run(command.args(&self.flags).arg("-c").arg(&input).arg("-o").arg(&output));
            inputs.push(output);
        }
        if self.btf {
            let mut btf = SplitBtf::standalone();
            btf.int("int", 4, 32, IntEncoding::SIGNED);
            btf.int("long int", 8, 64, IntEncoding::SIGNED);
            let (data, input) = (path("btf.bin"), path("btf.s"));
            std::fs::write(&data, btf.to_bytes()).expect("the BTF is written");
            std::fs::write(&input, format!(".section .BTF,\"a\"\n.incbin \"{}\"\n", data.display()))
                .expect("the assembly is written");
            inputs.push(input);
        }
        let output = path("image");
        let mut command = Command::new("cc");
        command.args(["-nostdlib", "-static", "-no-pie", "-Wl,-e,0", "-Wl,--build-id"]);
        command.arg(format!("-Wl,-Ttext={TEXT}"));
        for symbol in ["_text", "_stext"] {
            command.arg(format!("-Wl,--defsym={symbol}={TEXT}"));
        }
        if self.ftrace {
            for end in ["start", "stop"] {
                command.arg(format!("-Wl,--defsym=__{end}_mcount_loc=__{end}___mcount_loc"));
            }
        }
        run(command.args(&inputs).arg("-o").arg(&output));
        std::fs::read(&output).expect("the image is read")
    }
}

/// Compiles a source for arm64 by clang, as a module: a relocatable file with BTF over the kernel's. Gives the file and
/// that BTF.
pub(crate) fn arm64_module(clang: &str, flags: &[&str], source: &str) -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory for the image");
    let path = |name: &str| dir.path().join(name);
    let mut kernel = SplitBtf::standalone();
    kernel.int("long int", 8, 64, IntEncoding::SIGNED);
    let kernel = kernel.to_bytes();
    let base = siteseer_sites::btf::Btf::parse(&kernel).expect("the BTF is read");
    std::fs::write(path("btf.bin"), SplitBtf::new(&base).to_bytes()).expect("the BTF is written");
    let embedded = format!(
        "__asm__(\".pushsection .BTF,\\\"a\\\"\\n.incbin \\\"{}\\\"\\n.popsection\");\n#define TRUTH(a, b) __asm__ volatile(\"\" :: \"r\"(a), \"r\"(b) : \"memory\")\n{source}",
        path("btf.bin").display()
    );
    std::fs::write(path("a.c"), embedded).expect("the source is written");
    let mut command = Command::new(clang);
    command.args([
        "-target",
        "aarch64-linux-gnu",
        "-g",
        "-ffreestanding",
        "-fno-pic",
        "-fno-asynchronous-unwind-tables",
    ]);
    run(command.args(flags).arg("-c").arg(path("a.c")).arg("-o").arg(path("a.o")));
    (std::fs::read(path("a.o")).expect("the image is read"), kernel)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A clang, if the machine has one.
pub(crate) fn clang() -> Option<String> {
    let numbered = (14..=30).rev().map(|version| format!("clang-{version}"));
    std::iter::once("clang".to_owned())
        .chain(numbered)
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// One copy of a body, as its first statement recorded it.
pub(crate) struct Record {
    pub(crate) address: u64,
    /// The compiler's names of the operands: `%rdi`, `$7`.
    pub(crate) operands: Vec<String>,
}

/// What the sources of an image recorded.
pub(crate) fn truth(image: &[u8]) -> Vec<Record> {
    let mut bytes = &image[section(image, ".truth")];
    let mut records = Vec::new();
    while let Some((address, rest)) = bytes.split_at_checked(8) {
        let len = rest.iter().position(|byte| *byte == 0).expect("a terminated string");
        let text = std::str::from_utf8(&rest[..len]).expect("the compiler's names");
        records.push(Record {
            address: u64::from_le_bytes(address.try_into().expect("8 bytes")),
            operands: text.split('|').map(str::to_owned).collect(),
        });
        bytes = &rest[len + 1..];
    }
    assert!(!records.is_empty());
    records
}

/// The bytes of a section in the file; empty if there is none.
pub(crate) fn section(image: &[u8], name: &str) -> Range<usize> {
    let file = object::File::parse(image).expect("an ELF file");
    let range = file.section_by_name(name).and_then(|section| section.file_range());
    range.map_or(0..0, |(start, size)| start as usize..(start + size) as usize)
}

/// Names and addresses of the symbols.
pub(crate) fn symbols(image: &[u8]) -> Vec<(String, u64)> {
    let file = object::File::parse(image).expect("an ELF file");
    file.symbols().map(|symbol| (symbol.name().unwrap_or_default().to_owned(), symbol.address())).collect()
}

/// Whether an operand is a register that calls may change: one that arguments are passed in, among others.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_volatile(operand: &str) -> bool {
    matches!(wide_name(operand).as_str(), "rax" | "rcx" | "rdx" | "rsi" | "rdi" | "r8" | "r9" | "r10" | "r11")
}

/// The full register that an operand names a part of: `%edi` is part of `rdi`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn wide_name(operand: &str) -> String {
    let name = operand.trim_start_matches('%');
    if let Some(number) = name.strip_prefix('r').map(|rest| rest.trim_end_matches(['d', 'w', 'b']))
        && number.parse::<u8>().is_ok()
    {
        return format!("r{number}");
    }
    let stem = name.trim_start_matches(['e', 'r']);
    match stem {
        "al" | "bl" | "cl" | "dl" => format!("r{}x", &stem[..1]),
        "dil" | "sil" | "bpl" | "spl" => format!("r{}", &stem[..2]),
        stem => format!("r{stem}"),
    }
}
