// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From the addresses in site data to those in a kernel, and back.
//!
//! The image of a kernel is displaced as a whole. A module's sections are placed one by one, and by no order that a
//! file could know: each is displaced by its own number. The encoder makes up their addresses in site data, with room
//! between them, so that an address just past the end of a section is still that section's.

use siteseer_sites::location::{Argument, Location, Missing, Op};

/// One section of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its address in the site data.
    pub link: u64,
    /// Bytes.
    pub size: u64,
    /// Its address in the kernel.
    pub run: u64,
}

/// Where an image or module lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Everywhere the same is added.
    Whole(u64),
    /// Section by section, sorted by their addresses in the site data.
    Sections(Vec<Placed>),
}

impl Placement {
    /// Sections of a module, in any order.
    pub fn of_sections(mut sections: Vec<Placed>) -> Placement {
        sections.sort_by_key(|section| section.link);
        Placement::Sections(sections)
    }

    /// Where an address of the site data is in the kernel; `None` if its section is not loaded.
    pub fn run_time(&self, link: u64) -> Option<u64> {
        match self {
            Placement::Whole(displacement) => Some(link.wrapping_add(*displacement)),
            Placement::Sections(sections) => {
                let after = sections.partition_point(|section| section.link <= link);
                let section = sections.get(after.checked_sub(1)?)?;
                let offset = link - section.link;
                (offset <= section.size).then(|| section.run.wrapping_add(offset))
            }
        }
    }

    /// The address in the site data of an address in the kernel; `None` outside of all sections.
    pub fn link_time(&self, run: u64) -> Option<u64> {
        match self {
            Placement::Whole(displacement) => Some(run.wrapping_sub(*displacement)),
            Placement::Sections(sections) => sections.iter().find_map(|section| {
                let offset = run.checked_sub(section.run).filter(|offset| *offset < section.size)?;
                Some(section.link.wrapping_add(offset))
            }),
        }
    }

    /// What a trampoline adds to the address constants of locations that [`Placement::settle`] has seen.
    pub fn displacement(&self) -> u64 {
        match self {
            Placement::Whole(displacement) => *displacement,
            Placement::Sections(_) => 0,
        }
    }

    /// Puts run-time addresses for the address constants of a location, where one number for all does not do.
    pub fn settle(&self, argument: Argument) -> Argument {
        if matches!(self, Placement::Whole(_)) {
            return argument;
        }
        let run_time = |link: u64| self.run_time(link).ok_or(Missing::Unsupported);
        let mut located = argument?;
        match &mut located.at {
            Location::Address(address) => located.at = Location::Constant(run_time(*address)?),
            Location::Computed(computed) => {
                for op in computed.slots.iter_mut().flat_map(|slot| slot.iter_mut()) {
                    if let Op::Address(address) = *op {
                        *op = Op::Constant(run_time(address)?);
                    }
                }
            }
            _ => {}
        }
        Ok(located)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::Located;

    fn module() -> Placement {
        let placed = |link, size, run| Placed { link, size, run };
        Placement::of_sections(vec![placed(0x2_0000, 0x40, 0xffff_0000), placed(0x1_0000, 0x100, 0xffff_8000)])
    }

    #[test]
    fn sections_are_placed_one_by_one() {
        let module = module();
        assert_eq!(module.run_time(0x1_0010), Some(0xffff_8010));
        assert_eq!(module.run_time(0x1_0100), Some(0xffff_8100), "just past the end");
        assert_eq!(module.run_time(0x1_0101), None);
        assert_eq!(module.run_time(0x2_0004), Some(0xffff_0004));
        assert_eq!(module.run_time(0xffff), None);
        assert_eq!(module.link_time(0xffff_0004), Some(0x2_0004));
        assert_eq!(module.link_time(0xffff_0040), None);
        let image = Placement::Whole(0x1000);
        assert_eq!((image.run_time(0x10), image.link_time(0x1010)), (Some(0x1010), Some(0x10)));
    }

    #[test]
    fn address_constants_are_those_of_their_sections() {
        let at = |at| Ok(Located::certain(8, false, at));
        let module = module();
        assert_eq!(module.settle(at(Location::Address(0x2_0008))), at(Location::Constant(0xffff_0008)));
        assert_eq!(module.settle(at(Location::Address(0x3_0000))), Err(Missing::Unsupported));
        assert_eq!(module.settle(at(Location::Register(5))), at(Location::Register(5)));
        let image = Placement::Whole(0x1000);
        assert_eq!(image.settle(at(Location::Address(8))), at(Location::Address(8)), "the trampoline displaces it");
    }
}
