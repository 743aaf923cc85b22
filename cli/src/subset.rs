// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer subset`: what site files say about a few functions, of many kernels, in one file that an application
//! embeds.

use crate::Failure;
use crate::kernels::{self, Kernel};
use crate::output::{self, tell};
use clap::Args;
use siteseer::internals::object_file;
use siteseer::internals::pattern::Pattern;
use siteseer::internals::source::SiteData;
use siteseer_sites::file::SiteFile;
use siteseer_sites::subset::SubsetWriter;
use siteseer_sites::with_causes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Collect the sites of a few functions, on many kernels, in one file that an application embeds
///
/// The functions are those that the programs of the objects name by their sections (fentry, fexit,
/// kprobe_maybe_inline), and those that --function names. The loader finds the running kernel in the file by its build
/// id, and joins the sites with the kernel's own BTF. The file does not describe other functions, and the loader
/// refuses to attach to them by this file.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A BPF object of the application. May be given again
    #[arg(long = "object", value_name = "OBJECT", required_unless_present = "functions")]
    objects: Vec<PathBuf>,
    /// A function that the application names at run time, [module:]FUNC, or a pattern as `siteseer list` has them. May
    /// be given again
    #[arg(long = "function", value_name = "PATTERN", add = crate::complete::functions())]
    functions: Vec<Pattern>,
    /// Site files made by `siteseer encode`, and folders of them (*.sites). Files of modules are used with the image of
    /// their kernel
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let patterns = patterns(arguments)?;
    let kernels = kernels::find(&arguments.files)?;
    let mut writer = SubsetWriter::new(patterns.iter().map(ToString::to_string));
    let mut found = BTreeSet::new();
    let mut modules = 0;
    for kernel in &kernels {
        let failed = |failure: Failure| format!("{}: {}", kernel.file.display(), output::chain(&*failure));
        modules += add(&mut writer, kernel, &patterns, &mut found).map_err(failed)?;
    }
    for pattern in patterns.iter().filter(|pattern| !found.contains(&pattern.to_string())) {
        tell!("{pattern}: there is no such function on any of the kernels");
    }
    let data = writer.finish()?;
    output::write_whole(&arguments.output, |out| Ok(out.write_all(&data)?))?;
    let plural = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let in_modules = if modules > 0 { format!(" and {}", plural(modules, "module", "modules")) } else { String::new() };
    let line = format!(
        "{}: {} on {}{in_modules}, {} bytes ({} for each image)",
        arguments.output.display(),
        plural(patterns.len(), "function or pattern", "functions or patterns"),
        plural(kernels.len(), "kernel", "kernels"),
        data.len(),
        data.len() / (kernels.len() + modules).max(1),
    );
    // Standard output may be what was written.
    if !output::is_in_place(&arguments.output) {
        writeln!(io::stdout().lock(), "{line}")?;
    }
    Ok(())
}

/// What the objects and the command line name, each once.
fn patterns(arguments: &Arguments) -> Result<Vec<Pattern>, Failure> {
    let mut named: BTreeMap<String, Pattern> = BTreeMap::new();
    for object in &arguments.objects {
        for pattern in of_object(object)? {
            named.insert(pattern.to_string(), pattern);
        }
    }
    for pattern in &arguments.functions {
        named.insert(pattern.to_string(), pattern.clone());
    }
    if named.is_empty() {
        return Err("no program's section names a function: name the functions by --function".into());
    }
    Ok(named.into_values().collect())
}

/// The functions that the programs of an object name.
fn of_object(path: &Path) -> Result<Vec<Pattern>, Failure> {
    let failed = |error: &dyn std::error::Error| format!("{}: {}", path.display(), with_causes(error));
    let data = std::fs::read(path).map_err(|error| failed(&error))?;
    let mut patterns = Vec::new();
    for program in object_file::read(&data).map_err(|error| failed(&error))? {
        let Some(function) = &program.wanted.function else {
            let (name, section) = (&program.program.name, &program.section);
            tell!(
                "program {name} of {}: SEC(\"{section}\") names no function: name its functions by --function",
                path.display()
            );
            continue;
        };
        let named =
            program.wanted.module.as_ref().map_or_else(|| function.clone(), |module| format!("{module}:{function}"));
        patterns.push(named.parse().map_err(|error| failed(&error))?);
    }
    Ok(patterns)
}

