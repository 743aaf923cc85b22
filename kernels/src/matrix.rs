// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! `kernels/matrix.toml`: which kernels there are. The file itself says what its fields mean.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{arch::Arch, workspace::workspace_file};

/// The ways to have a kernel that this program knows.
const KNOWN: &[&str] = &["debian", "built"];

/// Why the matrix cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// It cannot be read.
    #[error("{path}", path = path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// It is not TOML of the right shape.
    #[error("{path}", path = path.display())]
    Syntax {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        #[source]
        error: Box<toml::de::Error>,
    },
    /// A row is wrong.
    #[error("{path}: kernel {name}: {reason}", path = path.display())]
    Row {
        /// The matrix's path.
        path: PathBuf,
        /// The row.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no such row.
    #[error("no kernel {name:?} in the matrix; there are: {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
}

/// All rows.
#[derive(Debug, Clone)]
pub struct Matrix {
    path: PathBuf,
    rows: BTreeMap<String, toml::Table>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// Where it comes from.
    pub how: How,
}

/// Where a kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// As Debian packages.
    Debian(DebianRow),
    /// Built here, from a package of sources.
    Built(BuiltRow),
}

/// `how = "debian"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebianRow {
    /// The suite.
    pub suite: String,
    /// The release wanted, with `*` for digits and dots.
    pub release: String,
    /// Where the bootable image is.
    pub image: PackageFile,
    /// Where the vmlinux is.
    pub debug: PackageFile,
    /// The build root that has its compiler: for modules.
    #[serde(default = "usual_root")]
    pub root: String,
}

/// `how = "built"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltRow {
    /// The suite.
    pub suite: String,
    /// Where the archive of sources is.
    pub source: PackageFile,
    /// Words for make that say which compiler to take.
    pub make: Vec<String>,
    /// The fragments of the configuration: files beside the matrix, once it has read the row.
    pub config: Vec<PathBuf>,
    /// Changes of the sources, in this order: files beside the matrix, once it has read the row.
    #[serde(default)]
    pub patches: Vec<PathBuf>,
    /// The plugin that the compiler loads.
    #[serde(default)]
    pub plugin: Option<Plugin>,
    /// The build root that it and its modules are built in.
    #[serde(default = "usual_root")]
    pub root: String,
    /// Where the plugins' sources are.
    #[serde(skip)]
    pub plugins: PathBuf,
}

/// The build root of rows that name none.
pub(crate) const USUAL_ROOT: &str = "kernel";

fn usual_root() -> String {
    USUAL_ROOT.to_owned()
}

/// A plugin of a compiler (tests/truth/plugins).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plugin {
    /// Of gcc 14.
    Gcc,
    /// Of LLVM 22, for clang.
    Llvm,
}

/// A file in a package. Both names may hold `{release}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageFile {
    /// The package.
    pub package: String,
    /// The file's path in it, without a leading slash.
    pub file: String,
}

impl PackageFile {
    /// The package and file of one release.
    pub fn of(&self, release: &str) -> PackageFile {
        PackageFile {
            package: self.package.replace("{release}", release),
            file: self.file.replace("{release}", release),
        }
    }
}

impl How {
    /// The row of `kernels/buildroot.toml` that has the kernel's compiler.
    pub fn root(&self) -> &str {
        match self {
            How::Debian(row) => &row.root,
            How::Built(row) => &row.root,
        }
    }
}

impl Matrix {
    /// Reads a matrix file.
    ///
    /// # Errors
    /// If it cannot be read or is not of the right shape. Rows are looked at when they are asked for.
    pub fn read(path: &Path) -> Result<Matrix, MatrixError> {
        let text = fs::read_to_string(path).map_err(|error| MatrixError::Read { path: path.to_owned(), error })?;
        Matrix::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Matrix, MatrixError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Document {
            kernel: BTreeMap<String, toml::Table>,
        }
        let document: Document = toml::from_str(text)
            .map_err(|error| MatrixError::Syntax { path: path.to_owned(), error: Box::new(error) })?;
        Ok(Matrix { path: path.to_owned(), rows: document.kernel })
    }

