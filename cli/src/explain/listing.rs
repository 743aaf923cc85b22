// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The machine code of sites from an image, with the source lines that it comes from.

use super::code::{self, Shown};
use crate::Failure;
use siteseer::internals::explain::Explanation;
use siteseer::internals::function::Candidate;
use siteseer::internals::kernel::BuildId;
use siteseer::internals::source::{Chosen, Contents, read};
use siteseer_encoder::EncodeError;
use siteseer_encoder::elf::image::{Image, ImageError};
use siteseer_encoder::lines::{self, Line};
use siteseer_sites::with_causes;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// How many sites of a function are listed.
pub(super) const MOST: usize = 12;

/// The largest source file that is read.
const LARGEST_SOURCE: u64 = 16 << 20;

/// An instruction, and the source line that it comes from.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) address: u64,
    /// From the site's symbol.
    pub(super) offset: u64,
    pub(super) text: String,
    /// `symbol+offset` of what it jumps to or calls.
    pub(super) target: Option<String>,
    pub(super) is_site: bool,
    pub(super) line: Option<Line>,
    /// The line's text, if it is at hand.
    pub(super) source: Option<String>,
}

/// The instructions around a site, or why there are none.
pub(super) type Listed = Result<Vec<Row>, &'static str>;

/// The files that machine code is taken from.
pub(super) struct Files {
    image: Option<Contents>,
    modules: Vec<Contents>,
}

impl Files {
    /// Reads an image, which must have the build id if one is given, and modules. A file of modules that is not an ELF
    /// image with text is passed over: it is site data.
    pub(super) fn read(
        image: Option<&Path>,
        modules: &[PathBuf],
        build_id: Option<&BuildId>,
    ) -> Result<Files, Failure> {
        let open = |path: &Path| -> Result<Contents, Failure> {
            read(path, Chosen::ByCaller).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
        };
        let image = image.map(|path| {
            let bytes = open(path)?;
            let parsed =
                Image::parse(&bytes).map_err(|error| format!("{}: {}", path.display(), with_causes(&error)))?;
            let theirs = BuildId(parsed.build_id().to_vec());
            drop(parsed);
            let path = path.display();
            match build_id {
                Some(_) if theirs.0.is_empty() => {
                    Err(format!("{path} has no build id: it cannot be compared with the kernel").into())
                }
                Some(own) if *own != theirs => {
                    Err(format!("{path} is of another kernel: its build id is {theirs}, the kernel's is {own}").into())
                }
                _ => Ok::<Contents, Failure>(bytes),
            }
        });
        let modules = modules.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Files { image: image.transpose()?, modules })
    }

    /// What is around the first sites of each function.
    pub(super) fn list(
        &self,
        explanations: &[Explanation],
        source: Option<&Path>,
    ) -> Result<Vec<Vec<Listed>>, EncodeError> {
        let image = self.image.as_ref().and_then(|bytes| Image::parse(bytes).ok());
        let mut images: Vec<(Option<&str>, Image<'_>)> = image.map(|image| (None, image)).into_iter().collect();
        let modules = self.modules.iter().filter_map(|bytes| Image::parse(bytes).ok());
        images.extend(
            modules.filter_map(|image| Some((Some(image.module_name().filter(|_| image.is_relocatable())?), image))),
        );
        let site = |site: &Candidate| {
            let has = |image: &&(Option<&str>, Image<'_>)| image.0 == site.module.as_deref();
            match images.iter().find(has) {
                Some((_, image)) => around(image, site),
                None if site.bpf.is_some() => Err("It is in a BPF program."),
                None if site.module.is_some() => Err("No file of the module was given: name it with --module."),
                None => Err("There is no machine code of it."),
            }
        };
        let functions = explanations.iter().map(|explanation| &explanation.function.candidates);
        let mut listed: Vec<Vec<Listed>> =
            functions.clone().map(|sites| sites.iter().take(MOST).map(site).collect()).collect();
        for (name, image) in &images {
            let sites = functions.clone().flat_map(|sites| sites.iter().take(MOST)).zip(listed.iter_mut().flatten());
            let own = sites.filter(|(site, _)| site.module.as_deref() == *name);
            let mut rows: Vec<&mut Row> = own.flat_map(|(_, listed)| listed.iter_mut().flatten()).collect();
            let addresses: Vec<u64> = rows.iter().map(|row| row.address).collect();
            let lines = match lines::find(image, &addresses) {
                Err(EncodeError::Image(ImageError::NoDebugInfo)) => continue,
                found => found?,
            };
            for (row, line) in rows.iter_mut().zip(lines) {
                row.line = line;
            }
        }
        if let Some(folder) = source {
            let mut tree = Tree { folder, files: HashMap::new() };
            for row in listed.iter_mut().flatten().flatten().flatten() {
                row.source = row.line.as_ref().and_then(|line| tree.line(line));
            }
        }
        Ok(listed)
    }
}

/// What is around a site in its image.
fn around(image: &Image<'_>, site: &Candidate) -> Listed {
    const ELSEWHERE: &str = "The image does not have the site's symbol where the site data has it.";
    let holds = |address: u64| image.symbol_at(address).iter().any(|symbol| symbol.name == site.symbol);
    let start = Some(site.link_address.wrapping_sub(site.offset())).filter(|&start| holds(start));
    // The kernel's own site data has addresses of the running kernel.
    let start = start.or_else(|| {
        let mut named = image.symbols_named(&site.symbol).map(|symbol| symbol.address);
        named.next().filter(|_| named.next().is_none())
    });
    let start = start.ok_or(ELSEWHERE)?;
    let container = image.container(start).filter(|container| container.address == start).ok_or(ELSEWHERE)?;
    let bytes = image.bytes(start..start.saturating_add(container.size)).ok_or(
        "The file of the image does not have the bytes of its text: it is a file with debug information only.",
    )?;
    let here = start.checked_add(site.offset()).ok_or(ELSEWHERE)?;
    let target = |shown: &Shown| {
        let container = image.container(shown.target?)?;
        let offset = shown.target? - container.address;
        Some(if offset == 0 { container.name.to_owned() } else { format!("{}+{offset:#x}", container.name) })
    };
    let row = |shown: Shown| Row {
        address: shown.address,
        offset: shown.address - start,
        target: target(&shown),
        text: shown.text,
        is_site: shown.address == here,
        line: None,
        source: None,
    };
    let rows: Vec<Row> = code::around(image.machine(), bytes, start, here).into_iter().map(row).collect();
    if rows.is_empty() { Err(ELSEWHERE) } else { Ok(rows) }
}

/// A source tree; the files that were read.
struct Tree<'a> {
    folder: &'a Path,
    files: HashMap<String, Option<String>>,
}

