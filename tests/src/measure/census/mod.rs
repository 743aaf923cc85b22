// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What of the arguments at inlined copies is located, on every kernel of the matrix: `ci/census`.
//!
//! Each kernel's image is encoded, and the encoder's own census ([`siteseer_encoder::Census`]) is one row of a table.
//! An argument is usable if the debug information has any location for it at the copy's entry; at least [`LEAST`] of a
//! thousand usable ones must be located, on every kernel, or the table says which is below.

pub mod flow;
pub mod kept;

use siteseer_encoder::census::ArgumentCensus;
use siteseer_encoder::{Census, Options};
use siteseer_kernels::KernelPaths;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::{Display, Write as _};
use std::fs;

/// How many of a thousand usable arguments must be located.
pub const LEAST: u64 = 980;

/// One kernel.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name in the matrix.
    pub name: String,
    /// `uname -r`.
    pub release: String,
    /// The architecture.
    pub arch: String,
    /// The compiler that made it.
    pub compiler: String,
    /// How it was linked.
    pub link: &'static str,
    /// The figures.
    pub census: Census,
}

impl Row {
    /// Encodes a kernel's image.
    ///
    /// # Errors
    /// If it cannot be read or encoded.
    pub fn of(kernel: &KernelPaths) -> Result<Row, Box<dyn Error>> {
        let image = fs::read(&kernel.vmlinux)?;
        let (_, census) = siteseer_encoder::encode(&image, &Options::default())?;
        Ok(Row::with(kernel, &image, census))
    }

    /// The row of a kernel whose image is encoded already.
    pub fn with(kernel: &KernelPaths, image: &[u8], census: Census) -> Row {
        let config = kernel.record.build.iter().flat_map(|build| &build.recipe.config);
        let link = config.fold("ordinary", |link, (_, text)| link_of(text).unwrap_or(link));
        Row {
            name: kernel.name.clone(),
            release: kernel.record.release.clone(),
            arch: kernel.record.arch.to_string(),
            compiler: compiler(image).unwrap_or_else(|| "unknown".to_owned()),
            link,
            census,
        }
    }

    /// Whether enough of the usable arguments are located.
    pub fn is_enough(&self) -> bool {
        let arguments = &self.census.arguments;
        arguments.located_of_usable * 1000 >= arguments.usable * LEAST
    }
}

/// What a fragment of a configuration says about the link.
fn link_of(fragment: &str) -> Option<&'static str> {
    fragment.lines().find_map(|line| match line {
        "CONFIG_LTO_CLANG_THIN=y" => Some("ThinLTO"),
        "CONFIG_LTO_CLANG_FULL=y" => Some("full LTO"),
        _ => None,
    })
}

/// The compiler in the text that `/proc/version` shows: `Linux version RELEASE (builder) (COMPILER, LINKER) ...`. Its
/// first word with a version is the compiler's, after a name that may be a path or begin with a triple.
fn compiler(image: &[u8]) -> Option<String> {
    const BEGINNING: &[u8] = b"Linux version ";
    let starts = image.windows(BEGINNING.len()).enumerate().filter(|(_, bytes)| *bytes == BEGINNING);
    starts.map(|(at, _)| &image[at..image.len().min(at + 400)]).find_map(|bytes| {
        let text = String::from_utf8_lossy(bytes.split(|&byte| byte == 0 || byte == b'\n').next()?).into_owned();
        let version = |after: &str| {
            let rest = text.split(after).nth(1)?;
            rest.split_whitespace()
                .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
                .map(|word| word.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned())
        };
        if let Some(version) = version("clang version ") {
            Some(format!("clang {version}"))
        } else if text.contains("gcc") {
            // `(x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, GNU ld ...`
            text.split("gcc")
                .nth(1)?
                .split(')')
                .nth(1)?
                .split(',')
                .next()
                .map(|version| format!("gcc {}", version.trim()))
        } else {
            None
        }
    })
}

/// The page.
pub fn page(rows: &[Row]) -> String {
    let mut page = String::from(
        "# What is located\n\n\
         `ci/census --update-docs` writes this page: one row for each kernel of `kernels/matrix.toml`, of what `siteseer encode` \
         finds in its debug information. With `--kernel NAME` it writes that row alone, and the others stay as they were.\n\n\
         * Arguments are those of the abstract function at each inlined copy, also those that the copy does not mention.\n\
         * An argument is usable if the debug information has any location for it where the copy is entered; an entry value or an \
         implicit pointer is none.\n\
         * A located argument is certain, or doubtful: the debug information names a place for it that may hold another value \
         ([semantics.md](semantics.md), S4.14). Programs read certain ones.\n\
         * \"Moved\" are arguments that are located because the probe stands a few bytes after the entry. They are not among the \
         usable.\n\
         * A `-` stands for what was not counted when the row was measured.\n\n\
         | kernel | release | arch | compiler | link | inline sites | with all arguments | arguments | usable | of these located | \
         located | certain | moved |\n\
         |---|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let Row { name, release, arch, compiler, link, census } = row;
        let (sites, arguments) = (&census.sites, &census.arguments);
        let _ = writeln!(
            page,
            "| {name} | {release} | {arch} | {compiler} | {link} | {} | {:.1}% | {} | {:.1}% | {:.2}% | {:.1}% | {:.1}% | {:.1}% |",
            sites.total,
            share(sites.all_arguments, sites.total),
            arguments.total,
            share(arguments.usable, arguments.total),
            share(arguments.located_of_usable, arguments.usable),
            share(arguments.located, arguments.total),
            share(arguments.certain, arguments.total),
            share(arguments.gained_by_moving, arguments.total),
        );
    }
    page.push_str("\nWhy arguments have no location, as shares of all arguments:\n\n");
    page.push_str(&by_reason(rows, |arguments| &arguments.unavailable));
    if rows.iter().any(|row| !row.census.arguments.doubtful.is_empty()) {
        page.push_str("\nWhy located arguments are doubtful, as shares of all arguments:\n\n");
        page.push_str(&by_reason(rows, |arguments| &arguments.doubtful));
    }
    page.push_str(
        "\nCopies out of line that a name cannot tell:\n\n\
         | kernel | bodies | clones | signature changed | arguments | located | certain |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let out = &row.census.out_of_line;
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {:.1}% | {:.1}% |",
            row.name,
            out.bodies,
            out.clones,
            out.signature_changed,
            out.arguments,
            share(out.located, out.arguments),
            share(out.certain, out.arguments),
        );
    }
    page
}

