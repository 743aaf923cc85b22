// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a kernel was made with, and the conditions on it that a case's table states (`on`).

use flate2::read::GzDecoder;
use object::{Object, ObjectSection, ReadCache};
use siteseer_kernels::KernelPaths;
use siteseer_vmtest::Arch;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// A compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiler {
    /// GCC.
    Gcc,
    /// Clang.
    Clang,
}

/// How the kernel was linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lto {
    /// File by file.
    None,
    /// ThinLTO.
    Thin,
    /// Full LTO.
    Full,
}

/// What a kernel and its modules were made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// The compiler.
    pub compiler: Compiler,
    /// Its major version.
    pub major: u32,
    /// The link mode.
    pub lto: Lto,
    /// The architecture.
    pub arch: Arch,
    /// Linux's version, major and minor.
    pub linux: (u32, u32),
    /// Whether kprobe events may be in notrace functions (CONFIG_KPROBE_EVENTS_ON_NOTRACE).
    pub notrace_events: bool,
}

/// Why it is not known what a kernel was made with.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// The image cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// The image.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// It does not say which compiler made it.
    #[error("{path}: no text \"Linux version ...\" that names a compiler", path = path.display())]
    NoBanner {
        /// The image.
        path: PathBuf,
    },
}

impl Family {
    /// Of a kernel of the matrix. The compiler and the version are those of `linux_banner` in its image; the link mode
    /// is not in an image, so it is that of the row's name (`thinlto-`, `fulllto-`).
    ///
    /// # Errors
    /// If the image cannot be read or does not say.
    pub fn of(kernel: &KernelPaths) -> Result<Family, FamilyError> {
        let path = kernel.vmlinux.clone();
        let read = |error| FamilyError::Read { path: kernel.vmlinux.clone(), error };
        let cache = ReadCache::new(File::open(&path).map_err(read)?);
        let invalid = |error: object::Error| read(std::io::Error::other(error));
        let image = object::File::parse(&cache).map_err(invalid)?;
        let rodata = image.section_by_name(".rodata").ok_or(FamilyError::NoBanner { path: path.clone() })?;
        let rodata = rodata.data().map_err(invalid)?;
        let lto = match kernel.name.split('-').next() {
            Some("thinlto") => Lto::Thin,
            Some("fulllto") => Lto::Full,
            _ => Lto::None,
        };
        let starts = memchr::memmem::find_iter(rodata, b"Linux version ");
        let banner = starts.filter_map(|at| rodata.get(at..at.saturating_add(512).min(rodata.len())));
        let found = banner.filter_map(parse_banner).next().ok_or(FamilyError::NoBanner { path })?;
        let (compiler, major, linux) = found;
        let notrace_events = embedded_config(rodata)
            .is_some_and(|config| memchr::memmem::find(&config, b"CONFIG_KPROBE_EVENTS_ON_NOTRACE=y\n").is_some());
        Ok(Family { compiler, major, lto, arch: kernel.record.arch, linux, notrace_events })
    }

    /// A name for what has the same plans: compiler, link mode, architecture and Linux's version, with which the flags
    /// change.
    pub fn name(&self) -> String {
        let lto = match self.lto {
            Lto::None => "",
            Lto::Thin => "-thinlto",
            Lto::Full => "-fulllto",
        };
        // Kernels by clang are all of our configuration, those by GCC of a distribution's or of ours: the flags differ.
        let own = if self.compiler == Compiler::Gcc && self.notrace_events { "-own" } else { "" };
        let (major, minor) = self.linux;
        format!("{}{lto}{own}-{}-{major}.{minor}", self.compiler_name(), self.arch)
    }

