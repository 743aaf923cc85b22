// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! A kernel that is built here, by a compiler and with a configuration that no distribution has.
//!
//! The sources are a package of the row's suite, unpacked once for all rows (`source.rs`). The configuration is what
//! Kconfig makes of nothing but the row's fragments (`allnoconfig`), and it is looked at before anything is compiled
//! (`config.rs`). kbuild runs in the build root `kernel`, with its output in a folder of its own, so that the sources
//! are shared and stay as they are. Files that a patch changes are mounted in the place of those of the sources
//! (`patch.rs`). What modules need of that output stays in the cache as `tree`.
//!
//! All that went into a kernel is its [`BuildRecipe`]. The folder's name has a checksum of it, `kernel.json` the whole;
//! a kernel whose recipe is still what the row says is not built again.

mod inline;
mod patch;
mod plugin;
mod source;
mod tree;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    arch::Arch,
    buildroot::{self, BuildRoot, BuildRootError, Mount},
    config,
    debian::{
        folder_name,
        suite::{self, Suite},
    },
    error::GetError,
    image::{check_pair, vmlinux_build_id},
    log::last_lines,
    matrix::{BuiltRow, Plugin, Row},
    module_tree::ModuleTree,
    partial::{Partial, check_space},
    record::{BuildRecipe, BuildRecord, KernelPaths, KernelRecord, entry},
};

/// Where the build root has the sources and the output. They stay as they are: both are in the kernel's debug
/// information and in the makefiles of its tree.
const SOURCE: &str = "/build/workspace";
const OUTPUT: &str = "/build/target";

/// The plugin that the compiler loads, if the row says one.
const PLUGIN: &str = "/build/target/marker.so";

/// The folder in the kernel's that holds what modules are built with.
const TREE: &str = "tree";

/// Counts changes of the procedure below that change what comes out.
const PROCEDURE: u32 = 1;

/// The packages of the build root whose programs shape a kernel.
const TOOLS: &[&str] = &["clang-22", "lld-22", "llvm-22", "clang-23", "lld-23", "llvm-23", "dwarves"];

/// What a build takes at most, in bytes: full LTO's intermediate files, and the result.
const SPACE: u64 = 6_000_000_000;

/// How much of a log an error shows.
const SHOWN_LINES: usize = 30;

