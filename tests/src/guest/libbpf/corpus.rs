// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Objects of every kind of program, opened, loaded and attached by libbpf: what comes of each must be the same without
//! siteseer, with its handlers registered, and after they were taken back.

use crate::guest::case::Failure;
use libbpf_rs::libbpf_sys as sys;
use serde::{Deserialize, Serialize};
use siteseer_bpf_progs::CORPUS;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::ptr;

/// The outcome of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    opened: i32,
    section: String,
    kind: u32,
    attach_type: u32,
    autoattach: bool,
    loaded: i32,
    /// Type, tag, bytes of the translated program, and the FUNC that it is for.
    program: Option<(u32, [u8; 8], u32, u32, u32)>,
    /// 0 or a negative errno.
    attached: i32,
    /// Type of the kernel's link, and for tracing links attach type and target.
    link: Option<(u32, Option<Tracing>)>,
}

/// Attach type and target of a tracing link.
type Tracing = (u32, u32, u32);

fn errno() -> i32 {
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn look_at(elf: &[u8]) -> Seen {
    let mut seen = Seen {
        opened: 0,
        section: String::new(),
        kind: 0,
        attach_type: 0,
        autoattach: false,
        loaded: 0,
        program: None,
        attached: 0,
        link: None,
    };
    // SAFETY: the object lives until it is closed at the end; everything is asked of what is live, and pointers are
    // looked at.
    unsafe {
        let object = sys::bpf_object__open_mem(elf.as_ptr().cast(), elf.len() as sys::size_t, ptr::null());
        if object.is_null() {
            seen.opened = errno();
            return seen;
        }
        let program = sys::bpf_object__next_program(object, ptr::null_mut());
        if program.is_null() {
            seen.opened = 1;
            return seen;
        }
        seen.section = CStr::from_ptr(sys::bpf_program__section_name(program)).to_string_lossy().into_owned();
        seen.kind = sys::bpf_program__type(program);
        seen.attach_type = sys::bpf_program__expected_attach_type(program);
        seen.autoattach = sys::bpf_program__autoattach(program);
        seen.loaded = sys::bpf_object__load(object);
        if seen.loaded == 0 {
            let mut info = sys::bpf_prog_info::default();
            let mut len = size_of_val(&info) as u32;
            let fd = sys::bpf_program__fd(program);
            if sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut len) == 0 {
                let func = (info.attach_btf_obj_id, info.attach_btf_id);
                seen.program = Some((info.type_, info.tag, info.xlated_prog_len, func.0, func.1));
            }
            let link = sys::bpf_program__attach(program);
            if link.is_null() {
                seen.attached = errno();
            } else {
                let mut info = sys::bpf_link_info::default();
                let mut len = size_of_val(&info) as u32;
                let fd = sys::bpf_link__fd(link);
                if sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut len) == 0 {
                    let tracing = (info.type_ == sys::BPF_LINK_TYPE_TRACING).then(|| {
                        let tracing = info.__bindgen_anon_1.tracing;
                        (tracing.attach_type, tracing.target_obj_id, tracing.target_btf_id)
                    });
                    seen.link = Some((info.type_, tracing));
                }
                seen.attached = sys::bpf_link__destroy(link);
            }
        }
        sys::bpf_object__close(object);
    }
    seen
}

/// Looks at all objects.
///
/// # Errors
/// If the handlers cannot be registered.
pub(super) fn look_at_all(with: &str) -> Result<BTreeMap<String, Seen>, Failure> {
    match with {
        "plain" => {}
        "registered" => siteseer::register()?,
        "unregistered" => {
            siteseer::register()?;
            siteseer::unregister();
        }
        other => return Err(format!("with {other}?").into()),
    }
    // SAFETY: no other thread uses libbpf.
    unsafe { sys::libbpf_set_print(None) };
    Ok(CORPUS.iter().map(|(name, elf)| ((*name).to_owned(), look_at(elf))).collect())
}

pub(super) fn compare() -> Result<String, Failure> {
    let of = |with| -> Result<BTreeMap<String, Seen>, Failure> {
        Ok(serde_json::from_str(&super::output(&["corpus", with])?)?)
    };
    let plain = of("plain")?;
    let mut different = Vec::new();
    for with in ["registered", "unregistered"] {
        for (name, seen) in of(with)? {
            // What libbpf itself cannot load of the three names may go by other mechanisms.
            let in_vain = |seen: &Seen| seen.loaded != 0 && (name.starts_with("fentry") || name.starts_with("fexit"));
            if plain.get(&name) != Some(&seen) && !(with == "registered" && plain.get(&name).is_some_and(in_vain)) {
                different.push(format!("{name}, {with}: {seen:?}, and without: {:?}", plain.get(&name)));
            }
        }
    }
    if !different.is_empty() {
        return Err(different.join("\n").into());
    }
    let count = |holds: fn(&Seen) -> bool| plain.values().filter(|seen| holds(seen)).count();
    let (loaded, attached) = (count(|seen| seen.program.is_some()), count(|seen| seen.link.is_some()));
    // Objects that fail alike show little.
    if plain.len() < 80 || loaded < 40 || attached < 10 {
        return Err(
            format!("of {} objects {loaded} were loaded and {attached} attached: {plain:?}", plain.len()).into()
        );
    }
    // Those that siteseer would have to say something about, if it had anything to add.
    for name in ["fentry", "fexit", "fentry_vmlinux"] {
        let seen = plain.get(name).ok_or("no such object")?;
        if seen.link.is_none_or(|(kind, _)| kind != sys::BPF_LINK_TYPE_TRACING) {
            return Err(format!("{name} is not attached: {seen:?}").into());
        }
    }
    Ok(format!("{} objects, {loaded} loaded, {attached} attached", plain.len()))
}
