// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer hub`: a folder of signed site files, from which `siteseer fetch` fetches.

use crate::Failure;
use crate::fetch::Bar;
use crate::output::{self, tell};
use clap::{Args, Subcommand};
use siteseer_hub::layout::Kernel;
use siteseer_hub::make::{self, Options};
use siteseer_hub::sign::Signer;
use std::io::{self, Write};
use std::path::PathBuf;

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
    List(List),
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
        Command::List(arguments) => list(arguments),
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
        let Kernel { release, build_id, image, btf, modules, .. } = &added.kernel;
        let state = if added.was_there { " (was there)" } else { "" };
        let stored = added.kernel.stored();
        writeln!(
            io::stdout().lock(),
            "{release} {build_id}: {stored} bytes (image {}, .BTF {}, modules {}), {} modules{state}",
            image.stored,
            btf.stored,
            modules.stored,
            modules.files
        )?;
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

fn list(arguments: &List) -> Result<(), Failure> {
    let index = make::index(&arguments.folder)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&index)?)?);
    }
    writeln!(
        out,
        "{:<30} {:<8} {:<40} {:>9} {:>8} {:>9} {:>9} {:>7} {:>10} {:>10}",
        "RELEASE", "MACHINE", "BUILD ID", "FUNCTIONS", "SITES", "IMAGE", ".BTF", "MODULES", "OF MODULES", "BYTES"
    )?;
    let mut sum = 0;
    for kernel in &index.kernels {
        let Kernel { release, machine, build_id, census, image, btf, modules, .. } = kernel;
        let stored = image.stored + btf.stored + modules.stored;
        sum += stored;
        let (functions, sites) = (census.functions, census.sites);
        writeln!(
            out,
            "{release:<30} {machine:<8} {build_id:<40} {functions:>9} {sites:>8} {:>9} {:>9} {:>7} {:>10} {stored:>10}",
            image.stored, btf.stored, modules.files, modules.stored
        )?;
        if arguments.parts {
            for (file, part, sizes) in make::parts(&arguments.folder, kernel)? {
                writeln!(out, "    {file:<12} {part:<22} {:>10} {:>10}", sizes.bytes, sizes.stored)?;
            }
        }
    }
    let count = index.kernels.len() as u64;
    Ok(writeln!(out, "{count} kernels, {sum} bytes, {} each on average", sum.checked_div(count).unwrap_or(0))?)
}
