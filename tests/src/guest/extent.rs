// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which cases run on which kernels: all, except those of three tables.

use siteseer_kernels::REFERENCE;

/// Cases that run on one kernel alone, the one that the harness names as the reference, and why that is enough: names,
/// or the groups before the colons. All others run on every kernel.
pub const ON_THE_REFERENCE: [(&str, &str); 16] = [
    (
        "armed",
        "kprobe.multi arms hundreds of entries at once, which older kernels cannot; ci/armed arms all of a kernel's sites",
    ),
    (
        "soak",
        "one of two processors goes off and on, and the other guests have one; what is attached and left elsewhere is what the other \
         groups see",
    ),
    (
        "jumps",
        "the kernel's optimizer is held on the second of two processors, and the other guests have one; older kernels have no thread \
         for it",
    ),
    (
        "trace::examples_print_what_the_page_says",
        "the page has that kernel's functions, inlined copies and lines; the other cases of the group run everywhere",
    ),
    ("tools", "what each call leads to is known of that kernel's source; truth:: has other compilers' copies"),
    ("reach", "counts all functions of the BTF, by the mechanisms that the other groups try on every kernel"),
    (
        "killed::at_any_moment",
        "200 processes; what a killed process leaves is the kernel's closing of descriptors, and the definitions that \
         killed::a_child_keeps_what_its_parent_attached removes everywhere",
    ),
    (
        "trace::thousands_of_sites_are_asked_for",
        "arms and disarms thousands of probes twice, which takes an emulated machine many minutes; the bound and the question are \
         the tool's own, and what ends a process elsewhere is killed::",
    ),
    (
        "faults::detaching_waits_without_membarrier",
        "the program has to run on one processor while another one detaches it, and the other guests have one",
    ),
    (
        "faults::counts_are_exact_while_a_processor_is_off",
        "one of two processors is switched off, and the other guests have one",
    ),
    (
        "faults::attaching_without_the_first_processor",
        "calls are made on each of two processors, and the other guests have one",
    ),
    (
        "faults::unread_text_is_told",
        "what is said of a call that fails is siteseer's own; it takes CONFIG_SECCOMP_FILTER, which not every kernel has",
    ),
    (
        "libbpf::nothing_stays_when_a_system_call_fails",
        "what is undone then is siteseer's and libbpf's own, the same on every kernel; it takes CONFIG_SECCOMP_FILTER, which not \
         every kernel has, and an attachment for each system call of one",
    ),
    (
        "libbpf::nothing_is_lost_in_a_life_with_a_system_call_that_fails",
        "as the one before, and a life for each error of each system call of one",
    ),
    (
        "libbpf::errors_of_loading_are_libbpfs",
        "do_getpgid() has a body there; where it has copies alone, as on arm64, plain libbpf finds no function, and siteseer \
         loads the program behind the guard: the verifier refuses it when it is attached",
    ),
    (
        "libbpf::whether_a_function_can_be_traced",
        "names functions that have a body or none there; what is asked of each kernel's BTF is the same everywhere",
    ),
];

/// Groups of cases that have a boot of their own on the reference. An emulated machine has one processor of this one;
/// the reference has most of the cases, and would be waited for after all others. These take half of its time.
pub const APART: [&str; 6] = ["armed", "libbpf", "own_data", "reach", "sharing", "soak"];

/// Whether a case has the other boot of a kernel that is booted twice.
pub fn is_apart(name: &str, role: Role) -> bool {
    role == Role::Reference && APART.iter().any(|of| name.strip_prefix(of).is_some_and(|rest| rest.starts_with("::")))
}

/// Cases that take minutes in an emulated machine, and that daily runs do not make at all: names, and what daily runs
/// have of them.
pub const NOT_DAILY: [(&str, &str); 4] = [
    (
        "code::the_kernel_has_it_at_every_site",
        "code::the_kernel_has_it_at_sites looks at a part of them; the tables that are left out are the same for all",
    ),
    (
        "trace::thousands_of_sites_are_asked_for",
        "the bound has a unit test (loader/src/attach/options.rs); `soak` and `killed` arm and disarm often, at fewer sites",
    ),
    (
        "trace::the_longest_condition_is_loaded_in_each_program",
        "trace::a_condition_is_the_same_in_the_kernel_and_outside loads 46 shorter ones",
    ),
    (
        "libbpf::nothing_is_lost_in_a_life_with_a_system_call_that_fails",
        "libbpf::nothing_stays_when_a_system_call_fails has those of attaching, with two errors each",
    ),
];

