// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of functions themselves: see `outofline`.

use super::{ParameterKey, UnitEncoder, base_function, resolved_kind, shape};
use crate::debug::lines::Lines;
use crate::debug::loclist::Point;
use crate::debug::walk::RawFunction;
use crate::text::{self, FunctionText, Known, idle_prefix};
use crate::types::TypeRef;
use crate::unit::arguments::{At, Form, Found, Gathered, Surroundings};
use crate::unit::assigned::Body;
use crate::unit::clang::{self, Passed};
use crate::unit::copies::{copies_inside, innermost, is_in_copy, nested, place_of};
use crate::unit::doubt::Evidence;
use crate::unit::origin::Origin;
use crate::unit::outofline::{self, Role};
use crate::unit::repeats::{self, OwnLines};
use crate::unit::returns::{self, Pending};
use crate::unit::signature::{self, Copy, Signature};
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::btf::Kind;
use siteseer_sites::location::{Argument, Missing};
use siteseer_sites::{Doubt, Marks, Site, SiteKind, Unprobeable};
use std::sync::Arc;

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Makes a site of the function itself, if its name alone cannot tell.
    pub(super) fn out_of_line_site(&mut self, function: &RawFunction<'a>, offset: usize) -> Option<()> {
        let named = self.by_symbols(function, offset)?;
        let origin = self.origins.get(offset)?;
        let signature = self.signature_of(function, &named, &origin)?;
        let mut marks = Marks::default();
        if signature == Signature::Changed {
            marks |= Marks::SIGNATURE_CHANGED;
            match self.returned(&origin, function.nocall, named.address) {
                Returned::Nothing => {}
                Returned::Kept => marks |= Marks::RETURN_KEPT,
                Returned::IfUsed => {
                    let entries = [offset, function.origin.unwrap_or(offset)];
                    let site = self.out.sites.len() as u32;
                    self.pending.push(Pending { site, address: named.address, entries });
                }
            }
        }
        let text = self.text_of(function);
        marks |= self.marks_of_body(function, offset, named.address, &origin, &text);
        // A recursion that became a loop need not come back with its arguments where callers put them. Entries that
        // ftrace patches are not concerned: a loop comes back to after what is patched.
        if text.reentered_from(named.address, &function.ranges) {
            for located in self.arguments.iter_mut().filter_map(|argument| argument.as_mut().ok()) {
                located.doubt.get_or_insert(Doubt::OtherCall);
            }
        }
        let unprobeable = self.prober.check(&text, named.address);
        self.push_out_of_line(named.name, named.kind, (named.address, named.section), origin, marks, unprobeable);
        Some(())
    }

    /// A function's instructions.
    pub(super) fn text_of(&self, function: &RawFunction<'a>) -> FunctionText<'d, 'a> {
        let known = Known {
            entry: function.entry,
            frame_pointer: self.frame_pointer(function),
            no_jump_tables: self.no_jump_tables,
            tail_calls: &function.tail_calls,
            noreturn: None,
        };
        FunctionText::decode(self.shared.image, &function.ranges, &known)
    }

    /// What a function is by its symbols; `None` if it is not wanted.
    fn by_symbols(&self, function: &RawFunction<'a>, offset: usize) -> Option<Named<'a>> {
        let shared = self.shared;
        let address = function.entry.unwrap_or(function.ranges.first()?.start);
        let section = shared.image.section_at(address)?;
        let own_name = self.origins.name(offset)?;
        if shared.filter.as_ref().is_some_and(|filter| !filter.has_stem(own_name)) {
            return None;
        }
        let role = outofline::role(shared.image.symbol_at(address).iter().map(|symbol| symbol.name), own_name);
        let kind = role.kind()?;
        let name = if let Role::Part(symbol) = role { symbol } else { own_name };
        if shared.filter.as_ref().is_some_and(|filter| !filter.has_name(name)) {
            return None;
        }
        Some(Named { address, section, own_name, name, role, kind })
    }

    /// Finds the arguments at a function's entry, into [`UnitEncoder::arguments`], and whether they are the source's.
    /// `None` if the function's name tells all that.
    fn signature_of(
        &mut self,
        function: &RawFunction<'a>,
        named: &Named<'a>,
        origin: &Origin<'a>,
    ) -> Option<Signature> {
        let (shared, image) = (self.shared, self.shared.image);
        let Named { address, own_name, name, role, .. } = *named;
        self.find_own(function, origin, address, !(role.is_changed() || function.nocall));
        let shapes: Vec<ParamShape> = origin.parameters.iter().map(|parameter| shape(&parameter.ty)).collect();
        let abi = abi_arguments(image.machine(), &shapes, origin.result.as_ref().map(shape));
        let symbols = image.symbol_at(address);
        let symbol = symbols.iter().find(|symbol| outofline::role([symbol.name], own_name) == role);
        let copy = Copy {
            role,
            symbol: symbol.map_or(own_name, |symbol| symbol.name),
            compiler: self.unit.compiler(),
            is_by_gcc_lto: self.unit.is_by_gcc_lto(),
            is_c: self.unit.is_c,
            is_global: symbols.iter().any(|symbol| symbol.name == own_name && symbol.global),
            nocall: function.nocall,
            is_called: shared.direct.as_ref().is_none_or(|direct| direct.has(address)),
        };
        let passed: Vec<Passed> = (origin.parameters.iter().zip(&self.found).zip(&abi))
            .map(|((parameter, found), abi)| {
                let kind = resolved_kind(shared.base, &parameter.type_ref);
                let is_memory = matches!(kind, None | Some(Kind::Ptr | Kind::Struct | Kind::Union));
                Passed::new(&found.argument, abi, is_memory)
            })
            .collect();
        let signature = copy.signature(&passed);
        // With another signature, what seems to be in its place may be another parameter's.
        if self.is_by_clang && function.origin.is_some() && signature == Signature::Source {
            self.note_own(function, origin, &abi, address);
        }
        let name_tells = matches!(role, Role::Body)
            && signature == Signature::Source
            && !passed.iter().any(|passed| copy.may_be_left_out(passed))
            && !abi.iter().zip(&shapes).zip(&passed).any(|((abi, shape), passed)| copy.may_be_unfilled(abi, shape, passed))
            && image.symbols_named(name).nth(1).is_none()
            && !shared.namesakes.contains(name)
            // A module's name is looked up in its own BTF alone.
            && base_function(shared.base, name, origin).is_some_and(|func| func >= shared.base.btf().first_id());
        if name_tells {
            return None;
        }
        self.observe(name, named.kind, address, 0);
        let found = std::mem::take(&mut self.found);
        self.arguments = match signature {
            Signature::Source => signature::of_source(&copy, found, abi, &shapes, &passed),
            Signature::Changed => {
                let is_kept = |register| text::is_kept(image, &function.ranges, register);
                signature::of_changed(&copy, image.machine(), found, is_kept)
            }
        };
        Some(signature)
    }

    /// What may go wrong at a function's entry: hits that are of no call, and calls that became a loop.
    fn marks_of_body(
        &mut self,
        function: &RawFunction<'a>,
        offset: usize,
        address: u64,
        origin: &Origin<'a>,
        text: &FunctionText<'_, 'a>,
    ) -> Marks {
        let (shared, image) = (self.shared, self.shared.image);
        let mut marks = Marks::default();
        // With link-time optimisation the debug entry of what was folded into the function is in another unit.
        let is_shared = self.unit.is_gcc() && origin.declared_in != self.unit.index;
        if text.reentered_from(address, &function.ranges) || is_shared && shared.shared_addresses.has(address) {
            marks |= Marks::MAY_REPEAT;
        }
        let first = text::past_tracer(image, address);
        if self.is_by_clang {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            let copy_at = |address| innermost(function, None, address);
            if repeats::begins_with_loop(text, lines, first, &function.ranges, copy_at) {
                marks |= Marks::MAY_MISS;
            }
        }
        if self.unit.is_gcc() {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            let declared = place_of(self.unit, &self.origins, &mut self.file_here, origin);
            let inside = copies_inside(function, None, function.origin.unwrap_or(offset));
            let own = declared.map(|declared| OwnLines { declared, end: u32::MAX, has_opening: true, inside });
            let start = Point { address, view: 0 };
            let nested = nested(function, None);
            let body = Body { text, ranges: &function.ranges, nested: &nested };
            let is_copys = |address| is_in_copy(function, None, function.origin.unwrap_or(offset), address);
            if own.is_some_and(|own| {
                repeats::first_statement_comes_again(lines, text, start, &[], &function.ranges, &own)
                    || repeats::first_acts_come_again(lines, text, &[first], &body, &own, &function.ranges, is_copys)
            }) {
                marks |= Marks::MAY_MISS;
            }
        }
        marks
    }

    /// Adds an out-of-line site. Its arguments are in [`UnitEncoder::arguments`]; `place` is its address and section.
    pub(super) fn push_out_of_line(
        &mut self,
        name: &'a str,
        kind: SiteKind,
        place: (u64, u16),
        origin: Arc<Origin<'a>>,
        marks: Marks,
        unprobeable: Option<Unprobeable>,
    ) {
        let (address, section) = place;
        let prototype = self.prototype();
        let declared = self.source(origin.declared_in, origin.declared_file, origin.declared_line);
        let container = self.container(address);
        let function = self.function(name, origin);
        self.out.sites.push(Site {
            function,
            kind,
            address,
            moved: 0,
            section,
            prototype,
            container,
            source: declared,
            declared,
            parent: None,
            marks,
            unprobeable,
        });
    }

    /// Finds what the debug information says about an out-of-line function's own arguments at its entry.
    fn find_own(&mut self, function: &RawFunction<'a>, origin: &Origin<'a>, address: u64, is_whole: bool) {
        self.gathered.gather(self.unit, origin, function.split_parameters().0, |offset| self.origins.root(offset));
        self.note_assignments(origin);
        if self.unit.is_gcc() {
            // A binding that is lost is an assignment. At the end of an inlined copy, GCC takes all bindings away.
            for index in self.gathered.assigned().chain(self.gathered.lost()) {
                self.out.evidence.entry(ParameterKey::of(origin, index)).or_default().and(Evidence::ASSIGNED);
            }
        }
        let surroundings = Surroundings {
            image: self.shared.image,
            unit: self.unit,
            frames: &self.frames,
            frame_base: function.frame_base,
            text: None,
            entry: address,
            is_whole,
        };
        let at = At::new(&surroundings, address);
        self.found.clear();
        for (index, parameter) in origin.parameters.iter().enumerate() {
            let found = at.find(&self.gathered, index, parameter, 0);
            self.found.push(found);
        }
        if self.unit.clang().is_some() {
            look_past_patch_site(&surroundings, origin, &self.gathered, &mut self.found);
            clang::look_past_prologue(&at, &self.gathered, origin, &mut self.found);
            clang::drop_what_is_in_parts_of_others(&at, &self.gathered, &mut self.found);
        }
    }

    /// Notes what a function by clang that has inlined copies shows of its parameters itself: which of them are where
    /// they are passed, and which of them it assigns to.
    fn note_own(&mut self, function: &RawFunction<'a>, origin: &Origin<'a>, abi: &[Argument], address: u64) {
        for (index, (found, abi)) in self.found.iter().zip(abi).enumerate() {
            let is_passed = matches!((&found.argument, abi), (Ok(found), Ok(abi)) if found.at == abi.at);
            if is_passed && found.form == Form::Covering {
                self.out.evidence.entry(ParameterKey::of(origin, index)).or_default().and(Evidence::PLAIN);
            }
        }
        for index in self.gathered.becoming_constant(self.unit.unit.encoding()) {
            self.out.evidence.entry(ParameterKey::of(origin, index)).or_default().and(Evidence::ASSIGNED);
        }
        let text = self.text_of(function);
        let nested = nested(function, None);
        let body = Body { text: &text, ranges: &function.ranges, nested: &nested };
        self.note_assigned(origin, &body, address);
    }

    /// Whether a copy with a changed signature returns what the function does.
    fn returned(&self, origin: &Origin<'a>, nocall: bool, address: u64) -> Returned {
        if origin.returns == TypeRef::Void || !self.unit.is_c {
            return Returned::Nothing;
        }
        let kept = match self.unit.clang() {
            Some(version) => version >= clang::MARKS_DEAD && !nocall,
            None => {
                self.unit.is_gcc()
                    && self.shared.image.symbol_at(address).iter().all(|symbol| {
                        match symbol.name.strip_prefix(origin.name) {
                            Some("") | None => true,
                            Some(suffix) => returns::gcc_keeps(suffix.split('.').skip(1)),
                        }
                    })
            }
        };
        if kept {
            Returned::Kept
        } else if !self.unit.is_gcc()
            && matches!(resolved_kind(self.shared.base, &origin.returns), None | Some(Kind::Struct | Kind::Union))
        {
            // Clang may drop a part of it.
            Returned::Nothing
        } else {
            Returned::IfUsed
        }
    }
}

