// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer encode`: DWARF to site data.

use crate::{Failure, output};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memmap2::Mmap;
use siteseer_encoder::{Census, Options};
use siteseer_sites::{Missing, file};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// Encode a kernel image's DWARF as site data
///
/// The result holds the image's own BTF, the sites as split BTF over it in upstream's LOC kinds (.BTF.inline), and a
/// companion section for what those cannot carry (.BTF.inline.ext). It is good for the kernel with the same build id.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The kernel image with debug information
    vmlinux: PathBuf,
    /// Where to write the site data [default: where the loader looks for it, by build id, in the user's cache]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the split BTF alone, as /sys/kernel/btf/vmlinux.inline has it
    #[arg(long, requires = "output")]
    raw: bool,
    /// Print a census of sites and arguments; without --output nothing is written
    #[arg(long)]
    stats: bool,
    /// Print the census as JSON; without --output nothing is written
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.vmlinux;
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let image = File::open(path).map_err(unreadable)?;
    if !image.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("cannot read {}: it is not a file", path.display()).into());
    }
    // SAFETY: What is read is checked as it is read; a file that someone truncates meanwhile kills this process by
    // SIGBUS, with nothing half-written under the output's name.
    let image = unsafe { Mmap::map(&image) }.map_err(unreadable)?;

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
    let options = Options { progress: Some(&progress), ..Options::default() };
    let encoded = siteseer_encoder::encode(&image, &options);
    bar.finish_and_clear();
    let (set, census) = encoded.map_err(|error| format!("{}: {}", path.display(), output::chain(&error)))?;
    // The set has all that is written; without the image's pages there is room for it.
    drop(image);

    let output = match &arguments.output {
        Some(output) => Some(output.clone()),
        None if arguments.stats || arguments.json => None,
        None => {
            let folder =
                siteseer::source::user_cache().ok_or("no cache folder: neither XDG_CACHE_HOME nor HOME is set")?;
            fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
            let id: String = set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            if id.is_empty() {
                return Err(format!("{} has no build id to file it under: give --output", path.display()).into());
            }
            Some(folder.join(format!("{id}.sites")))
        }
    };
    if let Some(output) = &output {
        let bytes = if arguments.raw { file::write_raw(&set)? } else { file::write(&set)? };
        output::write_whole(output, &bytes)?;
    }
    // The process ends soon: the system takes a million small allocations back at once.
    std::mem::forget(set);
    let mut stdout = io::stdout().lock();
    if arguments.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&json(&census))?)?;
    } else if arguments.stats {
        write!(stdout, "{census}")?;
    } else if let Some(output) = &output {
        writeln!(stdout, "{}", output.display())?;
    }
    Ok(())
}

/// The census for machines. Of the sums: `located` plus all of `unavailable` is `total`, and so is all of `by_location`
/// plus all of `unavailable`.
fn json(census: &Census) -> serde_json::Value {
    let (sites, arguments, out_of_line) = (&census.sites, &census.arguments, &census.out_of_line);
    let missing = |counts: &BTreeMap<Missing, u64>| -> BTreeMap<&str, u64> {
        counts.iter().map(|(reason, &count)| (reason.key(), count)).collect()
    };
    let by_location: BTreeMap<&str, u64> =
        arguments.by_location.iter().map(|(kind, &count)| (kind.key(), count)).collect();
    let unprobeable: BTreeMap<&str, u64> =
        sites.unprobeable.iter().map(|(reason, &count)| (reason.key(), count)).collect();
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
            "probeable": sites.probeable,
            "unprobeable": unprobeable,
            "dead": sites.dead,
            "moved": sites.moved,
            "may_repeat": sites.may_repeat,
            "entry_uncertain": sites.entry_uncertain,
            "may_miss": sites.may_miss,
            "late_view": sites.late_view,
            "outside_text": sites.outside_text,
            "without_origin": sites.without_origin,
        },
        "arguments": {
            "total": arguments.total,
            "usable": arguments.usable,
            "located_of_usable": arguments.located_of_usable,
            "located": arguments.located,
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
            "unavailable": missing(&out_of_line.unavailable),
        },
    })
}
