// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Abstract functions: the name, prototype and parameters that copies refer to.
//!
//! A copy's debug entry says little more than where it is. What it is a copy of is found through
//! `DW_AT_abstract_origin`: the abstract function, with its name, its types and all its parameters, also those that the
//! copy does not mention. The reference may lead through several entries, and, with link-time optimisation, into
//! another unit (`DW_FORM_ref_addr`). Each is read once per unit that refers to it; abstract functions of other units
//! are read once in all and shared.

use crate::debug::slice::Slice;
use crate::debug::units::{DebugInfo, DebugUnit};
use crate::lower::ParamType;
use crate::types::{BaseIndex, TypeRef, UnitTypes};
use crate::unit::early;
use gimli::{AttributeValue, UnitOffset};
use hashbrown::HashMap;
use siteseer_sites::location::Missing;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Longer chains of references are treated as loops.
const MAX_STEPS: usize = 8;
/// More parameters than a function can have in BTF's proportions; a function that claims more is malformed.
const MAX_PARAMETERS: usize = 256;

/// An abstract function.
#[derive(Debug, Clone)]
pub(crate) struct Origin<'a> {
    /// Name in the source; the linkage name for languages in which names are not unique.
    pub(crate) name: &'a str,
    /// The unit that declares it, and the index of the file in that unit's line table.
    pub(crate) declared_in: usize,
    pub(crate) declared_file: u64,
    pub(crate) declared_line: u32,
    pub(crate) declared_column: u32,
    /// Whether a macro wrote the function: all of it is at one place in the source.
    pub(crate) by_macro: bool,
    pub(crate) returns: TypeRef,
    /// What the calling convention must know of what it returns; `None` for `void`.
    pub(crate) result: Option<Result<ParamType, Missing>>,
    pub(crate) parameters: Vec<OriginParameter<'a>>,
    pub(crate) variadic: bool,
    pub(crate) external: bool,
}

/// A parameter of an abstract function.
#[derive(Debug, Clone)]
pub(crate) struct OriginParameter<'a> {
    /// Offset of its entry in `.debug_info`.
    die: usize,
    pub(crate) name: &'a str,
    /// What lowering must know of its type.
    pub(crate) ty: Result<ParamType, Missing>,
    pub(crate) type_ref: TypeRef,
    /// `DW_AT_const_value`: the same value in every copy.
    pub(crate) constant: Option<AttributeValue<Slice<'a>>>,
}

impl Origin<'_> {
    /// The index of the parameter with its entry at that offset of `.debug_info`.
    pub(crate) fn parameter_at(&self, die: usize) -> Option<usize> {
        self.parameters.iter().position(|parameter| parameter.die == die)
    }
}

/// The entry at the end of a chain of references, as attributes.
struct Declaration<'a> {
    name: Option<AttributeValue<Slice<'a>>>,
    linkage_name: Option<AttributeValue<Slice<'a>>>,
    ty: Option<usize>,
    file: u64,
    line: u32,
    column: u32,
    external: bool,
    has_children: bool,
    origin: Option<usize>,
    specification: Option<usize>,
    /// Where its children begin, as an offset in the unit.
    children: UnitOffset,
}

fn declaration<'a>(
    unit: &DebugUnit<'a, '_>,
    offset: UnitOffset,
) -> gimli::Result<Option<(gimli::DwTag, Declaration<'a>)>> {
    let mut entries = unit.unit.entries_raw(Some(offset))?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
    let mut found = Declaration {
        name: None,
        linkage_name: None,
        ty: None,
        file: 0,
        line: 0,
        column: 0,
        external: false,
        has_children: abbreviation.has_children(),
        origin: None,
        specification: None,
        children: offset,
    };
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        match attribute.name() {
            gimli::DW_AT_name => found.name = Some(attribute.value()),
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => found.linkage_name = Some(attribute.value()),
            gimli::DW_AT_type => found.ty = unit.reference(attribute.raw_value()),
            gimli::DW_AT_decl_file => {
                found.file = match attribute.value() {
                    AttributeValue::FileIndex(index) => index,
                    _ => 0,
                }
            }
            gimli::DW_AT_decl_line => {
                found.line = attribute.udata_value().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            }
            gimli::DW_AT_decl_column => {
                found.column = attribute.udata_value().and_then(|column| u32::try_from(column).ok()).unwrap_or(0);
            }
            gimli::DW_AT_external => found.external = matches!(attribute.value(), AttributeValue::Flag(true)),
            gimli::DW_AT_abstract_origin => found.origin = unit.reference(attribute.raw_value()),
            gimli::DW_AT_specification => found.specification = unit.reference(attribute.raw_value()),
            _ => {}
        }
    }
    found.children = entries.next_offset();
    Ok(Some((abbreviation.tag(), found)))
}

