// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Sites in the order of their addresses, and what follows from them.
//!
//! A file has the sites of a function side by side. Here they are in the order of their addresses: an inlined copy is
//! near the copy that it is in, the distances are small, and what one function always calls in the same way is a
//! sequence that repeats. The order of the file is that of (function, offset, prototype) again.

use super::coder::{Coder, Stop};
use super::columns;
use super::types::Locsec;
use crate::file::ext::{NONE16, RawSite, from24};
use hashbrown::HashMap;
use zerocopy::{FromBytes, IntoBytes};

/// The range of sites of a text section, and where it begins.
pub(super) struct Text {
    pub(super) address: u64,
    pub(super) locsec: Locsec,
}

/// One site, of the LOCSEC and of the companion section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    offset: u32,
    pub(super) func: u32,
    proto: u32,
    details: u32,
    container: u32,
    /// Of one in the order of addresses: one plus its parent's place in this order.
    parent: u32,
    line: u32,
    file: u32,
    pub(super) declaration: u16,
}

/// The sites of a file that is packed, in its order, by text section.
pub(super) fn read(inline: &[u8], sites: &[u8], texts: &[Text]) -> Option<Vec<Vec<Place>>> {
    let mut records = <[RawSite]>::ref_from_bytes(sites).ok()?.iter();
    let of_text = |text: &Text| {
        let entries = inline.get(text.locsec.entries.clone())?;
        let mut places = Vec::with_capacity(entries.len() / 12);
        for entry in entries.chunks_exact(12) {
            let mut words = super::coder::Words(entry);
            let raw = records.next()?;
            places.push(Place {
                func: words.next(),
                proto: words.next(),
                offset: words.next(),
                details: raw.details.get(),
                container: raw.container.get(),
                parent: raw.parent.get(),
                line: from24(raw.line),
                file: from24(raw.file),
                declaration: raw.declaration.get(),
            });
        }
        Some(places)
    };
    let places = texts.iter().map(of_text).collect::<Option<Vec<_>>>()?;
    records.next().is_none().then_some(places)
}

/// Sorts the places of a file by address, and makes their parents places in that order.
pub(super) fn by_address(file: Vec<Vec<Place>>) -> Result<Vec<Vec<Place>>, Stop> {
    sorted(file, |place| place.offset)
}

/// Sorts them as the file has them, and makes their parents indices of sites.
pub(super) fn by_function(file: Vec<Vec<Place>>) -> Result<Vec<Vec<Place>>, Stop> {
    sorted(file, |place| (place.func, place.offset, place.proto))
}

/// Sorts the places of each text section, and makes parents numbers in the new order.
fn sorted<K: Ord>(mut file: Vec<Vec<Place>>, key: impl Fn(&Place) -> K) -> Result<Vec<Vec<Place>>, Stop> {
    let mut order: Vec<u32> = Vec::new();
    let mut first = 0u32;
    for places in &file {
        let mut of_text: Vec<u32> = (0..places.len() as u32).collect();
        of_text.sort_by_key(|nth| places.get(*nth as usize).map(&key));
        order.extend(of_text.into_iter().map(|nth| nth + first));
        first += places.len() as u32;
    }
    let mut number_of = vec![0u32; order.len()];
    for (number, before) in (0u32..).zip(&order) {
        if let Some(slot) = number_of.get_mut(*before as usize) {
            *slot = number;
        }
    }
    for places in &mut file {
        places.sort_by_key(&key);
        for place in places {
            if let Some(parent) = place.parent.checked_sub(1) {
                place.parent = number_of.get(parent as usize).ok_or(Stop::Malformed)? + 1;
            }
        }
    }
    Ok(file)
}

