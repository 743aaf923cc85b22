// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A distribution's archive, by apt with a state of its own: other suites and architectures than the system's.
//!
//! apt reads the lists of packages, checks their signature, and fetches packages that it checks by the lists. The
//! system's own lists and packages are not touched. Only the part of the system's configuration that says how the
//! network is reached is used.

use crate::error::{Cause, HubError, io};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where the packages are.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The suites: `trixie`, `trixie-security`, `trixie-backports`.
    pub suites: Vec<String>,
    /// Debian's names of architectures: `amd64`, `arm64`.
    pub architectures: Vec<String>,
    /// The addresses of the archive; those of Debian in the system's sources, if there are none.
    pub uris: Vec<String>,
    /// Whether lists without a signature will do.
    pub allow_unsigned: bool,
}

/// The package with the debug information of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// What `uname -r` prints on the kernel.
    pub release: String,
    /// The version of the package.
    pub version: String,
    /// Debian's name of the architecture.
    pub architecture: String,
    /// The name of the package.
    pub name: String,
    /// Bytes of the package.
    pub size: u64,
}

impl Package {
    /// The package and its version, as the index of a hub has it.
    pub fn id(&self) -> String {
        format!("{}:{}={}", self.name, self.architecture, self.version)
    }
}

/// apt, with its state in a folder.
pub(crate) struct Apt {
    folder: PathBuf,
}

/// Settings that say what apt stores, not how it reaches a server.
const NOT_COPIED: [&str; 4] =
    ["Acquire::IndexTargets", "Acquire::GzipIndexes", "Acquire::Languages", "Acquire::CompressionTypes"];

impl Apt {
    /// Reads the lists of the suites.
    pub(crate) fn update(folder: &Path, place: &Place) -> Result<Apt, HubError> {
        for path in ["lists/partial", "cache/archives/partial"] {
            let path = folder.join(path);
            fs::create_dir_all(&path).map_err(io(&path))?;
        }
        let folder = folder.canonicalize().map_err(io(folder))?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(io(&path))
        };
        let dump = run(Command::new("apt-config").arg("dump"))?;
        write("apt.conf", &configuration(&folder, place, &dump))?;
        let format = ["indextargets", "--format", "$(CREATED_BY) $(LABEL) $(REPO_URI)"];
        let targets = match place.uris.is_empty() {
            true => run(Command::new("apt-get").args(format))?,
            false => String::new(),
        };
        write("sources.list", &sources(place, &targets)?)?;
        let apt = Apt { folder };
        run(apt.get().arg("update"))?;
        Ok(apt)
    }

    /// The kernels' debug packages in the lists, each once, oldest names first.
    pub(crate) fn packages(&self) -> Result<Vec<Package>, HubError> {
        let lists = self.folder.join("lists");
        let (mut found, mut is_empty) = (Vec::new(), true);
        for entry in fs::read_dir(&lists).map_err(io(&lists))? {
            let path = entry.map_err(io(&lists))?.path();
            if path.to_string_lossy().ends_with("_Packages") {
                let text = fs::read(&path).map_err(io(&path))?;
                found.extend(parse(&String::from_utf8_lossy(&text)));
                is_empty = false;
            }
        }
        if is_empty {
            return Err(failed("apt-get", "update left no lists of packages".into()));
        }
        found.sort();
        found.dedup_by(|one, other| one.id() == other.id());
        Ok(found)
    }

    /// Fetches a package into a folder. apt checks it.
    pub(crate) fn download(&self, package: &Package, folder: &Path) -> Result<PathBuf, HubError> {
        run(self.get().arg("download").arg(package.id()).current_dir(folder))?;
        let entries = fs::read_dir(folder).map_err(io(folder))?;
        let mut files = entries.flatten().map(|entry| entry.path());
        let file = files.find(|path| path.extension().is_some_and(|end| end == "deb"));
        file.ok_or_else(|| failed("apt-get", format!("{}: it left no package", package.id()).into()))
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").env("APT_CONFIG", self.folder.join("apt.conf"));
        command
    }
}

fn failed(program: &'static str, why: Cause) -> HubError {
    HubError::Program { program, why }
}

/// What a program prints.
fn run(command: &mut Command) -> Result<String, HubError> {
    let program = if command.get_program() == "apt-config" { "apt-config" } else { "apt-get" };
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(program, error.into()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(program, said(&output).into())),
    }
}

/// The errors of apt, or its warnings.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let marked = |mark: &str| text.lines().find_map(|line| line.strip_prefix(mark));
    marked("E: ").or_else(|| marked("W: ")).unwrap_or("it failed").to_owned()
}