/// Sees to it that the kernel of the newest sources is in `place`, and returns its folder.
pub(crate) fn renew(row: &Row, built: &BuiltRow, place: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf, GetError> {
    let fragments = read_fragments(built)?;
    let joined = config::joined(&fragments)?;
    let root_error = |error: BuildRootError| GetError::BuildRoot(Box::new(error));
    let root_row = buildroot::workspace_rows().and_then(|rows| rows.row(&built.root)).map_err(root_error)?;
    let root = BuildRoot::get(root_row, false, &mut *say).map_err(root_error)?;
    let tools = root.versions().map_err(root_error)?;

    say(&format!("{}: reading the index of {}", row.name, built.suite));
    let host = Arch::host().unwrap_or(row.arch);
    let suite = Suite::read(place, &built.suite, host)?;
    let package = suite.find(&built.source.package, None)?;
    let recipe = BuildRecipe {
        source: suite::record(&package),
        archive: built.source.file.clone(),
        config: fragments,
        make: built.make.clone(),
        tools: tools.into_iter().filter(|(name, _)| is_tool(row, built, name)).collect(),
        procedure: PROCEDURE,
        plugin: read_plugin(built)?,
        patches: read_patches(built)?,
    };
    let directory = place.join(entry_name(&recipe)?);
    let is_there =
        entry(&directory).is_some_and(|paths| paths.record.build.is_some_and(|build| build.recipe == recipe));
    if is_there {
        return Ok(directory);
    }
    let source = source::get(&suite, &package, &built.source.file, say)?;
    check_space(place, SPACE)?;
    let partial = Partial::new(place)?;
    let output = partial.path().join(TREE);
    fs::create_dir(&output).map_err(GetError::io(format!("cannot make {}", output.display())))?;
    let patched = patch::apply(&recipe, &source, partial.path())?;

    let start = Instant::now();
    let make = Make {
        row,
        built,
        root: &root,
        source: &source,
        patched: &patched,
        output: &output,
        log: place.join("build.log"),
    };
    configure(&make, &joined, &recipe)?;
    say(&format!("{}: building {}; what make says is in {}", row.name, package.version, make.log.display()));
    let release = || Ok::<_, GetError>(read(&output.join("include/config/kernel.release"))?.trim().to_owned());
    let take = |from: &str, to: &str| {
        let (from, to) = (output.join(from), partial.path().join(to));
        fs::rename(&from, &to).map_err(GetError::io(format!("cannot take {}", from.display())))?;
        Ok::<_, GetError>(to)
    };
    let (build_id, release) = match built.plugin {
        None => {
            if inline::is_configured(&read(&output.join(".config"))?) {
                inline::put_in(&make, say)?;
            }
            make.run(&[image_target(row.arch), "modules"])?;
            let vmlinux = take("vmlinux", "vmlinux")?;
            let build_id = check_pair(&take(image_file(row.arch), "vmlinuz")?, &vmlinux)?;
            let release = release()?;
            tree::prune(&output, &vmlinux).map_err(GetError::io(format!("cannot prune {}", output.display())))?;
            (build_id, release)
        }
        Some(plugin) => {
            make.plugin(plugin)?;
            make.run(&["vmlinux"])?;
            let build_id = vmlinux_build_id(&take("vmlinux", "vmlinux")?)?;
            let release = release()?;
            fs::remove_dir_all(&output).map_err(GetError::io(format!("cannot remove {}", output.display())))?;
            (build_id, release)
        }
    };
    let seconds = start.elapsed().as_secs();
    let record = KernelRecord {
        name: row.name.clone(),
        arch: row.arch,
        release,
        build_id,
        suite: built.suite.clone(),
        packages: vec![recipe.source.clone()],
        build: Some(BuildRecord { recipe, seconds }),
    };
    partial.complete(&record, "kernel.json", &directory)?;
    say(&format!("{}: built in {} min {} s", row.name, seconds / 60, seconds % 60));
    suite.discard_downloads();
    source::remove_unused(place.parent().unwrap_or(place));
    // There is nothing to look up about a build that succeeded.
    let _ = fs::remove_file(&make.log);
    Ok(directory)
}

/// Configures a kernel, and begins its log.
fn configure(make: &Make<'_>, joined: &str, recipe: &BuildRecipe) -> Result<(), GetError> {
    File::create(&make.log).map_err(GetError::io(format!("cannot write {}", make.log.display())))?;
    let wanted = make.output.join("wanted.config");
    fs::write(&wanted, joined).map_err(GetError::io(format!("cannot write {}", wanted.display())))?;
    make.run(&[&format!("KCONFIG_ALLCONFIG={OUTPUT}/wanted.config"), "allnoconfig"])?;
    config::check(&recipe.config, &read(&make.output.join(".config"))?)?;
    Ok(())
}

/// Whether a kernel in the cache is what the row describes today, as far as can be told without asking the suite.
pub(crate) fn is_of(built: &BuiltRow, record: &KernelRecord) -> bool {
    let (Some(build), Ok(fragments)) = (&record.build, read_fragments(built)) else { return false };
    let Ok(sources) = read_plugin(built) else { return false };
    let Ok(changes) = read_patches(built) else { return false };
    let BuildRecipe { source, archive, config, make, tools: _, procedure, plugin, patches } = &build.recipe;
    let is_of_source = source.name == built.source.package && *archive == built.source.file;
    let is_made_so = *make == built.make && *procedure == PROCEDURE && *plugin == sources;
    is_of_source && *config == fragments && *patches == changes && is_made_so
}

/// What modules for a kernel of ours are built with: its tree and its sources.
pub(crate) fn module_tree(
    kernel: &KernelPaths,
    build: &BuildRecord,
    mut progress: impl FnMut(&str),
) -> Result<ModuleTree, GetError> {
    let BuildRecipe { source, make, .. } = &build.recipe;
    let sources = match source::cached(source) {
        Some(path) => path,
        None => {
            let place = kernel.directory.parent().unwrap_or(&kernel.directory);
            let suite = Suite::read(place, &kernel.record.suite, Arch::host().unwrap_or(kernel.record.arch))?;
            let package = suite.find(&source.name, Some(&source.version))?;
            source::get(&suite, &package, &build.recipe.archive, &mut progress)?
        }
    };
    let mut arguments = vec!["-C".to_owned(), SOURCE.to_owned()];
    arguments.extend(words(kernel.record.arch, make));
    Ok(ModuleTree {
        mounts: [(sources, SOURCE.to_owned()), (kernel.directory.join(TREE), OUTPUT.to_owned())]
            .into_iter()
            .chain(patch::mounts(&build.recipe, &kernel.directory))
            .collect(),
        arguments,
        resolves_btf_ids: true,
        // The kernel's build id, which each recipe has, tells its configuration and compiler.
        made_of: format!("{} {}", source.name, source.sha256),
    })
}

/// The words for make that are the same for the kernel and its modules.
fn words(arch: Arch, make: &[String]) -> Vec<String> {
    let mut words = vec![format!("O={OUTPUT}"), format!("ARCH={arch}")];
    words.extend_from_slice(make);
    words
}

/// make, for one kernel.
struct Make<'a> {
    row: &'a Row,
    built: &'a BuiltRow,
    root: &'a BuildRoot,
    source: &'a Path,
    patched: &'a [(PathBuf, String)],
    output: &'a Path,
    log: PathBuf,
}

