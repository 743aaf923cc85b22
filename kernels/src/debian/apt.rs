// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! apt, with state and configuration of its own.
//!
//! apt can read the index of any suite and architecture and check its signature, given a directory for its state. Its
//! configuration is another matter: what lies in `/etc/apt/apt.conf.d` is for the host. Container images have a hook
//! there (`docker-clean`) that deletes the host's package archives after every `update`, also those that another apt is
//! just fetching. So the host's files are not read at all (`APT_CONFIG` is read first, and says so); only its `Acquire`
//! settings, which are how the network is reached (proxies, certificates, clock checks), are copied from what
//! `apt-config dump` prints.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use super::sources::Source;
use crate::{arch::Arch, child::die_with_parent, error::GetError};

/// One package of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Relative to the mirror.
    pub(crate) filename: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// apt for one suite and architecture.
pub(crate) struct Apt {
    directory: PathBuf,
    suite: String,
    proxies: Vec<(String, String)>,
}

/// Settings that shape what apt stores rather than how it reaches a server.
const NOT_COPIED: &[&str] =
    &["Acquire::IndexTargets", "Acquire::GzipIndexes", "Acquire::Languages", "Acquire::CompressionTypes"];

impl Apt {
    /// Writes the configuration into `directory`.
    pub(crate) fn new(directory: &Path, mirror: &Source, suite: &str, arch: Arch) -> Result<Apt, GetError> {
        let make =
            |path: PathBuf| fs::create_dir_all(&path).map_err(GetError::io(format!("cannot make {}", path.display())));
        make(directory.join("lists/partial"))?;
        make(directory.join("cache/archives/partial"))?;
        let dump = dump()?;
        write(&directory.join("apt.conf"), &configuration(directory, arch, &dump))?;
        write(&directory.join("sources.list"), &source_line(mirror, suite))?;
        Ok(Apt { directory: directory.to_owned(), suite: suite.to_owned(), proxies: proxies(&dump) })
    }

    /// Reads the suite's index from the mirror, if it changed.
    pub(crate) fn update(&self) -> Result<(), GetError> {
        let output = run(self.apt_get().arg("update"))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(GetError::Index { suite: self.suite.clone(), said: said(&output) })
        }
    }

    /// The packages of the index whose name `wanted` accepts.
    pub(crate) fn packages(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Package>, GetError> {
        let lists = self.directory.join("lists");
        let mut found = Vec::new();
        for file in fs::read_dir(&lists).map_err(GetError::io(format!("cannot read {}", lists.display())))?.flatten() {
            let path = file.path();
            if path.to_string_lossy().ends_with("_Packages") {
                let text = fs::read(&path).map_err(GetError::io(format!("cannot read {}", path.display())))?;
                found.extend(parse(&String::from_utf8_lossy(&text), &wanted));
            }
        }
        Ok(found)
    }

    /// Fetches a package into `directory`, by any way that apt knows. apt checks it.
    pub(crate) fn download(&self, package: &Package, directory: &Path) -> Result<(), GetError> {
        let mut command = self.apt_get();
        command.arg("download").arg(format!("{}={}", package.name, package.version)).current_dir(directory);
        let output = run(&mut command)?;
        if output.status.success() {
            Ok(())
        } else {
            Err(GetError::Download { package: package.name.clone(), said: said(&output) })
        }
    }

    /// The proxy that apt is told to use for a URI.
    pub(crate) fn proxy(&self, uri: &str) -> Option<&str> {
        let scheme = uri.split_once(':')?.0;
        self.proxies.iter().find(|(name, _)| name == scheme).map(|(_, proxy)| proxy.as_str())
    }

    fn apt_get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").env("APT_CONFIG", self.directory.join("apt.conf")).env("LC_ALL", "C");
        command
    }
}

/// The host's configuration, as `apt-config dump` prints it.
pub(crate) fn dump() -> Result<String, GetError> {
    let dump = run(Command::new("apt-config").arg("dump"))?;
    if !dump.status.success() {
        return Err(GetError::Apt { what: "apt-config dump".to_owned(), said: said(&dump) });
    }
    Ok(String::from_utf8_lossy(&dump.stdout).into_owned())
}

/// The lines of a dump that say how the network is reached.
pub(crate) fn acquire_settings(dump: &str) -> Vec<String> {
    let is_wanted =
        |line: &&str| line.starts_with("Acquire::") && !NOT_COPIED.iter().any(|name| line.starts_with(name));
    dump.lines().filter(is_wanted).map(str::to_owned).collect()
}

fn run(command: &mut Command) -> Result<Output, GetError> {
    let program = command.get_program().to_string_lossy().into_owned();
    die_with_parent(command).stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => GetError::NoProgram { program, package: "apt" },
        _ => GetError::io(format!("cannot run {program}"))(error),
    })
}

