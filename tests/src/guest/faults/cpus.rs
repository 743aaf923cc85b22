// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Processors that are switched off and on while programs are attached, and while they are being attached.

use super::keep_to;
use super::refuse::{Refused, refuse};
use crate::guest::case::Failure;
use crate::guest::killed::{call, counters, load};
use libbpf_rs::Object;
use siteseer::{Attach, AttachOptions, Link, Policy, Target};
use siteseer_sites::SiteKind;
use std::ffi::CString;
use std::fs;
use std::io;
use std::thread;

/// The processor that is switched off: the first one cannot be, on x86-64.
const OTHER: usize = 1;
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Calls each time.
const CALLS: u64 = 100;

/// Switches a processor off, and on when it is dropped.
pub(crate) struct Off(String);

impl Off {
    pub(crate) fn new(cpu: usize) -> io::Result<Off> {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        fs::write(&path, "0")?;
        Ok(Off(path))
    }

    pub(crate) fn on(self) -> io::Result<()> {
        fs::write(&self.0, "1")
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        // What could not be switched on is reported by whoever asked for it.
        let _ = fs::write(&self.0, "1");
    }
}

fn attach(target: &Target, object: &Object, is_bulk: bool) -> Result<Link, Failure> {
    let program = object.progs().find(|program| program.name() == "read0").ok_or("no program read0")?;
    let options = AttachOptions::default().policy(Policy::BestEffort).function("ksys_semget");
    let options = if is_bulk { options.bulk_from(1) } else { options.bulk(false) };
    let link = Attach::with(target, options).attach(&program)?;
    if link.report().attached().any(|site| site.kind == SiteKind::Inline) {
        Ok(link)
    } else {
        Err("semget() has no inlined copy".into())
    }
}

fn seen(object: &Object) -> Result<u64, Failure> {
    Ok(u64::from_ne_bytes(counters(object)?.get(..8).ok_or("a short .bss")?.try_into()?))
}

/// Makes calls on a processor, and compares with what the program counts.
fn exact(object: &Object, cpu: usize, when: &str) -> Result<(), Failure> {
    let before = seen(object)?;
    let on_it = move || -> io::Result<()> {
        keep_to(0, cpu)?;
        call(CALLS)
    };
    thread::spawn(on_it).join().map_err(|_| "the caller panicked")??;
    match seen(object)? - before {
        CALLS => Ok(()),
        other => Err(format!("{when}: {other} of {CALLS} calls on processor {cpu}").into()),
    }
}

/// Attached before, while and after a processor is off.
pub(super) fn off_and_on(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    for is_bulk in [true, false] {
        let link = attach(target, &object, is_bulk)?;
        exact(&object, 0, "before")?;
        exact(&object, OTHER, "before")?;
        let off = Off::new(OTHER)?;
        if fs::read_to_string(ONLINE)?.trim() != "0" {
            return Err("the processor is still on".into());
        }
        exact(&object, 0, "while the other one is off")?;
        // One that is made now has to do for the processor that comes later.
        let second = attach(target, &object, is_bulk)?;
        drop(link);
        exact(&object, 0, "attached while the other one is off")?;
        off.on()?;
        exact(&object, 0, "after the other one came back")?;
        exact(&object, OTHER, "on the one that came back")?;
        // Its disarming meets a processor that comes and goes, too.
        let off = Off::new(OTHER)?;
        drop(second);
        off.on()?;
        let before = seen(&object)?;
        call(CALLS)?;
        if seen(&object)? != before {
            return Err("the program runs after it was detached".into());
        }
    }
    siteseer::clean()?;
    Ok(format!(
        "{CALLS} calls on each processor that was on, before, while and after; by events of tracefs and perf events"
    ))
}

/// A machine without its first processor, as far as siteseer can see: perf_event_open(2) refuses it, and sysfs does not
/// list it. x86-64 cannot switch it off.
pub(super) fn without_the_first(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let as_if = || -> Result<(), Failure> {
        // SAFETY: a mount namespace of this thread's own; the paths live through the calls.
        unsafe {
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                return Err(io::Error::last_os_error().into());
            }
            let list = format!("/online.{}", std::process::id());
            fs::write(&list, format!("{OTHER}\n"))?;
            let (from, to) = (CString::new(list)?, CString::new(ONLINE)?);
            if libc::mount(from.as_ptr(), to.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null()) != 0 {
                return Err(io::Error::last_os_error().into());
            }
        }
        refuse(&[Refused { call: libc::SYS_perf_event_open, argument: Some((2, 0)), errno: libc::ENODEV }])?;
        for is_bulk in [true, false] {
            let link = attach(target, &object, is_bulk)?;
            exact(&object, 0, "without the first processor")?;
            exact(&object, OTHER, "without the first processor")?;
            link.detach();
        }
        Ok(())
    };
    thread::scope(|scope| {
        let there = thread::Builder::new().spawn_scoped(scope, || as_if().map_err(|why| why.to_string()));
        there.map_err(Failure::from)?.join().map_err(|_| "it panicked")?.map_err(Failure::from)
    })?;
    siteseer::clean()?;
    Ok("attached by the processors that there are".to_owned())
}
