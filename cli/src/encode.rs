// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer encode`: DWARF to site data.

use crate::{Failure, output, sandbox};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use siteseer::internals::source::{BaseTypes, Chosen, read, user_cache};
use siteseer_encoder::{BaseKernel, Census, Detail, KernelTypes, Options};
use siteseer_sites::{Doubt, Missing, SiteSet, file};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;

/// Encode the DWARF of a kernel image, or of modules, as site data
///
/// The result holds the image's own BTF, the sites as split BTF over it in upstream's LOC kinds (.BTF.inline), a
/// companion section for what these kinds cannot express (.BTF.inline.ext), and a short checksum of the instructions at
/// each site (.BTF.inline.code). It is valid for the kernel or module with the same build id.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A kernel image (vmlinux) or modules (.ko) with debug information
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// For modules: the image of the kernel that they are for, or a file with its BTF [default: the running kernel]
    #[arg(long, value_name = "VMLINUX")]
    base: Option<PathBuf>,
    /// Where to write the site data [default: where the loader looks for it, by build id, in the user's cache]. For
    /// several images this is a folder, where each gets a file BUILD-ID.sites
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write only the split BTF, as /sys/kernel/btf/vmlinux.inline would contain it
    #[arg(long, requires = "output")]
    raw: bool,
    /// Also store which inlined copy each instruction belongs to, for `siteseer where`
    #[arg(long, conflicts_with = "raw")]
    ranges: bool,
    /// Also store which source line each instruction belongs to; implies --ranges
    #[arg(long, conflicts_with = "raw")]
    lines: bool,
    /// Print a census of sites and arguments; without --output nothing is written
    #[arg(long)]
    stats: bool,
    /// Print the census as JSON; without --output nothing is written
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let several = arguments.images.len() > 1;
    if let Some(folder) = arguments.output.as_ref().filter(|_| several) {
        make(folder)?;
    }
    restrict(arguments)?;
    // Read and indexed for the first module.
    let (base, types) = (OnceCell::new(), OnceCell::new());
    let mut all = Vec::new();
    let mut failed = 0;
    for path in &arguments.images {
        let census = match encode(arguments, path, &base, &types, several) {
            Ok(census) => census,
            // One module of many that has no BTF leaves the others as they are.
            Err(failure) if several => {
                output::tell!("siteseer: {}", output::chain(&*failure));
                failed += 1;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if arguments.json {
            let mut census = json(&census);
            if several {
                census["image"] = path.display().to_string().into();
            }
            all.push(census);
        } else if arguments.stats {
            let heading = if several { format!("{}\n", path.display()) } else { String::new() };
            write!(io::stdout().lock(), "{heading}{census}")?;
        }
    }
    if arguments.json {
        let text = match all.as_slice() {
            [one] if !several => serde_json::to_string_pretty(one)?,
            all => serde_json::to_string_pretty(all)?,
        };
        writeln!(io::stdout().lock(), "{text}")?;
    }
    if failed > 0 {
        return Err(format!("{failed} of {} images were not encoded", arguments.images.len()).into());
    }
    Ok(())
}

/// Keeps what reads DWARF from everything that is not the command's business.
fn restrict(arguments: &Arguments) -> Result<(), Failure> {
    let mut read: Vec<&Path> = arguments.images.iter().map(PathBuf::as_path).collect();
    // The running kernel's types and build id.
    read.push(arguments.base.as_deref().unwrap_or(Path::new("/sys/kernel")));
    // How many threads to start: cgroups may allow fewer than there are processors.
    read.extend(["/proc/self/cgroup", "/proc/self/mountinfo", "/sys/fs/cgroup"].map(Path::new));
    let written = match &arguments.output {
        Some(folder) if arguments.images.len() > 1 => Some(folder.join("sites")),
        Some(file) => Some(file.clone()),
        None if arguments.stats || arguments.json => None,
        None => Some(cache()?.join("sites")),
    };
    let written: Vec<&Path> = written.iter().map(PathBuf::as_path).collect();
    if let Err(error) = sandbox::enter(&read, &written) {
        output::tell!("note: the kernel does not restrict what encoding may do: {}", output::chain(&error));
    }
    Ok(())
}

/// The user's cache, which is made if it is not there.
fn cache() -> Result<PathBuf, Failure> {
    let folder = user_cache().ok_or("no cache folder: neither XDG_CACHE_HOME nor HOME is set")?;
    make(&folder)?;
    Ok(folder)
}

fn make(folder: &Path) -> Result<(), Failure> {
    Ok(fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?)
}

/// The kernel that modules are for.
fn kernel<'t, 'b: 't>(
    arguments: &Arguments,
    path: &Path,
    base: &'b OnceCell<BaseTypes>,
    types: &'t OnceCell<KernelTypes<'b>>,
) -> Result<BaseKernel<'t>, Failure> {
    let read = || match &arguments.base {
        Some(path) => Ok::<_, Failure>(BaseTypes::open(path)?),
        None => Ok(BaseTypes::running().map_err(|error| {
            format!(
                "{} is a module, and its types refer to its kernel's: give --base VMLINUX ({error})",
                path.display()
            )
        })?),
    };
    let base = match base.get() {
        Some(base) => base,
        None => {
            let read = read()?;
            base.get_or_init(|| read)
        }
    };
    let types = match types.get() {
        Some(types) => types,
        None => {
            let indexed = KernelTypes::new(&base.btf);
            let indexed = indexed.map_err(|error| format!("{}: {}", path.display(), output::chain(&error)))?;
            types.get_or_init(|| indexed)
        }
    };
    Ok(BaseKernel { types, build_id: &base.build_id.0 })
}

