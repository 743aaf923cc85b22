// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From the DWARF of a kernel image to the sites of its functions.
//!
//! [`encode`] reads an ELF image (a `vmlinux` with DWARF and BTF) and makes a [`SiteSet`]: every place where the body
//! of a function starts executing, and where its arguments are there. The phases, one folder each, in this order:
//!
//! 1. `elf`: the ELF file, its symbols, and the tables by which the kernel patches its text.
//! 2. `text`: machine code, and whether the kernel will take a probe at an address.
//! 3. `debug`: the debug sections: units, entries, lists, lines and frames. Units are worked on in parallel.
//! 4. `lower`: a DWARF expression becomes a location. `types`: the unit's types in BTF.
//! 5. `unit`: the sites of a unit: where each copy is entered, and where its arguments are there.
//! 6. `merge`: one set of all units, and what it holds, in numbers (`census`); `observe`: what its arguments were made
//!    from.
//!
//! [`lines`] is not a phase: it looks up the source lines of a few addresses.
//!
//! Nothing here does I/O, and nothing knows of a running kernel. Bad input gives errors, not panics: an image that
//! cannot be read is an [`EncodeError`], and so is a unit with a broken tree of entries, since it could not be told
//! what is missing from it. If only one parameter's location is broken, that is the reason why this argument is
//! missing.

pub mod debug;
pub mod elf;
mod error;
pub mod lines;
pub mod lower;
mod merge;
mod observe;
pub mod text;
mod threads;
pub mod types;
mod unit;

pub use error::EncodeError;
pub use merge::census::{self, Census};
pub use observe::{Observed, Observer};
pub use unit::ranges::Detail;

use crate::debug::filter::Filter;
use crate::debug::units::{DebugInfo, DebugSections};
use crate::elf::image::Image;
use crate::text::DirectEntries;
use crate::types::BaseIndex;
use crate::unit::folded::SharedAddresses;
use crate::unit::origin::Foreign;
use crate::unit::ranges::UnitRanges;
use crate::unit::{Shared, UnitEncoder, UnitSites};
use rayon::prelude::*;
use siteseer_sites::btf::{self, Btf, KnownStrings};
use siteseer_sites::file::Optional;
use siteseer_sites::ranges::Ranges;
use siteseer_sites::{CodeSum, SiteSet};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to encode, and how.
#[derive(Default, Clone)]
pub struct Options<'o> {
    /// Only functions of these names. `foo.part.0` names what is left of `foo` after it was split.
    pub functions: Option<Vec<String>>,
    /// How many threads to use; by default as many as there are processors.
    pub threads: Option<usize>,
    /// Called from any thread as work proceeds, with bytes of debug information done and in all.
    pub progress: Option<&'o (dyn Fn(u64, u64) + Sync)>,
    /// For a module: the kernel that it is for. The module's own BTF refers to types of that kernel.
    pub kernel: Option<BaseKernel<'o>>,
    /// Called with each site as it is made, with what the debug information has for its arguments.
    pub observer: Option<Observer<'o>>,
    /// What [`encode_all`] finds out about the text of copies. Nothing if only some functions are encoded: then
    /// most copies are not looked at.
    pub ranges: Detail,
    /// Whether to sum the code at the sites ([`Encoded::code`]).
    pub code: bool,
    /// Whether to count how control leaves inlined copies ([`census::ExitCensus`]). Nothing else depends on it.
    pub exits: bool,
}

/// The kernel that a module is for.
#[derive(Debug, Clone, Copy)]
pub struct BaseKernel<'o> {
    /// Its types.
    pub types: &'o KernelTypes<'o>,
    /// The GNU build id of its image; empty if it is not known.
    pub build_id: &'o [u8],
}

/// The types of a kernel, indexed once for all of its modules: a kernel has a thousand of them, and most of them are
/// small beside its types.
#[derive(Debug)]
pub struct KernelTypes<'a> {
    btf: Btf<'a>,
    index: BaseIndex<'a>,
    strings: KnownStrings,
}

impl<'a> KernelTypes<'a> {
    /// Reads and indexes the kernel's BTF: section `.BTF` of its image, or `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// [`EncodeError::KernelBtf`].
    pub fn new(btf: &'a [u8]) -> Result<KernelTypes<'a>, EncodeError> {
        let btf = Btf::parse(btf).map_err(|error| EncodeError::KernelBtf(Some(error)))?;
        Ok(KernelTypes { index: BaseIndex::new(&btf), strings: KnownStrings::new(&btf), btf })
    }

    /// The BTF.
    pub fn btf(&self) -> &Btf<'a> {
        &self.btf
    }
}

/// Whether that is a module (a relocatable ELF file), which is encoded with the kernel that it is for.
pub fn is_module(image: &[u8]) -> bool {
    const E_TYPE: usize = 16;
    const ET_REL: [u8; 2] = [1, 0];
    image.starts_with(b"\x7fELF") && image.get(E_TYPE..E_TYPE + 2) == Some(&ET_REL)
}

/// What was found in an image.
#[derive(Debug)]
pub struct Encoded {
    /// The sites.
    pub set: SiteSet,
    /// What they are, in numbers.
    pub census: Census,
    /// Which copy each instruction belongs to, if that was asked for.
    pub ranges: Option<Ranges>,
    /// The sums of the code at the sites, in their order, if that was asked for.
    pub code: Option<Vec<CodeSum>>,
}

impl Encoded {
    /// What a site file may have besides the sites.
    pub fn optional(&self) -> Optional<'_> {
        Optional { ranges: self.ranges.as_ref(), code: self.code.as_deref() }
    }
}