    /// `gcc14`.
    pub fn compiler_name(&self) -> String {
        match self.compiler {
            Compiler::Gcc => format!("gcc{}", self.major),
            Compiler::Clang => format!("clang{}", self.major),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compiler = match self.compiler {
            Compiler::Gcc => "gcc",
            Compiler::Clang => "clang",
        };
        let lto = match self.lto {
            Lto::None => "",
            Lto::Thin => ", ThinLTO",
            Lto::Full => ", full LTO",
        };
        write!(f, "{compiler} {}{lto}, {}", self.major, self.arch)
    }
}

/// Reads `Linux version 7.3.4+deb13-cloud-amd64 (builder) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, GNU ld
/// ...)`.
fn parse_banner(text: &[u8]) -> Option<(Compiler, u32, (u32, u32))> {
    let text = text.split(|&byte| byte == b'\n' || byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?.strip_prefix("Linux version ")?;
    let (version, rest) = text.split_once(' ')?;
    let linux = numbers(version)?;
    // The compiler's part ends with the linker's; before it stands who built it.
    let (_, compiler) = rest.split_once(") (")?;
    let named = |word: &str| compiler.contains(word);
    let major = |after: &str| {
        let (_, rest) = compiler.split_once(after)?;
        rest.split([' ', '.', '-', ',']).find_map(|word| word.parse().ok())
    };
    if named("clang version ") {
        return Some((Compiler::Clang, major("clang version ")?, linux));
    }
    if !named("gcc") {
        return None;
    }
    // GCC's own version is the last word before the linker's.
    let own = compiler.split(", ").next()?.trim_end_matches(')');
    let version = own.rsplit([' ', ')']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some((Compiler::Gcc, version.split('.').next()?.parse().ok()?, linux))
}

/// The configuration that an image with CONFIG_IKCONFIG holds, compressed, between two marks (kernel/configs.c).
fn embedded_config(rodata: &[u8]) -> Option<Vec<u8>> {
    const START: &[u8] = b"IKCFG_ST";
    let start = memchr::memmem::find(rodata, START)? + START.len();
    let len = memchr::memmem::find(rodata.get(start..)?, b"IKCFG_ED")?;
    let mut config = Vec::new();
    GzDecoder::new(rodata.get(start..start + len)?).read_to_end(&mut config).ok()?;
    Some(config)
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-', '+']).map_while(|word| word.parse::<u32>().ok());
    numbers.next().zip(numbers.next())
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Compiler(Compiler, Option<u32>),
    NoLto,
    AnyLto,
    Lto(Lto),
    Arch(Arch),
    AtLeast((u32, u32)),
    Before((u32, u32)),
    NotraceEvents,
}

impl Word {
    fn parse(word: &str) -> Option<Word> {
        let compiler = |rest: &str, compiler| match rest {
            "" => Some(Word::Compiler(compiler, None)),
            number => Some(Word::Compiler(compiler, Some(number.parse().ok()?))),
        };
        match word {
            "nolto" => Some(Word::NoLto),
            "lto" => Some(Word::AnyLto),
            "thinlto" => Some(Word::Lto(Lto::Thin)),
            "fulllto" => Some(Word::Lto(Lto::Full)),
            "x86_64" => Some(Word::Arch(Arch::X86_64)),
            "arm64" => Some(Word::Arch(Arch::Arm64)),
            "notrace_events" => Some(Word::NotraceEvents),
            _ => {
                if let Some(version) = word.strip_prefix("linux>=") {
                    return Some(Word::AtLeast(numbers(version)?));
                }
                if let Some(version) = word.strip_prefix("linux<") {
                    return Some(Word::Before(numbers(version)?));
                }
                if let Some(rest) = word.strip_prefix("gcc") {
                    return compiler(rest, Compiler::Gcc);
                }
                compiler(word.strip_prefix("clang")?, Compiler::Clang)
            }
        }
    }

    fn holds(&self, family: &Family) -> bool {
        match *self {
            Word::Compiler(compiler, major) => {
                family.compiler == compiler && major.is_none_or(|major| family.major == major)
            }
            Word::NoLto => family.lto == Lto::None,
            Word::AnyLto => family.lto != Lto::None,
            Word::Lto(lto) => family.lto == lto,
            Word::Arch(arch) => family.arch == arch,
            Word::AtLeast(version) => family.linux >= version,
            Word::Before(version) => family.linux < version,
            Word::NotraceEvents => family.notrace_events,
        }
    }
}

/// On which kernels something holds: alternatives of words that hold together. Without alternatives it is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct On(Vec<Vec<(bool, Word)>>);

impl On {
    /// Reads what a case's table has.
    ///
    /// # Errors
    /// A sentence that names the word that is none.
    pub fn parse(alternatives: &[String]) -> Result<On, String> {
        let word = |text: &str| {
            let (wanted, name) = text.strip_prefix('!').map_or((true, text), |name| (false, name));
            Word::parse(name).map(|word| (wanted, word)).ok_or_else(|| format!("on: {text:?} is not a condition"))
        };
        let one = |text: &String| match text.split_ascii_whitespace().map(word).collect::<Result<Vec<_>, _>>() {
            Ok(words) if words.is_empty() => Err("on: an empty alternative".to_owned()),
            other => other,
        };
        Ok(On(alternatives.iter().map(one).collect::<Result<_, _>>()?))
    }

    /// Whether it holds for a kernel.
    pub fn holds(&self, family: &Family) -> bool {
        self.0.is_empty() || self.0.iter().any(|words| words.iter().all(|(wanted, word)| word.holds(family) == *wanted))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The kernel that most tests here speak of.
    pub(crate) fn gcc14() -> Family {
        Family {
            compiler: Compiler::Gcc,
            major: 14,
            lto: Lto::None,
            arch: Arch::X86_64,
            linux: (7, 3),
            notrace_events: false,
        }
    }

    #[test]
    fn banners_name_the_compiler() {
        let debian =
            b"Linux version 7.3.4+deb13-cloud-amd64 (debian-kernel@lists.debian.org) (x86_64-linux-gnu-gcc-14 \
            (Debian 14.2.0-19) 14.2.0, GNU ld (GNU Binutils for Debian) 2.44) #1 SMP\n";
        assert_eq!(parse_banner(debian), Some((Compiler::Gcc, 14, (7, 3))));
        let old = b"Linux version 6.1.0-50-cloud-amd64 (x@y) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld (GNU \
            Binutils for Debian) 2.40) #1\0";
        assert_eq!(parse_banner(old), Some((Compiler::Gcc, 12, (6, 1))));
        let clang = b"Linux version 7.3.4 (a@b) (Debian clang version 22.1.0 (1~deb13u1), Debian LLD 22.1.0) #2 SMP\n";
        assert_eq!(parse_banner(clang), Some((Compiler::Clang, 22, (7, 3))));
        // The format string of the banner is in the image, too.
        assert_eq!(parse_banner(b"Linux version %s (%s) (%s) %s\n"), None);
    }

    #[test]
    fn kernels_of_our_configuration_have_plans_of_their_own() {
        let own = Family { notrace_events: true, ..gcc14() };
        assert_eq!((gcc14().name(), own.name()), ("gcc14-x86_64-7.3".to_owned(), "gcc14-own-x86_64-7.3".to_owned()));
    }

    #[test]
    fn alternatives_of_words() {
        let on = |alternatives: &[&str]| {
            On::parse(&alternatives.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()).unwrap()
        };
        let thin = Family {
            compiler: Compiler::Clang,
            major: 22,
            lto: Lto::Thin,
            arch: Arch::Arm64,
            linux: (7, 3),
            notrace_events: true,
        };
        assert!(on(&[]).holds(&thin));
        assert!(on(&["gcc", "thinlto arm64"]).holds(&thin));
        assert!(!on(&["thinlto x86_64", "fulllto", "nolto", "gcc"]).holds(&thin));
        assert!(on(&["clang22 lto !x86_64 linux>=6.12"]).holds(&thin));
        assert!(!on(&["clang19"]).holds(&thin) && !on(&["linux<7.3"]).holds(&thin) && !on(&["!clang"]).holds(&thin));
        assert!(on(&["notrace_events"]).holds(&thin) && !on(&["notrace_events"]).holds(&gcc14()));
        assert!(on(&["gcc14 nolto"]).holds(&gcc14()) && !on(&["gcc12"]).holds(&gcc14()));
        for bad in ["gnu", "gcc1x", "linux=7.3", "", "!!gcc"] {
            assert!(On::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
