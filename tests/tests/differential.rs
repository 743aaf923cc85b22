// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Our sites and locations beside those of `perf probe`, for a few random functions of a real kernel.

use siteseer_conformance::compare::differential::{Class, Question, run};

const KERNEL: &str = "deb-7.3-x86_64";
/// Enough to meet the common classes; `siteseer-differential` takes any number.
const FUNCTIONS: usize = 12;
const SEED: u64 = 7;

#[test]
fn perf_and_we_agree_or_it_is_known_why() {
    let Some(kernel) = siteseer_kernels::cached(KERNEL) else {
        panic!("the kernel {KERNEL} has not been fetched: run ci/kernel {KERNEL}");
    };
    // Beside those by chance: one that lacks an argument at a site, and one that reads an argument from memory at a
    // site.
    let functions = ["ns_capable", "__bpf_copy_key"].map(str::to_owned).to_vec();
    let question = Question { vmlinux: kernel.vmlinux, sites: None, count: FUNCTIONS, seed: SEED, functions };
    let report = match run(&question) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    };
    println!("{report}");
    assert_eq!(report.comparisons.len(), FUNCTIONS + question.functions.len());
    // perf answered, and most of what it said is what we say: otherwise this would compare nothing.
    let sites: usize = report.comparisons.iter().map(|comparison| comparison.sites).sum();
    assert!(sites >= FUNCTIONS, "perf and we have {sites} sites in common");
    assert!(report.agreements() >= FUNCTIONS, "perf and we agree on {} arguments", report.agreements());
    let unexplained = report.list(|class| class == Class::Unexplained);
    assert!(unexplained.is_empty(), "not explained:\n{unexplained}");
}
