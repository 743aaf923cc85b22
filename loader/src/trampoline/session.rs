// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A kprobe session: what is read of the entry is kept until the return.
//!
//! The kernel runs the program twice for a call, at its entry and at its return (`kprobe_multi_link_prog_run()` in
//! kernel/trace/bpf_trace.c), and keeps 8 bytes for it in between, the session cookie. At the entry the trampoline
//! gathers the arguments and saves them; at the return it puts them back, adds the return value, and runs the program.
//!
//! # Where
//! One word fits in the cookie. More of them go into a hash map. Its key is the cookie's *address*. The cookie is in
//! memory that belongs to this call of this function under this link from entry to return (the task's shadow stack,
//! `fgraph_reserve_data()` in kernel/trace/fgraph.c), so no two calls in flight share an address, whatever recurses, is
//! preempted, or moves to another CPU.
//!
//! # Why the arguments are never another call's
//! A return handler runs only if the entry handler of the same call ran and returned 0 (`fprobe_fgraph_entry()` in
//! kernel/trace/fprobe.c). It returns 1 where it could not gather or save, and the kernel does for it where another
//! program is running on this CPU. And if it returned 0, it has just written this key: an element that an earlier call
//! left there, because its return was missed, is overwritten. So the element that a return finds is its own call's, or
//! none.
//!
//! Linux 6.10 to 6.13 have sessions, but run the return handler of a call whose entry was missed too. Nothing tells
//! such a return from another, and what it found could be an earlier call's. Those kernels count as without sessions.
//!
//! The map is a plain hash. A map that evicts (LRU) may give an element to another call while this one copies from
//! it. What missed returns leave behind is at most one element for each address that a cookie can have; should the map
//! be full nevertheless, the call is counted as lost, and the program not run.

use super::gather::{CONTEXT, FRAME, Gather, near};
use super::layout::{Item, Layout, Saving, Session};
use super::{Kfunc, OwnMap, SavedMap};
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Cond, Insn, Width};
use crate::site::refusal::Refusal;

/// Calls in flight that are provided for: elements are allocated when they are needed, so that a large number costs
/// no more than the table of buckets (16 bytes for each).
const MAX_CALLS: u32 = 1 << 16;

impl Session {
    /// The map that it saves to.
    pub(super) fn map(&self) -> Option<SavedMap> {
        match self.saving {
            Saving::Map { first, end, .. } => {
                Some(SavedMap { key_size: 8, value_size: 8 * (end - first), max_entries: MAX_CALLS })
            }
            Saving::Nothing | Saving::Cookie { .. } => None,
        }
    }
}

impl Gather {
    /// What is done at the entry, and the jump past it at the return.
    pub(super) fn session_entry(&mut self, layout: &Layout, session: &Session) -> Result<(), Refusal> {
        self.gpl_only = true;
        self.kfunc(session.is_return);
        // A bool is 8 bits of its register.
        self.push(Insn::alu_imm(Alu::And, 0, 0xff));
        let at_return = self.insns.len();
        self.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
        for item in layout.items.iter().filter(|item| !item.is_constant()) {
            // Types are for the return: a saved pointer is a number.
            self.described(&Item { typed: None, ..item.clone() }, layout)?;
        }
        match &session.saving {
            Saving::Nothing => {}
            Saving::Cookie { word } => {
                self.line("saved in the session cookie".to_owned());
                self.kfunc(session.cookie);
                self.load(1, self.word(*word))?;
                self.push(Insn::store(Width::D, 0, 0, 1));
            }
            Saving::Map { first, end, words } => {
                self.line("saved under the address of the session cookie".to_owned());
                for hole in (*first..*end).filter(|word| !words.contains(word)) {
                    self.store_imm(self.word(hole), 0)?;
                }
                self.key(session)?;
                self.address_of(3, self.word(*first))?;
                self.push(Insn::mov_imm(4, 0));
                self.map(1, OwnMap::Saved);
                self.push(Insn::call(helper::MAP_UPDATE_ELEM));
                self.faults.push(self.insns.len());
                self.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
            }
        }
        self.finish(0);
        let here = self.insns.len();
        self.land(at_return, here)?;
        self.line("at the return".to_owned());
        Ok(())
    }

    /// Puts back what was saved.
    pub(super) fn session_return(&mut self, layout: &Layout, session: &Session) -> Result<(), Refusal> {
        match &session.saving {
            Saving::Nothing => {}
            Saving::Cookie { word } => {
                self.kfunc(session.cookie);
                self.push(Insn::load(Width::D, 1, 0, 0));
                self.store(self.word(*word), 1)?;
            }
            Saving::Map { first, words, .. } => {
                self.key(session)?;
                self.map(1, OwnMap::Saved);
                self.push(Insn::call(helper::MAP_LOOKUP_ELEM));
                self.faults.push(self.insns.len());
                self.push(Insn::jump_if_imm(Cond::Eq, 0, 0, 0));
                for word in words {
                    self.push(Insn::load(Width::D, 1, 0, near_value(8 * (word - first))?));
                    self.store(self.word(*word), 1)?;
                }
                let key = self.scratch_word(0);
                self.address_of(2, key)?;
                self.map(1, OwnMap::Saved);
                self.push(Insn::call(helper::MAP_DELETE_ELEM));
            }
        }
        for item in &layout.items {
            if item.is_constant() {
                self.described(item, layout)?;
            } else if item.typed.is_some() {
                self.load(1, self.word(item.word))?;
                self.deliver(item, 0, 1)?;
            }
        }
        Ok(())
    }

    /// Puts the key, the address of the session cookie, into the first word of scratch, and that word's into r2.
    fn key(&mut self, session: &Session) -> Result<(), Refusal> {
        self.kfunc(session.cookie);
        let key = self.scratch_word(0);
        self.push(Insn::store(Width::D, FRAME, near(key)?, 0));
        self.address_of(2, key)
    }

    fn kfunc(&mut self, kfunc: Kfunc) {
        if kfunc.takes_context {
            self.push(Insn::mov(1, CONTEXT));
        }
        self.push(Insn::call_kfunc(kfunc.id));
    }
}

/// An offset in the map's value. The value is not larger than the stack.
fn near_value(offset: u32) -> Result<i16, Refusal> {
    i16::try_from(offset).map_err(|_| Refusal::TooComplex)
}
