// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A light skeleton (`bpftool gen skeleton -L`): a program of type SYSCALL that makes the maps and loads the programs
//! inside the kernel. No libbpf is asked when it runs (libbpf's skel_internal.h), and so no handler of siteseer's is:
//! it must be as without siteseer.

use super::attached::same;
use super::ways::{self, calls_of_the_body};
use crate::guest::case::Failure;
use libbpf_rs::{AsRawLibbpf, ObjectBuilder, libbpf_sys as sys};
use siteseer_bpf_progs::{WAYS, set_constant};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// The loader that libbpf generates: its instructions, and the data that they use.
struct Light {
    insns: Vec<u8>,
    data: Vec<u8>,
    /// The maps, by number, and which one the counters are in.
    maps: usize,
    counters: usize,
    /// All programs of the object, the one that is loaded first.
    programs: usize,
}

fn generate() -> Result<Light, Failure> {
    let mut open = ObjectBuilder::default().open_memory(WAYS)?;
    let programs = open.progs().count();
    set_constant(&mut open, WAYS, "only_tgid", std::process::id())?;
    for mut program in open.progs_mut() {
        program.set_autoload(program.name() == "enters");
    }
    let mut opts = sys::gen_loader_opts { sz: size_of::<sys::gen_loader_opts>() as sys::size_t, ..Default::default() };
    let object = open.as_libbpf_object().as_ptr();
    // SAFETY: the object is open and not loaded; libbpf keeps the options' address until it is closed, which is at the
    // end. What it puts into them lives as long.
    unsafe {
        same("bpf_object__gen_loader", sys::bpf_object__gen_loader(object, &mut opts), 0)?;
        same("bpf_object__load", sys::bpf_object__load(object), 0)?;
        let bytes = |first: *const std::ffi::c_char, size: u32| {
            std::slice::from_raw_parts(first.cast::<u8>(), size as usize).to_vec()
        };
        let (mut maps, mut counters) = (0, None);
        let mut map = sys::bpf_object__next_map(object, ptr::null());
        while !map.is_null() {
            if CStr::from_ptr(sys::bpf_map__name(map)).to_bytes().ends_with(b".bss") {
                counters = Some(maps);
            }
            maps += 1;
            map = sys::bpf_object__next_map(object, map);
        }
        Ok(Light {
            insns: bytes(opts.insns, opts.insns_sz),
            data: bytes(opts.data, opts.data_sz),
            maps,
            counters: counters.ok_or("no .bss")?,
            programs,
        })
    }
}

fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// The sizes of struct bpf_loader_ctx, struct bpf_map_desc and struct bpf_prog_desc.
const CONTEXT: usize = 24;
const MAP: usize = 16;
const PROGRAM: usize = 4;

impl Light {
    /// Runs the loader, as bpf_load_and_run() does. Gives the map of the counters, and the program.
    fn load(&self) -> Result<[OwnedFd; 2], Failure> {
        let mut context = vec![0u8; CONTEXT + self.maps * MAP + self.programs * PROGRAM];
        let size = context.len() as u32;
        context[..4].copy_from_slice(&size.to_ne_bytes());
        let number = 0u32;
        // SAFETY: everything that is pointed to lives through the calls.
        let retval = unsafe {
            let data = descriptor(sys::bpf_map_create(
                sys::BPF_MAP_TYPE_ARRAY,
                c"__loader.map".as_ptr(),
                4,
                self.data.len() as u32,
                1,
                ptr::null(),
            ))?;
            let updated =
                sys::bpf_map_update_elem(data.as_raw_fd(), (&raw const number).cast(), self.data.as_ptr().cast(), 0);
            same("bpf_map_update_elem", updated, 0)?;
            let maps = [data.as_raw_fd()];
            let mut opts = sys::bpf_prog_load_opts {
                sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
                prog_flags: sys::BPF_F_SLEEPABLE,
                fd_array: maps.as_ptr(),
                ..Default::default()
            };
            let insns: Vec<sys::bpf_insn> =
                self.insns.chunks_exact(8).map(|insn| ptr::read_unaligned(insn.as_ptr().cast())).collect();
            let loader = descriptor(sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_SYSCALL,
                c"__loader.prog".as_ptr(),
                c"GPL".as_ptr(),
                insns.as_ptr(),
                insns.len() as sys::size_t,
                &mut opts,
            ))?;
            // The kernel writes the context back to where it read it.
            let mut run = sys::bpf_test_run_opts {
                sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
                ctx_in: context.as_mut_ptr().cast(),
                ctx_size_in: size,
                ..Default::default()
            };
            let ran = sys::bpf_prog_test_run_opts(loader.as_raw_fd(), &mut run);
            same("the loader", ran, 0)?;
            run.retval as i32
        };
        same("what the loader says", retval.min(0), 0)?;
        let word = |at: usize| -> Result<i32, Failure> {
            Ok(i32::from_ne_bytes(context.get(at..at + 4).ok_or("a short context")?.try_into()?))
        };
        let (map, program) = (word(CONTEXT + self.counters * MAP)?, word(CONTEXT + self.maps * MAP)?);
        Ok([descriptor(map)?, descriptor(program)?])
    }
}

/// What the program of a light skeleton sees, attached as such skeletons do.
fn seen(light: &Light) -> Result<u64, Failure> {
    let [counters, program] = light.load()?;
    // SAFETY: the descriptor is open; options may be absent.
    let _link = descriptor(unsafe { sys::bpf_raw_tracepoint_open(ptr::null(), program.as_raw_fd()) })?;
    ways::call()?;
    let mut bytes = [0u64; 32];
    let number = 0u32;
    // SAFETY: both places live through the call, and the value is as large as the map's.
    let found = unsafe {
        sys::bpf_map_lookup_elem(counters.as_raw_fd(), (&raw const number).cast(), bytes.as_mut_ptr().cast())
    };
    same("bpf_map_lookup_elem", found, 0)?;
    Ok(bytes[ways::ENTERS])
}

// Proves S23.17.
pub(super) fn a_light_skeleton_is_not_touched() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    let light = generate()?;
    same("plain", seen(&light)?, body)?;
    siteseer::register()?;
    same("with siteseer", seen(&light)?, body)?;
    // One that is made now would name the function by this kernel's number.
    siteseer::set_log(None);
    same("made with siteseer", generate().is_err(), true)?;
    let why = siteseer::internals::log::last_error().unwrap_or_default();
    same("the reason", why.contains("a light skeleton cannot be made"), true)?;
    Ok(format!("{} bytes of instructions", light.insns.len()))
}
