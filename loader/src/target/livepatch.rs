// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which functions live patches have replaced, and what that leaves of a function's sites.
//!
//! A live patch redirects a function from its ftrace entry (`klp_ftrace_handler()` in kernel/livepatch/patch.c): a call
//! comes in at the old function's first instructions, which ftrace has patched, and goes on in the new one. So
//!
//! * what ftrace runs at the old *entry* still sees every call: fentry, fexit (which calls what the patch put in place,
//!   `BPF_TRAMP_F_SHARE_IPMODIFY` in kernel/bpf/trampoline.c; since Linux 6.0, before that the kernel refuses one of
//!   the two), kprobe.multi, and a kprobe on the first byte, which on x86-64 is ftrace's too, and on arm64 comes
//!   before;
//! * everything after the entry in the old *body* does not run any more: the copies of other functions that were
//!   inlined there. (A probe on the function itself that had to be put a few bytes after its entry sees none of its
//!   calls, and is in the way of `complete`: [`Redirected`](crate::Reason::Redirected).) While a patch is in transition
//!   some tasks still run it (`task->patch_state`), and when it is disabled all do again.
//!
//! Copies in an old body are attached nevertheless: that costs nothing, and they are right at once when the patch is
//! disabled. What cannot be attached there is no loss as long as the patch is in force, and not in the way of the
//! policy `complete`. Only what is certain is called dead: nothing is while any patch is in transition (one
//! that replaces another may bring an old body back), nor by a name that several functions have unless sysfs says
//! which.
//!
//! The new code is in the patch's module, and what the compiler inlined there is covered as in all modules: if there
//! are site data of it.
//!
//! Sources: Documentation/ABI/testing/sysfs-kernel-livepatch, Documentation/livepatch/livepatch.rst.

use crate::kernel::symbols::Symbols;
pub use crate::site::live_patch::Concern;
use crate::site::reason::Reason;
use crate::target::function::Candidate;
use siteseer_sites::site::SiteKind;
use std::fs;
use std::io;
use std::path::Path;

/// Where the kernel tells about its live patches.
pub const SYSFS: &str = "/sys/kernel/livepatch";

/// A function that a live patch has replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Patched {
    /// The patch.
    pub patch: String,
    /// The object whose function it is: `vmlinux`, or a module.
    pub object: String,
    /// The function.
    pub function: String,
    /// Which of the symbols of that name in the object, in the order of `/proc/kallsyms`, from 1. sysfs has 1 for the
    /// only one.
    pub position: u32,
}

/// What live patches have replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LivePatches {
    /// The functions of patches that are enabled, in objects that are patched.
    pub functions: Vec<Patched>,
    /// Whether a patch is being applied or taken back: then old bodies may still run.
    pub transition: bool,
    /// Why they are not known, where the kernel has them and does not tell.
    pub(crate) unreadable: Option<String>,
}

impl LivePatches {
    /// Reads what the running kernel says; nothing if it has no live patching.
    ///
    /// # Errors
    /// If a folder is there and cannot be read.
    pub fn running() -> io::Result<LivePatches> {
        LivePatches::read(Path::new(SYSFS))
    }

    /// [`LivePatches::running`]; where they cannot be read no function is taken for replaced, and [`LivePatches::note`]
    /// says so.
    pub(crate) fn running_or_noted() -> LivePatches {
        LivePatches::running().unwrap_or_else(LivePatches::not_known)
    }

    fn not_known(error: io::Error) -> LivePatches {
        LivePatches { unreadable: Some(format!("{SYSFS}: {error}")), ..LivePatches::default() }
    }

    /// What a report should say if they are not known.
    pub(crate) fn note(&self) -> Option<String> {
        let why = self.unreadable.as_ref()?;
        Some(format!(
            "which functions live patches have replaced is not known ({why}): sites in replaced functions see no calls"
        ))
    }

    /// Reads a folder of the shape of [`SYSFS`]: `PATCH/{enabled,transition}`, `PATCH/OBJECT/patched`,
    /// `PATCH/OBJECT/FUNCTION,POSITION/`. What goes away while it is read was not a patch in force.
    ///
    /// # Errors
    /// As [`LivePatches::running`].
    pub fn read(root: &Path) -> io::Result<LivePatches> {
        let mut found = LivePatches::default();
        for (patch, folder) in folders(root)? {
            found.transition |= is_set(&folder.join("transition"))?;
            if !is_set(&folder.join("enabled"))? {
                continue;
            }
            for (object, folder) in folders(&folder)? {
                // Before Linux 6.1 there is no such file: an object that is loaded is patched.
                if !is_set_or(&folder.join("patched"), true)? {
                    continue;
                }
                for (name, _) in folders(&folder)? {
                    let Some((function, position)) = name.rsplit_once(',') else { continue };
                    let Ok(position) = position.parse() else { continue };
                    let (patch, object) = (patch.clone(), object.clone());
                    found.functions.push(Patched { patch, object, function: function.to_owned(), position });
                }
            }
        }
        found.functions.sort();
        Ok(found)
    }

