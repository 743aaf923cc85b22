// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer fetch`: site data from a hub, or from a debug image that is fetched and thrown away.

use crate::Failure;
use crate::output::tell;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::{SigHandler, Signal, signal};
use siteseer::internals::kernel::BuildId;
use siteseer::internals::source::BaseTypes;
use siteseer_hub::config::Config;
use siteseer_hub::fetch::{self, Limits, Options, Progress, Wanted};
use siteseer_hub::layout::parse_id;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Fetch the site data of a kernel to where the loader looks for it
///
/// Without --build-id and --release, that of the running kernel. The places are tried in this order: the hubs that
/// SITESEER_URLS and the configuration name; the servers in DEBUGINFOD_URLS; the distribution's archive. The last two
/// provide the debug image, which is encoded and then deleted. What is fetched must be signed by a key that
/// SITESEER_KEYS or the configuration names, or come from the archive. docs/fetch.md describes it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The kernel with this build id
    #[arg(long, value_name = "ID", value_parser = id)]
    build_id: Option<BuildId>,
    /// The running kernel
    #[arg(long, conflicts_with_all = ["build_id", "release"])]
    running: bool,
    /// The kernel of this release, as `uname -r` prints it
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// Fetch the site data of its modules too
    #[arg(long)]
    modules: bool,
    /// A hub, tried before all other places. May be given again
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<String>,
    /// A public key to trust: a line as minisign prints it, or its file. May be given again
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Also use data that is not signed by a trusted key, such as that of debuginfod
    #[arg(long)]
    allow_unsigned: bool,
    /// Do not ask the distribution's archive
    #[arg(long)]
    no_archive: bool,
    /// Write into this folder [default: /var/cache/siteseer for root, the user's cache for others]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Fetch the site data even if it is there already
    #[arg(long)]
    force: bool,
    /// How many seconds to wait for a server that sends nothing
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

/// A build id that somebody typed.
fn id(text: &str) -> Result<BuildId, String> {
    parse_id(text).ok_or_else(|| "not a build id: pairs of hexadecimal digits".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // SAFETY: no handler is installed. A write beyond RLIMIT_FSIZE then fails, as one to a full disk does, and is
    // cleaned up after.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
    let mut config = Config::read()?;
    config.urls.splice(0..0, arguments.urls.iter().cloned());
    config.keys.splice(0..0, arguments.keys.iter().cloned());
    let wanted = match (&arguments.build_id, &arguments.release) {
        (None, None) => running(arguments.modules)?,
        (build_id, release) => {
            Wanted { build_id: build_id.clone(), release: release.clone(), btf: None, modules: arguments.modules }
        }
    };
    let silence = Duration::from_secs(arguments.timeout.into());
    let options = Options {
        config,
        archive: !arguments.no_archive,
        allow_unsigned: arguments.allow_unsigned,
        folder: arguments.output.clone(),
        again: arguments.force,
        limits: Limits { silence, ..Limits::default() },
    };
    let line = fetch(&wanted, &options)?;
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(())
}

/// The running kernel.
fn running(modules: bool) -> Result<Wanted, Failure> {
    let BaseTypes { btf, build_id } = BaseTypes::running()?;
    if build_id.0.is_empty() {
        return Err("the running kernel has no build id, which would identify its site data".into());
    }
    let release = nix::sys::utsname::uname()?.release().to_string_lossy().into_owned();
    Ok(Wanted { build_id: Some(build_id), release: Some(release), btf: Some(btf), modules })
}

/// Fetches what another command lacks of the running kernel, as `siteseer fetch` does without options.
pub(crate) fn missing(modules: bool) -> Result<(), Failure> {
    let options = Options { config: Config::read()?, archive: true, ..Options::default() };
    let line = fetch(&running(modules)?, &options)?;
    tell!("fetched {line}");
    Ok(())
}

/// Fetches. Returns a line that says what, and where it is from.
fn fetch(wanted: &Wanted, options: &Options) -> Result<String, Failure> {
    let bar = Bar::new()?;
    let fetched = fetch::fetch(wanted, options, &bar);
    bar.0.finish_and_clear();
    let fetched = fetched?;
    for (place, why) in &fetched.tried {
        tell!("passed over: {place}: {why}");
    }
    let modules = match fetched.modules {
        0 => String::new(),
        1 => ", and those of 1 module".to_owned(),
        count => format!(", and those of {count} modules"),
    };
    let from = fetched.from.map_or_else(|| "was there".to_owned(), |from| format!("from {from}"));
    Ok(format!("{} ({from}{modules})", fetched.path.display()))
}

/// How far it is, on a terminal.
pub(crate) struct Bar(pub(crate) ProgressBar);

impl Bar {
    pub(crate) fn new() -> Result<Bar, Failure> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let template = "{wide_msg} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        bar.set_style(ProgressStyle::with_template(template)?);
        Ok(Bar(bar))
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, bytes: Option<u64>) {
        self.0.set_message(what.to_owned());
        self.0.set_position(0);
        match bytes {
            Some(bytes) => self.0.set_length(bytes),
            None => self.0.unset_length(),
        }
    }

    fn at(&self, bytes: u64) {
        self.0.set_position(bytes);
    }

    fn say(&self, text: &str) {
        self.0.suspend(|| tell!("{text}"));
    }
}
