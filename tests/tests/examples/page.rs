// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/before-and-after.md: the outputs of opensnoop on the same calls, without siteseer and with it.
//!
//! The page is made of a run. Process numbers differ from run to run, so they are left out of the comparison; all else
//! must be the same as long as the kernel is (by the version that the page names).

use super::build::Built;
use siteseer_conformance::guest::examples::Verdict;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/before-and-after.md");
const FUNCTION: &str = "do_sys_open";

/// What the page says about a run.
fn page(release: &str, sites: &str, before: &str, after: &str) -> Result<String, std::fmt::Error> {
    let (seen, all) = (before.lines().count() - 1, after.lines().count() - 1);
    let mut page = String::new();
    write!(
        page,
        "# Before and after

The tool is [examples/opensnoop](../examples/opensnoop): an ordinary skeleton application with an fentry program on `{FUNCTION}`,
which `open(2)`, `openat(2)` and `creat(2)` come through. It is run twice on Debian's kernel {release}, in a virtual machine, while
another process makes the same {all} calls: each of the three system calls, and one that fails.

This page is written by `SITESEER_UPDATE_DOCS=1 cargo test -p siteseer-conformance --test examples`, from what was printed in that run;
without the variable the test compares.

## Before: libbpf alone

`opensnoop -l` does not call `siteseer_register()`. It attaches, without an error or a warning, and sees {seen} of {all} calls:

```
{before}```

## After: one call more

`opensnoop` is the same program with `siteseer_register(NULL)` in front, and sees {all} of {all}:

```
{after}```

## Why

The symbol `{FUNCTION}` exists, so fentry has something to attach to. But the compiler has inlined the function into every one of its
callers, and nothing calls the symbol. `siteseer sites {FUNCTION}` lists the places where its body starts on this kernel
(those in `__ia32_...` are of 32-bit processes):

```
{sites}```

[The suite](../tests/src/guest/tools/mod.rs) runs more than fifty tools of this kind beside plain libbpf in the same way, on calls that are known, and fails if siteseer
sees one call more or less.
"
    )?;
    Ok(page)
}

/// Without process numbers, which are the first column.
fn comparable(page: &str) -> Vec<String> {
    let without = |line: &str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() < line.len() { rest.trim_start().to_owned() } else { line.to_owned() }
    };
    page.lines().map(without).collect()
}

pub(super) fn check(verdicts: &BTreeMap<String, Verdict>, built: &Built) -> Result<(), String> {
    let verdict = verdicts.get("opensnoop-system").ok_or("opensnoop did not run")?;
    let [(_, before), (_, after)] = verdict.printed.as_slice() else {
        return Err(verdict.failure.clone().unwrap_or_else(|| "opensnoop printed nothing".to_owned()));
    };
    let kernel = siteseer_kernels::cached(siteseer_kernels::REFERENCE).ok_or("the kernel has gone")?;
    let sites = built.encode(&kernel.vmlinux, &kernel.record.build_id)?;
    let sites = built.sites(FUNCTION, &sites)?;
    // An address and a bracket tell little here, and make long lines.
    let sites: String = sites
        .lines()
        .map(|line| {
            line.split_once(' ').map_or(line, |(address, rest)| if address.starts_with("ffff") { rest } else { line })
        })
        .fold(String::new(), |text, line| text + line + "\n");
    let printed = page(&kernel.record.release, &sites, before, after).map_err(|error| error.to_string())?;
    if std::env::var_os("SITESEER_UPDATE_DOCS").is_some() {
        return fs::write(PAGE, printed).map_err(|error| format!("{PAGE}: {error}"));
    }
    let written = fs::read_to_string(PAGE).map_err(|error| format!("{PAGE}: {error}"))?;
    // A page of another kernel is right as long as it was made by this test; what must hold on any is checked in the
    // guest.
    let is_of_this = written.contains(&format!("kernel {}, ", kernel.record.release));
    if is_of_this && comparable(&written) != comparable(&printed) {
        return Err(format!(
            "docs/before-and-after.md is not what is printed (SITESEER_UPDATE_DOCS=1 writes it):\n{printed}"
        ));
    }
    Ok(())
}