    /// The names of all rows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }

    /// One row.
    ///
    /// # Errors
    /// If there is no such row, or it is wrong, or it says a `how` that this program does not know.
    pub fn row(&self, name: &str) -> Result<Row, MatrixError> {
        let mut table = self.rows.get(name).cloned().ok_or_else(|| MatrixError::Unknown {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
        })?;
        let wrong = |reason: String| MatrixError::Row { path: self.path.clone(), name: name.to_owned(), reason };
        let mut text = |field: &str| match table.remove(field) {
            Some(toml::Value::String(text)) => Ok(text),
            Some(_) => Err(wrong(format!("{field} is not a string"))),
            None => Err(wrong(format!("{field} is missing"))),
        };
        let arch = text("arch")?.parse().map_err(|error: crate::arch::UnknownArch| wrong(error.to_string()))?;
        let how = match text("how")?.as_str() {
            "debian" => How::Debian(DebianRow::deserialize(table).map_err(|error| wrong(error.message().to_owned()))?),
            "built" => {
                let mut built = BuiltRow::deserialize(table).map_err(|error| wrong(error.message().to_owned()))?;
                for (names, kind, folder) in
                    [(&mut built.config, "config", "config"), (&mut built.patches, "patch", "patches")]
                {
                    for name in names {
                        *name = self.path.with_file_name(folder).join(&name).with_extension(kind);
                    }
                }
                built.plugins = plugins(self.path.parent().unwrap_or(Path::new("")));
                How::Built(built)
            }
            other => {
                return Err(wrong(format!(
                    "how = {other:?} is not something this version can do (it knows: {})",
                    KNOWN.join(", ")
                )));
            }
        };
        Ok(Row { name: name.to_owned(), arch, how })
    }
}

/// The matrix of the workspace that this program was built in.
///
/// # Errors
/// If it cannot be read or has an error in it.
pub fn workspace_matrix() -> Result<Matrix, MatrixError> {
    Matrix::read(&workspace_file("matrix.toml"))
}

