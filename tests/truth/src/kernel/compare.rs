// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether a site's locations and a record's operands are the same values.
//!
//! Where both stand at one address and are written alike, nothing needs to run. Else the emulator goes over a way that
//! ends at the later of the two, with random registers and memory, and both are read as it comes by. It begins there,
//! and then earlier and earlier: a value that was copied before the site is the same in both places only if the copying
//! is on the way. Equal values with each of several seeds confirm the location. Values that still differ when the way
//! begins at the function's entry are wrong, unless a branch may have told that they are equal (`if (x == 5) f(x)`):
//! the emulator takes branches as the way says, whatever the values are. So it may be if one of the two is a constant:
//! written as one, or in a register that has the same value whatever the way begins with.

use super::code::{Code, Flow};
use super::cpu::{Cpu, CpuError};
use super::meaning;
use super::record::{Operand, Part, Record};
use siteseer_sites::evaluate;
use siteseer_sites::machine::Register;
use siteseer_sites::{Argument, Located, Location};

/// The longest way that is gone.
const LONGEST: usize = 1500;
/// How many instructions before the site a run begins, in turn; then all.
const BEGINNINGS: [usize; 7] = [0, 3, 10, 30, 90, 250, 700];
/// What random values are made from.
const SEEDS: [u64; 3] = [0x5eed, 0xb0a7, 0xfeed];

/// The outcome for one argument of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The location's value is the argument.
    Right,
    /// It is another value. What was read: the location's, and the record's.
    Wrong(Vec<u8>, Vec<u8>),
    /// It cannot be told, and why.
    Unconfirmed(Unconfirmed),
    /// The site has no location for it.
    Missing,
    /// The record does not say where it is, or the two do not agree on how many bytes there are.
    Untold,
}

/// Why an argument cannot be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unconfirmed {
    /// The values differ, but a branch on the way may have told that they are equal.
    Branch,
    /// The values differ, and the way does not begin at the function's entry.
    Window,
    /// An instruction on the way cannot be emulated.
    Emulator,
    /// No way leads from the site to the record.
    NoWay,
}

/// A site, and the record about it.
pub(super) struct Pair<'p> {
    /// The site's address.
    pub(super) site: u64,
    /// Its arguments.
    pub(super) arguments: &'p [Argument],
    /// The bits of each that have a meaning; none if all do.
    pub(super) meaning: &'p [Option<Vec<u8>>],
    /// The record.
    pub(super) record: &'p Record<'p>,
}