/// The numbers of the sites, in the order of addresses. `counts` says how many each text section has; `containers` are
/// the addresses of the symbols that hold them, sorted.
pub(super) fn numbers(
    coder: &mut Coder<'_>,
    given: Vec<Vec<Place>>,
    texts: &[Text],
    containers: &[u64],
    first_split: u32,
) -> Result<Vec<Vec<Place>>, Stop> {
    let mut file = given;
    file.resize(texts.len(), Vec::new());
    for (text, places) in texts.iter().zip(&mut file) {
        places.resize(text.locsec.entries.len() / 12, Place::default());
        let mut last = 0u32;
        for place in places {
            let distance = coder.number(columns::OFFSET, place.offset.wrapping_sub(last))?;
            place.offset = last.checked_add(distance).ok_or(Stop::Malformed)?;
            last = place.offset;
        }
    }
    let mut all: Vec<&mut Place> = file.iter_mut().flatten().collect();
    for (nth, place) in (0u32..).zip(&mut all) {
        place.func = coder.number(columns::FUNC, place.func)?;
        // 0: none; odd: so many before.
        let stored = match place.parent {
            0 => 0,
            parent => {
                let distance = nth.wrapping_sub(parent - 1).cast_signed();
                (distance << 1 ^ distance >> 31).cast_unsigned().checked_add(1).ok_or(Stop::Malformed)?
            }
        };
        let stored = coder.number(columns::PARENT, stored)?;
        place.parent = match stored.checked_sub(1) {
            None => 0,
            Some(zigzag) => {
                let parent = nth.wrapping_sub(zigzag >> 1 ^ (zigzag & 1).wrapping_neg());
                parent.checked_add(1).ok_or(Stop::Malformed)?
            }
        };
    }
    let funcs: Vec<u32> = all.iter().map(|place| place.func).collect();
    for place in &mut all {
        place.proto = coder.near(columns::PROTO, place.proto, first_split)?;
    }
    for place in &mut all {
        place.details = coder.number(columns::SITE_DETAILS, place.details)?;
        place.declaration = u16::try_from(coder.number(columns::DECLARATION, place.declaration.into())?)
            .map_err(|_| Stop::Malformed)?;
    }
    drop(all);
    for (text, places) in texts.iter().zip(&mut file) {
        for place in places {
            let address = text.address.wrapping_add(place.offset.into());
            let guess = containers.partition_point(|container| *container <= address) as u32;
            place.container = coder.near(columns::CONTAINER, place.container, guess.wrapping_sub(1))?;
        }
    }
    lines(coder, &mut file, &funcs)?;
    Ok(file)
}

/// Where the sites are in the source. A function that is inlined into another is mostly called there in the same line,
/// and what is inlined side by side is called in lines that are close.
fn lines(coder: &mut Coder<'_>, file: &mut [Vec<Place>], funcs: &[u32]) -> Result<(), Stop> {
    let mut line_of: HashMap<(u32, u32), u32> = HashMap::new();
    let mut last_of: HashMap<u64, (u32, u32)> = HashMap::new();
    for (place, func) in file.iter_mut().flatten().zip(funcs) {
        // What it is in: a copy, or a symbol.
        let (around, key) = match place.parent.checked_sub(1) {
            Some(parent) => (funcs.get(parent as usize).copied().unwrap_or(0), u64::from(parent)),
            None => (0, 1 << 32 | u64::from(place.container)),
        };
        let &(beside_line, beside_file) = last_of.get(&key).unwrap_or(&(0, 0));
        let known = line_of.get(&(*func, around)).copied();
        place.line = match coder.number(columns::LINE_IS_OTHER, u32::from(known != Some(place.line)))? {
            0 => known.ok_or(Stop::Malformed)?,
            _ => coder.near(columns::LINE, place.line, beside_line)?,
        };
        line_of.insert((*func, around), place.line);
        place.file = match coder.number(columns::FILE_IS_OTHER, u32::from(beside_file != place.file))? {
            0 => beside_file,
            _ => coder.number(columns::FILE, place.file)?,
        };
        if place.line >> 24 != 0 || place.file >> 24 != 0 {
            return Err(Stop::Malformed);
        }
        last_of.insert(key, (place.line, place.file));
    }
    Ok(())
}

/// Writes the entries of the LOCSECs and the table of sites.
pub(super) fn write(file: &[Vec<Place>], texts: &[Text], inline: &mut [u8]) -> Result<Vec<u8>, Stop> {
    let mut table = Vec::new();
    let bytes24 = |value: u32| {
        let [a, b, c, _] = value.to_le_bytes();
        [a, b, c]
    };
    for (places, text) in file.iter().zip(texts) {
        let entries = inline.get_mut(text.locsec.entries.clone()).ok_or(Stop::Malformed)?;
        for (entry, place) in entries.chunks_exact_mut(12).zip(places) {
            let words = [place.func, place.proto, place.offset].map(u32::to_le_bytes);
            entry.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
            let raw = RawSite {
                details: place.details.into(),
                container: place.container.into(),
                parent: place.parent.into(),
                line: bytes24(place.line),
                file: bytes24(place.file),
                declaration: place.declaration.into(),
            };
            table.extend_from_slice(raw.as_bytes());
        }
    }
    Ok(table)
}

/// Of each function: its runs, {first site, number}, and how many declarations it has.
pub(super) type Functions = HashMap<u32, (Vec<[u32; 2]>, u32)>;

/// The functions that have sites.
pub(super) fn functions(file: &[Vec<Place>]) -> Functions {
    let mut functions = Functions::new();
    let mut first = 0;
    for run in file.iter().flat_map(|places| places.chunk_by(|one, other| one.func == other.func)) {
        let count = run.len() as u32;
        let declarations = run.iter().map(|place| place.declaration).filter(|place| *place != NONE16);
        let declarations = declarations.map(|place| u32::from(place) + 1).max().unwrap_or(0);
        if let Some(place) = run.first() {
            let (runs, most) = functions.entry(place.func).or_default();
            runs.push([first, count]);
            *most = declarations.max(*most);
        }
        first += count;
    }
    functions
}
