// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs that libbpf's own calls open, load and attach, in processes that have called [`siteseer::register`].
//!
//! The other cases attach by siteseer's own calls, and have its handlers plan nothing; so each case here is a process
//! of its own, `siteseer-guest libbpf CASE`, which says how it went.

mod asked;
mod attached;
mod corpus;
mod errors;
mod injected;
mod kinds;
mod life;
mod light;
mod unheard;
mod ways;

use crate::guest::case::{Case, Failure, Lack};
use serde::{Deserialize, Serialize};
use siteseer_sites::with_causes;
use std::io::{self, Write};
use std::process::{Command, Stdio};

type Run = fn() -> Result<String, Failure>;

const CASES: [(&str, Run); 29] = [
    // Proves S23.1.
    ("objects_of_every_kind_are_as_without_siteseer", corpus::compare),
    ("a_link_stands_for_all_sites", attached::a_link_stands_for_all_sites),
    ("what_siteseer_adds_nothing_to_is_libbpfs", attached::what_siteseer_adds_nothing_to_is_libbpfs),
    ("what_cannot_be_attached_is_an_error", attached::what_cannot_be_attached_is_an_error),
    ("links_outlive_their_object", attached::links_outlive_their_object),
    ("definitions_go_when_the_link_is_gone", attached::definitions_go_when_the_link_is_gone),
    ("a_skeleton_in_c", attached::a_skeleton_in_c),
    ("every_way_sees_what_libbpf_sees", ways::every_way_sees_what_libbpf_sees),
    ("what_is_guarded_is_refused_by_others", ways::what_is_guarded_is_refused_by_others),
    ("a_function_that_is_not_there_fails_at_load", ways::a_function_that_is_not_there_fails_at_load),
    ("what_cannot_be_planned_is_libbpfs", ways::what_cannot_be_planned_is_libbpfs),
    ("an_embedded_subset_serves", ways::an_embedded_subset_serves),
    ("a_module_without_site_data_is_libbpfs", ways::a_module_without_site_data_is_libbpfs),
    ("the_default_is_at_least_what_libbpf_does", ways::the_default_is_at_least_what_libbpf_does),
    ("both_ends_are_at_the_same_calls", ways::both_ends_are_at_the_same_calls),
    ("whether_a_function_can_be_traced", ways::whether_a_function_can_be_traced),
    ("an_entry_that_may_be_inlined_has_its_return", ways::an_entry_that_may_be_inlined_has_its_return),
    ("a_program_states_its_policy", ways::a_program_states_its_policy),
    ("without_the_privilege_for_addresses_it_is_libbpfs", ways::without_the_privilege_for_addresses_it_is_libbpfs),
    ("errors_of_loading_are_libbpfs", errors::errors_of_loading_are_libbpfs),
    ("a_program_that_may_sleep", kinds::a_program_that_may_sleep),
    ("a_program_with_a_global_function", kinds::a_program_with_a_global_function),
    ("a_program_that_skeletons_leave_out", kinds::a_program_that_skeletons_leave_out),
    ("operations_and_extensions_beside", kinds::operations_and_extensions_beside),
    ("modules_come_and_go_between_objects", kinds::modules_come_and_go_between_objects),
    ("a_light_skeleton_is_not_touched", light::a_light_skeleton_is_not_touched),
    ("warnings_that_cannot_be_written", unheard::warnings_that_cannot_be_written),
    ("nothing_stays_when_a_system_call_fails", injected::nothing_stays_when_a_system_call_fails),
    (
        "nothing_is_lost_in_a_life_with_a_system_call_that_fails",
        life::nothing_is_lost_in_a_life_with_a_system_call_that_fails,
    ),
];

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |&(name, _): &(&'static str, Run)| Case {
        name: format!("libbpf::{name}"),
        run: Box::new(move |_| Ok(in_a_process(name)?.into())),
    };
    CASES.iter().map(case).collect()
}

#[derive(Serialize, Deserialize)]
enum Said {
    Passed(String),
    NotExercised(Lack),
    Failed(String),
}

impl From<Result<String, Failure>> for Said {
    fn from(result: Result<String, Failure>) -> Said {
        match result.map_err(|failure| failure.downcast::<Lack>()) {
            Ok(text) => Said::Passed(text),
            Err(Ok(lack)) => Said::NotExercised(*lack),
            Err(Err(failure)) => Said::Failed(with_causes(&*failure)),
        }
    }
}

/// The last line of what a process of this program prints.
fn output(arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("/proc/self/exe").arg("libbpf").args(arguments).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().next_back().map(str::to_owned);
    last.ok_or_else(|| format!("the process of {arguments:?} said nothing and ended with {}", output.status).into())
}

fn in_a_process(name: &str) -> Result<String, Failure> {
    match serde_json::from_str(&output(&[name])?)? {
        Said::Passed(text) => Ok(text),
        Said::NotExercised(lack) => Err(lack.into()),
        Said::Failed(why) => Err(why.into()),
    }
}

/// `siteseer-guest libbpf CASE`, or `siteseer-guest libbpf corpus WITH`.
///
/// # Errors
/// If there is no such case.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let line = match arguments {
        [word, with] if word == "corpus" => serde_json::to_string(&corpus::look_at_all(with)?)?,
        [name] => {
            let (_, run) = CASES.iter().find(|(case, _)| case == name).ok_or_else(|| format!("no case {name}"))?;
            serde_json::to_string(&Said::from(run()))?
        }
        _ => return Err("expected a case".into()),
    };
    writeln!(io::stdout(), "{line}")?;
    Ok(())
}
