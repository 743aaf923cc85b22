// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer hub`: a folder of signed site files, from which `siteseer fetch` fetches.

use crate::Failure;
use crate::fetch::Bar;
use crate::output::{self, tell};
use clap::{Args, Subcommand};
use siteseer::internals::pattern::Glob;
use siteseer_hub::archive::Place;
use siteseer_hub::crawl::{self, Outcome, Plan};
use siteseer_hub::jobs::Jobs;
use siteseer_hub::layout::{Kernel, Part};
use siteseer_hub::make::{self, Added, Options};
use siteseer_hub::sign::Signer;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Make and keep a folder of site files, for `siteseer fetch`
///
/// The folder has only static files, so any web server can serve it. docs/hub.md describes it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Add(Add),
    Crawl(Crawl),
    List(List),
    Check(Check),
    Remove(Remove),
    Key(Key),
    Serve(Serve),
}

/// Add kernels; those that the same release of siteseer added before are left as they are
#[derive(Args)]
struct Add {
    /// The hub
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Kernel images with debug information (vmlinux), or their site files
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// A folder with the modules of the image, with debug information or encoded
    #[arg(long, value_name = "FOLDER")]
    modules: Option<PathBuf>,
    /// What `uname -r` prints on the kernel [default: what the image says]
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// Sign with this key, made by `siteseer hub key` or by minisign
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The compression level of zstd
    #[arg(long, default_value = "12", value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// Add kernels again that were added before
    #[arg(long)]
    force: bool,
}

/// Add the kernels of a distribution's archive, with their modules
///
/// apt fetches the packages with debug information, one after the other; each is encoded and deleted. What the hub has,
/// of the same package and the same release of siteseer, is passed over: the same command can be run again after each
/// update of the archive, and after it was interrupted. If some kernels fail, the others are added all the same, and
/// the exit status is 1.
#[derive(Args)]
struct Crawl {
    /// The hub
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The distribution
    #[arg(long, value_name = "NAME", default_value = "debian", value_parser = ["debian"])]
    distribution: String,
    /// A suite of the archive, such as trixie-backports. May be given again
    #[arg(long = "suite", value_name = "SUITE", required = true)]
    suites: Vec<String>,
    /// An architecture. May be given again [default: amd64 and arm64]
    #[arg(long = "arch", value_name = "ARCH", value_parser = ["amd64", "arm64"])]
    architectures: Vec<String>,
    /// Only releases that fit this pattern with `*` and `?`, such as '*-cloud-*'. May be given again
    #[arg(long = "release", value_name = "PATTERN", value_parser = Glob::new)]
    releases: Vec<Glob>,
    /// The address of the archive [default: that of Debian in apt's sources]. May be given again
    #[arg(long = "archive", value_name = "URL")]
    archives: Vec<String>,
    /// Also use an archive that is not signed
    #[arg(long)]
    allow_unsigned: bool,
    /// Add at most so many kernels
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Do not encode the modules
    #[arg(long)]
    no_modules: bool,
    /// How many modules to encode side by side [default: the number of processors]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// How much memory the modules that are encoded side by side may take, in MB
    #[arg(long, value_name = "MB", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    memory: u32,
    /// Sign with this key, made by `siteseer hub key` or by minisign
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The compression level of zstd
    #[arg(long, default_value = "12", value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// Add kernels again that were added before
    #[arg(long)]
    force: bool,
    /// Print what would be fetched, and fetch nothing but the lists
    #[arg(long)]
    dry_run: bool,
}

/// List the kernels of a hub
#[derive(Args)]
struct List {
    /// The hub
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also print how many bytes each part of each kernel has, before compression and compressed alone
    #[arg(long, conflicts_with = "json")]
    parts: bool,
}

