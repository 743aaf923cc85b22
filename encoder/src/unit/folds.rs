// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of functions that were folded: see [`folded`](crate::unit::folded).

use super::{CopiedSite, UnitEncoder, shape};
use crate::unit::folded::{Folded, Folds, Left, Places, function_of};
use crate::unit::origin::Origin;
use crate::unit::outofline::{self, Role};
use hashbrown::HashSet;
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::location::Missing;
use siteseer_sites::{Marks, Site, SiteKind};

impl<'a> UnitEncoder<'a, '_, '_> {
    /// Makes the sites of functions that were folded into others, and marks those of the others.
    pub(super) fn folded_sites(&mut self) {
        let mut folds = std::mem::take(&mut self.folds);
        let is_linked = self.unit.is_by_gcc_lto();
        if folds.is_empty() && !is_linked {
            return;
        }
        let ranges = self.unit.ranges();
        if is_linked {
            folds.find_early(self.shared.image, &ranges, |name| self.origins.early(name), |die| self.origins.root(die));
        }
        folds.find_declared_inline(self.shared.image, &ranges, |die| self.origins.name(die));
        let owns = |address: u64| ranges.iter().any(|range| range.contains(&address));
        let origins = &mut self.origins;
        let mut shapes = |die: usize| origins.get(die).map(|origin| shapes_of(&origin));
        let is_like = |one: usize, other: usize| shapes(one).is_some_and(|one| Some(one) == shapes(other));
        let resolved = folds.resolve(self.shared.image, &self.shared.shared_addresses, owns, is_like);
        let kept: HashSet<&str> = resolved.folded.iter().flat_map(|folded| folded.into.iter().copied()).collect();
        let twins = self.twins_of(&folds);
        let mut copied: HashSet<&str> = HashSet::new();
        for (index, site) in (0u32..).zip(&mut self.out.sites) {
            let name = self.out.functions[site.function as usize].name;
            if twins.contains(&index) || kept.contains(name) {
                site.marks |= Marks::MAY_REPEAT;
            }
            if site.kind != SiteKind::Body && kept.contains(name) {
                copied.insert(name);
            }
        }
        for (die, address) in resolved.without_site {
            self.site_by_symbol(die, address, Marks::MAY_REPEAT);
        }
        // Of some functions alone it is not known which have copies.
        let is_copied = |name: &&str| self.shared.filter.is_some() || copied.contains(name);
        let marks: Vec<Marks> = (resolved.folded.iter())
            .map(|folded| match &folded.left {
                Left::Alias if folded.into.iter().any(is_copied) => Marks::MAY_REPEAT | Marks::MAY_MISS,
                Left::Alias => Marks::MAY_REPEAT,
                Left::Jump | Left::Copy(_) => Marks::MAY_MISS,
            })
            .collect();
        let is_missed = |(folded, marks): (&Folded<'a>, &Marks)| {
            if marks.contains(Marks::MAY_MISS) { self.origins.name(folded.die) } else { None }
        };
        let mut missed: HashSet<&str> = resolved.folded.iter().zip(&marks).filter_map(is_missed).collect();
        missed.extend(self.inlined_into_copies(&resolved.folded));
        for site in &mut self.out.sites {
            if missed.contains(self.out.functions[site.function as usize].name) {
                site.marks |= Marks::MAY_MISS;
            }
        }
        for (folded, marks) in resolved.folded.iter().zip(marks) {
            self.site_by_symbol(folded.die, folded.address, marks);
        }
    }

