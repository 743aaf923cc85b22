// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The program of `siteseer trace`, attached, and what it sends of this process's calls.

use crate::guest::case::Failure;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use siteseer::{Attach, Link};
use siteseer_bpf_progs::trace::{Function, Record};
use siteseer_bpf_progs::{TRACE, set_constant};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How many records are kept. Keeping one may make more of them: memory that is touched the first time is a page fault,
/// and functions that are attached to may be on its way. If ten of them are, as on a kernel that inlines much there,
/// reading until no record is left ends when no memory is left.
const MOST: usize = 1 << 14;

/// A loaded program and what it has sent.
pub(crate) struct Watch {
    ring: RingBuffer<'static>,
    object: Object,
    records: Rc<RefCell<Vec<Option<Record>>>>,
    /// How many found no room before it counted.
    dropped: Cell<u64>,
}

/// The map of a name.
fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>, Failure> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| format!("no map {name}").into())
}

impl Watch {
    /// Loads the program.
    pub(crate) fn load() -> Result<Watch, Failure> {
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(TRACE)?;
        set_constant(&mut open, TRACE, "only_tgid", std::process::id())?;
        let object = open.load()?;
        // Text at the first parameters, wherever they point; what cannot be read is not text.
        let wanted = Function { strings: 0b1111 };
        map(&object, "functions")?.update(&0u32.to_ne_bytes(), &wanted.to_bytes(), MapFlags::ANY)?;
        let records = Rc::new(RefCell::new(Vec::new()));
        let (buffer, kept) = (map(&object, "records")?, Rc::clone(&records));
        let mut builder = RingBufferBuilder::new();
        builder.add(&buffer, move |data| {
            let mut kept = kept.borrow_mut();
            kept.push(Record::parse(data));
            if kept.len() < MOST { 0 } else { -libc::E2BIG }
        })?;
        let ring = builder.build()?;
        Ok(Watch { object, ring, records, dropped: Cell::new(0) })
    }

    /// The program.
    pub(crate) fn program(&self) -> Result<libbpf_rs::ProgramMut<'_>, Failure> {
        Ok(self.object.progs_mut().next().ok_or("no program")?)
    }

    /// Attaches it. What it saw of attaching itself is thrown away.
    pub(crate) fn attach(&self, attach: &Attach<'_>) -> Result<Link, Failure> {
        let link = attach.attach(&self.program()?)?;
        self.forget()?;
        Ok(link)
    }

    /// What it has sent since they were taken last. Looks at no map: that is a system call like others.
    ///
    /// # Errors
    /// If a record is broken, or there are [`MOST`]: those are thrown away.
    pub(crate) fn records(&self) -> Result<Vec<Record>, Failure> {
        if let Err(error) = self.ring.consume() {
            self.records.take();
            return Err(format!("more than {MOST} records, or they cannot be read: {error}").into());
        }
        let records: Option<Vec<Record>> = self.records.take().into_iter().collect();
        Ok(records.ok_or("a record is too short")?)
    }

    /// Throws away what it has sent so far, and found no room for.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        self.dropped.set(self.count_dropped()?);
        self.records().map(drop)
    }

    fn count_dropped(&self) -> Result<u64, Failure> {
        let dropped = map(&self.object, "dropped")?.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let counts = dropped.unwrap_or_default();
        let of_cpu = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(counts.iter().map(of_cpu).sum())
    }

    /// Fails if there was no room for some.
    pub(crate) fn has_all(&self) -> Result<(), Failure> {
        match self.count_dropped()? - self.dropped.get() {
            0 => Ok(()),
            dropped => Err(format!("{dropped} hits found no room").into()),
        }
    }
}
