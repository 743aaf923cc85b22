// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where to fetch from, and whom to believe: environment, then configuration files.
//!
//! ```toml
//! # /etc/siteseer/fetch.toml, or ~/.config/siteseer/fetch.toml
//! urls = ["https://sites.example.org"]
//! keys = ["RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"]
//! ```

use crate::error::{Cause, HubError};
use serde::Deserialize;
use siteseer::internals::source::{Chosen, environment, is_privileged, read_as};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where to fetch from, and whom to believe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Hubs, in the order in which they are tried.
    pub urls: Vec<String>,
    /// Public keys.
    pub keys: Vec<String>,
    /// debuginfod's servers.
    pub debuginfod: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    #[serde(default)]
    urls: Vec<String>,
    #[serde(default)]
    keys: Vec<String>,
}

/// The system's configuration.
const SYSTEM: &str = "/etc/siteseer/fetch.toml";

impl Config {
    /// What the environment and the files say: `SITESEER_URLS`, then the user's file, then the system's;
    /// `SITESEER_KEYS` and the keys of the files; `DEBUGINFOD_URLS`. `SITESEER_CONFIG` names a file that is read in
    /// place of both. A process that the kernel started with more privileges than its caller had ignores the
    /// environment.
    ///
    /// # Errors
    /// [`HubError::Config`].
    pub fn read() -> Result<Config, HubError> {
        Config::of(environment, is_privileged())
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, privileged: bool) -> Result<Config, HubError> {
        let words = |name: &str| -> Vec<String> {
            let words = variable(name).and_then(|words| words.into_string().ok()).unwrap_or_default();
            words.split_whitespace().map(str::to_owned).collect()
        };
        let mut config =
            Config { urls: words("SITESEER_URLS"), keys: words("SITESEER_KEYS"), debuginfod: words("DEBUGINFOD_URLS") };
        match variable("SITESEER_CONFIG").filter(|path| !path.is_empty()) {
            Some(path) => config.add(Path::new(&path), Chosen::ByCaller, privileged)?,
            None => {
                for path in user(variable).into_iter().chain([SYSTEM.into()]) {
                    config.add(&path, Chosen::BySearch, privileged)?;
                }
            }
        }
        Ok(config)
    }

    /// Adds a file. One that is searched for need not be there. Keys decide whom root believes: they are root's to
    /// choose.
    fn add(&mut self, path: &Path, chosen: Chosen, privileged: bool) -> Result<(), HubError> {
        let bad = |why: Cause| HubError::Config { path: path.to_owned(), why };
        let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
        if chosen == Chosen::BySearch && path.symlink_metadata().is_err_and(|error| is_absent(error.kind())) {
            return Ok(());
        }
        let bytes = match read_as(path, chosen, privileged) {
            Err(error) if chosen == Chosen::BySearch && is_absent(error.kind()) => return Ok(()),
            read => read.map_err(|error| bad(error.into()))?,
        };
        let text = std::str::from_utf8(&bytes).map_err(|error| bad(error.into()))?;
        let InFile { urls, keys } = toml::from_str(text).map_err(|error| bad(error.into()))?;
        self.urls.extend(urls);
        self.keys.extend(keys);
        Ok(())
    }
}

/// The user's configuration.
fn user(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("siteseer/fetch.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const KEY: &str = "keys = [\"RW\"]\n";

    #[test]
    fn files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fetch.toml");
        let mut config = Config::default();
        config.add(&path, Chosen::BySearch, false).unwrap();
        assert!(config.add(&path, Chosen::ByCaller, false).is_err());
        fs::write(&path, "urls = [\"http://a\"]\nkeys = [\"RW\"]\n").unwrap();
        config.add(&path, Chosen::ByCaller, false).unwrap();
        assert_eq!((config.urls.len(), config.keys.len()), (1, 1));
        fs::write(&path, "url = [\"http://a\"]\n").unwrap();
        let error = config.add(&path, Chosen::ByCaller, false).unwrap_err();
        assert!(siteseer_sites::with_causes(&error).contains("url"));
    }

    /// A link can be pointed elsewhere after it was looked at, and so can a folder: they must be root's, as the file.
    #[test]
    fn root_does_not_follow_a_users_link_to_roots_file() {
        let is_root = nix::unistd::geteuid().is_root();
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let folder = home.path().join("siteseer");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("fetch.toml");
        let roots = match is_root {
            true => {
                let roots = home.path().join("roots.toml");
                fs::write(&roots, KEY).unwrap();
                roots
            }
            // Whoever runs the tests is the other user, and has a file of root's to point at.
            false => "/etc/passwd".into(),
        };
        symlink(roots, &path).unwrap();
        if is_root {
            chown(&folder, Some(65534), Some(65534)).unwrap();
        }
        let variable = |name: &str| (name == "XDG_CONFIG_HOME").then(|| home.path().as_os_str().to_owned());
        let error = siteseer_sites::with_causes(&Config::of(variable, true).unwrap_err());
        assert!(error.contains("users other than root can change it"), "{error}");
        // Nothing is wrong with what is not there.
        fs::remove_file(&path).unwrap();
        Config::of(variable, true).unwrap();
    }

    #[test]
    fn a_fifo_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fetch.toml");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = Config::default().add(&path, Chosen::ByCaller, false).unwrap_err();
        assert!(siteseer_sites::with_causes(&error).contains("not a regular file"));
    }
}