    /// Notes where the sites in bodies are in copies that no debug entry describes. Gives the functions with calls that
    /// are missed there, because that cannot be told.
    fn inlined_into_copies(&mut self, folded: &[Folded<'a>]) -> HashSet<&'a str> {
        let (mut missed, mut known) = (HashSet::new(), HashSet::new());
        for folded in folded {
            let Left::Copy(of_bodies) = &folded.left else { continue };
            // Several definitions may have the name of one symbol.
            if !known.insert(folded.address) {
                continue;
            }
            // GCC folds no functions with parameters of other shapes, however equal their code is.
            let own = self.origins.get(folded.die).map(|origin| shapes_of(&origin));
            let could_be: Vec<&Places> = (of_bodies.iter())
                .filter(|(die, _)| self.origins.get(*die).map(|origin| shapes_of(&origin)) == own)
                .map(|(_, places)| places)
                .collect();
            let copied: Option<Vec<Vec<CopiedSite>>> =
                could_be.into_iter().map(|places| self.copied_sites(folded.address, places)).collect();
            let Some(copied) = copied.filter(|of_bodies| !of_bodies.is_empty()) else {
                missed.extend(self.inlined_into(&folded.into));
                continue;
            };
            // It is a copy of one of them, and what all have is there.
            let is_in_all =
                |one: &CopiedSite| copied.iter().all(|of_body| of_body.iter().any(|other| self.is_equal(one, other)));
            let (there, not_there): (Vec<CopiedSite>, Vec<CopiedSite>) =
                copied[0].iter().partition(|one| is_in_all(one));
            let of_others = copied[1..].iter().flatten().filter(|one| !is_in_all(one));
            let function_of = |one: &CopiedSite| self.out.sites[one.site as usize].function as usize;
            missed.extend(not_there.iter().chain(of_others).map(|one| self.out.functions[function_of(one)].name));
            self.out.copied.extend(there);
        }
        missed
    }

    /// The names of the functions that were inlined into some functions.
    fn inlined_into(&self, bodies: &[&'a str]) -> impl Iterator<Item = &'a str> {
        let is_inside = |site: &&Site| {
            let (container, _) = &self.out.containers[site.container as usize];
            site.kind == SiteKind::Inline && bodies.contains(&function_of(container.name))
        };
        self.out.sites.iter().filter(is_inside).map(|site| self.out.functions[site.function as usize].name)
    }

    /// The inlined sites of a function in another one with the same code, which begins at an address. `None` if one of
    /// them is not at an instruction.
    fn copied_sites(&mut self, function: u64, places: &[(u64, u64)]) -> Option<Vec<CopiedSite>> {
        let place_of =
            |address: u64| places.binary_search_by_key(&address, |place| place.0).ok().map(|index| places[index].1);
        let mut copied = Vec::new();
        for index in 0..self.out.sites.len() as u32 {
            let site = &self.out.sites[index as usize];
            let (container, _) = &self.out.containers[site.container as usize];
            let is_inside = site.kind == SiteKind::Inline && place_of(container.address).is_some();
            if !is_inside || self.out.rests.contains(&index) {
                continue;
            }
            let (address, entry) = (place_of(site.address)?, place_of(site.entry())?);
            // It says how far the probe is from the entry.
            if address.wrapping_sub(entry) != site.address.wrapping_sub(site.entry()) {
                return None;
            }
            let section = self.shared.image.section_at(address)?;
            let unprobeable = self.prober.check_instruction(address);
            let container = self.container(address);
            copied.push(CopiedSite { site: index, function, address, section, container, unprobeable });
        }
        Some(copied)
    }

    /// Whether the same begins at the same address, with the same arguments.
    fn is_equal(&self, one: &CopiedSite, other: &CopiedSite) -> bool {
        let [here, there] = [one, other].map(|copied| &self.out.sites[copied.site as usize]);
        one.address == other.address && here.function == there.function && here.prototype == there.prototype
    }

    /// The sites of functions that those without anything left may have been folded into: of the same shape, and of the
    /// unit's own source.
    fn twins_of(&mut self, folds: &Folds<'a>) -> HashSet<u32> {
        // A function that a header declares and the unit does not call is not such a function.
        let is_units = |origin: &Origin<'a>| origin.declared_file == PRIMARY_FILE;
        let mut gone = Vec::new();
        for die in folds.gone(self.shared.image) {
            let origin = self.origins.get(die).filter(|origin| is_units(origin));
            gone.extend(origin.map(|origin| shapes_of(&origin)));
        }
        if gone.is_empty() {
            return HashSet::new();
        }
        let is_twin = |function: u32| {
            let origin = &self.out.functions[function as usize].origin;
            is_units(origin) && gone.contains(&shapes_of(origin))
        };
        (0u32..).zip(&self.out.sites).filter(|(_, site)| is_twin(site.function)).map(|(index, _)| index).collect()
    }

    /// Makes the site of a function from one of its symbols, if nothing else is known about it.
    fn site_by_symbol(&mut self, die: usize, address: u64, mut marks: Marks) -> Option<()> {
        let image = self.shared.image;
        let section = image.section_at(address)?;
        let own_name = self.origins.name(die)?;
        let role = outofline::role(image.symbol_at(address).iter().map(|symbol| symbol.name), own_name);
        let kind = role.kind()?;
        let name = if let Role::Part(symbol) = role { symbol } else { own_name };
        if self.shared.filter.as_ref().is_some_and(|filter| !filter.has_name(name)) {
            return None;
        }
        let origin = self.origins.get(die)?;
        self.arguments = if role.is_changed() {
            marks |= Marks::SIGNATURE_CHANGED;
            vec![Err(Missing::NotMentioned); origin.parameters.len()]
        } else {
            let shapes: Vec<ParamShape> = origin.parameters.iter().map(|parameter| shape(&parameter.ty)).collect();
            abi_arguments(image.machine(), &shapes, origin.result.as_ref().map(shape))
        };
        let unprobeable = self.prober.check_address(address);
        self.push_out_of_line(name, kind, (address, section), origin, marks, unprobeable);
        Some(())
    }
}

/// The shapes of a function's parameters and of its result.
fn shapes_of(origin: &Origin<'_>) -> (Vec<ParamShape>, Option<ParamShape>) {
    let parameters = origin.parameters.iter().map(|parameter| shape(&parameter.ty)).collect();
    (parameters, origin.result.as_ref().map(shape))
}

/// The index of the unit's own source in its line table, as GCC numbers files.
const PRIMARY_FILE: u64 = 1;
