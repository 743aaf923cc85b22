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
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
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
    /// What the environment and the files say: `SITESEER_URLS`, then the user's file, then the system's; `SITESEER_KEYS` and
    /// the keys of the files; `DEBUGINFOD_URLS`. `SITESEER_CONFIG` names a file that is read in place of both.
    ///
    /// # Errors
    /// [`HubError::Config`].
    pub fn read() -> Result<Config, HubError> {
        let words = |name: &str| -> Vec<String> {
            env::var(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let mut config =
            Config { urls: words("SITESEER_URLS"), keys: words("SITESEER_KEYS"), debuginfod: words("DEBUGINFOD_URLS") };
        match env::var_os("SITESEER_CONFIG").filter(|path| !path.is_empty()) {
            Some(path) => config.add(Path::new(&path), true)?,
            None => {
                for path in user().into_iter().chain([SYSTEM.into()]) {
                    config.add(&path, false)?;
                }
            }
        }
        Ok(config)
    }

    fn add(&mut self, path: &Path, must_be: bool) -> Result<(), HubError> {
        let bad = |why: Cause| HubError::Config { path: path.to_owned(), why };
        let about = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_be => return Ok(()),
            Err(error) => return Err(bad(error.into())),
            Ok(about) => about,
        };
        // Keys decide whom root believes: they are root's to choose.
        if siteseer::internals::source::is_privileged() && !must_be && (about.uid() != 0 || about.mode() & 0o022 != 0) {
            return Err(bad("users other than root can change it, and it says which site data is trusted".into()));
        }
        let text = fs::read_to_string(path).map_err(|error| bad(error.into()))?;
        let InFile { urls, keys } = toml::from_str(&text).map_err(|error| bad(error.into()))?;
        self.urls.extend(urls);
        self.keys.extend(keys);
        Ok(())
    }
}

/// The user's configuration.
fn user() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("siteseer/fetch.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fetch.toml");
        let mut config = Config::default();
        config.add(&path, false).unwrap();
        assert!(config.add(&path, true).is_err());
        fs::write(&path, "urls = [\"http://a\"]\nkeys = [\"RW\"]\n").unwrap();
        config.add(&path, true).unwrap();
        assert_eq!((config.urls.len(), config.keys.len()), (1, 1));
        fs::write(&path, "url = [\"http://a\"]\n").unwrap();
        assert!(siteseer_sites::with_causes(&config.add(&path, true).unwrap_err()).contains("url"));
    }
}
