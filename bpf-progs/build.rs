// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiles every `*.bpf.c` of this folder for BPF, and lists the objects for `src/lib.rs`.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `CLANG`, or the newest clang that is found.
fn clang() -> Result<OsString, Box<dyn Error>> {
    if let Some(clang) = env::var_os("CLANG") {
        return Ok(clang);
    }
    let names = (14..=22).rev().map(|version| format!("clang-{version}")).chain(["clang".to_owned()]);
    for name in names {
        if Command::new(&name).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Ok(name.into());
        }
    }
    Err("no clang found: install clang (14 or newer), or name one in the environment variable CLANG".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("not run by cargo")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("not run by cargo")?);
    let libbpf = env::var_os("DEP_BPF_INCLUDE").ok_or("libbpf-sys does not say where libbpf's headers are")?;
    let own_headers = folder.join("../loader/include");
    let target = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => return Err(format!("no BPF programs for {other}").into()),
    };
    let clang = clang()?;

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
        compile(&clang, source, &object, target, &[Path::new(&libbpf), &own_headers, &folder])?;
        let constant = stem.to_uppercase().replace('-', "_");
        writeln!(list, "/// `{stem}.bpf.c`, compiled.")?;
        writeln!(list, "pub const {constant}: &[u8] = include_bytes!({:?});", object.display().to_string())?;
    }
    corpus(&clang, &folder.join("corpus"), &out, &mut list)?;
    fs::write(out.join("objects.rs"), list)?;
    Ok(())
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
        run(command.arg("-c").arg(&source).arg("-o").arg(&object), clang)?;
        writeln!(list, "    ({name:?}, include_bytes!({:?})),", object.display().to_string())?;
    }
    writeln!(list, "];")?;
    Ok(())
}

fn compile(
    clang: &OsString,
    source: &Path,
    object: &Path,
    target: &str,
    includes: &[&Path],
) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(clang);
    command.args(["-target", "bpf", "-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"]);
    // libbpf's own headers are not written for -Wextra; a program need not use all parameters that it states.
    command.args(["-Wno-unused-parameter", "-Wno-sign-compare", "-fno-stack-protector"]);
    command.arg(format!("-D__TARGET_ARCH_{target}"));
    for (index, include) in includes.iter().enumerate() {
        command.arg(if index == 0 { "-isystem" } else { "-I" }).arg(include);
    }
    // Neither the build's folders nor the time get into the object.
    command.arg(format!("-ffile-prefix-map={}=bpf-progs", source.parent().unwrap_or(source).display()));
    run(command.arg("-c").arg(source).arg("-o").arg(object), clang)
}

fn run(command: &mut Command, clang: &OsString) -> Result<(), Box<dyn Error>> {
    let output = command.output().map_err(|error| format!("{}: {error}", clang.display()))?;
    if !output.status.success() {
        return Err(format!("{command:?}:\n{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(())
}