/// Encodes one image, and writes it where it is to go.
fn encode<'b>(
    arguments: &Arguments,
    path: &Path,
    base: &'b OnceCell<BaseTypes>,
    types: &OnceCell<KernelTypes<'b>>,
    several: bool,
) -> Result<Census, Failure> {
    let image = read(path, Chosen::ByCaller).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let is_module = siteseer_encoder::is_module(&image);
    let kernel = is_module.then(|| kernel(arguments, path, base, types)).transpose()?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}%  {elapsed}")?);
    bar.set_message(path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned());
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let ranges = match arguments {
        Arguments { lines: true, .. } => Detail::Lines,
        Arguments { ranges: true, .. } => Detail::Copies,
        _ => Detail::Nothing,
    };
    let code = !arguments.raw;
    let options = Options { progress: Some(&progress), kernel, ranges, code, ..Options::default() };
    let encoded = siteseer_encoder::encode_all(&image, &options);
    bar.finish_and_clear();
    let encoded = encoded.map_err(|error| format!("{}: {}", path.display(), output::chain(&error)))?;
    // The set has all that is written; without the image's pages there is room for it. If no thread can be started, the
    // closure that owns the image is dropped here.
    let unmapping = thread::Builder::new().spawn(|| drop(image));

    if let Some(output) = destination(arguments, path, &encoded.set, several)? {
        output::write_whole(&output, |out| {
            if arguments.raw {
                return Ok(out.write_all(&file::write_raw(&encoded.set)?)?);
            }
            Ok(file::write_with(&encoded.set, &encoded.optional(), out)?)
        })?;
        // Standard output may be what was written.
        if !arguments.json && !arguments.stats && !output::is_in_place(&output) {
            writeln!(io::stdout().lock(), "{}", output.display())?;
        }
    }
    if let Ok(unmapping) = unmapping {
        // Nothing in it can fail.
        let _ = unmapping.join();
    }
    if !several {
        // The process ends soon: the system takes a million small allocations back at once.
        std::mem::forget((encoded.set, encoded.ranges));
    }
    Ok(encoded.census)
}

/// The file to write, if any.
fn destination(arguments: &Arguments, path: &Path, set: &SiteSet, several: bool) -> Result<Option<PathBuf>, Failure> {
    let folder = match &arguments.output {
        Some(output) if !several => return Ok(Some(output.clone())),
        Some(folder) => folder.clone(),
        None if arguments.stats || arguments.json => return Ok(None),
        None => cache()?,
    };
    let id: String = set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    if id.is_empty() {
        return Err(
            format!("{} has no build id, after which its file would be named: give --output", path.display()).into()
        );
    }
    Ok(Some(folder.join(format!("{id}.sites"))))
}
/// The census for machines. These sums hold: `located` plus all of `unavailable` is `total`, and so is all of
/// `by_location` plus all of `unavailable`; `certain` plus all of `doubtful` is `located`.
fn json(census: &Census) -> serde_json::Value {
    let (sites, arguments, out_of_line) = (&census.sites, &census.arguments, &census.out_of_line);
    let missing = |counts: &BTreeMap<Missing, u64>| -> BTreeMap<&str, u64> {
        counts.iter().map(|(reason, &count)| (reason.key(), count)).collect()
    };
    let doubtful = |counts: &BTreeMap<Doubt, u64>| -> BTreeMap<&str, u64> {
        counts.iter().map(|(reason, &count)| (reason.key(), count)).collect()
    };
    let by_location: BTreeMap<&str, u64> =
        arguments.by_location.iter().map(|(kind, &count)| (kind.key(), count)).collect();
    let unprobeable: BTreeMap<&str, u64> =
        sites.unprobeable.iter().map(|(reason, &count)| (reason.key(), count)).collect();
    let refused: BTreeMap<&str, serde_json::Value> = sites
        .refused_at_entry
        .iter()
        .map(|(reason, counts)| {
            let counts = serde_json::json!({
                "total": counts.total,
                "forward": counts.forward,
                "back": counts.back,
                "arguments_lost": counts.arguments_lost,
            });
            (reason.key(), counts)
        })
        .collect();
    let shapes: Vec<serde_json::Value> = arguments
        .computed_shapes
        .iter()
        .map(|(shape, count)| serde_json::json!({ "shape": shape, "count": count }))
        .collect();
    serde_json::json!({
        "functions": census.functions,
        "prototypes": census.prototypes,
        "sites": {
            "total": sites.total,
            "rests": sites.rests,
            "all_arguments": sites.all_arguments,
            "all_certain": sites.all_certain,
            "probeable": sites.probeable,
            "unprobeable": unprobeable,
            "dead": sites.dead,
            "moved": sites.moved,
            "moved_back": sites.moved_back,
            "refused_at_entry": refused,
            "may_repeat": sites.may_repeat,
            "entry_uncertain": sites.entry_uncertain,
            "may_miss": sites.may_miss,
            "late_view": sites.late_view,
            "outside_text": sites.outside_text,
            "without_origin": sites.without_origin,
            "merged": sites.merged,
        },
        "arguments": {
            "total": arguments.total,
            "usable": arguments.usable,
            "located_of_usable": arguments.located_of_usable,
            "located": arguments.located,
            "certain": arguments.certain,
            "doubtful": doubtful(&arguments.doubtful),
            "gained_by_moving": arguments.gained_by_moving,
            "by_location": by_location,
            "computed": shapes,
            "unavailable": missing(&arguments.unavailable),
        },
        "out_of_line": {
            "bodies": out_of_line.bodies,
            "clones": out_of_line.clones,
            "signature_changed": out_of_line.signature_changed,
            "arguments": out_of_line.arguments,
            "located": out_of_line.located,
            "certain": out_of_line.certain,
            "doubtful": doubtful(&out_of_line.doubtful),
            "unavailable": missing(&out_of_line.unavailable),
        },
    })
}