/// Cases that take long, and that daily runs make on the reference alone: names, and why that is enough for a day. They
/// are most of the time of a kernel's boot. Runs of [`Extent::Whole`] make them everywhere.
pub const LONG: [(&str, &str); 13] = [
    (
        "trace::a_condition_is_the_same_in_the_kernel_and_outside",
        "46 runs of the tool; the programs are the same on all kernels, and whole runs show a verifier that differs",
    ),
    ("trace::what_is_returned_is_compared_in_the_kernel", "13 runs of the tool, and a flood of calls"),
    ("trace::numbers_are_printed_meanwhile", "it waits for the tool's clock"),
    ("trace::output_that_cannot_be_written", "what is tried is the tool's own"),
    ("trace::it_ends_while_calls_go_on", "what is tried is the tool's own"),
    ("trace::trees_of_many_calls_are_right_or_left_out", "what is tried is the tool's own"),
    ("trace::calls_are_timed", "what is tried is the tool's own"),
    ("trace::calls_are_in_their_callers", "what is tried is the tool's own"),
    (
        "explain::file_and_loaded_program_agree",
        "an object is read as a file, and as libbpf loads it; what the kernel gives back of it is the same everywhere",
    ),
    (
        "own_data::known_calls",
        "known calls are traced by the site file everywhere, and own_data::of_a_module reads what the kernel serves",
    ),
    ("own_data::says_what_the_site_file_says", "both are encoded on this machine, and compared function by function"),
    (
        "sharing::thousands_of_prototypes_are_few_programs",
        "which prototypes share a program is the plan's decision, which the suite's plans show",
    ),
    ("sharing::same_records", "which prototypes share a program is the plan's decision, which the suite's plans show"),
];

/// How much of the suite a run makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All but what is [`NOT_DAILY`] on the reference; on the others, all but what is [`LONG`], too.
    Daily,
    /// Everything.
    Whole,
    /// Also what one kernel is enough for ([`ON_THE_REFERENCE`]), on each.
    Everywhere,
}

impl Extent {
    /// What `SITESEER_CASES` says: `daily`, `everywhere`, or `whole`, which it is without it.
    ///
    /// # Errors
    /// If it says something else.
    pub fn chosen() -> Result<Extent, String> {
        match std::env::var("SITESEER_CASES").as_deref() {
            Ok("daily") => Ok(Extent::Daily),
            Ok("everywhere") => Ok(Extent::Everywhere),
            Ok("whole") | Err(std::env::VarError::NotPresent) => Ok(Extent::Whole),
            other => Err(format!("SITESEER_CASES: expected daily, whole or everywhere, not {other:?}")),
        }
    }
}

/// Which kernel a case runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one whose figures are known.
    Reference,
    /// Any other.
    Other,
}

impl Role {
    /// What a kernel is, by its name in the matrix.
    pub fn of(kernel: &str) -> Role {
        match kernel {
            REFERENCE => Role::Reference,
            _ => Role::Other,
        }
    }
}

/// Whether a kernel's boot for clients and examples is made: daily runs make that of the reference.
pub fn is_booted(kernel: &str, extent: Extent) -> bool {
    extent != Extent::Daily || Role::of(kernel) == Role::Reference
}

/// Whether a case runs on a kernel.
pub fn runs_on(name: &str, role: Role, extent: Extent) -> bool {
    let is_of =
        |(of, _): &(&str, &str)| name == *of || name.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"));
    let is_alone = extent != Extent::Everywhere && ON_THE_REFERENCE.iter().any(is_of);
    let is_daily = extent == Extent::Daily;
    let is_left_out = is_daily && NOT_DAILY.iter().any(is_of);
    match role {
        Role::Reference => !is_left_out,
        Role::Other => !(is_alone || is_left_out || is_daily && LONG.iter().any(is_of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::case::{Case, cases};

    #[test]
    fn every_line_of_the_table_is_of_some_case() {
        for (of, _) in ON_THE_REFERENCE {
            let is_left_out = |case: &Case| !runs_on(&case.name, Role::Other, Extent::Whole);
            assert!(cases().iter().any(|case| case.name.starts_with(of) && is_left_out(case)), "{of}");
        }
        for (of, _) in LONG {
            let is_of = |case: &&Case| case.name == of;
            let case = cases().into_iter().find(|case| is_of(&case)).expect(of);
            let runs = |role, extent| runs_on(&case.name, role, extent);
            assert!(runs(Role::Other, Extent::Whole) && runs(Role::Reference, Extent::Daily), "{of}");
            assert!(!runs(Role::Other, Extent::Daily), "{of}");
        }
        for (of, _) in NOT_DAILY {
            assert!(cases().iter().any(|case| case.name == of), "{of}");
            assert!(
                runs_on(of, Role::Reference, Extent::Whole) && !runs_on(of, Role::Reference, Extent::Daily),
                "{of}"
            );
        }
        for of in APART {
            assert!(
                cases().iter().any(|case| is_apart(&case.name, Role::Reference) && case.name.starts_with(of)),
                "{of}"
            );
        }
        assert!(!is_apart("soak::nothing_is_left_after_many_rounds", Role::Other));
        assert!(cases().iter().all(|case| runs_on(&case.name, Role::Other, Extent::Everywhere)));
        let is_run = |case: &&Case| runs_on(&case.name, Role::Reference, Extent::Daily);
        assert_eq!(cases().iter().filter(is_run).count(), cases().len() - NOT_DAILY.len());
        assert!(runs_on("killed::a_child_keeps_what_its_parent_attached", Role::Other, Extent::Daily));
    }
}
