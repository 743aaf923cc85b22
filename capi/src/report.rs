// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `struct siteseer_report`: counts, sites, text.

use crate::argument::{ArgumentInfo, Described};
use crate::error::{Failure, number, plain, pointer};
use crate::layout::{Layout, layout};
use crate::options::{Versioned, members, write};
use crate::text::c_string;
use siteseer::{FunctionReport, Outcome, Report, SiteReport};
use siteseer_sites::machine::Machine;
use siteseer_sites::site::SiteKind;
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

/// The numbers of `enum siteseer_kind`, which are those of `enum siteseer_site_kind`.
fn number_of(kind: SiteKind) -> u32 {
    match kind {
        SiteKind::Body => 0,
        SiteKind::Clone => 1,
        SiteKind::Inline => 2,
    }
}

/// A site, with its strings as C has them.
struct Site {
    info: SiteInfo,
    /// One for each parameter.
    arguments: Vec<Described>,
    /// What `info` points into.
    _strings: Vec<CString>,
}

// SAFETY: the pointers are to the strings beside them, which nobody changes.
unsafe impl Send for Site {}
// SAFETY: as above.
unsafe impl Sync for Site {}

/// `struct siteseer_report`
pub struct ReportHandle {
    report: Report,
    /// The machine that the registers are of.
    machine: Machine,
    sites: OnceLock<Vec<Site>>,
    short: OnceLock<CString>,
    long: OnceLock<CString>,
}

impl ReportHandle {
    /// A report about this machine.
    pub(crate) fn of(report: &Report) -> ReportHandle {
        let here = if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };
        ReportHandle::of_machine(report, here)
    }

    pub(crate) fn of_machine(report: &Report, machine: Machine) -> ReportHandle {
        let (sites, short, long) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        ReportHandle { report: report.clone(), machine, sites, short, long }
    }

    fn sites(&self) -> &[Site] {
        self.sites.get_or_init(|| {
            let functions = self.report.functions.iter();
            functions
                .flat_map(|function| function.sites.iter().map(|site| Site::of(function, site, self.machine)))
                .collect()
        })
    }
}

impl Site {
    fn of(function: &FunctionReport, site: &SiteReport, machine: Machine) -> Site {
        let mut strings = Vec::new();
        let mut keep = |text: Option<&str>| match text {
            None => ptr::null(),
            Some(text) => {
                // A string's bytes stay where they are when the list of strings grows.
                strings.push(c_string(text));
                strings.last().map_or(ptr::null(), |string| string.as_ptr())
            }
        };
        let (mechanism, reason) = match &site.outcome {
            Outcome::Attached { mechanism, .. } => (Some(mechanism.word()), None),
            Outcome::Skipped(reason) => (None, Some(reason)),
        };
        let prototype = function.prototypes.get(site.prototype).filter(|prototype| prototype.func.is_some());
        let info = SiteInfo {
            sz: size_of::<SiteInfo>(),
            id: site.id,
            kind: number_of(site.kind),
            function: keep(Some(&function.name)),
            symbol: keep(Some(&site.symbol)),
            offset: site.offset,
            address: site.address,
            link_address: site.link_address,
            source_file: keep(site.source.as_ref().map(|place| place.file.as_str())),
            source_line: site.source.as_ref().map_or(0, |place| place.line),
            attached: u8::from(site.is_attached()),
            may_repeat: u8::from(site.may_repeat),
            may_miss: u8::from(site.may_miss),
            mechanism: keep(mechanism),
            reason: keep(reason.map(|reason| reason.key())),
            reason_text: keep(reason.map(ToString::to_string).as_deref()),
            prototype: keep(prototype.map(|prototype| prototype.text.as_str())),
        };
        let parameters = prototype.map_or(&[][..], |prototype| &prototype.parameters);
        let arguments = site.arguments.iter().enumerate();
        let arguments = arguments.map(|(nth, argument)| Described::of(argument, parameters.get(nth), machine));
        Site { info, arguments: arguments.collect(), _strings: strings }
    }
}

/// `struct siteseer_counts`
#[repr(C)]
pub struct Counts {
    sz: usize,
    sites: u64,
    attached: u64,
    skipped: u64,
    dead: u64,
    functions: u64,
    programs: u64,
}

/// `struct siteseer_site_info`
#[repr(C)]
pub struct SiteInfo {
    sz: usize,
    id: u32,
    kind: u32,
    function: *const c_char,
    symbol: *const c_char,
    offset: u64,
    address: u64,
    link_address: u64,
    source_file: *const c_char,
    source_line: u32,
    attached: u8,
    may_repeat: u8,
    may_miss: u8,
    mechanism: *const c_char,
    reason: *const c_char,
    reason_text: *const c_char,
    prototype: *const c_char,
}