/// Adds a kernel's image, and its modules as far as they have any of the functions. Returns how many modules those are.
fn add(
    writer: &mut SubsetWriter,
    kernel: &Kernel,
    patterns: &[Pattern],
    found: &mut BTreeSet<String>,
) -> Result<usize, Failure> {
    let mut names = Names::of(kernel, patterns)?;
    // Of debug information only the functions that are named are encoded, if all are.
    let named = if names.by_pattern.is_empty() { names.all() } else { Vec::new() };
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let data = SiteData::open(&kernel.file, None, true)?;
    data.read(&named, |image| -> Result<usize, Failure> {
        let (of_image, _) = names.in_image("vmlinux", image, found)?;
        writer.add(image, of_image.iter().map(String::as_str))?;
        let mut modules = 0;
        for path in kernel.modules() {
            let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let failed = |error: &dyn std::error::Error| format!("{}: {}", path.display(), with_causes(error));
            let file = SiteFile::parse_module(&bytes, image.base_btf()).map_err(|error| failed(&error))?;
            let name = file.module().map(|module| module.name.to_owned()).unwrap_or_default();
            // If a module is not in the file, the loader says, as ever, that nothing is known about it. A kernel has
            // thousands of modules without any of the functions; to say so for each would be most of the file.
            let (of_module, has_any) = names.in_image(&name, &file, found)?;
            if has_any {
                writer.add(&file, of_module.iter().map(String::as_str)).map_err(|error| failed(&error))?;
                modules += 1;
            }
        }
        Ok(modules)
    })?
}

/// The names that patterns stand for on one kernel.
struct Names<'p> {
    patterns: &'p [Pattern],
    /// By module (`vmlinux` for the image): names, each with the pattern that stands for it.
    by_pattern: BTreeMap<String, BTreeMap<String, String>>,
}

impl<'p> Names<'p> {
    fn of(kernel: &Kernel, patterns: &'p [Pattern]) -> Result<Names<'p>, Failure> {
        let globs: Vec<Pattern> = patterns.iter().filter(|pattern| !pattern.is_name()).cloned().collect();
        let mut by_pattern: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        if !globs.is_empty() {
            for (pattern, listed) in globs.iter().zip(kernel.open()?.list(&globs)?) {
                for function in listed {
                    let module = function.module.as_deref().unwrap_or("vmlinux").to_owned();
                    by_pattern.entry(module).or_default().insert(function.name, pattern.to_string());
                }
            }
        }
        Ok(Names { patterns, by_pattern })
    }

    /// Those that are named.
    fn all(&self) -> Vec<String> {
        let named = self.patterns.iter().filter(|pattern| pattern.is_name());
        named.map(|pattern| pattern.function().to_string()).collect()
    }

    /// Those of an image, and whether it has any of them. Notes which patterns it has something of.
    fn in_image(
        &mut self,
        module: &str,
        file: &SiteFile<'_>,
        found: &mut BTreeSet<String>,
    ) -> Result<(BTreeSet<String>, bool), Failure> {
        let (mut names, mut has_any) = (BTreeSet::new(), false);
        for (name, pattern) in self.by_pattern.remove(module).unwrap_or_default() {
            names.insert(name);
            found.insert(pattern);
            has_any = true;
        }
        for pattern in self.patterns.iter().filter(|pattern| pattern.is_name() && pattern.in_module(module)) {
            let name = pattern.function().to_string();
            if !file.functions(&name)?.is_empty() || !file.containers_of(&name)?.is_empty() {
                found.insert(pattern.to_string());
                has_any = true;
            }
            names.insert(name);
        }
        Ok((names, has_any))
    }
}