/// Check that all kernels of a hub can be fetched: that each file is there, and is what the index says
///
/// A file may be stored as the difference from that of another kernel; that one is checked too. Signatures are not
/// checked: `siteseer fetch` does that.
#[derive(Args)]
struct Check {
    /// The hub
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Remove kernels. One that others are stored as differences from is not removed before these
#[derive(Args)]
struct Remove {
    /// The hub
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Build ids
    #[arg(required = true, value_name = "ID")]
    build_ids: Vec<String>,
    /// Sign the index with this key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Make a key pair: FILE, which is secret, and FILE.pub
#[derive(Args)]
struct Key {
    /// Where to write the secret key
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

/// Serve a hub over HTTP, for tests and small fleets
#[derive(Args)]
struct Serve {
    /// The hub
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8017")]
    listen: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Add(arguments) => add(arguments),
        Command::Crawl(arguments) => crawl(arguments),
        Command::List(arguments) => list(arguments),
        Command::Check(Check { folder }) => check(folder),
        Command::Remove(arguments) => remove(arguments),
        Command::Key(Key { path }) => {
            let public = Signer::make(path)?;
            Ok(writeln!(io::stdout().lock(), "{public}")?)
        }
        Command::Serve(Serve { folder, listen }) => {
            if !folder.is_dir() {
                return Err(format!("{}: not a folder", folder.display()).into());
            }
            let ready = |address| {
                // Whoever started it waits for this line.
                let _ = writeln!(io::stdout().lock(), "http://{address}");
            };
            Ok(siteseer_hub::serve(folder, listen, ready)?)
        }
    }
}

fn add(arguments: &Add) -> Result<(), Failure> {
    if arguments.images.len() > 1 && (arguments.modules.is_some() || arguments.release.is_some()) {
        return Err("--modules and --release are about one image: add one image at a time".into());
    }
    let mut options = Options {
        release: arguments.release.clone(),
        modules: arguments.modules.clone(),
        signer: arguments.key.as_deref().map(Signer::open).transpose()?,
        level: arguments.level,
        again: arguments.force,
        ..Options::default()
    };
    let mut failed = 0;
    for image in &arguments.images {
        let bar = Bar::new()?;
        let added = make::add(&arguments.folder, image, &options, &bar);
        bar.0.finish_and_clear();
        let added = match added {
            Ok(added) => added,
            Err(error) if arguments.images.len() > 1 => {
                tell!("siteseer: {}", output::chain(&error));
                failed += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Kernel { release, build_id, .. } = &added.kernel;
        let state = if added.was_there { " (was there)" } else { "" };
        writeln!(io::stdout().lock(), "{release} {build_id}: {}{state}", sizes(&added.kernel))?;
        if added.left_out > 0 {
            tell!(
                "{} files of modules were left out: they have no debug information, or are of another kernel",
                added.left_out
            );
        }
        options.release = arguments.release.clone();
    }
    if failed > 0 {
        return Err(format!("{failed} of {} images were not added", arguments.images.len()).into());
    }
    Ok(())
}

/// How many bytes a kernel has in the hub.
fn sizes(kernel: &Kernel) -> String {
    let Kernel { image, btf, modules, .. } = kernel;
    format!(
        "{} bytes (image {}, .BTF {}, modules {}), {} modules",
        kernel.stored(),
        image.stored,
        btf.stored,
        modules.stored,
        modules.files
    )
}

fn crawl(arguments: &Crawl) -> Result<(), Failure> {
    let given = |names: &[String], default: &[&str]| match names.is_empty() {
        true => default.iter().map(|name| (*name).to_owned()).collect(),
        false => names.to_vec(),
    };
    let mut jobs = Jobs { memory: u64::from(arguments.memory) << 20, ..Jobs::default() };
    if let Some(count) = arguments.jobs {
        jobs.count = count as usize;
    }
    let mut options = crawl::Options {
        place: Place {
            suites: arguments.suites.clone(),
            architectures: given(&arguments.architectures, &["amd64", "arm64"]),
            uris: arguments.archives.clone(),
            allow_unsigned: arguments.allow_unsigned,
        },
        releases: arguments.releases.clone(),
        limit: arguments.limit,
        without_modules: arguments.no_modules,
        add: Options {
            signer: arguments.key.as_deref().map(Signer::open).transpose()?,
            level: arguments.level,
            again: arguments.force,
            jobs,
            ..Options::default()
        },
    };
    let bar = Bar::new()?;
    let crawl = crawl::Crawl::new(&arguments.folder, &options, &bar)?;
    let Plan { missing, there, left } = &crawl.plan;
    let mut out = io::stdout().lock();
    if arguments.dry_run {
        for package in missing {
            writeln!(
                out,
                "{:<8} {:<40} {:<20} {:>11}",
                package.architecture, package.release, package.version, package.size
            )?;
        }
        let bytes: u64 = missing.iter().map(|package| package.size).sum();
        return Ok(writeln!(
            out,
            "{} kernels to fetch, {bytes} bytes of packages; {there} are in the hub, {left} are left by --limit",
            missing.len()
        )?);
    }
    let (count, mut stored, mut failures) = (missing.len(), 0, Vec::new());
    crawl.run(&arguments.folder, &mut options, &bar, |outcome| {
        let Outcome { package, result, fetched, unpacked, encoded } = outcome;
        let times = format!(
            "fetched in {:.1} s, unpacked in {:.1} s, encoded in {:.1} s",
            fetched.as_secs_f64(),
            unpacked.as_secs_f64(),
            encoded.as_secs_f64()
        );
        let line = match result {
            Ok(Added { kernel, left_out, .. }) => {
                stored += kernel.stored();
                let (release, architecture) = (&package.release, &package.architecture);
                format!("{release} {architecture}: {}, {left_out} left out; {times}", sizes(&kernel))
            }
            Err(error) => {
                let text = output::chain(&error);
                tell!("siteseer: {}: {text}", package.id());
                failures.push(format!("{}: {text}", package.id()));
                return;
            }
        };
        // Whoever reads no more of it wants the hub all the same.
        let _ = writeln!(out, "{line}");
    });
    bar.0.finish_and_clear();
    writeln!(
        out,
        "{} kernels added, {stored} bytes; {there} were there, {left} are left by --limit",
        count - failures.len()
    )?;
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("{} of {count} kernels were not added:\n  {}", failures.len(), failures.join("\n  ")).into())
}

fn list(arguments: &List) -> Result<(), Failure> {
    let index = make::index(&arguments.folder)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&index)?)?);
    }
    writeln!(
        out,
        "{:<30} {:<8} {:<40} {:>9} {:>8} {:>10} {:>10} {:>7} {:>11} {:>10}",
        "RELEASE", "MACHINE", "BUILD ID", "FUNCTIONS", "SITES", "IMAGE", ".BTF", "MODULES", "OF MODULES", "BYTES"
    )?;
    let (mut sum, mut deltas) = (0, 0);
    for kernel in &index.kernels {
        let Kernel { release, machine, build_id, census, image, btf, modules, .. } = kernel;
        let stored = kernel.stored();
        sum += stored;
        let (functions, sites) = (census.functions, census.sites);
        writeln!(
            out,
            "{release:<30} {machine:<8} {build_id:<40} {functions:>9} {sites:>8} {:>10} {:>10} {:>7} {:>11} {stored:>10}",
            bytes(image),
            bytes(btf),
            modules.files,
            bytes(modules)
        )?;
        deltas += u64::from(kernel.parts().iter().any(|(_, part)| part.base.is_some()));
        if arguments.parts {
            for (file, part, sizes) in make::parts(&arguments.folder, &index, kernel)? {
                writeln!(out, "    {file:<12} {part:<22} {:>10} {:>10}", sizes.bytes, sizes.stored)?;
            }
        }
    }
    let count = index.kernels.len() as u64;
    if deltas > 0 {
        writeln!(out, "{deltas} kernels have files that are stored as differences from another kernel's (+)")?;
    }
    Ok(writeln!(out, "{count} kernels, {sum} bytes, {} each on average", sum.checked_div(count).unwrap_or(0))?)
}

/// Bytes of a file as it is stored, with `+` if it is a difference.
fn bytes(part: &Part) -> String {
    format!("{}{}", if part.base.is_some() { "+" } else { "" }, part.stored)
}

fn check(folder: &Path) -> Result<(), Failure> {
    let index = make::index(folder)?;
    let mut failed = 0;
    for kernel in &index.kernels {
        if let Err(error) = make::check(folder, &index, kernel) {
            tell!("siteseer: {}: {}", kernel.release, output::chain(&error));
            failed += 1;
        }
    }
    if failed > 0 {
        return Err(format!("{failed} of {} kernels cannot be fetched: add them again", index.kernels.len()).into());
    }
    Ok(writeln!(io::stdout().lock(), "{} kernels can be fetched", index.kernels.len())?)
}

fn remove(arguments: &Remove) -> Result<(), Failure> {
    let signer = arguments.key.as_deref().map(Signer::open).transpose()?;
    let bar = Bar::new()?;
    for id in &arguments.build_ids {
        make::remove(&arguments.folder, id, signer.as_ref(), &bar)?;
    }
    Ok(())
}
