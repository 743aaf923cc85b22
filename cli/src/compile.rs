// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer compile`: an object with trampolines in it, and a manifest that says what to attach where, for loaders
//! that do not know siteseer.

use crate::Failure;
use crate::check::machine;
use crate::output::{self, tell};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use siteseer::internals::compile::{self, Attachment, CompileOptions, Compiled, CompiledProgram};
use siteseer::internals::source::SiteData;
use siteseer::{InTheWay, Policy, Target};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Compile a BPF object for one kernel and any loader: with trampolines for all sites, and a manifest of what to attach
/// where
///
/// The programs in SEC("fentry/..."), SEC("fexit/...") and SEC("kprobe_maybe_inline/...") become ordinary fentry, fexit
/// and kprobe programs, which cilium/ebpf, aya and libbpf load. The rest of the object stays as it is. Nothing is
/// loaded or attached here, and the kernel need not run. docs/compile.md describes the manifest, and how to attach by
/// it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The BPF object
    #[arg(value_name = "OBJECT")]
    object: PathBuf,
    /// Site data of the kernel, made by `siteseer encode`
    #[arg(long, value_name = "FILE", required_unless_present = "vmlinux")]
    sites: Option<PathBuf>,
    /// The kernel's image with debug information, in place of site data
    #[arg(long, value_name = "FILE", conflicts_with = "sites")]
    vmlinux: Option<PathBuf>,
    /// The object to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The manifest to write [default: the object's name with .json after it]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// What to do when not every site can be attached [default: complete for fentry and fexit programs, best-effort for
    /// kprobe_maybe_inline]
    #[arg(long, value_enum, value_name = "POLICY")]
    policy: Option<PolicyName>,
    /// What bpf_get_attach_cookie() returns to the programs
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    cookie: u64,
    /// The loader cannot give kprobes a cookie (aya 0.14 cannot): make a program for each way in which arguments are
    /// gathered, however many there are
    #[arg(long)]
    no_cookies: bool,
    /// Read arguments from doubtful locations too
    #[arg(long)]
    accept_doubt: bool,
    /// Also compile for places where a program is a risk to the kernel
    #[arg(long)]
    allow_risky: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// All sites, or an error that lists those in the way
    Complete,
    /// What plain libbpf attaches to, and every other site that can be attached
    AtLeastLibbpf,
    /// The sites that can be attached
    BestEffort,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Policy {
        match name {
            PolicyName::Complete => Policy::Complete,
            PolicyName::AtLeastLibbpf => Policy::AtLeastLibbpf,
            PolicyName::BestEffort => Policy::BestEffort,
        }
    }
}

/// The name of the manifest's format, with its version.
const SCHEMA: &str = "siteseer-manifest/1";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.object;
    let named = |error: &(dyn std::error::Error + 'static)| format!("{}: {}", path.display(), output::chain(error));
    let data = std::fs::read(path).map_err(|error| named(&error))?;
    let Some(sites) = arguments.sites.as_ref().or(arguments.vmlinux.as_ref()) else {
        return Err("name the kernel's site data by --sites".into());
    };
    let manifest_path = match &arguments.manifest {
        Some(path) => path.clone(),
        None if output::is_in_place(&arguments.output) => {
            let object = arguments.output.display();
            return Err(format!("{object} is not a file that a manifest can be beside: name one by --manifest").into());
        }
        None => manifest_beside(&arguments.output),
    };
    if manifest_path == arguments.output {
        let path = manifest_path.display();
        return Err(
            format!("{path} cannot be both the object and the manifest: name another file by --manifest").into()
        );
    }
    let target = Target::image(SiteData::open(sites, None, true)?)?;
    let options = CompileOptions {
        policy: arguments.policy.map(Policy::from),
        cookie: arguments.cookie,
        cookies: !arguments.no_cookies,
        accept_doubt: arguments.accept_doubt,
        allow_risky: arguments.allow_risky,
    };
    let compiled = compile::compile(&target, &data, options).map_err(|error| named(&error))?;
    let manifest = format!("{}\n", serde_json::to_string_pretty(&manifest(&compiled, &arguments.output))?);
    // A manifest states the checksum of its object, so that one of two runs is not taken for the other's.
    output::write_whole(&arguments.output, |out| Ok(out.write_all(&compiled.object)?))?;
    output::write_whole(&manifest_path, |out| Ok(out.write_all(manifest.as_bytes())?))?;
    // Standard output may be what was written.
    let is_free = ![&arguments.output, &manifest_path].into_iter().any(|path| output::is_in_place(path));
    for program in &compiled.programs {
        if is_free {
            writeln!(io::stdout().lock(), "{}", summary(program))?;
        }
        for (function, site) in &program.left_out {
            tell!("{}: not compiled for {function}: {site}", program.name);
        }
    }
    Ok(())
}

fn manifest_beside(object: &Path) -> PathBuf {
    let mut name = object.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// A line about a program.
fn summary(program: &CompiledProgram) -> String {
    let programs: BTreeSet<&str> = program.attachments.iter().map(|one| one.program.as_str()).collect();
    let mechanisms: BTreeSet<&str> = program.attachments.iter().map(|one| one.mechanism.word()).collect();
    let mechanisms: Vec<&str> = mechanisms.into_iter().collect();
    let (attached, all) = (program.attachments.len(), program.attachments.len() + program.left_out.len());
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}: {attached} of {}, {} by {}",
        program.name,
        plural(all, "site"),
        plural(programs.len(), "program"),
        mechanisms.join(", ")
    )
}

fn manifest(compiled: &Compiled, output: &Path) -> Value {
    let object = &compiled.object;
    json!({
        "schema": SCHEMA,
        "build_id": compiled.build_id.to_string(),
        "machine": machine(compiled.machine),
        "object": {
            "file": output.file_name().map(|name| name.to_string_lossy()),
            "size": object.len(),
            "crc32": format!("{:#010x}", crc32fast::hash(object)),
        },
        "programs": compiled.programs.iter().map(program).collect::<Vec<_>>(),
        // A flat list: what a loader walks through.
        "attachments": compiled.programs.iter().flat_map(|of| of.attachments.iter().map(|one| attachment(of, one)))
            .collect::<Vec<_>>(),
        "left_out": compiled.programs.iter().flat_map(|of| of.left_out.iter().map(|(name, site)| left_out(of, name, site)))
            .collect::<Vec<_>>(),
    })
}

fn program(program: &CompiledProgram) -> Value {
    json!({ "name": program.name, "section": program.section, "policy": program.policy.to_string() })
}

fn attachment(of: &CompiledProgram, attachment: &Attachment) -> Value {
    json!({
        "program": attachment.program,
        "mechanism": attachment.mechanism.word(),
        "symbol": attachment.place.symbol,
        "offset": attachment.place.offset,
        "cookie": format!("{:#x}", attachment.cookie),
        "of": of.name,
        "function": attachment.function,
        "kind": attachment.kind.word(),
        "holder": attachment.holder.symbol,
        "holder_offset": attachment.holder.offset,
        "file": attachment.source.as_ref().map(|place| &place.file),
        "line": attachment.source.as_ref().map(|place| place.line),
    })
}

fn left_out(of: &CompiledProgram, function: &str, site: &InTheWay) -> Value {
    json!({
        "of": of.name,
        "function": function,
        "kind": site.kind.word(),
        "holder": site.symbol,
        "holder_offset": site.offset,
        "file": site.source.as_ref().map(|place| &place.file),
        "line": site.source.as_ref().map(|place| place.line),
        "reason": site.reason.key(),
        "why": site.reason.to_string(),
        "dead": site.reason.is_dead(),
    })
}
