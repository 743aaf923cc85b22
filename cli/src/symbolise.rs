// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer where`: which functions an address is in, inlined ones included.

mod places;
mod print;
mod query;
mod stack;
pub(crate) mod trace;

use crate::target::About;
use crate::{Failure, output};
use clap::Args;
use places::{Place, find, without_chains};
use query::Query;
use siteseer::Target;
use siteseer::internals::source::{Chosen, Contents, read};
use siteseer_encoder::{BaseKernel, Detail, KernelTypes, Options, encode_all};
use siteseer_sites::file::{self, SiteFile};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// Print the functions that an address is in: the inlined copies, from the innermost one outwards, and the function
/// around them
///
/// This requires site data that was encoded with ranges or lines. Without ADDRESS, stacks are read
/// from standard input, as perf script, bpftrace and the kernel print them, and every frame is annotated; all other
/// lines are printed as they are. Without --vmlinux and --sites, the kernel is the running one, with its loaded
/// modules.
#[derive(Args)]
pub(crate) struct Arguments {
    /// An address (0xffffffff81234567), or [module:]symbol[+offset], or symbol+0x1f/0x80 [module] as the kernel prints
    /// it
    #[arg(value_name = "ADDRESS")]
    places: Vec<String>,
    #[command(flatten)]
    about: About,
    /// The addresses are return addresses: look up the calls before them. In stacks this is automatic
    #[arg(long)]
    returns: bool,
    /// Print JSON: for stacks, an object for each frame, on a line of its own
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let parse = |text: &String| -> Result<(String, Query), Failure> {
        let query = text.parse().map_err(|error| format!("{text}: {error}"))?;
        Ok((text.clone(), query))
    };
    let queries = arguments.places.iter().map(parse).collect::<Result<Vec<(String, Query)>, Failure>>()?;
    let work = |places: &[Place<'_>]| match queries.is_empty() {
        true => stacks(arguments, places),
        false => answer(arguments, &queries, places),
    };
    match arguments.about.file() {
        Some((path, has_dwarf)) => in_files(arguments, path, has_dwarf, work),
        None => in_running(&arguments.about.target(&[])?, &queries, work),
    }
}

/// Opens the files of an image and modules.
fn in_files(
    arguments: &Arguments,
    path: &Path,
    has_dwarf: bool,
    work: impl FnOnce(&[Place<'_>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |path: &Path, error: &(dyn std::error::Error + 'static)| {
        format!("{}: {}", path.display(), output::chain(error))
    };
    let image = contents(path)?;
    let image = if has_dwarf { Data::Encoded(encoded(path, &image, None)?) } else { Data::Read(image) };
    let image = SiteFile::parse(&image).map_err(|error| failed(path, &error))?;
    let files = arguments.about.module_files();
    // Not all images have their types, and only modules need them.
    let types = image.base_btf_bytes().filter(|_| !files.is_empty()).map(KernelTypes::new).transpose();
    let types = types.map_err(|error| failed(path, &error))?;
    let kernel = types.as_ref().map(|types| BaseKernel { types, build_id: image.build_id() });
    let mut of_modules = Vec::new();
    for path in files {
        let mapped = contents(path)?;
        let is_encoded = matches!(file::module_kernel(&mapped), Ok(Some(_)));
        let bytes = if is_encoded { Data::Read(mapped) } else { Data::Encoded(encoded(path, &mapped, kernel)?) };
        let theirs = file::module_kernel(&bytes).map_err(|error| failed(path, &error))?;
        if theirs.is_some_and(|theirs| !theirs.is_empty() && theirs != image.build_id()) {
            return Err(format!("{}: its types are based on those of another kernel", path.display()).into());
        }
        of_modules.push((path, bytes));
    }
    let mut modules = Vec::new();
    for (path, bytes) in &of_modules {
        modules.push(SiteFile::parse_module(bytes, image.base_btf()).map_err(|error| failed(path, &error))?);
    }
    let mut places = vec![Place::new(None, &image, None).map_err(|error| failed(path, &error))?];
    if places[0].chains.is_none() {
        return Err(without_chains(&path.display().to_string()));
    }
    for (module, (path, _)) in modules.iter().zip(&of_modules) {
        let name = module.module().map(|module| module.name.to_owned());
        let name = name.ok_or_else(|| format!("{} is of a kernel's image, not of a module", path.display()))?;
        places.push(Place::new(Some(name), module, None).map_err(|error| failed(path, &error))?);
    }
    work(&places)
}

/// The bytes of a site file.
enum Data {
    Read(Contents),
    Encoded(Vec<u8>),
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Read(bytes) => bytes,
            Data::Encoded(bytes) => bytes,
        }
    }
}