fn configuration(folder: &Path, place: &Place, dump: &str) -> String {
    let folder = folder.display();
    let first = place.architectures.first().map_or("amd64", String::as_str);
    let all: String = place.architectures.iter().map(|name| format!(" \"{name}\";")).collect();
    let mut text = format!(
        "Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::SourceList \"{folder}/sources.list\";\n\
         Dir::Etc::SourceParts \"/dev/null\";\n\
         Dir::Etc::Preferences \"/dev/null\";\n\
         Dir::Etc::PreferencesParts \"/dev/null\";\n\
         Dir::State \"{folder}\";\n\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::State::status \"/dev/null\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         APT::Architecture \"{first}\";\n\
         APT::Architectures {{{all} }};\n\
         APT::Sandbox::User \"root\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::GzipIndexes \"false\";\n\
         Acquire::Languages {{ \"none\"; }};\n"
    );
    let is_wanted =
        |line: &&str| line.starts_with("Acquire::") && !NOT_COPIED.iter().any(|name| line.starts_with(name));
    for line in dump.lines().filter(is_wanted) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The lines of a sources.list(5). `targets` has a line for each list of the system: what made it, its label and its
/// address.
fn sources(place: &Place, targets: &str) -> Result<String, HubError> {
    let keyring = ["/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg"]
        .into_iter()
        .find(|path| Path::new(path).is_file());
    let mut options = vec![format!("arch={}", place.architectures.join(","))];
    match keyring {
        _ if place.allow_unsigned => options.push("trusted=yes".to_owned()),
        // Another archive has other keys, which the system must know.
        Some(path) if place.uris.is_empty() => options.push(format!("signed-by={path}")),
        _ => {}
    }
    let of_system = |label: &str| {
        let line = |line: &str| {
            let (name, uri) = line.strip_prefix("Packages ")?.rsplit_once(' ')?;
            (name == label).then(|| uri.trim_end_matches('/').to_owned())
        };
        let why = || format!("apt's sources have no archive with the label {label}: name its address (--archive URL)");
        targets.lines().find_map(line).ok_or_else(|| failed("apt-get", why().into()))
    };
    let mut text = String::new();
    for suite in &place.suites {
        let uris = match place.uris.is_empty() {
            false => place.uris.clone(),
            true if suite.ends_with("-security") => vec![of_system("Debian-Security")?],
            true => vec![of_system("Debian")?],
        };
        for uri in uris {
            text += &format!("deb [{}] {uri} {suite} main\n", options.join(" "));
        }
    }
    Ok(text)
}

/// The debug packages of a list. What only depends on another (`linux-image-amd64-dbg`) has no release in its name.
fn parse(text: &str) -> Vec<Package> {
    let of_paragraph = |paragraph: &str| {
        let field =
            |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let name = field("Package")?;
        let release = name.strip_prefix("linux-image-")?.strip_suffix("-dbg")?;
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-~:".contains(&byte));
        let (version, architecture) = (field("Version")?, field("Architecture")?);
        let is_release = release.starts_with(|first: char| first.is_ascii_digit()) && release.contains('.');
        (is_release && [release, version, architecture].into_iter().all(is_name)).then_some(Package {
            release: release.to_owned(),
            version: version.to_owned(),
            architecture: architecture.to_owned(),
            name: name.to_owned(),
            size: field("Size")?.parse().ok()?,
        })
    };
    text.split("\n\n").filter_map(of_paragraph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::with_causes;

    #[test]
    fn lists_are_read() {
        let text = "Package: linux-image-6.12.117+deb13-amd64-dbg\nSource: linux\nVersion: 6.12.117-1\n\
                    Architecture: amd64\nDepends: x\nSize: 1041404444\n\n\
                    Package: linux-image-amd64-dbg\nVersion: 6.12.117-1\nArchitecture: amd64\nSize: 1168\n\n\
                    Package: linux-image-6.1.0-50-amd64-unsigned\nVersion: 1\nArchitecture: amd64\nSize: 1\n\n\
                    Package: linux-image-6.1;rm-dbg\nVersion: 1\nArchitecture: amd64\nSize: 1\n\n\
                    Package: linux-image-6.1-x-dbg\nVersion: 1\nArchitecture: amd64\nSize: many\n\n\
                    Package: linux-image-7.3.4+deb13-cloud-arm64-dbg\nVersion: 7.3.4-1~bpo13+1\nArchitecture: arm64\nSize: 9\n";
        let found = parse(text);
        let ids: Vec<String> = found.iter().map(Package::id).collect();
        assert_eq!(
            ids,
            [
                "linux-image-6.12.117+deb13-amd64-dbg:amd64=6.12.117-1",
                "linux-image-7.3.4+deb13-cloud-arm64-dbg:arm64=7.3.4-1~bpo13+1"
            ]
        );
        assert_eq!((found[0].release.as_str(), found[0].size), ("6.12.117+deb13-amd64", 1_041_404_444));
    }

    #[test]
    fn sources_are_the_systems_or_those_that_are_named() {
        let suites = ["trixie", "trixie-security"].map(str::to_owned).to_vec();
        let architectures = vec!["amd64".to_owned(), "arm64".to_owned()];
        let place = Place { suites, architectures, ..Place::default() };
        let error = with_causes(&sources(&place, "Packages Google http://g/\n").unwrap_err());
        assert!(error.contains("Debian") && error.contains("--archive"), "{error}");
        let targets = "Packages Google http://g/\nPackages Debian http://mirror.example/debian/\n\
                       Translations Debian http://other\nPackages Debian-Security http://mirror.example/security/\n";
        let lines = sources(&place, targets).unwrap();
        assert!(lines.contains(" http://mirror.example/debian trixie main\n"), "{lines}");
        assert!(lines.contains(" http://mirror.example/security trixie-security main\n"), "{lines}");
        assert!(lines.contains("arch=amd64,arm64"), "{lines}");
        let place = Place { uris: vec!["file:/srv/x".to_owned()], allow_unsigned: true, ..place };
        let lines = sources(&place, targets).unwrap();
        assert!(lines.contains("trusted=yes] file:/srv/x trixie-security main\n"), "{lines}");
    }

    #[test]
    fn the_systems_hooks_stay_out() {
        let dump = "APT::Update::Post-Invoke:: \"rm x\";\nAcquire::http::Proxy \"http://proxy.example:3142\";\n\
                    Acquire::GzipIndexes \"true\";\n";
        let place = Place { architectures: vec!["arm64".to_owned()], ..Place::default() };
        let text = configuration(Path::new("/x"), &place, dump);
        assert!(!text.contains("Invoke") && !text.contains("GzipIndexes \"true\""), "{text}");
        assert!(text.contains("proxy.example") && text.contains("APT::Architectures { \"arm64\"; };"), "{text}");
    }
}
