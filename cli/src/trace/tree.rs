// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--tree`: trees of calls, made of the records of each thread.
//!
//! A record has its number in its tree, and the number of calls around it: the kernel's program counts both
//! (bpf-progs/tree.h). When the outermost call returns, the tree is complete, or it is known how many records are
//! missing. Only then is it made, so that no call comes under another one before it is known that this one returned.
//!
//! A call with a return that is not seen, as of every inlined copy, has a caller, but is never the caller of others.
//! What follows it may have been called by it or after it: nothing tells which.
//!
//! If a record is missing, or the kernel skipped a program while the tree was open, it may be that calls are under a
//! wrong caller. Such a tree is doubtful: its calls are in their order, without callers.
//!
//! Memory is bounded: records of one tree ([`MOST_OF_ONE`]) and of all that are not complete ([`MOST`]). What does not
//! find room is counted.

use siteseer_bpf_progs::trace::{At, Place, Record};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

/// Records that are kept of a tree.
const MOST_OF_ONE: usize = 10_000;
/// Records that are kept of all trees that are not complete.
const MOST: usize = 200_000;
/// How many times of skipped programs are kept apart.
const MOST_SKIPS: usize = 1_000;

/// A call in a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) begin: Record,
    /// Its return, if that was seen.
    pub(super) end: Option<Record>,
    /// The number of the call around it.
    pub(super) parent: Option<usize>,
    /// How many calls are around it.
    pub(super) depth: usize,
}

impl Call {
    /// Whether its return is to be seen.
    pub(super) fn returns(&self) -> bool {
        self.begin.place.is_some_and(|place| place.enters)
    }
}

/// Why the calls of a tree are without their callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// So many records were lost.
    Lost(u64),
    /// The kernel skipped a program.
    Skipped,
    /// The calls are not in each other.
    Broken,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Lost(1) => f.write_str("1 record was lost"),
            Doubt::Lost(count) => write!(f, "{count} records were lost"),
            Doubt::Skipped => f.write_str("the kernel skipped a program meanwhile"),
            Doubt::Broken => f.write_str("the kernel skipped a program at one end of a call"),
        }
    }
}

/// The calls that a thread made in one outermost call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// In the order of their beginnings. The first one is the outermost, unless it was lost.
    pub(super) calls: Vec<Call>,
    /// Records that found no room.
    pub(super) more: u64,
    /// If there is one, no call has a caller.
    pub(super) doubt: Option<Doubt>,
    time: Time,
}

/// When the outermost call began and returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Time {
    begin: u64,
    end: u64,
}

impl Time {
    fn overlaps(self, others: &[(u64, u64)]) -> bool {
        others.iter().rev().any(|&(after, until)| self.begin <= until && self.end > after)
    }
}

impl Tree {
    /// The outermost call.
    pub(super) fn outermost(&self) -> Option<&Call> {
        self.calls.first().filter(|call| matches!(call.begin.place, Some(Place { at: Some(At { number: 0, .. }), .. })))
    }
}

/// A thread. Idle threads have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Thread {
    tid: u32,
    idle_on: Option<u32>,
}

impl Thread {
    fn of(record: &Record) -> Thread {
        Thread { tid: record.pid, idle_on: (record.pid == 0).then_some(record.cpu) }
    }
}

/// The records of a tree so far.
#[derive(Debug)]
struct Open {
    tree: u64,
    records: Vec<(At, Record)>,
    /// Records that found no room.
    more: u64,
    /// Whether there was no room for all trees together.
    is_dropped: bool,
    is_broken: bool,
}

/// The trees of all threads.
#[derive(Debug, Default)]
pub(super) struct Trees {
    open: HashMap<Thread, Open>,
    /// Those that are complete.
    complete: Vec<Tree>,
    /// Records that are kept in open ones.
    kept: usize,
    /// When the kernel skipped programs: after the first of two times, and not after the other.
    skips: Vec<(u64, u64)>,
    /// Trees for which there was no room.
    pub(super) dropped: u64,
    /// Trees without their outermost call.
    pub(super) beheaded: u64,
}

