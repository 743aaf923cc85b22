// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Makes the checksums of a site file right again, as docs/format.md says they are: what was altered then has to be met
//! by the parsers, as in a file that was made to deceive. Shared by the property tests and the fuzz targets.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use std::ops::Range;

fn word(data: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize)
}

/// Does so as far as the file can be understood; else nothing.
pub(crate) fn reseal(data: &mut [u8]) {
    let _ = try_reseal(data);
}

fn try_reseal(data: &mut [u8]) -> Option<()> {
    let elf = ElfFile64::<LittleEndian>::parse(&*data).ok()?;
    let range = |name: &str| -> Option<Range<usize>> {
        let (offset, len) = elf.section_by_name(name)?.file_range()?;
        let range = usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(len)?).ok()?;
        (range.end <= data.len()).then_some(range)
    };
    let (btf, inline, ext) = (range(".BTF")?, range(".BTF.inline")?, range(".BTF.inline.ext")?);
    let build_id = elf.build_id().ok()?.unwrap_or_default().to_vec();
    let machine = u32::from(elf.elf_header().e_machine.get(LittleEndian).0);
    let header_len = word(&data[ext.clone()], 4)?;
    let at = word(&data[ext.clone()], 24 + 15 * 8)?;
    let body = ext.start.checked_add(header_len)?..ext.start.checked_add(header_len)?.checked_add(at)?;
    let sums = body.end..ext.end;
    if sums.start > sums.end {
        return None;
    }
    let mut blocks = Vec::new();
    for part in [btf.clone(), inline.clone(), body.clone()] {
        blocks.extend(data[part].chunks(4096).flat_map(|block| crc32fast::hash(block).to_le_bytes()));
    }
    let mut root = data[ext.start..body.start].to_vec();
    root.extend_from_slice(&blocks);
    for number in [machine, btf.len() as u32, inline.len() as u32] {
        root.extend_from_slice(&number.to_le_bytes());
    }
    root.extend_from_slice(&build_id);
    let (ranges, code) = (range(".BTF.inline.ranges"), range(".BTF.inline.code"));
    let words = [crc32fast::hash(&root).to_le_bytes().to_vec(), blocks].concat();
    let len = words.len().min(sums.len());
    data[sums.clone()][..len].copy_from_slice(&words[..len]);
    let companion = data[sums].first_chunk::<4>().copied().unwrap_or_default();
    let _ = ranges.and_then(|ranges| reseal_ranges(data.get_mut(ranges)?, companion));
    reseal_code(data.get_mut(code?)?, companion)
}

/// The same of the section of ranges; `companion` is the first checksum of the companion section.
fn reseal_ranges(section: &mut [u8], companion: [u8; 4]) -> Option<()> {
    let header_len = word(section, 4)?;
    let at = header_len.checked_add(word(section, 16 + 5 * 8)?)?;
    reseal_blocks(section, header_len, at, companion)
}

/// The same of the section with the sums of code.
fn reseal_code(section: &mut [u8], companion: [u8; 4]) -> Option<()> {
    let (header_len, count) = (word(section, 4)?, word(section, 8)?);
    let at = header_len.checked_add(count.checked_mul(3)?.checked_next_multiple_of(4)?)?;
    reseal_blocks(section, header_len, at, companion)
}

/// The checksums at `at` of what comes before.
fn reseal_blocks(section: &mut [u8], header_len: usize, at: usize, companion: [u8; 4]) -> Option<()> {
    let blocks: Vec<u8> =
        section.get(header_len..at)?.chunks(4096).flat_map(|block| crc32fast::hash(block).to_le_bytes()).collect();
    let root = [section.get(..header_len)?, &blocks, &companion].concat();
    let words = [crc32fast::hash(&root).to_le_bytes().to_vec(), blocks].concat();
    let sums = section.get_mut(at..)?;
    let len = words.len().min(sums.len());
    sums[..len].copy_from_slice(&words[..len]);
    Some(())
}