/// Abstract functions of units other than the one that refers to them.
pub(crate) struct Foreign<'a, 'd> {
    debug: &'d DebugInfo<'a>,
    base: &'d BaseIndex<'a>,
    units: Vec<OnceLock<Option<DebugUnit<'a, 'd>>>>,
    origins: Mutex<HashMap<usize, Option<Arc<Origin<'a>>>>>,
    /// The definitions of units without text, by their names, once they are asked for: see [`early`].
    early: OnceLock<HashMap<&'a str, Vec<usize>>>,
}

impl<'a, 'd> Foreign<'a, 'd> {
    pub(crate) fn new(debug: &'d DebugInfo<'a>, base: &'d BaseIndex<'a>) -> Foreign<'a, 'd> {
        let units = std::iter::repeat_with(OnceLock::new).take(debug.headers.len()).collect();
        Foreign { debug, base, units, origins: Mutex::default(), early: OnceLock::new() }
    }

    fn early(&self) -> &HashMap<&'a str, Vec<usize>> {
        self.early.get_or_init(|| {
            let mut early: HashMap<&'a str, Vec<usize>> = HashMap::default();
            for offset in early::definitions(self.debug) {
                if let Some(name) = self.unit_at(offset).and_then(|unit| name_at(unit, self, offset)) {
                    early.entry(name).or_default().push(offset);
                }
            }
            early
        })
    }

    /// The unit that holds an offset of `.debug_info`.
    fn unit_at(&self, offset: usize) -> Option<&DebugUnit<'a, 'd>> {
        let index = self.debug.unit_at(offset)?;
        self.units[index].get_or_init(|| self.debug.open(index).ok()).as_ref()
    }

    fn get(&self, offset: usize) -> Option<Arc<Origin<'a>>> {
        if let Some(known) = self.origins.lock().unwrap_or_else(PoisonError::into_inner).get(&offset) {
            return known.clone();
        }
        let origin = self.unit_at(offset).and_then(|unit| {
            let mut types = types_of(unit, self.base);
            Some(Arc::new(read(unit, &mut types, self, offset)?))
        });
        self.origins.lock().unwrap_or_else(PoisonError::into_inner).entry(offset).or_insert(origin).clone()
    }
}

fn types_of<'u, 'a>(unit: &'u DebugUnit<'a, '_>, base: &'u BaseIndex<'a>) -> UnitTypes<'u, 'a> {
    UnitTypes::new(base, &unit.debug.dwarf, &unit.debug.headers, &unit.unit)
}

/// The abstract functions that one unit refers to.
pub(crate) struct Origins<'a, 'd, 'u> {
    unit: &'u DebugUnit<'a, 'd>,
    types: UnitTypes<'u, 'a>,
    foreign: &'u Foreign<'a, 'd>,
    known: HashMap<usize, Option<Arc<Origin<'a>>>>,
}

impl<'a, 'd, 'u> Origins<'a, 'd, 'u> {
    pub(crate) fn new(unit: &'u DebugUnit<'a, 'd>, foreign: &'u Foreign<'a, 'd>) -> Self {
        Origins { unit, types: types_of(unit, foreign.base), foreign, known: HashMap::default() }
    }

