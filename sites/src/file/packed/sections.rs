// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site file by its sections, in both directions. What follows from the rest is made again and not stored: orders by
//! name, runs, checkpoints, checksums, the ELF file around the sections.

use super::coder::{Coder, Column, Stop, Words};
use super::columns;
use super::places::{self, Text};
use super::types::{self, Walked};
use crate::btf::{Btf, CHECKPOINT_STRIDE, Outline, Strings};
use crate::file::elf;
use crate::file::ext::{self, Around, Ext, Table};
use crate::machine::Machine;
use hashbrown::HashMap;
use zerocopy::IntoBytes;

/// A file that is packed, in its parts. All of them are empty when one is unpacked.
#[derive(Default)]
pub(super) struct Parts<'a> {
    pub(super) machine: u16,
    pub(super) build_id: &'a [u8],
    pub(super) btf: &'a [u8],
    pub(super) inline: &'a [u8],
    pub(super) ext: Option<Ext<'a>>,
    pub(super) ranges: &'a [u8],
    pub(super) code: &'a [u8],
}

/// BTF that is beside the packed files: the kernel's.
pub(super) struct Beside<'a> {
    pub(super) bytes: &'a [u8],
    outline: Outline,
    strings: Strings<'a>,
}

impl<'a> Beside<'a> {
    /// `None` if it is not BTF.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Beside<'a>> {
        let strings = Strings::default().continued(strings_of(bytes).filter(|strings| are_names(strings))?)?;
        Some(Beside { bytes, outline: Btf::outline(bytes, 1).ok()?, strings })
    }
}

/// The strings of BTF with the header that [`types::btf`] accepts.
fn strings_of(btf: &[u8]) -> Option<&[u8]> {
    let [_, header_len, _, _, at, len] = Words(btf).peek();
    btf.get(header_len as usize..)?.get(at as usize..)?.get(..len as usize)
}

/// Names are sorted, and all that are equal could be long: then that would take hours. The kernel's have less than 512
/// bytes.
fn are_names(strings: &[u8]) -> bool {
    const LONGEST: usize = 4096;
    let mut start = 0;
    memchr::memchr_iter(0, strings)
        .chain([strings.len()])
        .all(|end| end - std::mem::replace(&mut start, end) <= LONGEST)
}

/// A length, then words in so many columns in turn, each close to the one before in its column.
fn table<const N: usize>(
    coder: &mut Coder<'_>,
    source: &[u8],
    of: [Column; N],
    close: [bool; N],
) -> Result<Vec<u32>, Stop> {
    let rows = coder.number(columns::CONTROL, (source.len() / (4 * N)) as u32)? as usize;
    coder.spend(rows.saturating_mul(4 * N))?;
    let mut words = Words(source);
    let (mut out, mut last) = (Vec::new(), [0u32; N]);
    for _ in 0..rows {
        for ((column, close), last) in of.into_iter().zip(close).zip(&mut last) {
            let word = words.next();
            *last = if close { coder.near(column, word, *last)? } else { coder.number(column, word)? };
            out.push(*last);
        }
    }
    Ok(out)
}

fn bytes(coder: &mut Coder<'_>, column: Column, source: &[u8]) -> Result<Vec<u8>, Stop> {
    let len = coder.number(columns::CONTROL, source.len() as u32)? as usize;
    coder.spend(len)?;
    coder.bytes(column, source, len)
}

fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of records.
fn words_of<const N: usize>(words: &[u32]) -> impl Iterator<Item = &[u32; N]> {
    words.as_chunks::<N>().0.iter()
}

/// The containers: each begins about where the one before ends.
fn containers(coder: &mut Coder<'_>, source: &[u8]) -> Result<Vec<u32>, Stop> {
    let rows = coder.number(columns::CONTROL, (source.len() / 16) as u32)? as usize;
    coder.spend(rows.saturating_mul(16))?;
    let [name, low, high, size, code] = columns::CONTAINERS;
    let mut words = Words(source);
    let mut out = Vec::new();
    let mut last = [0u32; 4];
    for _ in 0..rows {
        let [one, two, three, four] = [words.next(), words.next(), words.next(), words.next()];
        let end = last[1].wrapping_add((last[3] & 0x00ff_ffff).next_multiple_of(16));
        last = [
            coder.near(name, one, last[0])?,
            coder.near(low, two, end)?,
            coder.near(high, three, last[2])?,
            coder.number(size, four & 0x00ff_ffff)? | coder.number(code, four >> 24)? << 24,
        ];
        out.extend(last);
    }
    Ok(out)
}

