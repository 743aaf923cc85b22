// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Attaching and detaching all day, while modules come and go, a processor goes off and on, others trace the same
//! functions, and memory is short: `ci/soak`.
//!
//! A round attaches to a function at random, makes calls, and detaches. The program sees each call, except those that
//! the kernel says that it missed, and none after it was detached. Meanwhile [`disturb`] changes the machine. When all
//! is over, the process and the kernel have what they had after the first rounds ([`crate::guest::inventory`]).
//!
//! The suite makes rounds for [`SHORT`]; `ci/soak --minutes N` for as long as it is told, with another seed each time.

mod disturb;

use crate::guest::case::{Case, Failure, case, number};
use crate::guest::inventory::Inventory;
use crate::guest::killed::{Random, call, counters, load};
use crate::guest::modules::{self, Loaded, copies, load_programs, seen};
use crate::guest::removal;
use crate::guest::typed::program_of;
use disturb::Disturbance;
use libbpf_rs::Object;
use siteseer::{Attach, AttachOptions, Policy, Target};
use std::time::{Duration, Instant};

/// How long the rounds of the suite last.
const SHORT: Duration = Duration::from_secs(20);
/// For how many minutes rounds are made instead.
pub const MINUTES: &str = "SITESEER_SOAK_MINUTES";
/// The seed of the rounds.
pub const SEED: &str = "SITESEER_SOAK_SEED";
/// Rounds after which the process has what it keeps: what was read of the kernel, memory of its allocator.
const WARM_UP: u64 = 12;
/// So many rounds are made meanwhile in any case: an emulated processor that goes off and on makes each take many
/// seconds.
const FEWEST: u64 = 5;
/// Calls of a round.
const CALLS: u64 = 20;
/// Every so many rounds, the programs are loaded again, and the target is made again.
const RENEWED: u64 = 16;
/// Functions that a round attaches to, besides ksys_semget(), which is called.
const FUNCTIONS: [&str; 4] = ["__bpf_copy_key", "setfl", "vfs_fsync_range", "ns_capable"];

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![case("soak", "nothing_is_left_after_many_rounds", soak)]
}

/// What was done.
#[derive(Default)]
struct Done {
    rounds: u64,
    of_modules: u64,
    calls: u64,
    missed: u64,
}

fn soak(_: &Target) -> Result<String, Failure> {
    let lasts = number(MINUTES)?.map_or(SHORT, |minutes| Duration::from_secs(60 * minutes));
    let seed = number(SEED)?.unwrap_or(0x5eed);
    let mut random = Random::new(seed);
    let mut done = Done::default();
    siteseer::clean()?;
    rounds(&mut random, &mut done, |round| round < WARM_UP)?;
    removal::wait()?;
    let before = Inventory::settled()?;
    let begin = Instant::now();
    let disturbance = Disturbance::begin()?;
    let first = done.rounds;
    let result = rounds(&mut random, &mut done, |round| round < first + FEWEST || begin.elapsed() < lasts);
    let disturbed = disturbance.end()?;
    result.map_err(|why| format!("seed {seed:#x}, round {}: {why}", done.rounds))?;
    removal::wait()?;
    let after = before.compare()?;
    Ok(format!(
        "{} s, seed {seed:#x}: {} rounds, {} of them on a module that came and went; {} calls, {} of them missed by the \
         kernel, none by siteseer; meanwhile {disturbed}\n{after}",
        begin.elapsed().as_secs(),
        done.rounds,
        done.of_modules,
        done.calls,
        done.missed
    ))
}

fn rounds(random: &mut Random, done: &mut Done, mut goes_on: impl FnMut(u64) -> bool) -> Result<(), Failure> {
    while goes_on(done.rounds) {
        let target = Target::running(&Default::default())?;
        let (object, of_module) = (load()?, load_programs()?);
        for _ in 0..RENEWED {
            if !goes_on(done.rounds) {
                break;
            }
            if random.below(4) == 0 {
                round_of_module(&target, &of_module, random)?;
                done.of_modules += 1;
            } else {
                round(&target, &object, random, done)?;
            }
            done.rounds += 1;
        }
    }
    Ok(())
}

/// One attachment to functions of the image.
fn round(target: &Target, object: &Object, random: &mut Random, done: &mut Done) -> Result<(), Failure> {
    let options = AttachOptions::default().policy(Policy::BestEffort).all_prototypes(true).function("ksys_semget");
    let others = FUNCTIONS.iter().filter(|_| random.below(2) == 0).copied().collect::<Vec<&str>>();
    let options = others.iter().fold(options, |options, function| options.function(*function));
    let options = if random.below(2) == 0 { options.bulk_from(1) } else { options.bulk(false) };
    let ways = format!("{others:?}, {options:?}");
    let link = Attach::with(target, options).attach(&program_of(object, "read0")?)?;
    let before = (calls_seen(object)?, link.missed()?);
    call(CALLS)?;
    let (seen, missed) = (calls_seen(object)? - before.0, link.missed()? - before.1);
    // Others call the other functions: what is seen and missed may be more than the calls that are made here.
    if others.is_empty() && seen + missed != CALLS || seen + missed < CALLS {
        return Err(format!("{CALLS} calls, {seen} seen and {missed} missed ({ways})").into());
    }
    (done.calls, done.missed) = (done.calls + CALLS, done.missed + missed);
    link.detach();
    let after = calls_seen(object)?;
    call(1)?;
    if calls_seen(object)? != after {
        return Err(format!("the program runs after it was detached ({ways})").into());
    }
    Ok(())
}

/// One attachment to functions of a module, which is loaded before and unloaded while attached, or after.
fn round_of_module(target: &Target, object: &Object, random: &mut Random) -> Result<(), Failure> {
    let module = Loaded::load()?;
    let link = Attach::new(target).attach(&program_of(object, "copied")?)?;
    let number = random.below(1 << 20);
    let seen = seen(object, &link, &module, number)?;
    if seen != copies(number) {
        return Err(format!("calls in a module: {seen:?}, not {:?}", copies(number)).into());
    }
    if random.below(2) == 0 {
        modules::unload_when_free()?;
        std::mem::forget(module);
        link.detach();
        // A probe that waits for the kernel's optimiser has to be gone before the module is loaded again.
        return removal::wait();
    }
    link.detach();
    Ok(())
}

/// How often the program ran.
fn calls_seen(object: &Object) -> Result<u64, Failure> {
    Ok(u64::from_ne_bytes(counters(object)?.get(..8).ok_or("a short .bss")?.try_into()?))
}
