// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which test holds to which rule of docs/semantics.md. A rule without a line fails, and so does a line whose rule or test is not
//! there.

use super::{read, root};
use siteseer_conformance::case::cases;
use std::collections::BTreeSet;

/// What shows that a rule holds.
enum Proof {
    /// A test that takes no kernel: file and function.
    Unit(&'static str, &'static str),
    /// A case in the virtual machine.
    Case(&'static str),
    /// A case of the suite of modules: its folder in tests/cases.
    Suite(&'static str),
    /// No test of its own, and why.
    None(&'static str),
}
use Proof::{Case, None, Suite, Unit};

const PLAN: &str = "loader/src/plan/tests/mod.rs";
const DOUBT: &str = "loader/src/plan/tests/doubt.rs";
const FENTRY: &str = "loader/src/plan/tests/fentry.rs";
const LIBBPF: &str = "loader/src/plan/tests/libbpf.rs";
const LIVEPATCH: &str = "loader/src/plan/tests/livepatch.rs";
const MODULES: &str = "loader/src/plan/tests/modules.rs";
const PROGRAM: &str = "loader/src/program/tests.rs";
const EXECUTION: &str = "loader/src/trampoline/tests/execution.rs";
const EXITS: &str = "loader/src/trampoline/tests/exits.rs";
const LISTINGS: &str = "loader/src/trampoline/tests/listings.rs";
const SELECT: &str = "loader/src/target/function/select/tests.rs";
const DECLARED: &str = "loader/src/program/declared/tests.rs";
const SECTION: &str = "loader/src/program/section.rs";
const SYMBOLS: &str = "loader/src/kernel/symbols/mod.rs";
const SOURCE: &str = "loader/src/source/mod.rs";
const BPF_TARGET: &str = "loader/src/explain/bpf_programs.rs";
const COMPILED: &str = "encoder/tests/compiled/main.rs";
const SIGNATURES: &str = "encoder/tests/compiled/signatures.rs";
const PROVOKED: &str = "tests/tests/refusals/provoked.rs";
const BAD: &str = "refusals::programs_that_cannot_be_attached";

const RULES: &[(&str, Proof)] = &[
    ("S0.1", Case("libbpf::every_way_sees_what_libbpf_sees")),
    ("S0.2", Unit(LIBBPF, "at_least_what_libbpf_attaches_to")),
    ("S0.3", Case("libbpf::what_cannot_be_planned_is_libbpfs")),
    ("S0.4", Unit(LIBBPF, "a_wrong_argument_is_not_had_for_libbpfs_sake")),
    ("S0.5", Case("libbpf::both_ends_are_at_the_same_calls")),
    ("S1.1", Unit(SECTION, "section_names")),
    ("S1.2", Case("denied::no_function_was_given")),
    ("S1.3", Case("denied::program_that_siteseer_did_not_load")),
    ("S1.4", Unit(SECTION, "the_guard_is_recognised")),
    ("S1.5", Case("fentry::libbpf_attaches_it_too")),
    ("S1.6", Unit(FENTRY, "sleepable_programs_keep_to_fentry")),
    ("S1.7", Case("modules::calls_in_a_module")),
    ("S2.1", Unit(PLAN, "every_candidate_has_one_decision")),
    ("S2.16", Case("lookups::a_part_of_the_symbols_says_what_all_say")),
    ("S2.2", Unit(SYMBOLS, "finds_by_name_and_address")),
    ("S2.3", Unit(PLAN, "every_sort_of_site")),
    ("S2.4", Unit(PROVOKED, "a_body_in_a_module")),
    ("S2.5", Unit("encoder/src/unit/entry.rs", "the_first_binding_is_the_first_by_address")),
    ("S2.6", None("the truth cases allow for it; which function has such copies depends on the kernel")),
    ("S2.7", Unit(PLAN, "a_fragment_is_not_a_site")),
    ("S2.8", Case("refusals::unknown_function")),
    ("S2.9", Unit(SOURCE, "a_search_in_vain_lists_every_place")),
    ("S2.10", Unit("encoder/src/text/tests.rs", "a_body_with_two_ways_in")),
    ("S2.11", Unit("loader/src/source/module.rs", "paths_of_a_module")),
    ("S2.12", Suite("init_text")),
    ("S2.13", Suite("merged_copies")),
    ("S2.14", None("a limit: neither the text nor the debug information says that a jump was a call")),
    ("S2.15", Unit("loader/src/source/own.rs", "the_images_own")),
    ("S3.1", Unit(PLAN, "a_fragment_is_not_a_site")),
    ("S3.2", Unit(PLAN, "a_fragment_is_not_a_site")),
    ("S3.3", Unit(PLAN, "a_fragment_is_not_a_site")),
    ("S3.4", Unit(COMPILED, "the_rest_of_a_split_function_is_no_site")),
    ("S3.5", Unit(COMPILED, "the_census_adds_up")),
    ("S3.6", None("a limit: that an alias is not known cannot be shown by a test")),
    ("S4.1", Case("fentry::partly_inlined_counted_exactly")),
    ("S4.2", Unit(EXECUTION, "slots_are_what_the_evaluator_says")),
    ("S4.3", Case("truth::ksys_shmget")),
    ("S4.4", Unit(PROGRAM, "loads_through_copies_offsets_and_spills")),
    ("S4.5", Unit(PROGRAM, "context_stored_to_a_map_escapes")),
    ("S4.6", Case("refusals::parameter_that_the_function_lacks")),
    ("S4.7", Unit(PROGRAM, "refusals")),
    ("S4.8", Unit(EXITS, "func_ret_is_emulated_at_every_exit_and_refused_an_answer_at_the_entry")),
    ("S4.9", Case("typed::pointers_at_an_inline_site")),
    ("S4.10", Case("typed::pointers_at_an_inline_site")),
    ("S4.11", Unit(LISTINGS, "without_rdonly_cast_only_following_a_pointer_is_refused")),
    ("S4.12", Unit(LISTINGS, "a_pointer_used_as_a_number_stays_one")),
    ("S4.13", Unit(MODULES, "a_modules_own_types_are_followed_by_fentry_alone")),
    ("S4.14", Unit("sites/tests/round_trip.rs", "doubts_are_kept_from_readers_of_upstream_alone")),
    ("S4.15", Unit(DOUBT, "a_doubtful_argument_counts_as_missing")),
    ("S4.16", Unit(DOUBT, "accepted_doubt_is_reported")),
    ("S5.1", Unit(PROGRAM, "accessors_with_constant_and_unknown_numbers")),
    ("S5.2", Unit(EXECUTION, "accessors_answer_for_each_parameter")),
    ("S5.3", Unit(EXECUTION, "accessors_answer_for_each_parameter")),
    ("S5.4", Unit(EXECUTION, "accessors_answer_for_each_parameter")),
    ("S5.5", Unit(PLAN, "what_is_not_read_does_not_matter")),
    ("S6.1", Case("typed::helpers_that_take_the_context")),
    ("S6.2", Unit(PROGRAM, "refusals")),
    ("S6.3", Case(BAD)),
    ("S7.1", Case("typed::cookie_and_site")),
    ("S7.2", Case("typed::cookie_and_site")),
    ("S7.3", Unit(EXECUTION, "site_is_looked_up_by_the_probes_address")),
    ("S7.4", Unit(LISTINGS, "site_record_is_laid_out_as_the_header_says")),
    ("S8.1", Case("typed::cookie_and_site")),
    ("S8.2", Unit(PLAN, "every_sort_of_site")),
    ("S8.3", Case("typed::complete_refuses_with_the_list")),
    ("S8.4", Unit(PLAN, "dead_sites_do_not_count")),
    ("S8.5", Unit(PLAN, "nothing_to_attach")),
    ("S8.6", Unit(PLAN, "complete_lists_what_is_in_the_way")),
    ("S8.7", Unit(FENTRY, "what_the_kernel_refuses_is_tried_otherwise")),
    ("S8.8", Unit("tests/tests/refusals/main.rs", "every_proof_is_there")),
    ("S8.9", Unit(LISTINGS, "refusals")),
    ("S8.10", Unit(PLAN, "complete_lists_what_is_in_the_way")),
    ("S8.11", Case("denied::too_few_files")),
    ("S9.1", Unit(EXECUTION, "slots_are_what_the_evaluator_says")),
    ("S9.2", Unit(EXECUTION, "accessors_answer_for_each_parameter")),
    ("S9.3", Case("typed::what_the_kernel_does_not_run_is_counted")),
    ("S10.1", Case(BAD)),
    ("S10.2", Unit(PROGRAM, "refusals")),
    ("S10.3", Case("denied::licence_that_is_not_gpl_compatible")),
    ("S10.4", Case(BAD)),
    ("S10.5", Case("refusals::missing_privileges")),
    ("S10.6", Case("refusals::another_kernels_site_data")),
    ("S10.7", None("no such machine is at hand; the sentence is KernelError's")),
    ("S11.1", Case("truth::c_start")),
    ("S11.2", Case("namesakes::nothing_stated_is_refused_with_the_line_to_write")),
    ("S11.3", Unit(PLAN, "namesakes_that_differ_are_refused")),
    ("S11.4", Unit(PLAN, "namesakes_that_differ_are_refused")),
    ("S12.1", Case("typed::what_the_kernel_does_not_run_is_counted")),
    ("S12.2", Case("typed::what_the_kernel_does_not_run_is_counted")),
    ("S12.3", Case("typed::what_the_kernel_does_not_run_is_counted")),
    ("S12.4", None("the kernel's own rule; it counts these hits in no way that a program can provoke at will")),
    ("S13.1", Unit(PLAN, "mechanisms_follow_the_kernel")),
    ("S13.2", Unit("loader/src/attach/tracefs.rs", "places_by_symbols_that_are_unique")),
    ("S13.3", Unit(PLAN, "what_is_not_read_does_not_matter")),
    ("S13.4", Case("typed::nothing_fires_after_the_link")),
    ("S13.5", Case("denied::too_few_files")),
    ("S13.6", Case("libbpf::links_outlive_their_object")),
    ("S13.7", Case("killed::at_any_moment")),
    ("S13.8", None("a limit: what is not looked at is not seen")),
    ("S13.9", Case("namesakes::stated_types_choose")),
    ("S13.10", Unit(DECLARED, "prototypes_differ_where_it_says")),
    ("S13.11", Case("namesakes::stated_types_that_none_has")),
    ("S13.12", Unit(SELECT, "what_cannot_be_shown_to_match_is_in_the_way")),
    ("S13.13", Case("namesakes::a_file_chooses")),
    ("S13.14", Unit("tests/tests/statement.rs", "libbpf_makes_no_map_of_it")),
    ("S13.15", Unit(SIGNATURES, "gcc_changes_signatures_of_clones")),
    ("S13.16", Unit(SIGNATURES, "clang_changes_signatures_under_the_same_name")),
    ("S13.17", Unit(FENTRY, "a_return_value_that_is_known_to_be_kept_is_read")),
    ("S13.18", Case("modules::a_body_keeps_its_module")),
    ("S13.19", Case("modules::unloaded_while_attached")),
    ("S13.20", Case("modules::unloaded_while_attached")),
    ("S13.21", Case("modules::a_body_keeps_its_module")),
    ("S15.1", Case("tools::files")),
    ("S15.2", Unit("loader/src/register/mod.rs", "registering_twice_is_once_and_unregistering_restores_libbpf")),
    ("S15.3", Case("fentry::libbpf_attaches_it_too")),
    ("S15.4", Case("fentry::target_set_through_libbpf")),
    ("S15.5", Unit(FENTRY, "fentry_is_for_one_name_one_function")),
    ("S15.6", Case("context::as_under_real_fentry")),
    ("S15.7", Case("fentry::several_bodies_by_one_link")),
    ("S15.8", Unit(FENTRY, "what_the_kernel_refuses_is_tried_otherwise")),
    ("S15.9", Case("fentry::exit_of_inlined_copies")),
    ("S15.10", Unit(FENTRY, "returns")),
    ("S15.11", Case("fentry::result_that_may_be_removed")),
    ("S15.12", Unit(FENTRY, "a_slot_for_the_return_value")),
    ("S15.13", Unit(EXITS, "a_call_that_finds_no_room_is_lost_and_counted")),
    ("S15.14", Case("fentry::sleepable_is_refused_by_site")),
    ("S15.15", Unit(FENTRY, "inlined_copies_are_in_the_way_of_a_complete_exit")),
    ("S15.16", Unit(MODULES, "one_name_in_the_image_and_in_a_module")),
    ("S20.1", Case("bpf_target::main_function")),
    ("S20.2", Unit(BPF_TARGET, "a_subprogram_is_reached_by_fentry_alone")),
    ("S20.3", Case("bpf_target::subprograms")),
    ("S20.4", Unit(BPF_TARGET, "tail_calls_are_in_the_way_of_complete")),
    ("S20.5", Case("bpf_target::entered_by_tail_call")),
    ("S20.6", Case("bpf_target::entered_by_tail_call")),
    ("S20.7", Case("bpf_target::extension")),
    ("S20.8", Case("bpf_target::what_is_not_there")),
    ("S20.9", Case("denied::missing_sys_admin")),
    ("S21.1", Unit(LIVEPATCH, "calls_are_seen_at_the_entry_and_not_behind_it")),
    ("S21.2", Unit(LIVEPATCH, "calls_are_seen_at_the_entry_and_not_behind_it")),
    ("S21.3", Unit(LIVEPATCH, "an_old_body_is_not_in_the_way")),
    ("S21.4", None("a live patch's module is a module: what S1.7 and S2.11 say of it is tested there")),
    ("S21.5", Unit("loader/src/target/livepatch.rs", "entries_are_seen_and_old_bodies_are_dead")),
    ("S22.1", Case("explain::file_and_loaded_program_agree")),
    ("S22.2", Unit("cli/tests/pages.rs", "the_pages_are_what_is_printed")),
    ("S22.3", Case("explain::file_and_loaded_program_agree")),
    ("S23.1", Case("libbpf::objects_of_every_kind_are_as_without_siteseer")),
    ("S23.2", Case("libbpf::a_link_stands_for_all_sites")),
    ("S23.3", Unit("loader/src/register/queue.rs", "files_live_as_long_as_their_socket")),
    ("S23.4", Case("libbpf::definitions_go_when_the_link_is_gone")),
    ("S23.5", Case("libbpf::what_siteseer_adds_nothing_to_is_libbpfs")),
    ("S23.6", Case("libbpf::what_cannot_be_attached_is_an_error")),
    ("S23.7", Case("libbpf::what_cannot_be_attached_is_an_error")),
    ("S23.8", Case("libbpf::a_skeleton_in_c")),
    ("S23.9", Case("libbpf::what_siteseer_adds_nothing_to_is_libbpfs")),
    ("S23.10", Unit("loader/src/register/mod.rs", "registering_twice_is_once_and_unregistering_restores_libbpf")),
    ("S23.11", None("a promise of the caller's: what happens without it is undefined")),
    ("S23.12", None("that modules come and go between two objects is in no case yet")),
    ("S23.14", Case("libbpf::what_is_guarded_is_refused_by_others")),
    ("S23.15", Case("libbpf::a_function_that_is_not_there_fails_at_load")),
    ("S23.16", Case("libbpf::whether_a_function_can_be_traced")),
    ("S23.13", Case("libbpf::a_skeleton_in_c")),
    ("S24.1", Unit("tests/tests/interface/main.rs", "every_function_is_declared_and_defined")),
    ("S24.2", Unit("tests/tests/interface/main.rs", "exports_are_those_that_were_accepted")),
    ("S24.3", Unit("capi/src/options.rs", "sizes_of_other_versions")),
];

/// The rules of the page, in its order.
fn rules() -> Vec<String> {
    let page = read(&root().join("docs/semantics.md"));
    let rules = page.lines().filter_map(|line| line.strip_prefix("* **S")?.split_once("**"));
    rules.map(|(number, _)| format!("S{number}")).collect()
}

#[test]
fn every_rule_has_its_test() {
    let rules = rules();
    assert!(rules.len() > 100, "only {} rules were found", rules.len());
    let there: BTreeSet<&str> = rules.iter().map(String::as_str).collect();
    assert_eq!(there.len(), rules.len(), "a number is used twice");
    let listed: BTreeSet<&str> = RULES.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(listed.len(), RULES.len(), "a rule is listed twice");
    let cases: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    let mut wrong = Vec::new();
    wrong.extend(there.difference(&listed).map(|rule| format!("{rule} has no line in tests/tests/docs/rules.rs")));
    wrong.extend(listed.difference(&there).map(|rule| format!("{rule} is in no page")));
    for (rule, proof) in RULES {
        match proof {
            Unit(file, test) => {
                let path = root().join(file);
                if !path.is_file() || !read(&path).contains(&format!("fn {test}(")) {
                    wrong.push(format!("{rule}: there is no {test} in {file}"));
                }
            }
            Case(case) if !cases.contains(*case) => wrong.push(format!("{rule}: there is no case {case}")),
            Suite(case) if !root().join("tests/cases").join(case).join("case.toml").is_file() => {
                wrong.push(format!("{rule}: there is no tests/cases/{case}"));
            }
            None(why) if why.len() < 15 => wrong.push(format!("{rule}: why is there no test?")),
            Case(_) | Suite(_) | None(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let without = RULES.iter().filter(|(_, proof)| matches!(proof, None(_))).count();
    assert!(without * 15 <= RULES.len(), "{without} of {} rules have no test", RULES.len());
}