/// The sections of one file, from its parts or from the columns: the file.
pub(super) fn file(
    coder: &mut Coder<'_>,
    parts: &Parts<'_>,
    beside: Option<&Beside<'_>>,
    has_code: bool,
) -> Result<Vec<u8>, Stop> {
    let control = columns::CONTROL;
    let machine = coder.number(control, parts.machine.into())?;
    let machine = u16::try_from(machine).ok().and_then(Machine::from_elf).ok_or(Stop::Malformed)?;
    let build_id = bytes(coder, columns::RAW, parts.build_id)?;
    let is_beside = coder.number(control, beside.is_some_and(|beside| beside.bytes == parts.btf).into())? != 0;
    let source = parts.ext.as_ref();
    let module = bytes(coder, columns::RAW, source.map_or(&[][..], |ext| ext.module))?;
    // A module's types go on after its kernel's, which are needed to read it.
    let before = if module.is_empty() { None } else { Some(beside.ok_or(Stop::Malformed)?) };
    let first = before.map_or(1, |before| before.outline.count.saturating_add(1));
    let btf = match beside {
        Some(beside) if is_beside => {
            coder.spend(beside.bytes.len())?;
            beside.bytes.to_vec()
        }
        _ if is_beside => return Err(Stop::Malformed),
        _ => types::btf(coder, parts.btf, columns::BTF, first)?.bytes,
    };
    let own;
    let outline = match beside {
        Some(beside) if is_beside => &beside.outline,
        _ => {
            own = Btf::outline(&btf, first).map_err(|_| Stop::Malformed)?;
            &own
        }
    };
    let first_split = first.checked_add(outline.count).ok_or(Stop::Malformed)?;
    let Walked { bytes: mut inline, locsecs } = types::btf(coder, parts.inline, columns::INLINE, first_split)?;
    let split = Btf::outline(&inline, first_split).map_err(|_| Stop::Malformed)?;

    let of = |table: fn(&Ext<'_>) -> Vec<u8>| source.map(table).unwrap_or_default();
    let base = [
        coder.number(control, source.map_or(0, |ext| ext.base_address as u32))?,
        coder.number(control, source.map_or(0, |ext| (ext.base_address >> 32) as u32))?,
    ];
    let base = u64::from(base[0]) | u64::from(base[1]) << 32;
    let sections = table(coder, &of(|ext| ext.sections.as_bytes().to_vec()), columns::SECTIONS, [true; 8])?;
    let loaded = table(coder, &of(|ext| ext.loaded.as_bytes().to_vec()), columns::LOADED, [true; 5])?;
    let containers = containers(coder, &of(|ext| ext.containers.as_bytes().to_vec()))?;
    let details = table(coder, &of(|ext| ext.details.as_bytes().to_vec()), columns::DETAILS, [true, false])?;
    let prototypes = table(coder, &of(|ext| ext.prototypes.as_bytes().to_vec()), [columns::PROTOTYPES], [false])?;
    let declarations =
        table(coder, &of(|ext| ext.declarations.as_bytes().to_vec()), columns::DECLARATIONS, [false; 2])?;
    let files = table(coder, &of(|ext| ext.files.as_bytes().to_vec()), [columns::FILES], [true])?;
    let programs = bytes(coder, columns::PROGRAMS, source.map_or(&[][..], |ext| ext.programs))?;
    let strings = bytes(coder, columns::EXT_STRINGS, source.map_or(&[][..], |ext| ext.strings))?;

    let texts = texts(&sections, &locsecs)?;
    let sites: usize = texts.iter().map(|text| text.locsec.entries.len() / 12).sum();
    // With the tables that are made again: a site's record, and a function and a run for each at most.
    coder.spend(sites.saturating_mul(20 + 16 + 8))?;
    let addresses: Vec<u64> =
        words_of(&containers).map(|[_, low, high, _]| u64::from(*low) | u64::from(*high) << 32).collect();
    let given = match source {
        Some(ext) => {
            let read = places::read(parts.inline, ext.sites.as_bytes(), &texts).ok_or(Stop::Malformed)?;
            places::by_address(read)?
        }
        None => Vec::new(),
    };
    let places = places::numbers(coder, given, &texts, &addresses, first_split)?;
    let places = places::by_function(places)?;
    let sites = places::write(&places, &texts, &mut inline)?;

    // All strings, and the names of all functions.
    let all = before.map_or(Some(Strings::default()), |before| Some(before.strings));
    let all = [strings_of(&btf), strings_of(&inline), Some(&strings[..])]
        .into_iter()
        .try_fold(all, |all, part| Some(all?.continued(part?)))
        .flatten();
    let all = all.ok_or(Stop::Malformed)?;
    let own_strings = [strings_of(&btf).unwrap_or_default(), strings_of(&inline).unwrap_or_default(), &strings];
    if !own_strings.into_iter().all(are_names) {
        return Err(Stop::Malformed);
    }
    let mut functions = places::functions(&places);
    let without = source.map_or_else(Vec::new, |ext| {
        let funcs = ext.functions.iter().rev().skip(1).map(|function| function.func.get());
        to_bytes(&funcs.filter(|func| !functions.contains_key(func)).collect::<Vec<u32>>())
    });
    for func in table(coder, &without, [columns::WITHOUT_SITES], [true])? {
        coder.spend(16)?;
        functions.entry(func).or_default();
    }
    let derived = Derived::of(functions, &all, [before.map(|before| &before.outline), Some(outline), Some(&split)])?;
    coder.spend(4 * (outline.functions.len() + containers.len() / 4))?;
    let container_names = by_name(&all, words_of(&containers).map(|[name, _, _, _]| *name).zip(0..))?;
    let base_functions = by_name(&all, outline.functions.iter().copied())?;
    let stride = CHECKPOINT_STRIDE as usize;
    coder.spend(4 * (outline.count as usize + split.count as usize).div_ceil(stride))?;
    let tables = [
        to_bytes(&sections),
        derived.functions,
        derived.runs,
        to_bytes(&declarations),
        sites,
        to_bytes(&details),
        to_bytes(&prototypes),
        programs,
        to_bytes(&containers),
        to_bytes(&files),
        strings,
        to_bytes(&outline.checkpoints),
        to_bytes(&split.checkpoints),
        to_bytes(&container_names),
        to_bytes(&base_functions),
        to_bytes(&loaded),
        module,
    ];
    let tables: [&[u8]; Table::COUNT - 1] = tables.each_ref().map(|table| &table[..]);
    let around = Around { machine, build_id: &build_id, btf: &btf, inline: &inline };
    let (ext, _) = ext::assemble(base, outline.count, split.count, &tables, &around);
    let ranges = bytes(coder, columns::RAW, parts.ranges)?;
    let code = if has_code { bytes(coder, columns::RAW, parts.code)? } else { Vec::new() };
    let contents =
        elf::Contents { build_id: &build_id, btf: &btf, inline: &inline, ext: &ext, ranges: &ranges, code: &code };
    let mut out = Vec::with_capacity(btf.len() + inline.len() + ext.len() + ranges.len() + code.len() + 1024);
    elf::assemble(machine, &contents, &mut out).map_err(|_| Stop::Malformed)?;
    Ok(out)
}

/// The text sections, each with its LOCSEC. All sites are in them.
fn texts(sections: &[u32], locsecs: &[types::Locsec]) -> Result<Vec<Text>, Stop> {
    let texts = words_of(sections).map(|[_, low, high, _, _, locsec, _, _]| {
        let locsec = locsecs.iter().find(|other| other.id == *locsec)?;
        Some(Text { address: u64::from(*low) | u64::from(*high) << 32, locsec: locsec.clone() })
    });
    let texts = texts.collect::<Option<Vec<Text>>>().ok_or(Stop::Malformed)?;
    let mut ids: Vec<u32> = texts.iter().map(|text| text.locsec.id).collect();
    ids.sort_unstable();
    ids.dedup();
    // Each LOCSEC once, so that what comes out is no more than what was declared.
    if ids.len() == texts.len() && ids.len() == locsecs.len() { Ok(texts) } else { Err(Stop::Malformed) }
}

/// Tables that follow from the sites.
struct Derived {
    functions: Vec<u8>,
    runs: Vec<u8>,
}

impl Derived {
    fn of(found: places::Functions, all: &Strings<'_>, outlines: [Option<&Outline>; 3]) -> Result<Derived, Stop> {
        let mut name_of: HashMap<u32, u32> = HashMap::new();
        for outline in outlines.into_iter().flatten() {
            name_of.extend(
                outline.functions.iter().filter(|(_, id)| found.contains_key(id)).map(|(name, id)| (*id, *name)),
            );
        }
        let mut order = Vec::with_capacity(found.len());
        for (func, (runs, declarations)) in found {
            let name = name_of.get(&func).copied().ok_or(Stop::Malformed)?;
            order.push((all.bytes(name).ok_or(Stop::Malformed)?, func, name, runs, declarations));
        }
        order.sort_unstable_by_key(|(bytes, func, ..)| (*bytes, *func));
        let mut derived = Derived { functions: Vec::new(), runs: Vec::new() };
        let mut declared = 0u32;
        let mut record = |words: [u32; 4]| {
            derived.functions.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        for (_, func, name, runs, declarations) in &order {
            record([*name, *func, (derived.runs.len() / 8) as u32, declared]);
            derived.runs.extend(runs.as_flattened().iter().flat_map(|word| word.to_le_bytes()));
            declared = declared.checked_add(*declarations).ok_or(Stop::Malformed)?;
        }
        record([0, 0, (derived.runs.len() / 8) as u32, declared]);
        Ok(derived)
    }
}

/// Numbers in the order of their names, those of one name in their own.
fn by_name(all: &Strings<'_>, named: impl Iterator<Item = (u32, u32)>) -> Result<Vec<u32>, Stop> {
    let named = named.map(|(name, number)| Some((all.bytes(name)?, number)));
    let mut named = named.collect::<Option<Vec<_>>>().ok_or(Stop::Malformed)?;
    named.sort_unstable();
    Ok(named.into_iter().map(|(_, number)| number).collect())
}
