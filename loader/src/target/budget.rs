// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How much memory what is read of a site file may take.
//!
//! A site file is compact: many sites share a name, a prototype, a tuple of locations. What is made of it for the
//! sites of one function shares little, so that a small file, made for it, could ask for any amount. What is read is
//! therefore counted, and has a bound that follows from the file's size. Functions with ten thousand sites in the
//! largest kernels take a tenth of it.

use crate::target::function::DataSite;
use siteseer_sites::file::{FileError, Sizes};
use siteseer_sites::location::{Argument, Location};

/// Bytes for any file.
const SMALL: u64 = 64 << 20;
/// Bytes for each byte of the file.
const PER_BYTE: u64 = 8;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    /// For a file of that size.
    pub(super) fn of(file: Sizes) -> Budget {
        let bytes = file.btf.saturating_add(file.inline).saturating_add(file.ext) as u64;
        Budget { left: bytes.saturating_mul(PER_BYTE).saturating_add(SMALL) }
    }

    /// Counts a site.
    ///
    /// # Errors
    /// If the sites take more than the file justifies.
    pub(super) fn take(&mut self, site: &DataSite) -> Result<(), FileError> {
        let names = [&site.source, &site.declared].into_iter().flatten().map(|place| place.file.len());
        let names = names.chain(site.holder.as_ref().map(|holder| holder.name.len())).sum::<usize>();
        let arguments = site.arguments.iter().map(size).sum::<usize>();
        let bytes = (size_of::<DataSite>() + names + arguments) as u64;
        self.left = self.left.checked_sub(bytes).ok_or(FileError::TooLarge)?;
        Ok(())
    }
}

/// Bytes of an argument.
fn size(argument: &Argument) -> usize {
    let steps = match argument {
        Ok(located) => match &located.at {
            Location::Computed(computed) => computed.slots.iter().map(|slot| 24 + size_of_val(&**slot)).sum(),
            _ => 0,
        },
        Err(_) => 0,
    };
    size_of::<Argument>() + steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::function::Holder;
    use siteseer_sites::location::Missing;
    use siteseer_sites::site::{Marks, SiteKind};

    fn site(name: usize, arguments: usize) -> DataSite {
        DataSite {
            index: 0,
            func: 1,
            kind: SiteKind::Inline,
            address: 0,
            moved: 0,
            arguments: vec![Err(Missing::Unknown); arguments],
            holder: Some(Holder { name: "x".repeat(name), address: 0, size: 0 }),
            source: None,
            declared: None,
            marks: Marks::default(),
            unprobeable: None,
            code: siteseer_sites::CodeSum::NONE,
        }
    }

    /// How many such sites may be read of a file of a megabyte.
    fn count(site: &DataSite) -> usize {
        let mut budget = Budget::of(Sizes { btf: 1 << 19, inline: 1 << 18, ext: 1 << 18, ranges: 0, code: 0 });
        (0..1_000_000).find(|_| budget.take(site).is_err()).unwrap_or(1_000_000)
    }

    #[test]
    fn shared_names_and_arguments_are_counted_for_each_site() {
        assert!(count(&site(30, 5)) > 50_000, "ordinary sites, twenty bytes of file each");
        let names = count(&site(500_000, 0));
        assert!(names < 160, "{names}");
        let arguments = count(&site(10, 65_535));
        assert!(arguments < 80, "{arguments}");
    }
}