/// A table of a row for each kernel and a column for each reason that occurs in any.
fn by_reason<R: Copy + Ord + Display>(rows: &[Row], counts: impl Fn(&ArgumentCensus) -> &BTreeMap<R, u64>) -> String {
    let reasons: BTreeSet<R> = rows.iter().flat_map(|row| counts(&row.census.arguments).keys().copied()).collect();
    let mut table = String::from("| kernel |");
    reasons.iter().for_each(|reason| table.push_str(&format!(" {reason} |")));
    table.push_str("\n|---|");
    reasons.iter().for_each(|_| table.push_str("---:|"));
    table.push('\n');
    for row in rows {
        let arguments = &row.census.arguments;
        let _ = write!(table, "| {} |", row.name);
        for reason in &reasons {
            let count = counts(arguments).get(reason).copied().unwrap_or_default();
            let _ = write!(table, " {:.2}% |", share(count, arguments.total));
        }
        table.push('\n');
    }
    table
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::{Doubt, Missing};

    #[test]
    fn the_compiler_is_in_the_kernels_banner() {
        let gcc = b"\0Linux version %s\n\0Linux version 7.3.4+deb13-cloud-amd64 (debian-kernel@lists.debian.org) \
                    (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, GNU ld (GNU Binutils for Debian) 2.44) #1 SMP\n\0";
        assert_eq!(compiler(gcc).unwrap(), "gcc 14.2.0");
        let clang =
            b"xLinux version 7.3.4 (siteseer@siteseer) (Debian clang version 22.1.8 (1~deb13u4), Debian LLD 22.1.8) #1";
        assert_eq!(compiler(clang).unwrap(), "clang 22.1.8");
        assert_eq!(compiler(b"Linux version "), None);
    }

    #[test]
    fn the_link_is_what_the_configuration_says() {
        assert_eq!(link_of("# why\nCONFIG_LTO_CLANG_THIN=y\n"), Some("ThinLTO"));
        assert_eq!(link_of("CONFIG_LTO_NONE=y\n# CONFIG_LTO_CLANG_FULL=y is another\n"), None);
    }

    #[test]
    fn a_kernel_below_the_line_is_told() {
        let row = |usable, located| {
            let mut census = Census::default();
            census.arguments.total = 2 * usable;
            census.arguments.usable = usable;
            census.arguments.located_of_usable = located;
            Row {
                name: "k".to_owned(),
                release: "7".to_owned(),
                arch: "arm64".to_owned(),
                compiler: "clang 22".to_owned(),
                link: "ThinLTO",
                census,
            }
        };
        assert!(row(1000, 980).is_enough() && !row(1000, 979).is_enough() && row(0, 0).is_enough());
        let page = page(&[row(1000, 990)]);
        assert!(page.contains("| k | 7 | arm64 | clang 22 | ThinLTO | 0 | 0.0% | 2000 | 50.0% | 99.00% |"), "{page}");
        assert!(!page.contains("doubtful, as shares"), "{page}");
    }

    #[test]
    fn certain_stands_beside_located() {
        let arguments = ArgumentCensus {
            total: 1000,
            located: 900,
            certain: 870,
            doubtful: BTreeMap::from([(Doubt::Assigned, 20), (Doubt::Constant, 10)]),
            unavailable: BTreeMap::from([(Missing::OptimisedOut, 100)]),
            ..ArgumentCensus::default()
        };
        let row = Row {
            name: "k".to_owned(),
            release: "7".to_owned(),
            arch: "arm64".to_owned(),
            compiler: "clang 22".to_owned(),
            link: "ThinLTO",
            census: Census { arguments, ..Census::default() },
        };
        let page = page(&[row]);
        assert!(page.contains("| located | certain | moved |"), "{page}");
        assert!(page.contains("| 90.0% | 87.0% | 0.0% |"), "{page}");
        let doubts =
            format!("| kernel | {} | {} |\n|---|---:|---:|\n| k | 2.00% | 1.00% |\n", Doubt::Assigned, Doubt::Constant);
        assert!(page.contains(&doubts), "{page}");
        assert!(page.contains("| kernel | optimised out |\n|---|---:|\n| k | 10.00% |\n"), "{page}");
    }
}
