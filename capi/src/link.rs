// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `struct siteseer_link`: an attachment of one's own, or the attachment that a link of libbpf's
//! stands for. What changes while it is attached is in `changes`.

use crate::error::{Failure, number, plain, pointer};
use crate::layout::{Layout, layout};
use crate::options::{Versioned, members, write};
use crate::report::ReportHandle;
use siteseer::{AttachError, Attached, Cost, Link};
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

pub(crate) enum What {
    /// Locked, because refreshing changes it, and any thread may ask meanwhile.
    Own(RwLock<Link>),
    Of(Attached),
}

/// `struct siteseer_link`
pub struct LinkHandle {
    pub(crate) what: What,
    /// The report, and those before it was refreshed: what was given out stays where it is. Never empty.
    reports: Mutex<Vec<Arc<ReportHandle>>>,
}

/// Asks a link, of whichever kind.
macro_rules! ask {
    ($handle:expr, $method:ident) => {
        match &$handle.what {
            $crate::link::What::Own(link) => $crate::link::read(link).$method(),
            $crate::link::What::Of(attached) => attached.$method(),
        }
    };
}
pub(crate) use ask;

pub(crate) fn read(link: &RwLock<Link>) -> RwLockReadGuard<'_, Link> {
    link.read().unwrap_or_else(PoisonError::into_inner)
}

impl LinkHandle {
    pub(crate) fn own(link: Link) -> LinkHandle {
        let report = ReportHandle::of(link.report());
        LinkHandle { reports: Mutex::new(vec![Arc::new(report)]), what: What::Own(RwLock::new(link)) }
    }

    pub(crate) fn of(attached: Attached) -> LinkHandle {
        let report = ReportHandle::of(attached.report());
        LinkHandle { reports: Mutex::new(vec![Arc::new(report)]), what: What::Of(attached) }
    }

    /// Sets the report that is given out from now on.
    pub(crate) fn set_report(&self, report: ReportHandle) {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(report));
    }

    fn report(&self) -> *const ReportHandle {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.last().map_or(ptr::null(), Arc::as_ptr)
    }
}

/// `struct siteseer_cost`
#[repr(C)]
pub struct CostInfo {
    sz: usize,
    programs: u64,
    jited: u64,
    files: u64,
    loading_ns: u64,
    arming_ns: u64,
}

pub(crate) const COST: Layout =
    layout!("siteseer_cost", CostInfo { sz, programs, jited, files, loading_ns, arming_ns });

// SAFETY: numbers only, the size first.
unsafe impl Versioned for CostInfo {
    const NAME: &'static str = "struct siteseer_cost";
    const MEMBERS: &'static [(usize, usize)] = members!(CostInfo { sz, programs, jited, files, loading_ns, arming_ns });
}

/// # Safety
/// It is NULL, or a live handle.
pub(crate) unsafe fn live<'a>(link: *const LinkHandle) -> Result<&'a LinkHandle, Failure> {
    // SAFETY: the caller's promise.
    unsafe { link.as_ref() }.ok_or_else(|| Failure::invalid("the link is NULL"))
}

fn count(count: Result<u64, AttachError>) -> Result<i64, Failure> {
    Ok(i64::try_from(count?).unwrap_or(i64::MAX))
}

/// `siteseer_link__report()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__report(link: *const LinkHandle) -> *const ReportHandle {
    // SAFETY: the caller's promise.
    pointer(|| Ok(unsafe { live(link) }?.report().cast_mut()))
}

/// `siteseer_link__is_attached()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__is_attached(link: *const LinkHandle) -> bool {
    // SAFETY: the caller's promise.
    let link = unsafe { link.as_ref() };
    plain(|| {
        link.is_some_and(|link| match &link.what {
            What::Own(_) => true,
            What::Of(attached) => attached.is_attached(),
        })
    })
}

/// `siteseer_link__missed()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__missed(link: *const LinkHandle) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        count(ask!(link, missed))
    })
}

/// `siteseer_link__faults()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__faults(link: *const LinkHandle) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        count(ask!(link, faults))
    })
}

/// `siteseer_link__cost()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__cost(link: *const LinkHandle, cost: *mut CostInfo) -> c_int {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    number(|| {
        // SAFETY: the caller's promise.
        let link = unsafe { live(link) }?;
        let Cost { programs, jited, files, loading, arming, .. } = ask!(link, cost)?;
        let info = CostInfo {
            sz: size_of::<CostInfo>(),
            programs: programs as u64,
            jited,
            files: files as u64,
            loading_ns: nanoseconds(loading),
            arming_ns: nanoseconds(arming),
        };
        // SAFETY: as above.
        unsafe { write(cost, &info) }.map(|()| 0)
    })
}

/// `siteseer_link__destroy()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__destroy(link: *mut LinkHandle) -> c_int {
    if !link.is_null() {
        // SAFETY: the caller's promise: it is a box of ours, and not used any more.
        let link = unsafe { Box::from_raw(link) };
        plain(|| drop(link));
    }
    0
}

/// `siteseer_clean()`
#[unsafe(no_mangle)]
pub extern "C" fn siteseer_clean() -> c_int {
    number(|| Ok(c_int::try_from(siteseer::clean()?).unwrap_or(c_int::MAX)))
}