    /// The abstract function that an entry refers to; the entry is given by its offset in `.debug_info`. `None` if the
    /// entry is not one of a function, has no name, or cannot be read.
    pub(crate) fn get(&mut self, offset: usize) -> Option<Arc<Origin<'a>>> {
        if let Some(known) = self.known.get(&offset) {
            return known.clone();
        }
        let root = root(self.unit, self.foreign, offset);
        let origin = if root != offset {
            self.get_root(root)
        } else if self.is_own(offset) {
            read(self.unit, &mut self.types, self.foreign, offset).map(Arc::new)
        } else {
            self.foreign.get(offset)
        };
        self.known.insert(offset, origin.clone());
        origin
    }

    /// The same, of an offset that refers no further.
    fn get_root(&mut self, offset: usize) -> Option<Arc<Origin<'a>>> {
        if let Some(known) = self.known.get(&offset) {
            return known.clone();
        }
        let origin = if self.is_own(offset) {
            read(self.unit, &mut self.types, self.foreign, offset).map(Arc::new)
        } else {
            self.foreign.get(offset)
        };
        self.known.insert(offset, origin.clone());
        origin
    }

    fn is_own(&self, offset: usize) -> bool {
        offset
            .checked_sub(self.unit.offset)
            .is_some_and(|offset| offset < self.unit.unit.header.length_including_self())
    }

    /// The entry that a chain of abstract origins ends at.
    pub(crate) fn root(&self, offset: usize) -> Option<usize> {
        Some(root(self.unit, self.foreign, offset)).filter(|root| *root != offset)
    }

    /// The name of a source file, by its index in the line table of a unit.
    pub(crate) fn file_name(&self, unit: usize, file: u64) -> Option<String> {
        if unit == self.unit.index {
            return self.unit.file_name(file);
        }
        let offset = self.foreign.debug.headers.get(unit)?.debug_info_offset()?.0;
        self.foreign.unit_at(offset)?.file_name(file)
    }

    /// The definitions with a name in units without text.
    pub(crate) fn early(&self, name: &str) -> &[usize] {
        self.foreign.early().get(name).map_or(&[], Vec::as_slice)
    }

    /// The name of the abstract function that an entry refers to, and nothing else of it.
    pub(crate) fn name(&self, offset: usize) -> Option<&'a str> {
        name_at(self.unit, self.foreign, root(self.unit, self.foreign, offset))
    }
}

/// The unit that holds an offset: the one at hand, or another.
fn unit_of<'r, 'a, 'd>(
    unit: &'r DebugUnit<'a, 'd>,
    foreign: &'r Foreign<'a, 'd>,
    offset: usize,
) -> Option<(&'r DebugUnit<'a, 'd>, UnitOffset)> {
    let own = offset.checked_sub(unit.offset).filter(|offset| *offset < unit.unit.header.length_including_self());
    match own {
        Some(offset) => Some((unit, UnitOffset(offset))),
        None => {
            let other = foreign.unit_at(offset)?;
            Some((other, UnitOffset(offset.checked_sub(other.offset)?)))
        }
    }
}

/// Follows abstract origins. Where one cannot be followed, the last that could.
fn root<'a, 'd>(unit: &DebugUnit<'a, 'd>, foreign: &Foreign<'a, 'd>, mut offset: usize) -> usize {
    for _ in 0..MAX_STEPS {
        let next = unit_of(unit, foreign, offset)
            .and_then(|(unit, offset)| declaration(unit, offset).ok().flatten())
            .and_then(|(_, declaration)| declaration.origin);
        match next {
            Some(next) => offset = next,
            None => break,
        }
    }
    offset
}

fn name_at<'a, 'd>(unit: &DebugUnit<'a, 'd>, foreign: &Foreign<'a, 'd>, offset: usize) -> Option<&'a str> {
    let (at, local) = unit_of(unit, foreign, offset)?;
    let (_, found) = declaration(at, local).ok().flatten()?;
    let specified = found.specification.and_then(|offset| specified(at, foreign, offset));
    name(at, &found, specified.as_ref())
}

/// What `DW_AT_specification` refers to: the declaration that the entry completes.
fn specified<'a, 'd>(unit: &DebugUnit<'a, 'd>, foreign: &Foreign<'a, 'd>, offset: usize) -> Option<Declaration<'a>> {
    let (unit, offset) = unit_of(unit, foreign, offset)?;
    declaration(unit, offset).ok().flatten().map(|(_, declaration)| declaration)
}

fn name<'a>(unit: &DebugUnit<'a, '_>, own: &Declaration<'a>, specified: Option<&Declaration<'a>>) -> Option<&'a str> {
    let plain = own.name.or_else(|| specified?.name);
    let linkage = own.linkage_name.or_else(|| specified?.linkage_name);
    let value = if unit.is_c { plain } else { linkage.or(plain) }?;
    text(unit, value).filter(|name| !name.is_empty())
}

