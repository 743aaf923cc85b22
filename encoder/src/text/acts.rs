// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a body does that can be seen: its stores to memory other than the stack, and its calls.
//!
//! A compiler may compute ahead of time, or for nothing, but it does not store or call where the source does not. So
//! what a body does first tells where it begins, and what it does again tells that it has begun again.

use super::graph::Search;
use super::{Acts, Effects, FunctionText, arm64, x86};
use siteseer_sites::Machine;
use std::cell::Cell;
use std::ops::Range;

impl FunctionText<'_, '_> {
    /// Whether an instruction does something that no compiler makes it do where the source does not: it stores to
    /// memory other than the stack, it calls, or what it does is not known.
    pub(super) fn acts(&self, effects: &mut Effects, address: u64) -> bool {
        match self.index(address) {
            Some((_, index)) => self.acts_at(effects, index, address),
            None => self.does_act(effects, address),
        }
    }

    /// The same of the instruction with an index. Many copies of a function ask for the same ones.
    fn acts_at(&self, effects: &mut Effects, index: usize, address: u64) -> bool {
        let acting = self.acting.get_or_init(|| vec![Cell::new(None); self.offsets.len()].into());
        let known = acting[index].get();
        known.unwrap_or_else(|| {
            let acts = self.does_act(effects, address);
            acting[index].set(Some(acts));
            acts
        })
    }

    fn does_act(&self, effects: &mut Effects, address: u64) -> bool {
        match effects.acts(self.image, address, self.frame_pointer) {
            Acts::No => false,
            Acts::Yes => true,
            Acts::Jumps(target) => self.index(target).is_none(),
        }
    }

    /// Whether an instruction stores to memory other than the stack, and control goes on after it.
    pub(crate) fn stores(&self, address: u64) -> bool {
        let mut effects = Effects::new(self.image.machine());
        let effect = effects.at(self.image, address);
        effect.is_some_and(|effect| effect.stores && effect.straight) && self.acts(&mut effects, address)
    }

    /// Whether the instructions at two addresses do the same: store as much as far from some register, or call the same
    /// function.
    pub(crate) fn is_alike(&self, one: u64, other: u64) -> bool {
        match self.image.machine() {
            Machine::X86_64 => x86::is_alike(self.image, one, other),
            Machine::Aarch64 => arm64::is_alike(self.image, one, other),
        }
    }

    /// The first instructions at or after an address that do something that can be seen.
    pub(crate) fn first_acts(&self, from: u64) -> Vec<u64> {
        self.first_acts_avoiding(from, None)
    }

    /// The same, on the ways that do not pass another instruction.
    pub(super) fn first_acts_avoiding(&self, from: u64, avoided: Option<u64>) -> Vec<u64> {
        let mut acts = Vec::new();
        let mut search = self.graph().search(None);
        // As if the search had been there.
        if let Some((_, avoided)) = avoided.and_then(|avoided| self.index(avoided)) {
            search.comes_to(avoided);
        }
        self.go_quietly(from, &mut search, &mut Effects::new(self.image.machine()), &mut |act| acts.push(act));
        acts.sort_unstable();
        acts
    }

    /// Goes from an address to everything that control comes to before something can be seen; `act` gets what does
    /// that.
    pub(super) fn go_quietly(&self, from: u64, search: &mut Search, effects: &mut Effects, act: &mut dyn FnMut(u64)) {
        let graph = self.graph();
        search.leave(self.index(from).map(|(_, index)| index as u32).as_slice());
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if !search.comes_to(index) {
                    break;
                }
                let address = self.address_of(index);
                if self.acts_at(effects, index, address) {
                    act(address);
                    break;
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
    }

    /// The instructions from an address on that do something that can be seen, up to where control may go on elsewhere
    /// or come in.
    pub(crate) fn acts_in_line(&self, from: u64) -> Vec<u64> {
        let (mut effects, graph) = (Effects::new(self.image.machine()), self.graph());
        let mut acts = Vec::new();
        for address in self.instructions(from, u64::MAX) {
            let Some((_, index)) = self.index(address) else { break };
            if address != from && !graph.sources(index).is_empty() {
                break;
            }
            acts.extend(self.acts(&mut effects, address).then_some(address));
            if !graph.targets(index).is_empty() || graph.next(index).is_none() {
                break;
            }
        }
        acts
    }

    /// The instructions of a body that do something that can be seen.
    pub(crate) fn all_acts(&self, body: &[Range<u64>]) -> Vec<u64> {
        let mut effects = Effects::new(self.image.machine());
        let ranges = body.iter().filter(|range| !range.is_empty());
        let all = ranges.flat_map(|range| self.instructions(range.start, range.end));
        all.filter(|&address| self.acts(&mut effects, address)).collect()
    }
}