impl Pair<'_> {
    /// Compares all arguments.
    pub(super) fn compare(&self, code: &Code, cpu: &mut Cpu<'_>) -> Vec<Verdict> {
        let mut verdicts: Vec<Option<Verdict>> = (0..self.arguments.len()).map(|index| self.at_once(index)).collect();
        if verdicts.iter().any(Option::is_none) {
            self.emulate(code, cpu, &mut verdicts);
        }
        verdicts.into_iter().map(|verdict| verdict.unwrap_or(Verdict::Untold)).collect()
    }

    /// The verdict on an argument, if it can be told without running anything.
    fn at_once(&self, index: usize) -> Option<Verdict> {
        let Ok(located) = &self.arguments[index] else { return Some(Verdict::Missing) };
        let Some(parameter) = self.record.parameters.get(index) else { return Some(Verdict::Untold) };
        let is_told = parameter.size == located.size && !parameter.parts.is_empty();
        if !is_told || parameter.parts.iter().any(|part| part.operand.is_err()) {
            return Some(Verdict::Untold);
        }
        if self.site == self.record.address && is_same_place(&located.at, &parameter.parts) {
            return Some(Verdict::Right);
        }
        let mut values = [constant(located)?, constant_parts(&parameter.parts)?];
        values.iter_mut().for_each(|value| self.keep_meaning(index, value));
        let [ours, theirs] = values;
        Some(if ours == theirs { Verdict::Right } else { Verdict::Wrong(ours, theirs) })
    }

    fn emulate(&self, code: &Code, cpu: &mut Cpu<'_>, verdicts: &mut [Option<Verdict>]) {
        let Some(way) = Way::between(code, self.site, self.record.address) else {
            settle(verdicts, &Verdict::Unconfirmed(Unconfirmed::NoWay));
            return;
        };
        let mut last = Err(CpuError(unicorn_engine::uc_error::OK));
        let first = way.site.min(way.record);
        let mut beginnings: Vec<usize> = BEGINNINGS.iter().map(|before| first.saturating_sub(*before)).collect();
        beginnings.push(0);
        beginnings.dedup();
        for &beginning in &beginnings {
            let mut equal: Vec<bool> = verdicts.iter().map(Option::is_none).collect();
            for seed in SEEDS {
                last = self.run(code, cpu, &way, beginning, seed);
                match &last {
                    Ok(values) => {
                        for (equal, (ours, theirs)) in equal.iter_mut().zip(values) {
                            *equal &= ours.is_some() && ours == theirs;
                        }
                    }
                    Err(_) => equal.fill(false),
                }
                if !equal.contains(&true) {
                    break;
                }
            }
            for (verdict, _) in verdicts.iter_mut().zip(equal).filter(|(_, equal)| *equal) {
                *verdict = Some(Verdict::Right);
            }
            if verdicts.iter().all(Option::is_some) {
                return;
            }
        }
        let is_from_entry = way.steps.first() == Some(&code.entry());
        let same = self.same_whatever(code, cpu, &way);
        for (index, verdict) in verdicts.iter_mut().enumerate().filter(|(_, verdict)| verdict.is_none()) {
            *verdict = Some(match &last {
                Err(_) => Verdict::Unconfirmed(Unconfirmed::Emulator),
                Ok(_) if !is_from_entry => Verdict::Unconfirmed(Unconfirmed::Window),
                Ok(_) if way.branches(code) && (same[index] || self.has_constant(index)) => {
                    Verdict::Unconfirmed(Unconfirmed::Branch)
                }
                Ok(values) => match &values[index] {
                    (Some(ours), Some(theirs)) => Verdict::Wrong(ours.clone(), theirs.clone()),
                    _ => Verdict::Unconfirmed(Unconfirmed::Emulator),
                },
            });
        }
    }

    /// Whether one of the two is written as a constant: then a condition may say that the other has this value.
    fn has_constant(&self, index: usize) -> bool {
        let ours = self.arguments[index].as_ref().is_ok_and(|located| constant(located).is_some());
        let theirs = self.record.parameters.get(index).is_some_and(|parameter| {
            parameter.parts.iter().any(|part| matches!(part.operand, Ok(Operand::Constant(_))))
        });
        ours || theirs
    }

    /// For each argument, whether the location, if it is a register, or the record's operands have the same value
    /// whatever the way begins with. A location in memory does not count: what is there may not be the argument.
    fn same_whatever(&self, code: &Code, cpu: &mut Cpu<'_>, way: &Way) -> Vec<bool> {
        let runs: Result<Vec<Values>, CpuError> =
            SEEDS.map(|seed| self.run(code, cpu, way, 0, seed)).into_iter().collect();
        let Ok(runs) = runs else { return vec![false; self.arguments.len()] };
        let is_same = |value: &dyn Fn(&Values) -> Option<Vec<u8>>| {
            let first = value(&runs[0]);
            first.is_some() && runs.iter().all(|run| value(run) == first)
        };
        let is_register = |index: usize| {
            self.arguments[index].as_ref().is_ok_and(|located| matches!(located.at, Location::Register(_)))
        };
        let told = |index: usize| {
            is_register(index) && is_same(&|values| values[index].0.clone())
                || is_same(&|values| values[index].1.clone())
        };
        (0..self.arguments.len()).map(told).collect()
    }

    /// Goes the way from its step `beginning` on, and reads each argument by its location and by its operands.
    fn run(&self, code: &Code, cpu: &mut Cpu<'_>, way: &Way, beginning: usize, seed: u64) -> Result<Values, CpuError> {
        cpu.reset(seed, beginning == 0 && way.steps.first() == Some(&code.entry()))?;
        let mut values: Values = vec![(None, None); self.arguments.len()];
        let mut done = beginning;
        for step in beginning..way.steps.len() {
            let at = way.steps[step];
            if step == way.site || step == way.record {
                go(code, cpu, &way.steps[done..=step])?;
                done = step;
            }
            if step == way.site {
                for (value, argument) in values.iter_mut().zip(self.arguments) {
                    value.0 = argument.as_ref().ok().and_then(|located| read_location(cpu, located, self.site));
                }
            }
            if step == way.record {
                for (value, parameter) in values.iter_mut().zip(&self.record.parameters) {
                    value.1 = read_parts(cpu, &parameter.parts);
                }
            }
            let is_straight = way.steps.get(step + 1).is_some_and(|&next| code.falls_into(at, next));
            if code.flow(at) != Flow::Plain || !is_straight {
                go(code, cpu, &way.steps[done..=step])?;
                done = step + 1;
                pass(code, cpu, at, way.steps.get(step + 1).copied())?;
            }
        }
        for (index, (ours, theirs)) in values.iter_mut().enumerate() {
            [ours, theirs].into_iter().flatten().for_each(|value| self.keep_meaning(index, value));
        }
        Ok(values)
    }

    fn keep_meaning(&self, index: usize, value: &mut [u8]) {
        if let Some(Some(bits)) = self.meaning.get(index) {
            meaning::keep(value, bits);
        }
    }
}

/// What each argument's location gave, and its operands.
type Values = Vec<(Option<Vec<u8>>, Option<Vec<u8>>)>;

fn settle(verdicts: &mut [Option<Verdict>], verdict: &Verdict) {
    for open in verdicts.iter_mut().filter(|open| open.is_none()) {
        *open = Some(verdict.clone());
    }
}

