// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a site file stores for an address: the symbol that holds it, and its sites.

use super::ext::wide;
use super::read::{FileError, SiteFile};
use super::site::{ContainerRef, SiteRef};
use zerocopy::IntoBytes;

impl<'a> SiteFile<'a> {
    /// The out-of-line symbols that hold a link-time address: several if they begin at one place. None without the
    /// companion section.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn containers_at(&self, address: u64) -> Result<Vec<ContainerRef<'a>>, FileError> {
        let Some(ext) = &self.ext else { return Ok(Vec::new()) };
        let start = |nth: usize| self.row(ext.containers, nth).map(|raw| wide(raw.address_low, raw.address_high));
        let after = ext.containers.partition_point(|raw| {
            self.touch(raw.as_bytes());
            wide(raw.address_low, raw.address_high) <= address
        });
        let mut found = Vec::new();
        for nth in (0..after).rev() {
            if start(nth) != start(after - 1) {
                break;
            }
            let container = self.row(ext.containers, nth).and_then(|raw| ContainerRef::read(self, raw));
            let container = container.ok_or(FileError::corrupt("container", nth as u32))?;
            if address - container.address < u64::from(container.size).max(1) {
                found.push(container);
            }
        }
        // As they are stored: of several names the first one is what kallsyms would say.
        found.reverse();
        self.whole()?;
        Ok(found)
    }

    /// The sites at a link-time address: those of all functions whose bodies start there. All sites of the text section
    /// are looked at, because they are in the order of their functions.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn sites_at(&self, address: u64) -> Result<Vec<SiteRef<'_, 'a>>, FileError> {
        let mut found = Vec::new();
        for section in self.sections() {
            let Some(offset) = address.checked_sub(section.address).and_then(|offset| u32::try_from(offset).ok())
            else {
                continue;
            };
            if u64::from(offset) >= section.size {
                continue;
            }
            // Checked together they cost a fraction.
            self.touch(section.entries.as_bytes());
            for (index, entry) in (section.first..).zip(section.entries) {
                if entry.offset() == offset {
                    found.push(self.site(index)?);
                }
            }
        }
        self.whole()?;
        Ok(found)
    }
}