impl Make<'_> {
    fn run(&self, targets: &[&str]) -> Result<(), GetError> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut words = vec!["make".to_owned(), "-C".to_owned(), SOURCE.to_owned(), format!("-j{jobs}")];
        words.extend(self::words(self.row.arch, &self.built.make));
        words.extend(["KBUILD_BUILD_USER=siteseer".to_owned(), "KBUILD_BUILD_HOST=siteseer".to_owned()]);
        words.extend(self.built.plugin.into_iter().flat_map(|plugin| plugin.words(self.row.arch, PLUGIN)));
        words.extend(targets.iter().map(|&target| target.to_owned()));
        self.in_root(&targets.join(" "), &words)
    }

    /// Compiles a plugin.
    fn plugin(&self, plugin: Plugin) -> Result<(), GetError> {
        let command = plugin.compile(self.row.arch, PLUGIN);
        self.in_root("the compiler's plugin", &["sh".to_owned(), "-ec".to_owned(), command])
    }

    /// Runs a command in the build root. What it says goes to the log.
    fn in_root(&self, target: &str, words: &[String]) -> Result<(), GetError> {
        let log_error = || GetError::io(format!("cannot write {}", self.log.display()));
        let log = File::options().append(true).open(&self.log).map_err(log_error())?;
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        let mut mounts = vec![Mount::read_only(self.source, SOURCE), Mount::writable(self.output, OUTPUT)];
        mounts.extend(self.patched.iter().map(|(file, inside)| Mount::read_only(file, inside)));
        if self.built.plugin.is_some() {
            mounts.push(Mount::read_only(&self.built.plugins, plugin::SOURCES));
        }
        let environment = [("LC_ALL".to_owned(), "C".to_owned())];
        let status = self
            .root
            .command(&mounts, &environment, &words)
            .stdout(log.try_clone().map_err(log_error())?)
            .stderr(log)
            .status()
            .map_err(GetError::io("cannot run unshare"))?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read(&self.log).unwrap_or_default();
        Err(GetError::Build {
            name: self.row.name.clone(),
            target: target.to_owned(),
            status: status.to_string(),
            log: self.log.clone(),
            said: last_lines(&String::from_utf8_lossy(&said), SHOWN_LINES),
        })
    }
}

/// Whether a package of the build root shapes a row's kernel.
fn is_tool(row: &Row, built: &BuiltRow, name: &str) -> bool {
    let of_plugin = built.plugin.map_or(&[][..], |plugin| plugin.tools(row.arch));
    TOOLS.contains(&name) || of_plugin.contains(&name)
}

/// The sources of the plugin, if the row says one.
fn read_plugin(built: &BuiltRow) -> Result<Vec<(String, String)>, GetError> {
    built.plugin.map_or(Ok(Vec::new()), |plugin| plugin.read(&built.plugins))
}

/// The fragments and their names.
fn read_fragments(built: &BuiltRow) -> Result<Vec<(String, String)>, GetError> {
    read_named(&built.config, |path, error| GetError::Fragment { path, error })
}

/// The changes of the sources and their names.
fn read_patches(built: &BuiltRow) -> Result<Vec<(String, String)>, GetError> {
    read_named(&built.patches, |path, error| GetError::ReadPatch { path, error })
}

fn read_named(
    paths: &[PathBuf],
    failed: impl Fn(PathBuf, io::Error) -> GetError,
) -> Result<Vec<(String, String)>, GetError> {
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).map_err(|error| failed(path.clone(), error))?;
        Ok((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text))
    };
    paths.iter().map(read).collect()
}

fn read(path: &Path) -> Result<String, GetError> {
    fs::read_to_string(path).map_err(GetError::io(format!("cannot read {}", path.display())))
}

/// The sources' version and a checksum of the whole.
fn entry_name(recipe: &BuildRecipe) -> Result<String, GetError> {
    let bytes = serde_json::to_vec(recipe)
        .map_err(|error: serde_json::Error| GetError::io("cannot write the recipe")(io::Error::from(error)))?;
    Ok(format!("{}-{:08x}", folder_name(&recipe.source.version), crc32fast::hash(&bytes)))
}