/// An out-of-line function by its symbols.
struct Named<'a> {
    address: u64,
    section: u16,
    /// Its name in the source.
    own_name: &'a str,
    /// The name of its site: the symbol's, of what is left of a function that was split.
    name: &'a str,
    role: Role<'a>,
    kind: SiteKind,
}

/// What is known about the return value of a copy with a changed signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    /// There is none, or nothing can be known of it.
    Nothing,
    /// It is there.
    Kept,
    /// It is there if a caller uses it.
    IfUsed,
}

/// Finds the arguments that clang locates only after the instruction that ftrace patches. Nothing happens before it, so
/// they are there at the entry too.
fn look_past_patch_site<'a>(
    surroundings: &Surroundings<'_, 'a, '_>,
    origin: &Origin<'a>,
    gathered: &Gathered<'a>,
    found: &mut [Found],
) {
    let is_missing = |found: &Found| found.argument == Err(Missing::NotAtEntry);
    if !found.iter().any(is_missing) {
        return;
    }
    for place in idle_prefix(surroundings.image, surroundings.entry) {
        let at = At::new(surroundings, place);
        for (index, parameter) in origin.parameters.iter().enumerate() {
            if is_missing(&found[index]) {
                found[index] = at.find(gathered, index, parameter, 0);
            }
        }
    }
}