/// `SITESEER_TEXT_LONG`
pub(crate) const LONG: u32 = 1;

pub(crate) const COUNTS: Layout =
    layout!("siteseer_counts", Counts { sz, sites, attached, skipped, dead, functions, programs });
pub(crate) const SITE_INFO: Layout = layout!(
    "siteseer_site_info",
    SiteInfo {
        sz,
        id,
        kind,
        function,
        symbol,
        offset,
        address,
        link_address,
        source_file,
        source_line,
        attached,
        may_repeat,
        may_miss,
        mechanism,
        reason,
        reason_text,
        prototype,
    }
);

// SAFETY: numbers only, the size first.
unsafe impl Versioned for Counts {
    const NAME: &'static str = "struct siteseer_counts";
    const MEMBERS: &'static [(usize, usize)] =
        members!(Counts { sz, sites, attached, skipped, dead, functions, programs });
}
// SAFETY: numbers and raw pointers only, the size first.
unsafe impl Versioned for SiteInfo {
    const NAME: &'static str = "struct siteseer_site_info";
    const MEMBERS: &'static [(usize, usize)] = members!(SiteInfo {
        sz,
        id,
        kind,
        function,
        symbol,
        offset,
        address,
        link_address,
        source_file,
        source_line,
        attached,
        may_repeat,
        may_miss,
        mechanism,
        reason,
        reason_text,
        prototype,
    });
}

/// # Safety
/// It is NULL, or a live handle.
unsafe fn live<'a>(report: *const ReportHandle) -> Result<&'a ReportHandle, Failure> {
    // SAFETY: the caller's promise.
    unsafe { report.as_ref() }.ok_or_else(|| Failure::invalid("the report is NULL"))
}

/// `siteseer_report__text()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_report__text(report: *const ReportHandle, flags: u32) -> *const c_char {
    pointer(|| {
        // SAFETY: the caller's promise.
        let report = unsafe { live(report) }?;
        let text = match flags {
            0 => report.short.get_or_init(|| c_string(&report.report.to_string())),
            LONG => report.long.get_or_init(|| c_string(&report.report.long().to_string())),
            other => return Err(Failure::invalid(format!("there is no flag {other:#x}"))),
        };
        Ok(text.as_ptr().cast_mut())
    })
}

/// `siteseer_report__counts()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_report__counts(report: *const ReportHandle, counts: *mut Counts) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { live(report) }?;
        let report = &handle.report;
        let own = Counts {
            sz: size_of::<Counts>(),
            sites: report.sites().count() as u64,
            attached: report.attached().count() as u64,
            skipped: report.skipped().count() as u64,
            dead: report.skipped().filter(|(_, reason)| reason.is_dead()).count() as u64,
            functions: report.functions.len() as u64,
            programs: report.programs as u64,
        };
        // SAFETY: as above.
        unsafe { write(counts, &own) }.map(|()| 0)
    })
}

/// `siteseer_report__site_cnt()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_report__site_cnt(report: *const ReportHandle) -> usize {
    // SAFETY: the caller's promise.
    unsafe { report.as_ref() }.map_or(0, |report| report.report.sites().count())
}

/// `siteseer_report__site()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_report__site(
    report: *const ReportHandle,
    index: usize,
    info: *mut SiteInfo,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let report = unsafe { live(report) }?;
        let behind = || Failure::new(libc::ENOENT, format!("the report has no site {index}"));
        let site = report.sites().get(index).ok_or_else(behind)?;
        // SAFETY: as above.
        unsafe { write(info, &site.info) }.map(|()| 0)
    })
}

/// `siteseer_report__argument()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_report__argument(
    report: *const ReportHandle,
    index: usize,
    parameter: usize,
    info: *mut ArgumentInfo,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let report = unsafe { live(report) }?;
        let behind = || Failure::new(libc::ENOENT, format!("site {index} of the report has no parameter {parameter}"));
        let argument = report.sites().get(index).and_then(|site| site.arguments.get(parameter)).ok_or_else(behind)?;
        // SAFETY: as above.
        unsafe { write(info, &argument.info) }.map(|()| 0)
    })
}

/// `siteseer_report__free()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_report__free(report: *mut ReportHandle) {
    if !report.is_null() {
        // SAFETY: the caller's promise: it is a box of ours, and not used any more.
        let report = unsafe { Box::from_raw(report) };
        plain(|| drop(report));
    }
}