impl Trees {
    /// Takes a record.
    pub(super) fn take(&mut self, record: Record) {
        let Some(place) = record.place else { return };
        let thread = Thread::of(&record);
        let is_other = |open: &Open| open.tree != place.tree;
        if let Entry::Occupied(entry) = self.open.entry(thread)
            && is_other(entry.get())
        {
            // A thread is in one tree at a time: its end was lost.
            let open = entry.remove();
            self.complete(open, false);
        }
        let open = self.open.entry(thread).or_insert_with(|| Open {
            tree: place.tree,
            records: Vec::new(),
            more: 0,
            is_dropped: false,
            is_broken: false,
        });
        let is_last = match place.at {
            Some(at) => at.depth == 0 && !place.enters,
            None => true,
        };
        match place.at {
            None => open.is_broken = true,
            Some(_) if open.is_dropped => open.more += 1,
            // The last one says how many there are.
            Some(at) if is_last || (open.records.len() < MOST_OF_ONE && self.kept < MOST) => {
                self.kept += 1;
                open.records.push((at, record));
            }
            Some(_) if open.records.len() < MOST_OF_ONE => {
                self.kept -= open.records.len();
                open.records = Vec::new();
                open.is_dropped = true;
                open.more += 1;
            }
            Some(_) => open.more += 1,
        }
        if is_last && let Some(open) = self.open.remove(&thread) {
            self.complete(open, true);
        }
    }

    /// Notes that the kernel skipped a program after one time, and not after the other.
    pub(super) fn doubt(&mut self, after: u64, until: u64) {
        let is_full = self.skips.len() >= MOST_SKIPS;
        match self.skips.last_mut() {
            Some(last) if last.1 >= after || is_full => last.1 = until,
            _ => self.skips.push((after, until)),
        }
        for tree in &mut self.complete {
            if tree.doubt.is_none() && tree.time.overlaps(&self.skips) {
                tree.doubt = Some(Doubt::Skipped);
                tree.flatten();
            }
        }
    }

    /// Whether some are complete.
    pub(super) fn are_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Those that are complete.
    pub(super) fn take_complete(&mut self) -> Vec<Tree> {
        std::mem::take(&mut self.complete)
    }

    /// All others, as far as they go. If not all records were read, some may be those of a tree that seems to go on.
    pub(super) fn end(&mut self, is_all_read: bool) {
        let mut open: Vec<Open> = self.open.drain().map(|(_, open)| open).collect();
        open.sort_by_key(|open| open.tree);
        open.into_iter().for_each(|open| self.complete(open, is_all_read));
    }

    /// `is_end_known` unless a last record was lost.
    fn complete(&mut self, open: Open, is_end_known: bool) {
        self.kept -= open.records.len();
        if open.is_dropped {
            self.dropped += 1;
            return;
        }
        match tree(open, is_end_known, &self.skips) {
            Some(tree) => self.complete.push(tree),
            None => self.beheaded += 1,
        }
    }
}

/// Makes a tree; `None` without an outermost call.
fn tree(open: Open, is_end_known: bool, skips: &[(u64, u64)]) -> Option<Tree> {
    let Open { tree: begin, mut records, mut more, is_broken, .. } = open;
    // An interrupt's records may come into the buffer before those of what it interrupts.
    records.sort_by_key(|(at, _)| at.number);
    if records.first().is_none_or(|(at, _)| at.number != 0) {
        return None;
    }
    // An interrupt just when the outermost call returned: it is in no call any more.
    let end = records.iter().position(|(at, record)| at.depth == 0 && record.is_return);
    let after = end.map_or(0, |end| records.len() - end - 1);
    records.truncate(records.len() - after);
    let count = records.len() as u64;
    let highest = records.last().map_or(0, |(at, _)| at.number);
    let lost = (highest + 1).saturating_sub(count + more) + u64::from(!is_end_known);
    // Without a return at the end, what found no room is after all that is here.
    let lost = if end.is_none() && more > 0 { u64::from(!is_end_known) } else { lost };
    more += after as u64;
    // What has no end goes on.
    let end = end.and_then(|_| records.last()).map_or(u64::MAX, |(_, last)| last.time);
    let time = Time { begin, end };
    let doubt = match (is_broken, lost, time.overlaps(skips)) {
        (true, ..) => Some(Doubt::Broken),
        (false, 1.., _) => Some(Doubt::Lost(lost)),
        (false, 0, true) => Some(Doubt::Skipped),
        (false, 0, false) => None,
    };
    let (calls, is_nested) = nest(records);
    let doubt = doubt.or((!is_nested).then_some(Doubt::Broken));
    let mut tree = Tree { calls, more, doubt, time };
    if doubt.is_some() {
        tree.flatten();
    }
    Some(tree)
}