fn contents(path: &Path) -> Result<Contents, Failure> {
    Ok(read(path, Chosen::ByCaller).map_err(|error| format!("cannot read {}: {error}", path.display()))?)
}

/// The site file of an image or module with debug information.
fn encoded(path: &Path, image: &[u8], kernel: Option<BaseKernel<'_>>) -> Result<Vec<u8>, Failure> {
    let options = Options { ranges: Detail::Lines, kernel, ..Options::default() };
    let encoded = encode_all(image, &options);
    let encoded = encoded.map_err(|error| format!("{}: {}", path.display(), output::chain(&error)))?;
    let mut out = Vec::new();
    file::write_with(&encoded.set, &encoded.optional(), &mut out)?;
    Ok(out)
}

/// Opens the running kernel's site data, and those of its modules if anything may be in one.
fn in_running(
    target: &Target,
    queries: &[(String, Query)],
    work: impl FnMut(&[Place<'_>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let in_image = |places: &[Place<'_>]| {
        let is_found = |query: &Query| find(places, query, None).is_ok();
        Ok(!queries.is_empty() && queries.iter().all(|(_, query)| is_found(query)))
    };
    let modules: Vec<Arc<str>> =
        if opened(target, Vec::new(), in_image)? { Vec::new() } else { target.modules().names().cloned().collect() };
    opened(target, modules, work)
}

fn opened<R>(
    target: &Target,
    modules: Vec<Arc<str>>,
    mut work: impl FnMut(&[Place<'_>]) -> Result<R, Failure>,
) -> Result<R, Failure> {
    target.opened(modules, |opened| {
        let mut places = Vec::with_capacity(opened.len());
        for one in opened {
            let module = one.module.as_deref().map(str::to_owned);
            places.push(Place::new(module, one.file, Some(one.placement.clone()))?);
        }
        if places.first().is_some_and(|image| image.chains.is_none()) {
            return Err(without_chains(&target.data().origin().to_string()));
        }
        work(&places)
    })?
}

/// Answers for the places that were given.
fn answer(arguments: &Arguments, queries: &[(String, Query)], places: &[Place<'_>]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let (mut all, mut failed) = (Vec::new(), 0);
    for (text, query) in queries {
        let answer = find(places, query, None).map_err(Failure::from).and_then(|found| {
            let back = u64::from(arguments.returns);
            print::Answer::of(&found, back)
        });
        match answer {
            Ok(answer) if arguments.json => all.push(answer.json(text)),
            Ok(answer) => answer.write(&mut out)?,
            Err(failure) => {
                output::tell!("siteseer: {text}: {}", output::chain(&*failure));
                failed += 1;
            }
        }
    }
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} places were not found", queries.len()).into()),
    }
}

/// Annotates the stacks of standard input.
fn stacks(arguments: &Arguments, places: &[Place<'_>]) -> Result<(), Failure> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut bytes = Vec::new();
    // Whether the line before was a frame: then this one is a caller.
    let mut is_caller = false;
    loop {
        if input.buffer().is_empty() {
            // The next line may take its time: a tracer that is still running writes it.
            out.flush()?;
        }
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(out.flush()?);
        }
        let line = std::str::from_utf8(&bytes).ok();
        let frame = line.and_then(stack::frame);
        if let Some(frame) = &frame {
            let returns = arguments.returns || frame.returns.unwrap_or(is_caller);
            if let Ok(found) = find(places, &frame.query, frame.address) {
                let line = line.unwrap_or_default().trim_end_matches(['\n', '\r']);
                if print::annotate(frame, &found, u64::from(returns), line, arguments.json, &mut out)? {
                    is_caller = true;
                    continue;
                }
            }
        }
        is_caller = frame.is_some();
        if !arguments.json {
            out.write_all(&bytes)?;
        }
    }
}
