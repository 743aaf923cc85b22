// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What changes for a link while it is attached: modules that go and come, switches of the kernel's, prog arrays. Each
//! call passes what it finds to a callback, and returns how much that was.

use crate::error::number;
use crate::layout::{Layout, layout};
use crate::link::{LinkHandle, ask, live};
use crate::text::c_string;
use siteseer::{AttachError, Gone, TailSlot};
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

/// What a call of this file does: asks a link, and passes each thing that it finds to `call`, if there is a callback.
///
/// # Safety
/// The link is NULL, or a live handle.
unsafe fn each_of<T>(
    link: *const LinkHandle,
    ask: impl FnOnce(&LinkHandle) -> Result<Vec<T>, AttachError>,
    call: Option<impl FnMut(&T)>,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let all = ask(unsafe { live(link) }?)?;
        if let Some(call) = call {
            all.iter().for_each(call);
        }
        Ok(c_int::try_from(all.len()).unwrap_or(c_int::MAX))
    })
}

/// A callback for texts.
fn of_text(each: OfText, ctx: *mut c_void) -> impl FnMut(&String) {
    move |text| {
        let text = c_string(text);
        // SAFETY: as siteseer.h says of the callback; the text lives through the call.
        unsafe { each(text.as_ptr(), ctx) };
    }
}

/// `siteseer_link__gone()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__gone(link: *const LinkHandle, each: Option<OfGone>, ctx: *mut c_void) -> c_int {
    let call = each.map(|each| {
        move |gone: &Gone| {
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
    });
    // SAFETY: the caller's promise.
    unsafe { each_of(link, |link| ask!(link, gone), call) }
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
    // SAFETY: the caller's promise.
    unsafe { each_of(link, |link| ask!(link, unseen_modules), each.map(|each| of_text(each, ctx))) }
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
    // SAFETY: the caller's promise.
    unsafe { each_of(link, |link| ask!(link, in_the_way), each.map(|each| of_text(each, ctx))) }
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
    let call = each.map(|each| {
        move |slot: &TailSlot| {
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
    });
    // SAFETY: the caller's promise.
    unsafe { each_of(link, |link| ask!(link, tail_slots), call) }
}