fn text<'a>(unit: &DebugUnit<'a, '_>, value: AttributeValue<Slice<'a>>) -> Option<&'a str> {
    let bytes = unit.debug.dwarf.attr_string(&unit.unit, value).ok()?;
    std::str::from_utf8(bytes.slice()).ok()
}

/// Reads the abstract function at an offset that refers no further and lies in `unit`.
fn read<'a, 'd>(
    unit: &DebugUnit<'a, 'd>,
    types: &mut UnitTypes<'_, 'a>,
    foreign: &Foreign<'a, 'd>,
    offset: usize,
) -> Option<Origin<'a>> {
    let (tag, found) = declaration(unit, UnitOffset(offset.checked_sub(unit.offset)?)).ok().flatten()?;
    if tag != gimli::DW_TAG_subprogram {
        return None;
    }
    let specified = found.specification.and_then(|offset| specified(unit, foreign, offset));
    let name = name(unit, &found, specified.as_ref())?;
    let ty = found.ty.or_else(|| specified.as_ref()?.ty);
    let at = specified.as_ref().filter(|_| found.line == 0).unwrap_or(&found);
    let (file, line, column) = (at.file, at.line, at.column);
    let mut origin = Origin {
        name,
        declared_in: unit.index,
        declared_file: file,
        declared_line: line,
        declared_column: column,
        by_macro: false,
        returns: ty.map_or(TypeRef::Void, |ty| types.resolve(ty)),
        result: ty.map(|ty| types.param_type(ty)),
        parameters: Vec::new(),
        variadic: false,
        external: found.external || specified.is_some_and(|specified| specified.external),
    };
    if found.has_children {
        // What can be read of a damaged list of children is not the function: it would have too few parameters.
        parameters(unit, types, found.children, &mut origin).ok()?;
    }
    Some(origin)
}

/// Reads the parameters among the children that begin at an offset.
fn parameters<'a>(
    unit: &DebugUnit<'a, '_>,
    types: &mut UnitTypes<'_, 'a>,
    children: UnitOffset,
    origin: &mut Origin<'a>,
) -> gimli::Result<()> {
    let mut entries = unit.unit.entries_raw(Some(children))?;
    let mut depth = 0usize;
    loop {
        let die = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else {
            match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return Ok(()),
            }
            continue;
        };
        let mut sibling = None;
        if depth == 0 && abbreviation.tag() == gimli::DW_TAG_formal_parameter {
            let (mut name, mut ty, mut constant) = (None, None, None);
            let (mut line, mut column) = (None, None);
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification)?;
                match attribute.name() {
                    gimli::DW_AT_name => name = text(unit, attribute.value()),
                    gimli::DW_AT_type => ty = unit.reference(attribute.raw_value()),
                    gimli::DW_AT_const_value => constant = Some(attribute.value()),
                    gimli::DW_AT_decl_line => line = attribute.udata_value(),
                    gimli::DW_AT_decl_column => column = attribute.udata_value(),
                    _ => {}
                }
            }
            let declared = (Some(origin.declared_line.into()), Some(origin.declared_column.into()));
            origin.by_macro |= (line, column) == declared;
            if origin.parameters.len() >= MAX_PARAMETERS {
                return Err(gimli::Error::UnsupportedOffset);
            }
            origin.parameters.push(OriginParameter {
                die: unit.offset.saturating_add(die.0),
                name: name.unwrap_or(""),
                ty: ty.map_or(Err(Missing::NoType), |ty| types.param_type(ty)),
                type_ref: ty.map_or(TypeRef::Void, |ty| types.resolve(ty)),
                constant,
            });
        } else {
            if depth == 0 && abbreviation.tag() == gimli::DW_TAG_unspecified_parameters {
                origin.variadic = true;
            }
            for specification in abbreviation.attributes() {
                if abbreviation.has_children() && specification.name() == gimli::DW_AT_sibling {
                    if let AttributeValue::UnitRef(offset) = entries.read_attribute(*specification)?.raw_value() {
                        sibling = Some(offset);
                    }
                } else {
                    entries.skip_attributes(std::slice::from_ref(specification))?;
                }
            }
        }
        match sibling {
            Some(sibling) if sibling > entries.next_offset() => entries = unit.unit.entries_raw(Some(sibling))?,
            _ if abbreviation.has_children() => depth += 1,
            _ => {}
        }
    }
}
