// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compiles the images whose parts the fuzz targets replace: by gcc and, if there is one, by clang, with each version
//! of DWARF.

#[allow(dead_code, reason = "the encoder's tests use the rest")]
#[path = "../../encoder/tests/compiled/image.rs"]
mod image;

use image::Build;
use object::{Object, ObjectSection};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=src/shapes.c");
    println!("cargo::rerun-if-changed=../../encoder/tests/compiled/image.rs");
    let source = std::fs::read_to_string("src/shapes.c").expect("the source");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let mut builds = Vec::new();
    let compilers = [Some(("gcc", "cc".to_owned())), image::clang().map(|clang| ("clang", clang))];
    for (kind, compiler) in compilers.into_iter().flatten() {
        for (version, level) in [("5", "-O2"), ("4", "-O2"), ("5", "-Os")] {
            let dwarf = format!("-gdwarf-{version}");
            builds.push((format!("{kind}-{version}{level}"), Build::with(&compiler, &[level, &dwarf], &[&source])));
        }
    }
    let mut text = String::from("/// All images.\npub const IMAGES: &[Image] = &[\n");
    for (name, build) in builds {
        text.push_str(&entry(&out, &name, &build.link()));
    }
    text.push_str(
        "];\n/// Relocatable files for arm64, each with its kernel's BTF.\npub const MODULES: &[(Image, &[u8])] = &[\n",
    );
    if let Some(clang) = image::clang() {
        for (version, level) in [("5", "-O2"), ("4", "-O1")] {
            let (module, kernel) = image::arm64_module(&clang, &[level, &format!("-gdwarf-{version}")], &source);
            let path = out.join("kernel.btf");
            std::fs::write(&path, kernel).expect("the BTF is written");
            let module = entry(&out, &format!("arm64-{version}{level}"), &module);
            let module = module.trim_end().trim_end_matches(',');
            writeln!(text, "({module}, include_bytes!({:?})),", path.display().to_string()).expect("text grows");
        }
    }
    text.push_str("];\n");
    std::fs::write(out.join("images.rs"), text).expect("the list is written");
}

/// Writes an image, and gives its entry of the list.
fn entry(out: &Path, name: &str, bytes: &[u8]) -> String {
    let path = out.join(name);
    std::fs::write(&path, bytes).expect("the image is written");
    let file = object::File::parse(bytes).expect("an ELF file");
    let mut sections = String::new();
    for section in file.sections() {
        if let (Ok(name), Some((start, size))) = (section.name(), section.file_range()) {
            write!(sections, "({name:?}, {start}..{}), ", start + size).expect("text grows");
        }
    }
    let bytes = format!("include_bytes!({:?})", path.display().to_string());
    format!("Image {{ name: {name:?}, bytes: {bytes}, sections: &[{sections}] }},\n")
}
