// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether siteseer has anything to add to a program: found out when it is loaded, by planning it.
//!
//! It has not if the function has one body, which the kernel's own fentry or fexit reaches, and no other site that can run; if
//! the program asks for nothing that takes siteseer; and if the kernel takes a program for that function. Then libbpf's way is as
//! good, and costs no more than ever. Where that cannot be found out (no site data, a function that is not there), the program is
//! loaded behind the guard, and what is the matter is said when it is attached.

use super::{options, shared};
use crate::attach::{Attach, Kind as LoadKind};
use crate::error::Error;
use crate::log::{Level, say};
use crate::mechanism::Mechanism;
use crate::object::{Loaded, Program};
use crate::plan::{Decision, Plan};
use crate::program::Uses;
use crate::report::Report;

/// How libbpf is to load a program.
pub(super) struct Plain {
    /// The FUNC that it is for: of the kernel's BTF, or of the BPF program's whose function it is.
    pub(super) btf_id: u32,
    /// What becomes of the one site.
    pub(super) report: Report,
}

/// Plans a program that is about to be loaded. `None` if it takes siteseer.
pub(super) fn plain(program: Program<'_>, loaded: Loaded<'_>) -> Option<Plain> {
    let name = loaded.name.clone();
    match planned(program, loaded) {
        Ok(plain) => plain,
        Err(error) => {
            say(Level::Debug, format_args!("prog '{name}': not planned when it was loaded: {error}"));
            None
        }
    }
}

fn planned(program: Program<'_>, loaded: Loaded<'_>) -> Result<Option<Plain>, Error> {
    let Some(passed) = super::passed(program.raw()) else { return Ok(None) };
    let sleepable = loaded.form.sleepable;
    let target = shared::target()?;
    let attach = Attach::with(&target, options().complete(passed.options));
    let (plan, uses) = attach.plan_loaded(program, loaded)?;
    let Some((mechanism, btf_id, of_program)) = only_body(&plan).filter(|_| !asks_siteseer(&uses)) else {
        return Ok(None);
    };
    // What the kernel does not take for this function may go otherwise.
    if LoadKind::of(mechanism, Some(btf_id), None, of_program, sleepable).refuses_all().is_some() {
        return Ok(None);
    }
    Ok(Some(Plain { btf_id, report: plan.report() }))
}

/// Whether the program calls what siteseer.bpf.h has.
fn asks_siteseer(uses: &Uses) -> bool {
    uses.site || !uses.fallible.is_empty()
}

/// The one site that can run, if it goes by fentry or fexit: the mechanism, its FUNC, and whose that is.
fn only_body(plan: &Plan) -> Option<(Mechanism, u32, Option<u32>)> {
    let mut live =
        plan.sites.iter().filter(|site| !matches!(&site.decision, Decision::Skip(reason) if reason.is_dead()));
    let (Some(site), None) = (live.next(), live.next()) else { return None };
    match site.decision {
        Decision::Attach { mechanism: mechanism @ (Mechanism::Fentry | Mechanism::Fexit), trampoline } => {
            // libbpf looks modules' BTF up by itself; whose was planned for is only known here.
            let planned = plan.trampolines.get(trampoline).filter(|planned| planned.module.is_none())?;
            Some((mechanism, planned.func?, planned.program))
        }
        _ => None,
    }
}
