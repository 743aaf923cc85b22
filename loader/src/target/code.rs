// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether the running kernel has the instructions at a site that the site data was made from.
//!
//! A build id says that the kernel is the image's, and checksums that the file is whole. Neither says that a site is
//! where the encoder put it: whoever changes a file can compute its checksums again. The sum of the first bytes at a
//! site shows that, as long as nobody computed it again, too.
//!
//! The text may be other than the image's for good reasons. What the kernel patches by itself is not summed. A kprobe
//! replaces the first bytes at its place by a breakpoint or a jump: what does not fit is read again, and is not judged
//! where kprobes are, or may be. The jump of a removed kprobe stays until the kernel's optimizer has run, which takes
//! seconds on a busy machine, and no list has it meanwhile. It is recognised by where it leads.

use crate::kernel::text::{TextReader, jump_pages, kprobes};
use crate::site::candidate::Candidate;
use crate::site::reason::Reason;
use siteseer_sites::CodeSum;
use std::io;
use std::thread;
use std::time::Duration;

/// How long to wait before what does not fit is read again, in milliseconds. The kernel undoes the jumps of removed
/// kprobes after 5 ticks at the earliest (`OPTIMIZE_DELAY` in kernel/kprobes.c). Where it changes text, a breakpoint
/// that is in no list stays until all processors have been interrupted: long in a guest of a busy host.
const PAUSES: [u64; 4] = [0, 60, 240, 960];
/// Bytes that a kprobe replaces, at most: a jump on x86, a word on arm64.
const REPLACED: u64 = 5;
/// The size of a page that jumps lead to. Kprobes are optimised by jumps on x86 alone, of what siteseer supports.
const PAGE: u64 = 4096;

/// Gives candidates with other code than the site data has an obstacle. Those that cannot be read are left alone.
///
/// # Errors
/// If the kernel's text cannot be read: the candidates are left alone.
pub(super) fn confirm<'c>(candidates: impl Iterator<Item = &'c mut Candidate>) -> io::Result<()> {
    let is_told = |candidate: &&mut Candidate| candidate.obstacle.is_none() && !candidate.code.is_empty();
    let mut told: Vec<&mut Candidate> = candidates.filter(is_told).collect();
    if told.is_empty() {
        return Ok(());
    }
    let reader = TextReader::new()?;
    for (round, pause) in PAUSES.into_iter().enumerate() {
        thread::sleep(Duration::from_millis(pause));
        let mut differing = Vec::with_capacity(told.len());
        for candidate in told {
            let range = candidate.code.range();
            match reader.read(candidate.address, range.end) {
                Ok(Some(bytes)) if differs(candidate.code, &bytes) => {
                    differing.push((candidate, may_be_probed(&bytes[range])));
                }
                Ok(Some(_)) => {}
                Ok(None) if round == 0 => {}
                Err(error) if round == 0 => return Err(error),
                // It has differed, and nothing says that it fits now.
                Ok(None) | Err(_) => differing.push((candidate, false)),
            }
        }
        if differing.is_empty() {
            return Ok(());
        }
        let probes = kprobes();
        differing.retain(|(candidate, may_be)| match &probes {
            Some(probes) => !is_near(probes, candidate),
            None => !may_be,
        });
        told = differing.into_iter().map(|(candidate, _)| candidate).collect();
        // The pages are among all of the kernel's symbols, which take long to read: only where there is some jump.
        if told.iter().any(|candidate| Around::read(&reader, candidate).is_some_and(|it| it.jumps().next().is_some())) {
            // Before the bytes: a page goes after its last jump is undone.
            let pages = jump_pages();
            told.retain(|candidate| !Around::read(&reader, candidate).is_some_and(|it| it.explains(candidate, &pages)));
        }
        if told.is_empty() {
            return Ok(());
        }
    }
    for candidate in told {
        candidate.obstacle = Some(Reason::CodeDiffers);
    }
    Ok(())
}

fn differs(code: CodeSum, bytes: &[u8]) -> bool {
    code.fits(bytes) == Some(false)
}