impl Tree<'_> {
    /// The text of a line.
    fn line(&mut self, line: &Line) -> Option<String> {
        if !self.files.contains_key(&line.file) {
            let text = self.read(&line.file);
            self.files.insert(line.file.clone(), text);
        }
        let text = self.files.get(&line.file)?.as_ref()?;
        text.lines().nth(usize::try_from(line.line).ok()?.checked_sub(1)?).map(|text| text.trim().to_owned())
    }

    /// A file in the tree. The names come from the debug information, and must not lead out of the tree.
    fn read(&self, name: &str) -> Option<String> {
        let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let name = Path::new(name);
        let path = self.folder.join(name);
        let about = std::fs::metadata(&path).ok().filter(|_| name.components().all(is_inside))?;
        if !about.is_file() || about.len() > LARGEST_SOURCE {
            return None;
        }
        Some(String::from_utf8_lossy(&std::fs::read(&path).ok()?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_are_those_of_the_tree() {
        let folder = std::env::temp_dir().join(format!("siteseer-listing-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("tree/kernel")).unwrap();
        std::fs::write(folder.join("tree/kernel/a.c"), "one\n\ttwo();\n").unwrap();
        std::fs::write(folder.join("secret"), "secret\n").unwrap();
        let within = folder.join("tree");
        let mut tree = Tree { folder: &within, files: HashMap::new() };
        let mut line = |file: &str, line| tree.line(&Line { file: file.to_owned(), line });
        assert_eq!(line("kernel/a.c", 2).as_deref(), Some("two();"));
        assert_eq!(line("./kernel/a.c", 1).as_deref(), Some("one"));
        let secret = folder.join("secret");
        for (file, nth) in [("kernel/a.c", 0), ("kernel/a.c", 3), ("kernel/b.c", 1), ("kernel", 1), ("../secret", 1)] {
            assert_eq!(line(file, nth), None, "{file}:{nth}");
        }
        assert_eq!(line(secret.to_str().unwrap(), 1), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