/// What make calls the bootable image, and where it is then.
fn image_target(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "bzImage",
        Arch::Arm64 => "Image.gz",
    }
}

fn image_file(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "arch/x86/boot/bzImage",
        Arch::Arm64 => "arch/arm64/boot/Image.gz",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{matrix::PackageFile, record::PackageRecord};

    fn recipe() -> BuildRecipe {
        BuildRecipe {
            source: PackageRecord {
                name: "linux-source-7.3".to_owned(),
                version: "7.3.4-1~bpo13+1".to_owned(),
                sha256: "ab".to_owned(),
            },
            archive: "x.tar.xz".to_owned(),
            config: vec![("vm".to_owned(), "CONFIG_SMP=y\n".to_owned())],
            make: vec!["LLVM=-22".to_owned()],
            tools: [("clang-22".to_owned(), "1:22.1.8".to_owned())].into(),
            procedure: PROCEDURE,
            plugin: vec![],
            patches: vec![],
        }
    }

    #[test]
    fn all_that_makes_a_kernel_is_in_its_key() {
        let key = entry_name(&recipe()).unwrap();
        assert!(key.starts_with("7.3.4-1~bpo13+1-"), "{key}");
        assert_eq!(entry_name(&recipe()).unwrap(), key);
        let changes: [fn(&mut BuildRecipe); 8] = [
            |recipe| recipe.source.sha256 = "cd".to_owned(),
            |recipe| recipe.archive = "y.tar.xz".to_owned(),
            |recipe| recipe.config[0].1 = "CONFIG_SMP=y\nCONFIG_NR_CPUS=8\n".to_owned(),
            |recipe| recipe.make.push("V=1".to_owned()),
            |recipe| drop(recipe.tools.insert("clang-22".to_owned(), "1:22.1.9".to_owned())),
            |recipe| recipe.procedure += 1,
            |recipe| recipe.plugin.push(("x.cc".to_owned(), "int x;".to_owned())),
            |recipe| recipe.patches.push(("x".to_owned(), "+int x;".to_owned())),
        ];
        for change in changes {
            let mut other = recipe();
            change(&mut other);
            assert_ne!(entry_name(&other).unwrap(), key, "{other:?}");
        }
    }

    #[test]
    fn a_kernel_of_fragments_that_changed_since_is_not_that_of_the_row() {
        let directory = tempfile::tempdir().unwrap();
        let fragment = directory.path().join("vm.config");
        fs::write(&fragment, "CONFIG_SMP=y\n").unwrap();
        let row = |make: &str| BuiltRow {
            suite: "suite".to_owned(),
            source: PackageFile { package: "linux-source-7.3".to_owned(), file: "x.tar.xz".to_owned() },
            make: vec![make.to_owned()],
            config: vec![fragment.clone()],
            patches: vec![],
            plugin: None,
            root: "kernel".to_owned(),
            plugins: PathBuf::new(),
        };
        let mut record = KernelRecord {
            name: "x".to_owned(),
            arch: Arch::X86_64,
            release: "7.3.4".to_owned(),
            build_id: "00".to_owned(),
            suite: "suite".to_owned(),
            packages: vec![],
            build: Some(BuildRecord { recipe: recipe(), seconds: 1 }),
        };
        assert!(is_of(&row("LLVM=-22"), &record));
        assert!(!is_of(&row("LLVM=-23"), &record));
        let patch = directory.path().join("x.patch");
        fs::write(&patch, "+int x;").unwrap();
        let patched = BuiltRow { patches: vec![patch.clone()], ..row("LLVM=-22") };
        assert!(!is_of(&patched, &record), "the row has a patch that the kernel does not have");
        let mut changed = record.clone();
        if let Some(build) = &mut changed.build {
            build.recipe.patches = vec![("x".to_owned(), "+int x;".to_owned())];
        }
        assert!(is_of(&patched, &changed));
        assert!(!is_of(&row("LLVM=-22"), &changed), "the kernel has a patch that the row does not have");
        fs::write(&patch, "+int y;").unwrap();
        assert!(!is_of(&patched, &changed), "the patch is another");
        fs::write(&fragment, "CONFIG_SMP=n\n").unwrap();
        assert!(!is_of(&row("LLVM=-22"), &record));
        fs::remove_file(&fragment).unwrap();
        assert!(!is_of(&row("LLVM=-22"), &record), "then the row is wrong, and getting it says so");
        record.build = None;
        assert!(!is_of(&row("LLVM=-22"), &record));
    }
}