/// The calls of records in their order, and whether they are in each other as their depths say.
fn nest(records: Vec<(At, Record)>) -> (Vec<Call>, bool) {
    let mut calls: Vec<Call> = Vec::new();
    let mut around: Vec<usize> = Vec::new();
    let mut is_nested = true;
    let mut next = 0;
    for (at, record) in records {
        let is_last = at.depth == 0 && record.is_return;
        if at.number > next && is_last {
            // What is between found no room. Its callers did not return before.
            around.truncate(1);
        }
        next = at.number + 1;
        if record.is_return {
            let call = around.pop().and_then(|nth| calls.get_mut(nth));
            let is_its = |call: &&mut Call| {
                let begin = &call.begin;
                (begin.function, begin.address, call.depth) == (record.function, record.address, at.depth)
            };
            match call.filter(is_its) {
                Some(call) => call.end = Some(record),
                None => is_nested = false,
            }
            continue;
        }
        is_nested &= at.depth == around.len();
        let call = Call { begin: record, end: None, parent: around.last().copied(), depth: at.depth };
        if call.returns() {
            around.push(calls.len());
        }
        calls.push(call);
    }
    (calls, is_nested)
}

impl Tree {
    /// Takes the callers away, and the returns, which may be those of other calls. That of the outermost call is
    /// certain to be its own only if all others are.
    fn flatten(&mut self) {
        for call in &mut self.calls {
            (call.parent, call.depth, call.end) = (None, 0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as the kernel's program sends it.
    #[derive(Clone, Copy)]
    struct Sent {
        function: u8,
        tree: u64,
        number: u64,
        depth: u64,
        kind: u8,
        tid: u32,
    }

    const LEAF: u8 = 32;
    const ENTER: u8 = 32 | 64;
    const LEAVE: u8 = 32 | 1;
    const BROKEN: u8 = 32 | 1 | 128;

    impl Sent {
        fn record(self) -> Record {
            let mut data = vec![0u8; 88 + 12 * 2 * 8];
            data[..8].copy_from_slice(&(self.tree + self.number).to_ne_bytes());
            data[8] = self.function;
            data[36..40].copy_from_slice(&self.tid.to_ne_bytes());
            data[72] = self.kind;
            data.extend(self.tree.to_ne_bytes());
            data.extend((self.depth << 48 | self.number).to_ne_bytes());
            Record::parse(&data).unwrap()
        }
    }

    /// Records of thread 7 that follow each other: function, depth, kind.
    fn sent(tree: u64, records: &[(u8, u64, u8)]) -> Vec<Sent> {
        let records = (0u64..).zip(records);
        records.map(|(number, &(function, depth, kind))| Sent { function, tree, number, depth, kind, tid: 7 }).collect()
    }

    fn taken(records: impl IntoIterator<Item = Sent>) -> Trees {
        let mut trees = Trees::default();
        records.into_iter().for_each(|sent| trees.take(sent.record()));
        trees
    }

    /// Function, caller, depth and time of each call.
    fn shape(tree: &Tree) -> Vec<(u64, Option<usize>, usize, Option<u64>)> {
        let took = |call: &Call| call.end.as_ref().map(|end| end.time - call.begin.time);
        tree.calls.iter().map(|call| (call.begin.function, call.parent, call.depth, took(call))).collect()
    }

    fn one(mut trees: Trees) -> Tree {
        let mut complete = trees.take_complete();
        assert_eq!((complete.len(), trees.kept), (1, 0));
        complete.remove(0)
    }

    const NESTED: [(u8, u64, u8); 9] = [
        (1, 0, ENTER),
        (2, 1, LEAF),
        (3, 1, ENTER),
        (3, 2, ENTER),
        (3, 2, LEAVE),
        (3, 1, LEAVE),
        (4, 1, ENTER),
        (4, 1, LEAVE),
        (1, 0, LEAVE),
    ];

    fn nested_shape() -> Vec<(u64, Option<usize>, usize, Option<u64>)> {
        vec![
            (1, None, 0, Some(8)),
            // Nobody's caller, though it came before.
            (2, Some(0), 1, None),
            (3, Some(0), 1, Some(3)),
            (3, Some(2), 2, Some(1)),
            (4, Some(0), 1, Some(1)),
        ]
    }

    #[test]
    fn calls_are_in_their_callers() {
        let tree = one(taken(sent(100, &NESTED)));
        assert_eq!((shape(&tree), tree.doubt, tree.more), (nested_shape(), None, 0));
        assert_eq!(tree.outermost().map(|call| call.begin.function), Some(1));
        // An interrupt's records may come before those of what it interrupts.
        let mut records = sent(100, &NESTED);
        records.swap(2, 3);
        records.swap(0, 1);
        assert_eq!(shape(&one(taken(records))), nested_shape());
        assert_eq!(shape(&one(taken(sent(100, &[(2, 0, LEAF)])))), [(2, None, 0, None)]);
    }

    #[test]
    fn no_caller_is_certain_when_a_record_is_missing() {
        let all = sent(100, &NESTED);
        for missing in 1..all.len() - 1 {
            let mut records = all.clone();
            let lost = records.remove(missing);
            let tree = one(taken(records));
            assert_eq!(tree.doubt, Some(Doubt::Lost(1)), "{missing}");
            assert!(shape(&tree).iter().all(|call| (call.1, call.2, call.3) == (None, 0, None)), "{missing}");
            assert_eq!(tree.calls.len(), 5 - usize::from(lost.kind != LEAVE));
        }
        // Without the first one it has no outermost call.
        let mut trees = taken(all[1..].iter().copied());
        assert_eq!((trees.take_complete().len(), trees.beheaded), (0, 1));
        // That the last one was lost shows in the next tree of the thread.
        let mut trees = taken(all[..8].iter().copied().chain(sent(200, &[(2, 0, LEAF)])));
        let complete = trees.take_complete();
        assert_eq!(complete.iter().map(|tree| tree.doubt).collect::<Vec<_>>(), [Some(Doubt::Lost(1)), None]);
        assert_eq!(trees.kept, 0);
    }

    #[test]
    fn a_return_of_another_call_breaks_the_tree() {
        let tree = one(taken(sent(100, &[(1, 0, ENTER), (2, 1, ENTER), (1, 0, BROKEN)])));
        assert_eq!((tree.doubt, tree.calls.len()), (Some(Doubt::Broken), 2));
        assert_eq!(shape(&tree)[1], (2, None, 0, None));
        // As the program would not send it.
        for wrong in [
            [(1, 0, ENTER), (2, 1, ENTER), (3, 1, LEAVE), (1, 0, LEAVE)],
            [(1, 0, ENTER), (2, 2, ENTER), (2, 2, LEAVE), (1, 0, LEAVE)],
            [(1, 0, ENTER), (2, 0, LEAVE), (2, 1, LEAF), (1, 0, LEAVE)],
        ] {
            let mut trees = taken(sent(100, &wrong));
            assert_eq!(trees.take_complete()[0].doubt, Some(Doubt::Broken));
        }
    }

    #[test]
    fn trees_are_doubtful_while_the_kernel_skips_programs() {
        let of = |tid: u32, tree: u64| sent(tree, &NESTED).into_iter().map(move |sent| Sent { tid, ..sent });
        // From 100 to 108, complete when the kernel is asked.
        let mut trees = taken(of(7, 100));
        // From 100 on, not complete.
        of(8, 100).take(4).for_each(|sent| trees.take(sent.record()));
        trees.doubt(107, 150);
        of(8, 100).skip(4).for_each(|sent| trees.take(sent.record()));
        // In the buffer when the kernel was asked: before, at both ends and after.
        for tree in [90, 98, 99, 150, 151] {
            of(9, tree).for_each(|sent| trees.take(sent.record()));
        }
        let complete = trees.take_complete();
        let doubtful: Vec<bool> = complete.iter().map(|tree| tree.doubt == Some(Doubt::Skipped)).collect();
        assert_eq!(doubtful, [true, true, false, false, false, true, false]);
        for tree in &complete {
            match tree.doubt {
                Some(_) => assert!(shape(tree).iter().all(|call| (call.1, call.2, call.3) == (None, 0, None))),
                None => assert_eq!(shape(tree), nested_shape()),
            }
        }
        // What has not returned goes on.
        let mut trees = taken(of(7, 100).take(4));
        trees.doubt(500, 600);
        trees.end(true);
        assert_eq!(one(trees).doubt, Some(Doubt::Skipped));
    }

    #[test]
    fn times_of_skipped_programs_are_bounded() {
        let mut trees = Trees::default();
        trees.doubt(0, 10);
        trees.doubt(10, 20);
        assert_eq!(trees.skips, [(0, 20)]);
        for n in 1..=2 * MOST_SKIPS as u64 {
            trees.doubt(100 * n, 100 * n + 10);
        }
        assert_eq!((trees.skips.len(), trees.skips[1]), (MOST_SKIPS, (100, 110)));
        assert_eq!(trees.skips.last().unwrap().1, 200 * MOST_SKIPS as u64 + 10);
    }

    #[test]
    fn threads_do_not_mix() {
        let all = sent(100, &NESTED);
        let mut trees = Trees::default();
        for sent in &all {
            trees.take(sent.record());
            trees.take(Sent { tid: 8, ..*sent }.record());
        }
        assert_eq!(trees.take_complete().iter().map(shape).collect::<Vec<_>>(), [nested_shape(), nested_shape()]);
        let on = |tid: u32, cpu: u32| {
            let mut record = Sent { tid, ..all[0] }.record();
            record.cpu = cpu;
            Thread::of(&record)
        };
        // Each CPU has an idle thread, and all of these have the number 0.
        assert_ne!(on(0, 0), on(0, 1));
        assert_eq!(on(7, 0), on(7, 1));
    }

    #[test]
    fn what_was_not_read_may_have_returned() {
        let mut trees = taken(sent(100, &NESTED[..1]));
        trees.end(false);
        assert_eq!(one(trees).doubt, Some(Doubt::Lost(1)));
    }

    #[test]
    fn what_has_not_returned_is_shown_at_the_end() {
        let mut trees = taken(sent(100, &NESTED[..4]));
        assert!(!trees.are_complete());
        trees.end(true);
        let tree = one(trees);
        let mut wanted = nested_shape();
        wanted.truncate(4);
        wanted.iter_mut().for_each(|call| call.3 = None);
        assert_eq!((shape(&tree), tree.doubt), (wanted, None));
    }

    #[test]
    fn memory_is_bounded() {
        let long = |calls: usize| {
            let mut records = vec![(1, 0, ENTER)];
            records.extend([(2, 1, ENTER), (2, 1, LEAVE)].into_iter().cycle().take(2 * calls));
            records.push((1, 0, LEAVE));
            records
        };
        // The last record that there is room for is a beginning.
        let tree = one(taken(sent(100, &long(MOST_OF_ONE))));
        assert_eq!((tree.doubt, tree.more), (None, MOST_OF_ONE as u64 + 1));
        let shape = shape(&tree);
        assert_eq!(shape.len(), 1 + MOST_OF_ONE / 2);
        assert_eq!((shape[0].3, shape[MOST_OF_ONE / 2].3), (Some(2 * MOST_OF_ONE as u64 + 1), None));
        assert!(shape[1..MOST_OF_ONE / 2].iter().all(|call| (call.1, call.3) == (Some(0), Some(1))));
        // A record that was lost besides.
        let mut records = sent(100, &long(MOST_OF_ONE));
        records.remove(MOST_OF_ONE + 5);
        assert_eq!(one(taken(records)).doubt, Some(Doubt::Lost(1)));

        let mut trees = Trees::default();
        let records = sent(100, &long(MOST_OF_ONE));
        for tid in 0..(MOST / MOST_OF_ONE + 2) as u32 {
            records[..records.len() - 1].iter().for_each(|sent| trees.take(Sent { tid: tid + 1, ..*sent }.record()));
        }
        assert_eq!(trees.kept, MOST);
        trees.end(true);
        assert_eq!((trees.take_complete().len(), trees.dropped, trees.kept), (MOST / MOST_OF_ONE, 2, 0));
    }
}
