// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which trampolines share a program.
//!
//! A program of its own for each location prototype makes the cheapest hit. It is also the whole of the user's program
//! again, in memory and at the verifier. So it is one each as long as there are not too many; beyond that all at
//! kprobes that are alike except for where things are share programs, as many in each as jumps can reach across.
//!
//! It requires links with cookies (Linux 5.15), by which a program tells its sites apart.

use super::PlannedTrampoline;
use crate::plan::mechanism::Mechanism;
use crate::trampoline::Image;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Beyond so many location prototypes programs are shared, unless the caller says otherwise.
pub(super) const BEYOND: usize = 128;
/// The most that one program serves. BPF's jumps reach 32767 instructions, and the verifier looks at each way by
/// itself.
const MOST: usize = 128;

/// A program to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedProgram {
    /// What it has: indices into [`Plan::trampolines`](super::Plan::trampolines). Several are told apart by the
    /// cookies of their sites' links, from 1 on.
    pub trampolines: Vec<usize>,
    /// What is loaded, once the maps that it refers to are created.
    pub image: Arc<Image>,
}

/// Which trampolines may share programs: those of one outline. Each trampoline is in one group.
pub(super) fn groups<K: Hash + Eq>(
    trampolines: &[PlannedTrampoline],
    beyond: usize,
    outline: impl Fn(&PlannedTrampoline) -> Option<K>,
) -> Vec<Vec<usize>> {
    let is_kprobe = |planned: &PlannedTrampoline| planned.mechanism == Mechanism::Kprobe;
    let shares = trampolines.iter().filter(|planned| is_kprobe(planned)).count() > beyond;
    // In the order of their first trampolines.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of: HashMap<K, usize> = HashMap::new();
    for (index, planned) in trampolines.iter().enumerate() {
        let key = if shares && is_kprobe(planned) { outline(planned) } else { None };
        let group = key.map_or(groups.len(), |key| *group_of.entry(key).or_insert(groups.len()));
        match groups.get_mut(group) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups.iter().flat_map(|group| group.chunks(MOST)).map(<[usize]>::to_vec).collect()
}
