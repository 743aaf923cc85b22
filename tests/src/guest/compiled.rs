// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A loader of what `siteseer compile` wrote, by libbpf alone: the object is loaded as any other, and attached by its
//! manifest.

use crate::guest::case::Failure;
use libbpf_rs::{AsRawLibbpf, Link, MapCore, Object, ObjectBuilder, RingBufferBuilder};
use libbpf_sys as sys;
use serde_json::Value;
use std::cell::RefCell;
use std::ffi::CString;
use std::fs;
use std::ptr::NonNull;

/// An object that is loaded and attached.
pub(crate) struct Attached {
    object: Object,
    _links: Vec<Link>,
}

impl Attached {
    /// Loads an object, and attaches all that its manifest says. The process that it watches is its only constant.
    pub(crate) fn new(object: &str, manifest: &str, pid: u32) -> Result<Attached, Failure> {
        let manifest: Value = serde_json::from_slice(&fs::read(manifest)?)?;
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_file(object)?;
        for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
            map.set_initial_value(&pid.to_ne_bytes())?;
        }
        let object = open.load()?;
        let mut links = Vec::new();
        for attachment in manifest["attachments"].as_array().ok_or("the manifest has no attachments")? {
            links.push(attach(&object, attachment).map_err(|error| format!("{attachment}: {error}"))?);
        }
        Ok(Attached { object, _links: links })
    }

    /// What the first element of a map begins with, as a number.
    pub(crate) fn number(&self, name: &str) -> Result<u64, Failure> {
        let map = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(name)).ok_or("no such map")?;
        let value = map.lookup(&0u32.to_ne_bytes(), libbpf_rs::MapFlags::ANY)?.ok_or("no element")?;
        Ok(value.first_chunk().copied().map(u64::from_ne_bytes).ok_or("it is too short")?)
    }

    /// The events that came, as bytes; none if calls were lost.
    pub(crate) fn events(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let events = RefCell::new(Vec::new());
        let opens = self.object.maps().find(|map| map.name() == "opens").ok_or("no map opens")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&opens, |event: &[u8]| {
            events.borrow_mut().push(event.to_vec());
            0
        })?;
        let ring = builder.build()?;
        ring.consume()?;
        drop(ring);
        let lost = self.number(".bss")?;
        if lost > 0 {
            return Err(format!("{lost} calls were lost").into());
        }
        Ok(events.into_inner())
    }
}

/// Attaches one program to one place.
fn attach(object: &Object, attachment: &Value) -> Result<Link, Failure> {
    let text = |key: &str| attachment[key].as_str().ok_or_else(|| format!("no {key}"));
    let name = text("program")?;
    let program = object.progs_mut().find(|program| program.name() == name).ok_or("no such program")?;
    let cookie = u64::from_str_radix(text("cookie")?.trim_start_matches("0x"), 16)?;
    match text("mechanism")? {
        "kprobe" => {
            let symbol = CString::new(text("symbol")?)?;
            let options = sys::bpf_kprobe_opts {
                sz: size_of::<sys::bpf_kprobe_opts>() as u64,
                bpf_cookie: cookie,
                offset: attachment["offset"].as_u64().ok_or("no offset")?,
                ..Default::default()
            };
            let program = program.as_libbpf_object().as_ptr();
            // SAFETY: the program is live, and libbpf copies what the pointers are to.
            let link = unsafe { sys::bpf_program__attach_kprobe_opts(program, symbol.as_ptr(), &options) };
            let link = NonNull::new(link).ok_or_else(std::io::Error::last_os_error)?;
            // SAFETY: libbpf has just made the link, and nobody else has it.
            Ok(unsafe { Link::from_ptr(link) })
        }
        "fentry" => Ok(program.attach_trace()?),
        other => Err(format!("the mechanism {other} is not expected").into()),
    }
}
