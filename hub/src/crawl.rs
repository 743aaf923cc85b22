// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! All kernels of a distribution's archive, put into a hub one after the other.
//!
//! While a kernel is encoded, the next one is fetched and unpacked. So at most two packages are on the disk. An image
//! is encoded on all processors, and modules side by side as far as the memory goes. What the hub has already, of the
//! same package and the same siteseer, is passed over. So whatever interrupts this, it goes on the next time.

use crate::archive::{Apt, Package, Place};
use crate::debian;
use crate::error::{HubError, io};
use crate::http::Progress;
use crate::make::{self, Added};
use crate::place::Lock;
use siteseer::internals::pattern::Glob;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What to put into a hub.
#[derive(Debug, Default)]
pub struct Options {
    /// Where the kernels are.
    pub place: Place,
    /// Which releases; without any, all.
    pub releases: Vec<Glob>,
    /// At most so many kernels.
    pub limit: Option<usize>,
    /// Whether to leave the modules out.
    pub without_modules: bool,
    /// How kernels are added; release, modules and package are those of the package.
    pub add: make::Options,
}

/// The outcome for one kernel.
#[derive(Debug)]
pub struct Outcome {
    /// Its package.
    pub package: Package,
    /// What is in the hub, or why it is not.
    pub result: Result<Added, HubError>,
    /// How long apt fetched it; it is fetched while another is encoded.
    pub fetched: Duration,
    /// How long it took to unpack.
    pub unpacked: Duration,
    /// How long it took to encode, compress and store.
    pub encoded: Duration,
}

/// The kernels of an archive, by whether the hub has them.
#[derive(Debug, Default)]
pub struct Plan {
    /// Those to fetch.
    pub missing: Vec<Package>,
    /// How many are there already.
    pub there: usize,
    /// How many are left for another time, because of the limit.
    pub left: usize,
}

/// What the names of folders begin with that packages are unpacked in: in the hub, where there is room.
const STATE: &str = ".crawling.";

/// A crawl that is about to begin.
pub struct Crawl {
    apt: Apt,
    state: TempDir,
    /// What will be done.
    pub plan: Plan,
    _lock: Lock,
}

impl Crawl {
    /// Reads the lists of the archive and compares them with the hub.
    ///
    /// # Errors
    /// [`HubError::Program`] if apt cannot read the lists, and those of the hub's index.
    pub fn new(folder: &Path, options: &Options, progress: &dyn Progress) -> Result<Crawl, HubError> {
        fs::create_dir_all(folder).map_err(io(folder))?;
        let lock = Lock::take(folder, "crawl", || progress.say("waiting for another siteseer hub crawl"))?;
        // What one left that was interrupted.
        for entry in fs::read_dir(folder).map_err(io(folder))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(STATE) {
                fs::remove_dir_all(entry.path()).map_err(io(&entry.path()))?;
            }
        }
        let state = tempfile::Builder::new().prefix(STATE).tempdir_in(folder).map_err(io(folder))?;
        let apt = Apt::update(&state.path().join("apt"), &options.place)?;
        let plan = plan(apt.packages()?, folder, options)?;
        Ok(Crawl { apt, state, plan, _lock: lock })
    }

    /// Fetches and adds each kernel of the plan. `done` is told of each. Failures do not end it.
    pub fn run(&self, folder: &Path, options: &mut Options, progress: &dyn Progress, mut done: impl FnMut(Outcome)) {
        let limit = crate::http::Limits::default().image;
        let with_modules = !options.without_modules;
        // One that waits, and one that is being fetched.
        let (send, receive) = mpsc::sync_channel(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                for package in &self.plan.missing {
                    let mut times = [Duration::ZERO; 2];
                    let unpacked = self.unpacked(package, with_modules, limit, &mut times);
                    if send.send((package, times, unpacked)).is_err() {
                        return;
                    }
                }
            });
            for (package, [fetched, unpacked], folder_of_package) in receive {
                let start = Instant::now();
                let result = folder_of_package.and_then(|unpacked| {
                    options.add.release = Some(package.release.clone());
                    options.add.package = Some(package.id());
                    options.add.modules = with_modules.then(|| unpacked.path().to_owned());
                    make::add(folder, &unpacked.path().join("vmlinux"), &options.add, progress)
                });
                done(Outcome { package: package.clone(), result, fetched, unpacked, encoded: start.elapsed() });
            }
        });
    }

    fn unpacked(
        &self,
        package: &Package,
        with_modules: bool,
        limit: u64,
        times: &mut [Duration; 2],
    ) -> Result<TempDir, HubError> {
        let place = self.state.path();
        let folder = tempfile::Builder::new().prefix("package.").tempdir_in(place).map_err(io(place))?;
        let start = Instant::now();
        let file = self.apt.download(package, folder.path())?;
        times[0] = start.elapsed();
        debian::unpack(&file, folder.path(), &package.release, with_modules, limit)?;
        fs::remove_file(&file).map_err(io(&file))?;
        times[1] = start.elapsed() - times[0];
        Ok(folder)
    }
}

/// Which of the packages are to be fetched.
fn plan(packages: Vec<Package>, folder: &Path, options: &Options) -> Result<Plan, HubError> {
    let index = make::index(folder)?;
    let (add, with_modules) = (&options.add, !options.without_modules);
    let is_wanted = |package: &Package| {
        options.releases.is_empty() || options.releases.iter().any(|glob| glob.matches(&package.release))
    };
    let is_there = |package: &Package| {
        let known = index.kernels.iter().find(|kernel| kernel.package.as_deref() == Some(&package.id()));
        !add.again && known.is_some_and(|kernel| make::has(folder, kernel, with_modules, add.signer.is_some()))
    };
    let (there, mut missing): (Vec<Package>, Vec<Package>) = packages.into_iter().filter(is_wanted).partition(is_there);
    let limit = options.limit.unwrap_or(usize::MAX);
    let left = missing.len().saturating_sub(limit);
    missing.truncate(limit);
    Ok(Plan { missing, there: there.len(), left })
}