/// Finds all sites of an image's functions.
///
/// # Errors
/// See [`EncodeError`].
pub fn encode(image: &[u8], options: &Options<'_>) -> Result<(SiteSet, Census), EncodeError> {
    let options = Options { ranges: Detail::Nothing, ..options.clone() };
    encode_all(image, &options).map(|Encoded { set, census, .. }| (set, census))
}

/// Finds all sites of an image's functions, and what the options ask for besides: which copy each instruction belongs
/// to ([`Options::ranges`]), and sums of the code at sites ([`Options::code`]).
///
/// # Errors
/// See [`EncodeError`].
pub fn encode_all(image: &[u8], options: &Options<'_>) -> Result<Encoded, EncodeError> {
    threads::run(options.threads, || encode_here(image, options)).map_err(EncodeError::Threads)?
}

fn encode_here(bytes: &[u8], options: &Options<'_>) -> Result<Encoded, EncodeError> {
    let image = Image::parse(bytes)?;
    let sections = DebugSections::load(&image)?;
    let base_btf = own_btf(&image, options)?;
    let base_btf = &*base_btf;
    let kernel_build_id = options.kernel.map_or(&[][..], |kernel| kernel.build_id);
    let debug_frame = image.debug_section(".debug_frame")?;
    let ((debug, (namesakes, shared_addresses)), (types, frames)) = rayon::join(
        || {
            let of_symbols = || (unit::outofline::namesakes(&image), SharedAddresses::find(&image));
            rayon::join(|| DebugInfo::new(&sections), of_symbols)
        },
        || rayon::join(|| base_types(&image, base_btf, options), || debug::cfi::Frames::parse(&debug_frame)),
    );
    let (debug, (btf, base)) = (debug?, types?);
    let direct = debug.is_by_clang().then(|| DirectEntries::find(&image));
    let shared = Shared {
        image: &image,
        debug: &debug,
        base: &base,
        frames: &frames,
        direct,
        namesakes,
        shared_addresses,
        foreign: Foreign::new(&debug, &base),
        filter: options.functions.as_ref().map(|names| Filter::new(names, &debug)),
        observer: options.observer,
        exits: options.exits,
        ranges: if options.functions.is_none() { options.ranges } else { Detail::Nothing },
    };
    let total: u64 = debug.headers.iter().map(|header| header.length_including_self() as u64).sum();
    let done = AtomicU64::new(0);
    let encode_one = |index: usize| {
        let sites = encode_unit(&shared, index);
        if let Some(progress) = options.progress {
            let bytes = debug.headers[index].length_including_self() as u64;
            progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
        }
        sites
    };
    let (units, beginning) = rayon::join(
        || {
            let units = (0..debug.headers.len()).into_par_iter().with_max_len(1);
            units.map(encode_one).collect::<Result<Vec<UnitSites<'_>>, EncodeError>>()
        },
        || {
            let of_kernel = options.kernel.filter(|_| image.is_relocatable());
            merge::begin(&shared, &btf, of_kernel.map(|kernel| &kernel.types.strings))
        },
    );
    let mut units = units?;
    let of_units: Vec<UnitRanges<'_>> = units.iter_mut().map(|unit| std::mem::take(&mut unit.ranges)).collect();
    let ((set, census), ranges) = rayon::join(
        || merge::merge(&shared, base_btf, kernel_build_id, beginning, units),
        || unit::ranges::merge(&of_units, shared.ranges),
    );
    let code = options.code.then(|| text::stable::sums(&image, &set));
    Ok(Encoded { set, census, ranges, code })
}

fn kernel_types<'a>(options: &Options<'a>) -> Result<&'a KernelTypes<'a>, EncodeError> {
    options.kernel.map(|kernel| kernel.types).ok_or(EncodeError::KernelBtf(None))
}

/// The image's BTF. That of a module that was built outside of the kernel's tree gets the numbers that the kernel will
/// give it.
fn own_btf<'a>(image: &Image<'a>, options: &Options<'_>) -> Result<Cow<'a, [u8]>, EncodeError> {
    let own = image.btf()?;
    match image.distilled_btf()? {
        Some(distilled) if image.is_relocatable() => {
            let kernel = &kernel_types(options)?.btf;
            btf::relocate(own, distilled, kernel).map(Cow::Owned).map_err(EncodeError::Relocate)
        }
        _ => Ok(Cow::Borrowed(own)),
    }
}

/// The image's own types, and where to find each.
fn base_types<'a>(
    image: &Image<'_>,
    base_btf: &'a [u8],
    options: &Options<'a>,
) -> Result<(Btf<'a>, BaseIndex<'a>), EncodeError> {
    if image.is_relocatable() {
        let kernel = kernel_types(options)?;
        let btf = Btf::parse_split(base_btf, &kernel.btf).map_err(EncodeError::Btf)?;
        let base = BaseIndex::of_module(&btf, &kernel.index);
        return Ok((btf, base));
    }
    let btf = Btf::parse(base_btf).map_err(EncodeError::Btf)?;
    let base = BaseIndex::new(&btf);
    Ok((btf, base))
}

fn encode_unit<'a>(shared: &Shared<'a, '_>, index: usize) -> Result<UnitSites<'a>, EncodeError> {
    let unit = shared.debug.open(index)?;
    if shared.filter.as_ref().is_some_and(|filter| !filter.may_be_in(&unit)) {
        return Ok(UnitSites::default());
    }
    let mut encoder = UnitEncoder::new(shared, &unit);
    debug::walk::walk(&unit, &mut encoder).map_err(|debug::walk::WalkError { offset, error }| EncodeError::Dwarf {
        section: ".debug_info",
        offset: unit.offset.saturating_add(offset) as u64,
        unit: unit.name(),
        source: error,
    })?;
    Ok(encoder.finish())
}