/// The text around a site: from a jump that ends in its first byte to one that begins in its last.
struct Around {
    start: u64,
    bytes: Vec<u8>,
}

impl Around {
    /// Bytes before the site.
    const BEFORE: usize = REPLACED as usize - 1;

    fn read(reader: &TextReader, candidate: &Candidate) -> Option<Around> {
        let start = candidate.address.checked_sub(REPLACED - 1)?;
        let len = Self::BEFORE + candidate.code.range().end + Self::BEFORE;
        Some(Around { start, bytes: reader.read(start, len).ok()?? })
    }

    /// Where what may be jumps leads.
    fn jumps(&self) -> impl Iterator<Item = u64> {
        (self.start..).zip(self.bytes.windows(REPLACED as usize)).filter_map(|(at, bytes)| {
            let offset = i32::from_le_bytes(bytes.strip_prefix(&[0xe9])?.try_into().ok()?);
            Some(at.wrapping_add(REPLACED).wrapping_add_signed(offset.into()))
        })
    }

    /// Whether the bytes at the site are the right ones by now, or a jump of a kprobe is in the way.
    fn explains(&self, candidate: &Candidate, pages: &[u64]) -> bool {
        !differs(candidate.code, &self.bytes[Self::BEFORE..]) || self.has_jump_to(pages)
    }

    fn has_jump_to(&self, pages: &[u64]) -> bool {
        self.jumps().any(|to| pages.iter().any(|page| (*page..page.saturating_add(PAGE)).contains(&to)))
    }
}

/// Whether a kprobe may have changed the bytes at a site.
fn is_near(probes: &[u64], candidate: &Candidate) -> bool {
    let end = candidate.address.saturating_add(candidate.code.range().end as u64);
    let near = candidate.address.saturating_sub(REPLACED - 1)..end;
    probes.iter().any(|probe| near.contains(probe))
}

/// Whether bytes may contain what kprobes put into the text: `int3` or the opcode of a jump on x86, `brk #4` on arm64.
fn may_be_probed(bytes: &[u8]) -> bool {
    const BRK: [u8; 4] = 0xd420_0080u32.to_le_bytes();
    bytes.iter().any(|byte| matches!(byte, 0xcc | 0xe9)) || bytes.as_chunks::<4>().0.contains(&BRK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_removed_kprobes() {
        let page = 0xffff_ffff_c020_1000u64;
        let at = 0xffff_ffff_8123_4560u64;
        // A jump that begins two bytes before `at`, into the page, and the instruction after it.
        let mut bytes = vec![0x90, 0x90, 0xe9];
        bytes.extend(((page + 0x80).wrapping_sub(at + 3) as u32).to_le_bytes());
        bytes.extend([0x48, 0x89, 0xe5]);
        let has_jump = |bytes: &[u8], start, pages: &[u64]| Around { start, bytes: bytes.to_vec() }.has_jump_to(pages);
        assert!(has_jump(&bytes, at - 4, &[page]));
        assert!(has_jump(&bytes[2..], at - 2, &[0, page]));
        assert!(!has_jump(&bytes, at - 4, &[page - PAGE, page + PAGE]), "it leads elsewhere");
        assert!(!has_jump(&bytes, at - 4, &[]));
        assert!(!has_jump(&bytes[3..], at - 1, &[page]), "the opcode is not there");
        assert!(!has_jump(&bytes[..6], at - 4, &[page]), "it is cut");
    }

    #[test]
    fn what_kprobes_leave() {
        assert!(may_be_probed(&[0xcc, 0x89, 0xe5]));
        assert!(may_be_probed(&[0x90, 0xe9, 0x01, 0x02, 0x03]));
        assert!(may_be_probed(&[0x80, 0x00, 0x20, 0xd4]));
        assert!(!may_be_probed(&[0x55, 0x48, 0x89, 0xe5]));
        assert!(differs(CodeSum::of(&[0x55, 0x48], 0..2), &[0x55, 0x49, 0x89]));
        assert!(!differs(CodeSum::NONE, &[0x55]));
    }
}