/// A way over a site and its record.
struct Way {
    steps: Vec<usize>,
    /// Where on it the site is.
    site: usize,
    /// Where on it the record is.
    record: usize,
}

impl Way {
    fn between(code: &Code, site: u64, record: u64) -> Option<Way> {
        /// As far as records are looked for.
        const APART: usize = 64;
        let (site, record) = (code.at(site)?, code.at(record)?);
        // In a loop there are ways in both directions, and the longer one goes through the next turn.
        let after = code.way(site, record, APART, &|_| false);
        let before = code.way(record, site, after.as_ref().map_or(APART, |after| after.len() - 1), &|_| false);
        let (first, second) = before.map(|way| (record, way)).or_else(|| Some((site, after?)))?;
        let mut steps = code.way_to(first, LONGEST);
        let start = steps.len() - 1;
        let end = start + second.len() - 1;
        steps.extend(&second[1..]);
        Some(if first == site {
            Way { steps, site: start, record: end }
        } else {
            Way { steps, site: end, record: start }
        })
    }

    fn branches(&self, code: &Code) -> bool {
        self.steps.iter().any(|&step| code.flow(step) == Flow::Branch)
    }
}

/// Runs the instructions of a straight line up to its last one, which is not run.
fn go(code: &Code, cpu: &mut Cpu<'_>, line: &[usize]) -> Result<(), CpuError> {
    match line {
        [first, .., last] => cpu.run(code.address(*first), code.address(*last)),
        _ => Ok(()),
    }
}

/// Goes over an instruction that transfers control, or that the way leaves for another place than the next one.
fn pass(code: &Code, cpu: &mut Cpu<'_>, at: usize, next: Option<usize>) -> Result<(), CpuError> {
    match code.flow(at) {
        Flow::Call => cpu.clobber(false),
        Flow::CallForFirst => cpu.clobber(true),
        Flow::Repeated if next == Some(at + 1) => {
            cpu.shorten_repetition()?;
            cpu.run(code.address(at), code.address(at + 1))
        }
        Flow::Plain | Flow::Repeated | Flow::Ftrace | Flow::Branch | Flow::Away => Ok(()),
    }
}

/// The value's bytes.
fn bytes_of(slots: &[u64], size: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    bytes.truncate(size as usize);
    bytes
}

fn read_location(cpu: &Cpu<'_>, located: &Located, site: u64) -> Option<Vec<u8>> {
    let registers = |register: Register| cpu.register_at(register, site);
    let slots = evaluate::evaluate(located, &registers, &mut |address, buffer| cpu.read(address, buffer), 0)?;
    Some(bytes_of(&slots, located.size))
}

fn read_parts(cpu: &Cpu<'_>, parts: &[Part]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for part in parts {
        let mut bytes = [0; 8];
        match *part.operand.as_ref().ok()? {
            Operand::Constant(constant) => bytes = constant.to_le_bytes(),
            Operand::Register(register) => bytes = cpu.register(register).to_le_bytes(),
            Operand::Memory { base, index, displacement } => {
                let base = base.map_or(0, |base| cpu.register(base));
                let index = index.map_or(0, |(index, scale)| cpu.register(index).wrapping_mul(u64::from(scale)));
                let address = base.wrapping_add(index).wrapping_add(displacement);
                if !cpu.read(address, &mut bytes[..usize::from(part.bytes)]) {
                    return None;
                }
            }
        }
        value.extend_from_slice(&bytes[..usize::from(part.bytes)]);
    }
    Some(value)
}

/// Whether a location and operands at the same address are the same place.
fn is_same_place(location: &Location, parts: &[Part]) -> bool {
    let operand = |index: usize| parts.get(index).and_then(|part| part.operand.as_ref().ok()).copied();
    match (location, parts.len()) {
        (Location::Register(register), 1) => operand(0) == Some(Operand::Register(*register)),
        (Location::RegisterPair(first, second), 2) => {
            operand(0) == Some(Operand::Register(*first)) && operand(1) == Some(Operand::Register(*second))
        }
        (Location::Memory(register, offset), 1) => {
            let displacement = i64::from(*offset) as u64;
            operand(0) == Some(Operand::Memory { base: Some(*register), index: None, displacement })
        }
        _ => false,
    }
}

/// The value of a location that is a constant.
fn constant(located: &Located) -> Option<Vec<u8>> {
    match located.at {
        Location::Constant(value) | Location::Address(value) if located.size <= 8 => {
            Some(bytes_of(&[value], located.size))
        }
        _ => None,
    }
}

/// The value of operands that are constants.
fn constant_parts(parts: &[Part]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for part in parts {
        let Ok(Operand::Constant(constant)) = part.operand else { return None };
        value.extend_from_slice(&constant.to_le_bytes()[..usize::from(part.bytes)]);
    }
    Some(value)
}