    /// Whether no function of the kernel is replaced.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Notes at each of a function's candidates how a patch concerns it.
    pub fn mark(&self, candidates: &mut [Candidate], symbols: &Symbols) {
        if self.is_empty() {
            return;
        }
        for site in candidates.iter_mut().filter(|site| !matches!(site.obstacle, Some(Reason::InModule(_)))) {
            // Positions count the symbols of a name by address; a cold part goes with the only function of its name.
            let module = site.module.clone();
            let named = |name: &str| {
                let named = symbols.named(name).filter(|symbol| symbol.module == module.as_deref());
                let mut addresses: Vec<u64> = named.map(|symbol| symbol.address).collect();
                addresses.sort_unstable();
                addresses
            };
            let position = match site.symbol.strip_suffix(".cold") {
                Some(function) => (named(function).len() == 1).then_some(1),
                None => named(&site.symbol).iter().position(|&at| at == site.symbol_address).map(|nth| nth + 1),
            };
            let position = position.and_then(|position| u32::try_from(position).ok());
            let object = site.module.as_deref().unwrap_or("vmlinux");
            let concern = self.concern(object, &site.symbol, position, site.offset(), site.is_entry());
            match concern {
                // An inlined copy there does not run; a body is called, and what is after its entry does not see it.
                Some(Concern::OldBody { patch, .. }) if site.kind != SiteKind::Inline => {
                    site.obstacle = site.obstacle.take().or(Some(Reason::Redirected { patch }));
                }
                other => site.live_patch = other,
            }
        }
    }

    /// How a patch concerns a probe at `offset` into the symbol `symbol` of an object: `vmlinux`, or a module.
    /// `position` is the symbol's among those of its name there, from 1; `None` where that is not known.
    pub fn concern(
        &self,
        object: &str,
        symbol: &str,
        position: Option<u32>,
        offset: u64,
        is_entry: bool,
    ) -> Option<Concern> {
        // A cold part is the old body's too: nothing but its function jumps there.
        let function = symbol.strip_suffix(".cold").unwrap_or(symbol);
        let mut named =
            self.functions.iter().filter(|patched| patched.object == object && patched.function == function);
        let patched = match position.filter(|_| function == symbol) {
            Some(position) => named.find(|patched| patched.position == position)?,
            None => named.next()?,
        };
        let patch = patched.patch.clone();
        if is_entry && offset == 0 && function == symbol {
            return Some(Concern::Entry { patch });
        }
        Some(Concern::OldBody { patch, dead: !self.transition && position.is_some() })
    }
}

/// The folders in a folder, by name; none if it is not there.
fn folders(path: &Path) -> io::Result<Vec<(String, std::path::PathBuf)>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn is_set(path: &Path) -> io::Result<bool> {
    is_set_or(path, false)
}

/// Whether an attribute says 1.
fn is_set_or(path: &Path, absent: bool) -> io::Result<bool> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim() == "1"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(absent),
        // The patch is going away.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A folder as sysfs has it; removed at the end.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let path = std::env::temp_dir().join(format!("siteseer-livepatch-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Root(path)
        }

        fn patch(&self, name: &str, enabled: bool, transition: bool, functions: &[&str]) {
            let folder = self.0.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("enabled"), if enabled { "1\n" } else { "0\n" }).unwrap();
            fs::write(folder.join("transition"), if transition { "1\n" } else { "0\n" }).unwrap();
            for function in functions {
                fs::create_dir_all(folder.join(function)).unwrap();
            }
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_kernel_without_live_patches() {
        let root = Root::new("none");
        assert_eq!(LivePatches::read(&root.0).unwrap(), LivePatches::default());
        assert_eq!(LivePatches::read(&root.0.join("absent")).unwrap(), LivePatches::default());
    }

    // Proves S21.5.
    #[test]
    fn entries_are_seen_and_old_bodies_are_dead() {
        let root = Root::new("enabled");
        root.patch("fix", true, false, &["vmlinux/do_thing,1", "ext4/ext4_thing,1"]);
        root.patch("off", false, false, &["vmlinux/do_other,1"]);
        fs::write(root.0.join("fix/ext4/patched"), "0\n").unwrap();
        let patches = LivePatches::read(&root.0).unwrap();
        let patched = Patched {
            patch: "fix".to_owned(),
            object: "vmlinux".to_owned(),
            function: "do_thing".to_owned(),
            position: 1,
        };
        assert_eq!(patches, LivePatches { functions: vec![patched], transition: false, ..LivePatches::default() });
        let patch = || "fix".to_owned();
        assert_eq!(patches.concern("vmlinux", "do_thing", Some(1), 0, true), Some(Concern::Entry { patch: patch() }));
        let dead = Concern::OldBody { patch: patch(), dead: true };
        assert_eq!(patches.concern("vmlinux", "do_thing", Some(1), 0x12, false), Some(dead.clone()));
        assert_eq!(patches.concern("vmlinux", "do_thing", Some(1), 4, true), Some(dead.clone()));
        assert_eq!(patches.concern("vmlinux", "do_thing.cold", Some(1), 0, false), Some(dead));
        // Another of that name, a piece that others call, a function that nobody replaced.
        assert_eq!(patches.concern("vmlinux", "do_thing", Some(2), 0x12, false), None);
        assert_eq!(patches.concern("vmlinux", "do_thing.part.0", Some(1), 0x12, false), None);
        assert_eq!(patches.concern("vmlinux", "do_other", Some(1), 0x12, false), None);
    }

    #[test]
    fn nothing_is_dead_in_transition_or_in_doubt() {
        let root = Root::new("transition");
        root.patch("fix", true, false, &["vmlinux/do_thing,1"]);
        let alive = Some(Concern::OldBody { patch: "fix".to_owned(), dead: false });
        let patches = LivePatches::read(&root.0).unwrap();
        assert_eq!(patches.concern("vmlinux", "do_thing", None, 0x12, false), alive);
        root.patch("revert", false, true, &["vmlinux/do_thing,1"]);
        let patches = LivePatches::read(&root.0).unwrap();
        assert_eq!(patches.concern("vmlinux", "do_thing", Some(1), 0x12, false), alive);
    }

    #[test]
    fn what_cannot_be_read_is_noted() {
        assert_eq!(LivePatches::default().note(), None);
        let note = LivePatches::not_known(io::Error::from(io::ErrorKind::PermissionDenied)).note();
        assert!(note.is_some_and(|note| note.contains(SYSFS) && note.contains("permission denied")));
    }
}
