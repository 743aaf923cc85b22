// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the kernel tells about loaded programs, maps and links. Nothing is changed.

use super::{BpfFunction, BpfProgram, BpfTargetError, Extension, TailSlot};
use crate::bpf::btf::btf_data;
use crate::bpf::map;
use crate::bpf::objects::{self, info_by_fd, link_info, map_info, name, program_info};
use crate::program::FuncInfo;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The id of a program that is open.
///
/// # Errors
/// If the descriptor is not a program's.
pub fn id_of(program: BorrowedFd<'_>) -> io::Result<u32> {
    program_info(program).map(|info| info.id)
}

/// A program's functions: FUNCs, addresses and lengths, which the kernel numbers alike.
fn functions(program: BorrowedFd<'_>, counts: &sys::bpf_prog_info) -> io::Result<Vec<BpfFunction>> {
    // Records of the kernel may be longer than those that are known here.
    let record = counts.func_info_rec_size as usize;
    let mut funcs = vec![0u8; record.saturating_mul(counts.nr_func_info as usize)];
    let mut addresses = vec![0u64; counts.nr_jited_ksyms as usize];
    let mut sizes = vec![0u32; counts.nr_jited_func_lens as usize];
    let mut info = sys::bpf_prog_info {
        func_info: funcs.as_mut_ptr() as u64,
        nr_func_info: counts.nr_func_info,
        func_info_rec_size: counts.func_info_rec_size,
        jited_ksyms: addresses.as_mut_ptr() as u64,
        nr_jited_ksyms: counts.nr_jited_ksyms,
        jited_func_lens: sizes.as_mut_ptr() as u64,
        nr_jited_func_lens: counts.nr_jited_func_lens,
        ..Default::default()
    };
    // SAFETY: the kernel writes no more records than it is told there is room for; all buffers live through the call.
    unsafe { info_by_fd(program.as_raw_fd(), &mut info) }?;
    let func = |record: &[u8]| Some(u32::from_ne_bytes(record.get(4..8)?.try_into().ok()?));
    let funcs = funcs.chunks_exact(record.max(size_of::<FuncInfo>())).filter_map(func);
    Ok(funcs
        .enumerate()
        .map(|(nth, func)| BpfFunction {
            func,
            address: addresses.get(nth).copied().unwrap_or(0),
            size: sizes.get(nth).copied().unwrap_or(0),
        })
        .collect())
}

/// See [`BpfProgram::read`].
pub(super) fn read(id: u32) -> Result<BpfProgram, BpfTargetError> {
    let failed = |what: &'static str| move |error: io::Error| BpfTargetError::Info { id, what, error };
    let program = objects::open_program(id).map_err(failed("bpf_prog_get_fd_by_id"))?;
    let info = program_info(program.as_fd()).map_err(failed("bpf_obj_get_info_by_fd"))?;
    let program_name = name(&info.name);
    if info.btf_id == 0 || info.nr_func_info == 0 {
        return Err(BpfTargetError::NoBtf { id, program: program_name });
    }
    Ok(BpfProgram {
        id,
        name: program_name,
        btf: btf_data(info.btf_id).map_err(failed("its BTF"))?,
        functions: functions(program.as_fd(), &info).map_err(failed("its functions"))?,
        tail_slots: tail_slots(&[id]).map_err(|error| BpfTargetError::Maps { error })?,
        extensions: extensions(id).map_err(failed("its extensions"))?,
    })
}

/// The slots of prog arrays, in all maps of the machine, that hold one of these programs. Requires CAP_SYS_ADMIN.
///
/// # Errors
/// If a map cannot be looked through.
pub fn tail_slots(programs: &[u32]) -> io::Result<Vec<TailSlot>> {
    let mut found = Vec::new();
    for map in objects::maps() {
        let map = map?;
        let info = map_info(map.as_fd())?;
        if info.type_ != sys::BPF_MAP_TYPE_PROG_ARRAY {
            continue;
        }
        for slot in 0..info.max_entries {
            let mut program = 0u32;
            // SAFETY: keys and values of prog arrays are 4 bytes each (`fd_array_map_alloc_check()`,
            // kernel/bpf/arraymap.c).
            let looked_up = unsafe { map::lookup(map.as_fd(), slot, std::slice::from_mut(&mut program)) };
            match looked_up {
                Ok(_) if programs.contains(&program) => {
                    found.push(TailSlot { program, map: info.id, map_name: name(&info.name), slot });
                }
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// The extensions that are attached to functions of a program.
fn extensions(target: u32) -> io::Result<Vec<Extension>> {
    let mut found = Vec::new();
    for link in objects::links() {
        let info = link_info(link?.as_fd())?;
        if info.type_ != sys::BPF_LINK_TYPE_TRACING {
            continue;
        }
        // SAFETY: the link's type says which of the union's members the kernel filled; all are plain bytes.
        let tracing = unsafe { info.__bindgen_anon_1.tracing };
        // A kernel that leaves this out (before 5.17) says 0.
        if tracing.target_obj_id != target {
            continue;
        }
        let Some(program) = objects::program_if_there(info.prog_id)? else { continue };
        let program = program_info(program.as_fd())?;
        if program.type_ == sys::BPF_PROG_TYPE_EXT {
            found.push(Extension { func: tracing.target_btf_id, program: program.id, name: name(&program.name) });
        }
    }
    Ok(found)
}