/// What a failed apt said: its errors and warnings if it marked any, else everything.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let marked: Vec<&str> =
        text.lines().filter(|line| ["E:", "W:", "Err:"].iter().any(|mark| line.starts_with(mark))).collect();
    if marked.is_empty() { text.trim().to_owned() } else { marked.join("\n") }
}

fn write(path: &Path, text: &str) -> Result<(), GetError> {
    fs::write(path, text).map_err(GetError::io(format!("cannot write {}", path.display())))
}

fn configuration(directory: &Path, arch: Arch, dump: &str) -> String {
    let directory = directory.display();
    let debian = arch.debian();
    let mut text = format!(
        "Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::SourceList \"{directory}/sources.list\";\n\
         Dir::Etc::SourceParts \"/dev/null\";\n\
         Dir::Etc::Preferences \"/dev/null\";\n\
         Dir::Etc::PreferencesParts \"/dev/null\";\n\
         Dir::State \"{directory}\";\n\
         Dir::State::lists \"{directory}/lists\";\n\
         Dir::State::status \"/dev/null\";\n\
         Dir::Cache \"{directory}/cache\";\n\
         APT::Architecture \"{debian}\";\n\
         APT::Architectures {{ \"{debian}\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::GzipIndexes \"false\";\n\
         Acquire::Languages {{ \"none\"; }};\n"
    );
    for line in acquire_settings(dump) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The line of a sources.list(5).
pub(crate) fn source_line(mirror: &Source, suite: &str) -> String {
    let default = ["/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg"]
        .into_iter()
        .find(|path| Path::new(path).is_file());
    let mut options = Vec::new();
    if let Some(path) = mirror.signed_by.as_deref().or(default) {
        options.push(format!("signed-by={path}"));
    }
    if mirror.trusted {
        options.push("trusted=yes".to_owned());
    }
    let options = if options.is_empty() { String::new() } else { format!("[{}] ", options.join(" ")) };
    format!("deb {options}{} {suite} main\n", mirror.uri)
}

/// `Acquire::http::Proxy "..."` and its https form.
fn proxies(dump: &str) -> Vec<(String, String)> {
    dump.lines()
        .filter_map(|line| {
            let (name, value) = line.strip_prefix("Acquire::")?.split_once(' ')?;
            let scheme = name.strip_suffix("::Proxy").or_else(|| name.strip_suffix("::proxy"))?;
            let value = value.trim_end_matches(';').trim_matches('"');
            (!value.is_empty() && value != "DIRECT").then(|| (scheme.to_ascii_lowercase(), value.to_owned()))
        })
        .collect()
}

/// Paragraphs of an index file. One that lacks a field is passed over: apt could not fetch it either.
fn parse(text: &str, wanted: &impl Fn(&str) -> bool) -> Vec<Package> {
    text.split("\n\n")
        .filter_map(|paragraph| {
            let field = |name: &str| {
                paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
            };
            let name = field("Package")?;
            if !wanted(name) {
                return None;
            }
            Some(Package {
                name: name.to_owned(),
                version: field("Version")?.to_owned(),
                filename: field("Filename")?.to_owned(),
                size: field("Size")?.parse().ok()?,
                sha256: field("SHA256")?.to_ascii_lowercase(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_hooks_stay_out_and_its_network_settings_come_in() {
        let dump = "APT::Update::Post-Invoke:: \"rm -f /var/cache/apt/archives/*.deb\";\n\
                    DPkg::Post-Invoke:: \"rm x\";\n\
                    Acquire::http::Proxy \"http://proxy.example:3142\";\n\
                    Acquire::https::Proxy \"DIRECT\";\n\
                    Acquire::Check-Date \"false\";\n\
                    Acquire::GzipIndexes \"true\";\n\
                    Acquire::IndexTargets::deb::DEP-11 \"\";\n";
        let text = configuration(Path::new("/cache/apt"), Arch::Arm64, dump);
        assert!(!text.contains("Invoke") && !text.contains("IndexTargets"), "{text}");
        assert!(text.contains("Acquire::Check-Date \"false\";") && text.contains("proxy.example"));
        assert!(text.contains("Acquire::GzipIndexes \"false\";") && !text.contains("GzipIndexes \"true\""));
        assert!(text.contains("\"arm64\"") && text.contains("Dir::Etc::parts \"/dev/null\""));
        assert_eq!(proxies(dump), [("http".to_owned(), "http://proxy.example:3142".to_owned())]);
    }

    #[test]
    fn an_index_is_read() {
        let text = "Package: linux-image-1\nVersion: 1-1\nFilename: pool/a.deb\nSize: 12\nSHA256: AB\n\n\
                    Package: other\nVersion: 1\n\n\
                    Package: linux-image-2\nVersion: 2-1\nFilename: pool/b.deb\nSize: x\nSHA256: cd\n";
        let found = parse(text, &|name: &str| name.starts_with("linux"));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].size, found[0].sha256.as_str()), ("linux-image-1", 12, "ab"));
    }
}
