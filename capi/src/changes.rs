// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What changes for a link while it is attached: modules that go and come, switches of the kernel's, prog arrays. Each
//! call passes what it finds to a callback, and returns how much that was.

use crate::error::number;
use crate::layout::{Layout, layout};
use crate::link::{LinkHandle, ask, live};
use crate::text::c_string;
use std::ffi::{c_char, c_int, c_void};

/// `struct siteseer_gone`
#[repr(C)]
pub struct GoneInfo {
    sz: usize,
    module: *const c_char,
    sites: u64,
    loaded_again: u8,
}

/// `struct siteseer_tail_slot`
#[repr(C)]
pub struct TailSlotInfo {
    sz: usize,
    map_name: *const c_char,
    program_id: u32,
    map_id: u32,
    slot: u32,
}

pub(crate) const GONE: Layout = layout!("siteseer_gone", GoneInfo { sz, module, sites, loaded_again });
pub(crate) const TAIL_SLOT: Layout =
    layout!("siteseer_tail_slot", TailSlotInfo { sz, map_name, program_id, map_id, slot });

type OfText = unsafe extern "C" fn(text: *const c_char, ctx: *mut c_void);
type OfGone = unsafe extern "C" fn(gone: *const GoneInfo, ctx: *mut c_void);
type OfTailSlot = unsafe extern "C" fn(slot: *const TailSlotInfo, ctx: *mut c_void);

fn as_count(len: usize) -> c_int {
    c_int::try_from(len).unwrap_or(c_int::MAX)
}

/// Passes texts to a callback.
///
/// # Safety
/// As siteseer.h says of the callback.
unsafe fn pass(texts: &[String], each: Option<OfText>, ctx: *mut c_void) -> c_int {
    for text in texts {
        let Some(each) = each else { break };
        let text = c_string(text);
        // SAFETY: the caller's promise; the text lives through the call.
        unsafe { each(text.as_ptr(), ctx) };
    }
    as_count(texts.len())
}

/// `siteseer_link__gone()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__gone(link: *const LinkHandle, each: Option<OfGone>, ctx: *mut c_void) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        let all = ask!(link, gone)?;
        for gone in &all {
            let Some(each) = each else { break };
            let module = c_string(&gone.module);
            let info = GoneInfo {
                sz: size_of::<GoneInfo>(),
                module: module.as_ptr(),
                sites: gone.sites.len() as u64,
                loaded_again: u8::from(gone.loaded_again),
            };
            // SAFETY: the caller's promise; the structure and its text live through the call.
            unsafe { each(&raw const info, ctx) };
        }
        Ok(as_count(all.len()))
    })
}

/// `siteseer_link__unseen_modules()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__unseen_modules(
    link: *const LinkHandle,
    each: Option<OfText>,
    ctx: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        let modules = ask!(link, unseen_modules)?;
        // SAFETY: as above.
        Ok(unsafe { pass(&modules, each, ctx) })
    })
}

/// `siteseer_link__in_the_way()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__in_the_way(
    link: *const LinkHandle,
    each: Option<OfText>,
    ctx: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        let sentences = ask!(link, in_the_way)?;
        // SAFETY: as above.
        Ok(unsafe { pass(&sentences, each, ctx) })
    })
}

/// `siteseer_link__tail_slots()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__tail_slots(
    link: *const LinkHandle,
    each: Option<OfTailSlot>,
    ctx: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        let all = ask!(link, tail_slots)?;
        for slot in &all {
            let Some(each) = each else { break };
            let map_name = c_string(&slot.map_name);
            let info = TailSlotInfo {
                sz: size_of::<TailSlotInfo>(),
                map_name: map_name.as_ptr(),
                program_id: slot.program,
                map_id: slot.map,
                slot: slot.slot,
            };
            // SAFETY: the caller's promise; the structure and its text live through the call.
            unsafe { each(&raw const info, ctx) };
        }
        Ok(as_count(all.len()))
    })
}
