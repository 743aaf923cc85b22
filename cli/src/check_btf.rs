// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer check-btf`: what the kernel would refuse in some BTF.

use crate::Failure;
use clap::Args;
use object::{Object, ObjectSection};
use siteseer::internals::source::{Chosen, Contents, read};
use siteseer_sites::btf::{Btf, MAGIC, rules};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Check BTF by the kernel's rules
///
/// FILE is BTF itself, such as /sys/kernel/btf/vmlinux, or an ELF file with BTF: a kernel image, a module, a site file.
/// In an ELF file, .BTF is checked, and .BTF.inline over it. Each violation is printed with the function of the kernel
/// that refuses it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The base of split BTF: an ELF file with BTF, or BTF itself. Give it twice for /sys/kernel/btf/MODULE.inline:
    /// first the kernel's, then the module's
    #[arg(long, value_name = "BASE")]
    base: Vec<PathBuf>,
    /// How many violations of each file to print; the others are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    show: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bases = arguments.base.iter().map(|path| Input::open(path)).collect::<Result<Vec<Input>, Failure>>()?;
    let mut base: Option<Btf<'_>> = None;
    for (input, path) in bases.iter().zip(&arguments.base) {
        let data = input.sections()?.btf;
        base = Some(parse(data, base.as_ref()).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    let mut violations = 0;
    for path in &arguments.files {
        violations += check(path, base.as_ref(), arguments.show)?;
    }
    match violations {
        0 => Ok(()),
        1 => Err("the kernel would refuse it: 1 violation".into()),
        many => Err(format!("the kernel would refuse it: {many} violations").into()),
    }
}

fn parse<'a>(data: &'a [u8], base: Option<&Btf<'a>>) -> Result<Btf<'a>, Failure> {
    Ok(match base {
        Some(base) => Btf::parse_split(data, base)?,
        None => Btf::parse(data)?,
    })
}

/// Checks the BTF of a file. The number of violations.
fn check(path: &Path, base: Option<&Btf<'_>>, show: usize) -> Result<usize, Failure> {
    let input = Input::open(path)?;
    let sections = input.sections().map_err(|error| format!("{}: {error}", path.display()))?;
    let failed = |section: &str, error: Failure| -> Failure {
        let hint = if base.is_none() { "; if it is split BTF, name its base by --base" } else { "" };
        format!("{}: {section}: {error}{hint}", path.display()).into()
    };
    let own = parse(sections.btf, base).map_err(|error| failed(".BTF", error))?;
    let mut total = report(path, ".BTF", sections.btf, base, &own, show)?;
    if let Some(inline) = sections.inline {
        let split = parse(inline, Some(&own)).map_err(|error| failed(".BTF.inline", error))?;
        total += report(path, ".BTF.inline", inline, Some(&own), &split, show)?;
    }
    Ok(total)
}

/// Prints what is wrong with one section. The number of violations.
fn report(
    path: &Path,
    section: &str,
    data: &[u8],
    base: Option<&Btf<'_>>,
    btf: &Btf<'_>,
    show: usize,
) -> Result<usize, Failure> {
    let found = rules::check(data, base)?;
    let mut stdout = io::stdout().lock();
    for violation in found.iter().take(show) {
        writeln!(stdout, "{}: {section}: {violation}", path.display())?;
    }
    if let Some(more) = found.len().checked_sub(show).filter(|&more| more > 0) {
        writeln!(stdout, "{}: {section}: and {more} more", path.display())?;
    }
    let plural = if found.len() == 1 { "" } else { "s" };
    let types = btf.end_id() - btf.first_id();
    writeln!(stdout, "{}: {section}: {types} types, {} violation{plural}", path.display(), found.len())?;
    Ok(found.len())
}

/// A file.
struct Input(Contents);

/// The BTF of a file.
struct Sections<'a> {
    btf: &'a [u8],
    inline: Option<&'a [u8]>,
}

impl Input {
    fn open(path: &Path) -> Result<Input, Failure> {
        let contents = read(path, Chosen::ByCaller);
        Ok(Input(contents.map_err(|error| format!("cannot read {}: {error}", path.display()))?))
    }

    fn sections(&self) -> Result<Sections<'_>, Failure> {
        let Input(contents) = self;
        let bytes: &[u8] = contents;
        if bytes.starts_with(&MAGIC.to_le_bytes()) || bytes.starts_with(&MAGIC.to_be_bytes()) {
            return Ok(Sections { btf: bytes, inline: None });
        }
        let elf = object::read::elf::ElfFile64::<object::LittleEndian>::parse(bytes)?;
        let section = |name: &str| elf.section_by_name(name).map(|section| section.data()).transpose();
        let btf = section(".BTF")?.ok_or("there is no .BTF section")?;
        Ok(Sections { btf, inline: section(".BTF.inline")? })
    }
}
