// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site file of its sections, which came one by one: debuginfod sends the sections of an image by their names.

use super::elf;
use super::ext::{Around, Ext};
use super::read::FileError;
use crate::machine::Machine;
use crate::sums::Damage;

/// Puts a site file together from the contents of the sections `.BTF`, `.BTF.inline` and `.BTF.inline.ext` of an image
/// with this build id, or of its site file.
///
/// All checksums are compared, so that sections of different images, a part of a section or another build id are an
/// error. The architecture is found by them, too: a section does not state it.
///
/// # Errors
/// [`FileError`] if a section is malformed or damaged, or they do not belong together.
pub fn join(build_id: &[u8], btf: &[u8], inline: &[u8], ext: &[u8]) -> Result<Vec<u8>, FileError> {
    let companion = Ext::parse(ext)?;
    let sums = |machine| companion.sums(&Around { machine, build_id, btf, inline });
    let fits = |machine: &Machine| sums(*machine).is_ok();
    let machine = Machine::ALL.into_iter().find(fits).ok_or(FileError::Apart)?;
    let damaged = |damage: Damage| FileError::Damaged { section: damage.part, offset: damage.offset };
    sums(machine)?.all().map_err(damaged)?;
    let mut file = Vec::new();
    let contents = elf::Contents { build_id, btf, inline, ext, ..elf::Contents::default() };
    elf::assemble(machine, &contents, &mut file).map_err(FileError::Assembled)?;
    Ok(file)
}