/// Where the plugins' sources are, from the folder of the matrix.
fn plugins(matrix: &Path) -> PathBuf {
    matrix.join("../tests/truth/plugins")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Matrix {
        Matrix::parse(Path::new("matrix.toml"), text).unwrap()
    }

    #[test]
    fn every_row_of_the_matrix_of_this_workspace_is_right() {
        let matrix = workspace_matrix().unwrap();
        let truth = Matrix::read(&workspace_file("truth.toml")).unwrap();
        let debug = Matrix::read(&workspace_file("debug.toml")).unwrap();
        let all = [&matrix, &truth, &debug];
        for (matrix, name) in all.iter().flat_map(|matrix| matrix.names().map(move |name| (matrix, name))) {
            let row = matrix.row(name).unwrap();
            assert!(name.ends_with(&row.arch.to_string()), "{name}");
            match row.how {
                How::Debian(debian) => {
                    assert!(debian.release.contains('*') && debian.release.ends_with(row.arch.debian()), "{name}");
                }
                How::Built(built) => {
                    assert!(built.config.iter().all(|path| path.is_file()), "{name}: {:?}", built.config);
                    assert!(built.patches.iter().all(|path| path.is_file()), "{name}: {:?}", built.patches);
                    let own = format!("{}.config", row.arch);
                    assert!(built.config.iter().any(|path| path.ends_with(&own)), "{name}");
                    assert_eq!(built.plugin.is_some(), name.starts_with("truth-"), "{name}");
                    if let Some(plugin) = built.plugin {
                        assert_eq!(plugin.read(&built.plugins).unwrap().len(), 2, "{name}");
                    }
                }
            }
        }
        assert!(matrix.names().any(|name| name == "deb-7.3-x86_64"));
    }

    /// What vmtest 0.18 reads (its docs/config.md); it passes over keys it does not know, and so would a mistake.
    #[test]
    fn the_configuration_of_the_vmtest_program_has_its_shape() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Configuration {
            target: Vec<Target>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Target {
            name: String,
            arch: Arch,
            kernel: PathBuf,
            command: String,
            vm: Machine,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Machine {
            num_cpus: u8,
            memory: String,
            mounts: BTreeMap<String, Mount>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Mount {
            host_path: PathBuf,
            writable: bool,
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/vmtest.toml");
        let configuration: Configuration = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for Target { name, arch, kernel, command, vm } in configuration.target {
            assert!(!name.is_empty() && kernel.is_relative() && vm.num_cpus > 0 && vm.memory.ends_with('G'));
            assert!(command.contains(arch.triple()), "{command}");
            let (place, mount) = vm.mounts.iter().next().unwrap();
            assert!(command.contains(place) && !mount.writable);
            assert!(path.parent().unwrap().join(&mount.host_path).join("Cargo.toml").is_file());
        }
    }

    #[test]
    fn an_unknown_row_lists_the_known_ones() {
        let matrix = parse("[kernel.a]\n[kernel.b]\n");
        let error = matrix.row("c").unwrap_err().to_string();
        assert!(error.contains("\"c\"") && error.contains("a, b"), "{error}");
    }

    #[test]
    fn a_kind_that_is_not_known_is_an_error_of_its_row_alone() {
        let matrix = parse(
            "[kernel.built]\narch = \"arm64\"\nhow = \"found\"\nlto = \"thin\"\n\
             [kernel.other]\narch = \"x86_64\"\nhow = \"debian\"\nsuite = \"sid\"\nrelease = \"*\"\n\
             image = { package = \"a-{release}\", file = \"b/{release}\" }\ndebug = { package = \"c\", file = \"d\" }\n",
        );
        let error = matrix.row("built").unwrap_err().to_string();
        assert!(error.contains("\"found\"") && error.contains("debian, built"), "{error}");
        let How::Debian(debian) = matrix.row("other").unwrap().how else { panic!("it is Debian's") };
        assert_eq!(debian.image.of("1.2"), PackageFile { package: "a-1.2".to_owned(), file: "b/1.2".to_owned() });
    }

    #[test]
    fn fragments_are_beside_the_matrix() {
        let text = "[kernel.x]\narch = \"arm64\"\nhow = \"built\"\nsuite = \"s\"\nmake = [\"LLVM=-22\"]\n\
                    source = { package = \"linux-source\", file = \"usr/src/x.tar.xz\" }\nconfig = [\"vm\", \"arm64\"]\n\
                    patches = [\"first\", \"second\"]\n";
        let matrix = Matrix::parse(Path::new("kernels/matrix.toml"), text).unwrap();
        let How::Built(built) = matrix.row("x").unwrap().how else { panic!("it is built") };
        assert_eq!(built.config, ["kernels/config/vm.config", "kernels/config/arm64.config"].map(PathBuf::from));
        assert_eq!(built.patches, ["kernels/patches/first.patch", "kernels/patches/second.patch"].map(PathBuf::from));
        assert_eq!((built.suite.as_str(), built.make.as_slice()), ("s", &["LLVM=-22".to_owned()][..]));
        let error = parse(&text.replace("make =", "maek =")).row("x").unwrap_err().to_string();
        assert!(error.contains("maek"), "{error}");
    }

    #[test]
    fn wrong_rows_are_errors_that_name_the_field() {
        for (text, word) in [
            ("[kernel.x]\nhow = \"debian\"", "arch"),
            ("[kernel.x]\narch = \"mips\"\nhow = \"debian\"", "mips"),
            ("[kernel.x]\narch = 1\nhow = \"debian\"", "arch"),
            ("[kernel.x]\narch = \"arm64\"\nhow = \"debian\"", "suite"),
            (
                "[kernel.x]\narch = \"arm64\"\nhow = \"debian\"\nsuite = \"s\"\nrelease = \"r\"\ntypo = 1\n\
                 image = { package = \"a\", file = \"b\" }\ndebug = { package = \"c\", file = \"d\" }",
                "typo",
            ),
        ] {
            let error = parse(text).row("x").unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("kernel x"), "{error}");
        }
    }
}
