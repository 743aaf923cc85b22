// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One program for several location prototypes.
//!
//! Code that gathers arguments in one way is a few instructions; the user's program that follows may be thousands, and
//! is loaded, verified and compiled again for each way. Where there are very many ways, one program has them all: it
//! asks for the cookie of the link that runs it, finds the way by halves, and goes on to the user's program, which is
//! there once. With 23 ways that takes 21 instructions more for each hit on x86-64 (docs/performance.md).
//!
//! The address would tell as well, through a map; but two copies may begin at one address, each with its own way.

use super::gather::Gather;
use super::layout::{Item, Layout};
use super::{Probe, gather};
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Cond, Insn};
use crate::site::refusal::Refusal;
use siteseer_sites::location::Location;

impl Layout {
    /// The layout without where things are.
    pub(super) fn outline(&self) -> Layout {
        let mut outline = self.clone();
        for item in &mut outline.items {
            item.located.at = Location::Constant(0);
        }
        // Whether something that is read can fail is one of these.
        outline.counts_faults = false;
        outline
    }
}

/// The layout that several have in common, and what each of them gathers. A single layout is not taken apart. What is
/// not alike is too complex for one program.
pub(super) fn together(mut layouts: Vec<Layout>) -> Result<(Layout, Vec<Vec<Item>>), Refusal> {
    if layouts.len() == 1 {
        return layouts.pop().map(|layout| (layout, Vec::new())).ok_or(Refusal::TooComplex);
    }
    let mut common = layouts.first().map(Layout::outline).ok_or(Refusal::TooComplex)?;
    if common.probe != Probe::Kprobe || layouts.iter().any(|layout| layout.outline() != common) {
        return Err(Refusal::TooComplex);
    }
    common.items = Vec::new();
    common.counts_faults = true;
    Ok((common, layouts.into_iter().map(|layout| layout.items).collect()))
}

impl Gather {
    /// Gathers one of several ways, by the link's cookie: 1 for the first.
    pub(super) fn one_of(&mut self, alternatives: &[Vec<Item>], layout: &Layout) -> Result<(), Refusal> {
        let Some(last) = alternatives.len().checked_sub(1) else { return Ok(()) };
        let last = i32::try_from(last).map_err(|_| Refusal::TooComplex)?;
        self.line("which location prototype: by the cookie of the site's link".to_owned());
        self.push(Insn::mov(1, gather::CONTEXT));
        self.push(Insn::call(helper::GET_ATTACH_COOKIE));
        // A link without a cookie has 0, which becomes the largest number.
        self.push(Insn::alu_imm(Alu::Add, 0, -1));
        self.faults.push(self.insns.len());
        self.push(Insn::jump_if_imm(Cond::Gt, 0, last, 0));
        let mut ends = Vec::new();
        self.halve(alternatives, 0, layout, &mut ends)?;
        let here = self.insns.len();
        ends.into_iter().try_for_each(|jump| self.land(jump, here))
    }

    /// Finds the alternative whose number, less `first`, is in r0. Each ends with a jump that is still to be made.
    fn halve(
        &mut self,
        alternatives: &[Vec<Item>],
        first: usize,
        layout: &Layout,
        ends: &mut Vec<usize>,
    ) -> Result<(), Refusal> {
        if let [items] = alternatives {
            for item in items {
                self.described(item, layout)?;
            }
            ends.push(self.insns.len());
            self.push(Insn::jump(0));
            return Ok(());
        }
        let (low, high) = alternatives.split_at(alternatives.len() / 2);
        let from = first + low.len();
        let number = i32::try_from(from).map_err(|_| Refusal::TooComplex)?;
        let to_high = self.insns.len();
        self.push(Insn::jump_if_imm(Cond::Ge, 0, number, 0));
        self.halve(low, first, layout, ends)?;
        self.land(to_high, self.insns.len())?;
        self.halve(high, from, layout, ends)
    }
}
