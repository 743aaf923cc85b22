// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiles every `*.bpf.c` of this folder for BPF, and lists the objects for `src/lib.rs`.

#[path = "src/compile.rs"]
#[expect(unreachable_pub, reason = "public in the library, which has this file too")]
mod compile;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::build::elf::{Builder, SectionData};
use object::elf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("not run by cargo")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("not run by cargo")?);
    let libbpf = env::var_os("DEP_BPF_INCLUDE").ok_or("libbpf-sys does not say where libbpf's headers are")?;
    // Without this the compiler would take the system's, which may be older, and say nothing.
    if !Path::new(&libbpf).join("bpf/bpf_helpers.h").is_file() {
        return Err(format!(
            "{} has no bpf/bpf_helpers.h: libbpf-sys has put libbpf's headers elsewhere",
            Path::new(&libbpf).display()
        )
        .into());
    }
    let own_headers = folder.join("../loader/include");
    let target = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => return Err(format!("no BPF programs for {other}").into()),
    };
    let clang = compile::clang()?;

    let mut sources = Vec::new();
    for entry in fs::read_dir(&folder)?.chain(fs::read_dir(&own_headers)?) {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name.ends_with(".h") || name.ends_with(".bpf.c") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        if let Some(stem) = name.strip_suffix(".bpf.c") {
            sources.push((stem.to_owned(), path));
        }
    }
    println!("cargo::rerun-if-changed={}", folder.display());
    sources.sort();

    let mut list = String::new();
    for (stem, source) in &sources {
        let object = out.join(format!("{stem}.bpf.o"));
        let includes = [Path::new(&libbpf), &own_headers, &folder];
        compile::compile(&clang, source, &object, target, &includes, "bpf-progs")?;
        without_dwarf(&object)?;
        let constant = stem.to_uppercase().replace('-', "_");
        writeln!(list, "/// `{stem}.bpf.c`, compiled.")?;
        writeln!(list, "pub const {constant}: &[u8] = include_bytes!({:?});", object.display().to_string())?;
    }
    corpus(&clang, &folder.join("corpus"), &out, &mut list)?;
    fs::write(out.join("objects.rs"), list)?;
    println!("cargo::rustc-env=LIBBPF_INCLUDE={}", Path::new(&libbpf).display());
    Ok(())
}

/// Takes the DWARF out of an object, as `llvm-strip -g` does. clang makes BTF only with `-g`, which makes both; libbpf
/// and the kernel read BTF alone, and every program that loads the object carries its bytes.
fn without_dwarf(path: &Path) -> Result<(), Box<dyn Error>> {
    let data = fs::read(path)?;
    let mut builder = Builder::read(&*data)?;
    let dwarf = |name: &[u8]| name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    for section in &mut builder.sections {
        section.delete = dwarf(&section.name);
    }
    builder.delete_orphans();
    // clang has one table for the names of symbols and sections; the builder writes two.
    let names = builder.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(fs::write(path, stripped)?)
}

/// Compiles the objects of corpus/table.h, and lists them with their names.
fn corpus(clang: &OsString, folder: &Path, out: &Path, list: &mut String) -> Result<(), Box<dyn Error>> {
    let (table, source) = (folder.join("table.h"), folder.join("object.c"));
    println!("cargo::rerun-if-changed={}", table.display());
    println!("cargo::rerun-if-changed={}", source.display());
    writeln!(list, "/// Objects of one program, of every kind: corpus/table.h, compiled.")?;
    writeln!(list, "pub const CORPUS: &[(&str, &[u8])] = &[")?;
    for line in fs::read_to_string(&table)?.lines() {
        let Some(row) = line.strip_prefix("OBJECT(").and_then(|rest| rest.strip_suffix(')')) else { continue };
        let [name, section, returned] = row.split(", ").collect::<Vec<_>>()[..] else {
            return Err(format!("{}: {line}", table.display()).into());
        };
        let object = out.join(format!("corpus_{name}.bpf.o"));
        let mut command = Command::new(clang);
        command.args([
            "-target",
            "bpf",
            "-O2",
            "-g",
            "-mcpu=v3",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
        ]);
        command.arg(format!("-DSECTION={section}")).arg(format!("-DRETURNED={returned}"));
        command.arg(format!("-ffile-prefix-map={}=bpf-progs/corpus", folder.display()));
        let output = command.arg("-c").arg(&source).arg("-o").arg(&object).output()?;
        if !output.status.success() {
            return Err(format!("{command:?}:\n{}", String::from_utf8_lossy(&output.stderr)).into());
        }
        writeln!(list, "    ({name:?}, include_bytes!({:?})),", object.display().to_string())?;
    }
    writeln!(list, "];")?;
    Ok(())
}
