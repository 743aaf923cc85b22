// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Reading a subset: finding a kernel in it, and joining what it says with the kernel's BTF.
//!
//! Opening reads the header and the checksums' own checksum. A kernel is found by a binary search. Only what is said
//! about this kernel is read, and each block that is read is checked by its checksum, as in a site file. Memory is in
//! proportion to the file: a shape is used once for a kernel, so that sites and symbols are no more than there are
//! bytes; names, which many symbols may share, are counted.

use super::{HEADER, MAGIC, SubsetError, TABLES, VERSION, reference, table};
use crate::btf::{Btf, Enumerator, IntEncoding, Kind, Linkage, Member, SplitBtf, TypeId};
use crate::file::leb::Input;
use crate::file::program;
use crate::location::{Argument, Missing};
use crate::machine::Machine;
use crate::set::{Container, Function, Module, Section, SiteSet};
use crate::site::{Marks, Site, SiteKind, SourceLine, Unprobeable};
use crate::sums::Sums;
use hashbrown::HashMap;
use std::ffi::CStr;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Names may take so many bytes in memory, and as many more for each byte of the file.
const NAMES: usize = 16 << 20;
const NAMES_PER_BYTE: usize = 8;
const SUMS: &str = "checksums";

/// A subset, open for reading.
#[derive(Debug)]
pub struct Subset<'a> {
    tables: [&'a [u8]; TABLES],
    /// Where the tables begin: what damage is told relative to.
    header: usize,
    sums: Sums<'a>,
    bytes: usize,
}

/// What a subset says about one kernel's image, or of one module.
#[derive(Debug, Clone, Copy)]
pub struct Image<'s, 'a> {
    subset: &'s Subset<'a>,
    /// Where its record is.
    at: u32,
    build_id: &'a [u8],
    machine: Machine,
    base: u64,
    btf_len: u64,
    btf_sum: u32,
    /// What follows in the record.
    rest: &'a [u8],
}

fn words(bytes: &[u8]) -> Option<&[U32]> {
    <[U32]>::ref_from_bytes(bytes).ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(U32::read_from_bytes(bytes.get(at..at + 4)?).ok()?.get())
}

impl<'a> Subset<'a> {
    /// Whether the bytes begin as a subset does.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Opens a subset. The bytes may lie anywhere: they need not be aligned.
    ///
    /// # Errors
    /// [`SubsetError`] if it is none, of another version, cut, or damaged in its header.
    pub fn parse(bytes: &'a [u8]) -> Result<Subset<'a>, SubsetError> {
        if !Self::is_one(bytes) {
            return Err(SubsetError::Magic);
        }
        let malformed = || SubsetError::Table("header");
        let version = word(bytes, 8).ok_or_else(malformed)?;
        if version != VERSION {
            return Err(SubsetError::Version(version));
        }
        // A later writer may add tables.
        let header = word(bytes, 12).ok_or_else(malformed)? as usize;
        if header < HEADER + 8 * TABLES || !header.is_multiple_of(8) || header > bytes.len() {
            return Err(malformed());
        }
        let range = |nth: usize| -> Option<(usize, usize)> {
            let (offset, len) = (word(bytes, HEADER + 8 * nth)?, word(bytes, HEADER + 8 * nth + 4)?);
            let (start, end) = (offset as usize, (offset as usize).checked_add(len as usize)?);
            (start >= header && end <= bytes.len()).then_some((start, end))
        };
        let (sums_start, sums_end) = range(table::CHECKSUMS).ok_or(SubsetError::Table(SUMS))?;
        if sums_end != bytes.len() {
            return Err(SubsetError::Table("length"));
        }
        let mut tables: [&[u8]; TABLES] = [&[]; TABLES];
        for (nth, table) in tables.iter_mut().enumerate() {
            let (start, end) = range(nth).ok_or(SubsetError::Table("list of tables"))?;
            if nth != table::CHECKSUMS && end > sums_start {
                return Err(SubsetError::Table("list of tables"));
            }
            *table = &bytes[start..end];
        }
        for (nth, name) in [
            (table::IMAGES, "table of images"),
            (table::FUNCTIONS, "table of functions"),
            (table::SITES, "table of sites"),
            (table::PROTOTYPES, "table of prototypes"),
            (table::ASKED, "list of what was asked for"),
            (table::CHECKSUMS, SUMS),
        ] {
            if !tables[nth].len().is_multiple_of(4) {
                return Err(SubsetError::Table(name));
            }
        }
        let (first, blocks) =
            words(tables[table::CHECKSUMS]).and_then(<[U32]>::split_first).ok_or(SubsetError::Table(SUMS))?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..header]);
        hasher.update(&tables[table::CHECKSUMS][4..]);
        if hasher.finalize() != first.get() {
            return Err(SubsetError::Damaged { offset: 0 });
        }
        let body = &bytes[header..sums_start];
        let sums = Sums::new(&[("subset", body)], blocks).ok_or(SubsetError::Table(SUMS))?;
        Ok(Subset { tables, header, sums, bytes: bytes.len() })
    }

    /// Names and patterns that were asked for: nothing is known about a function that none of them stands for.
    ///
    /// # Errors
    /// If the list is damaged.
    pub fn asked(&self) -> Result<Vec<&'a str>, SubsetError> {
        let list = self.tables[table::ASKED];
        self.sums.touch(list);
        let one = |offset: &U32| self.string(offset.get()).ok_or_else(|| corrupt("string", offset.get()));
        let asked = words(list).unwrap_or_default().iter().map(one).collect();
        self.whole()?;
        asked
    }

    /// How many images and modules it is about.
    pub fn len(&self) -> usize {
        self.tables[table::IMAGES].len() / 4
    }

    /// Whether it is about none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it says about the image or module with a build id; `None` if nothing.
    ///
    /// # Errors
    /// If what is on the way is damaged.
    pub fn find(&self, build_id: &[u8]) -> Result<Option<Image<'_, 'a>>, SubsetError> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let image = self.image(middle)?;
            match image.build_id.cmp(build_id) {
                std::cmp::Ordering::Equal => return Ok(Some(image)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// All images and modules, by build id.
    pub fn images(&self) -> impl ExactSizeIterator<Item = Result<Image<'_, 'a>, SubsetError>> + '_ {
        (0..self.len()).map(|nth| self.image(nth))
    }

    fn image(&self, nth: usize) -> Result<Image<'_, 'a>, SubsetError> {
        let at = self.place(table::IMAGES, nth).ok_or_else(|| corrupt("image", nth as u32))?;
        let image = self.read_image(at).ok_or_else(|| corrupt("record", at));
        self.whole()?;
        image
    }

    fn read_image(&self, at: u32) -> Option<Image<'_, 'a>> {
        let record = self.tables[table::RECORDS].get(at as usize..)?;
        let mut input = Input(record);
        let build_id = take(&mut input, |input| input.byte().map(u64::from))?;
        let machine = Machine::from_elf(u16::try_from(input.uleb()?).ok()?)?;
        let base = u64::from_le_bytes(input.array()?);
        let btf_len = input.uleb()?;
        let btf_sum = u32::from_le_bytes(input.array()?);
        self.sums.touch(&record[..record.len() - input.0.len()]);
        Some(Image { subset: self, at, build_id, machine, base, btf_len, btf_sum, rest: input.0 })
    }

    /// A word of a table of places.
    fn place(&self, table: usize, nth: usize) -> Option<u32> {
        let bytes = self.tables[table].get(nth.checked_mul(4)?..nth.checked_mul(4)?.checked_add(4)?)?;
        self.sums.touch(bytes);
        word(bytes, 0)
    }

    /// An item of a pool.
    fn item(&self, places: usize, bytes: usize, nth: u64) -> Option<&'a [u8]> {
        let nth = usize::try_from(nth).ok()?;
        let (start, end) = (self.place(places, nth)?, self.place(places, nth.checked_add(1)?)?);
        let item = self.tables[bytes].get(start as usize..end as usize)?;
        self.sums.touch(item);
        Some(item)
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let rest = self.tables[table::STRINGS].get(offset as usize..)?;
        let string = CStr::from_bytes_until_nul(rest).ok()?.to_bytes();
        self.sums.touch_string(string);
        std::str::from_utf8(string).ok()
    }

    /// Whether all that was read so far is what was written.
    fn whole(&self) -> Result<(), SubsetError> {
        self.sums.whole().map_err(|damage| SubsetError::Damaged { offset: self.header + damage.offset })
    }
}

fn corrupt(what: &'static str, index: u32) -> SubsetError {
    SubsetError::Corrupt { what, index }
}

/// Bytes after their number.
fn take<'a>(input: &mut Input<'a>, length: impl FnOnce(&mut Input<'a>) -> Option<u64>) -> Option<&'a [u8]> {
    let length = usize::try_from(length(input)?).ok()?;
    let (taken, rest) = input.0.split_at_checked(length)?;
    input.0 = rest;
    Some(taken)
}

impl<'a> Image<'_, 'a> {
    /// The build id.
    pub fn build_id(&self) -> &'a [u8] {
        self.build_id
    }

    /// The architecture.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Whether some BTF is what the record's numbers of types are numbers of.
    ///
    /// # Errors
    /// [`SubsetError::OtherTypes`].
    pub fn check_types(&self, btf: &[u8]) -> Result<(), SubsetError> {
        if btf.len() as u64 == self.btf_len && crc32fast::hash(btf) == self.btf_sum {
            Ok(())
        } else {
            Err(SubsetError::OtherTypes { length: self.btf_len, checksum: self.btf_sum })
        }
    }

    /// The build id of the kernel that a module is for, empty if it is not known; `None` for a kernel's image.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn module_kernel(&self) -> Result<Option<&'a [u8]>, SubsetError> {
        let mut input = Input(self.rest);
        let found = match input.byte() {
            Some(0) => Some(None),
            Some(1) => input.uleb().and_then(|_| take(&mut input, Input::uleb)).map(Some),
            _ => None,
        };
        self.subset.sums.touch(&self.rest[..self.rest.len() - input.0.len()]);
        self.subset.whole()?;
        found.ok_or_else(|| corrupt("record", self.at))
    }

    /// The sites, over the image's BTF; a module's is split over its kernel's.
    ///
    /// # Errors
    /// [`SubsetError::OtherTypes`] if the BTF is not the one that the record is over; an error if the file is damaged.
    pub fn site_set(&self, btf: &[u8], kernel: Option<&Btf<'_>>) -> Result<SiteSet, SubsetError> {
        let is_module = self.module_kernel()?.is_some();
        if is_module != kernel.is_some() {
            return Err(SubsetError::Base(if is_module {
                "it is a module, and its types continue its kernel's, which are not given"
            } else {
                "it is a kernel's image, not a module"
            }));
        }
        self.check_types(btf)?;
        let base = match kernel {
            Some(kernel) => Btf::parse_split(btf, kernel)?,
            None => Btf::parse(btf)?,
        };
        let mut building = Building::new(*self, btf, &base);
        let mut input = Input(self.rest);
        let done = building.record(&mut input);
        self.subset.sums.touch(&self.rest[..self.rest.len() - input.0.len()]);
        // Damage explains whatever else went wrong.
        self.subset.whole()?;
        done?;
        Ok(building.set)
    }
}

/// A set that is being made of a record.
struct Building<'s, 'a> {
    image: Image<'s, 'a>,
    set: SiteSet,
    /// The first number after the types of the BTF that the record is over.
    end: TypeId,
    sections: HashMap<u32, u16>,
    files: HashMap<u32, u32>,
    prototypes: HashMap<u64, u32>,
    containers: HashMap<(u64, u32, u32), u32>,
    /// Bytes that names may still take.
    names: usize,
}

/// The parts of the set that a shape's numbers refer to.
struct Shape<'a> {
    input: Input<'a>,
    types: Vec<TypeId>,
}

impl<'s, 'a> Building<'s, 'a> {
    fn new(image: Image<'s, 'a>, btf: &[u8], base: &Btf<'_>) -> Building<'s, 'a> {
        let set = SiteSet {
            machine: image.machine,
            build_id: image.build_id.to_vec(),
            base: image.base,
            base_btf: btf.to_vec(),
            types: SplitBtf::new(base),
            sections: Vec::new(),
            functions: Vec::new(),
            prototypes: Vec::new(),
            containers: Vec::new(),
            files: Vec::new(),
            sites: Vec::new(),
            module: None,
        };
        let names = NAMES.saturating_add(image.subset.bytes.saturating_mul(NAMES_PER_BYTE));
        Building {
            image,
            set,
            end: base.end_id(),
            sections: HashMap::new(),
            files: HashMap::new(),
            prototypes: HashMap::new(),
            containers: HashMap::new(),
            names,
        }
    }

    /// What is wrong where something could not be read.
    fn bad(&self, what: &'static str) -> SubsetError {
        corrupt(what, self.image.at)
    }

    /// A string by its offset.
    fn string(&mut self, offset: u64) -> Result<String, SubsetError> {
        let found = u32::try_from(offset).ok().and_then(|offset| self.image.subset.string(offset));
        let found = found.ok_or_else(|| self.bad("string in record"))?;
        self.names = self.names.checked_sub(found.len()).ok_or(SubsetError::TooLarge)?;
        Ok(found.to_owned())
    }

    fn name(&mut self, input: &mut Input<'_>) -> Result<String, SubsetError> {
        let offset = input.uleb().ok_or_else(|| self.bad("record"))?;
        self.string(offset)
    }

    fn number(&self, input: &mut Input<'_>) -> Result<u64, SubsetError> {
        input.uleb().ok_or_else(|| self.bad("record"))
    }

    fn small(&self, input: &mut Input<'_>) -> Result<u32, SubsetError> {
        u32::try_from(self.number(input)?).map_err(|_| self.bad("number in record"))
    }

    fn byte(&self, input: &mut Input<'_>) -> Result<u8, SubsetError> {
        input.byte().ok_or_else(|| self.bad("record"))
    }

    fn delta(&self, input: &mut Input<'_>) -> Result<i64, SubsetError> {
        input.sleb().ok_or_else(|| self.bad("record"))
    }

    fn record(&mut self, input: &mut Input<'a>) -> Result<(), SubsetError> {
        if self.byte(input)? != 0 {
            let name = self.name(input)?;
            let kernel_build_id = take(input, Input::uleb).ok_or_else(|| self.bad("record"))?.to_vec();
            let count = self.number(input)?;
            let loaded = (0..count).map(|_| Ok(self.section(input)?.1)).collect::<Result<_, SubsetError>>()?;
            self.set.module = Some(Module { name, kernel_build_id, loaded });
        }
        for _ in 0..self.number(input)? {
            let (name, section) = self.section(input)?;
            let nth = u16::try_from(self.set.sections.len()).map_err(|_| self.bad("section of record"))?;
            if self.sections.insert(name, nth).is_some() {
                return Err(self.bad("section of record"));
            }
            self.set.sections.push(section);
        }
        let mut last = 0;
        for nth in 0..self.number(input)? {
            let step = self.number(input)?;
            // A shape that came again would make more of the file than there is in it.
            if nth > 0 && step == 0 {
                return Err(self.bad("order of functions in record"));
            }
            last = u64::checked_add(last, step).ok_or_else(|| self.bad("function in record"))?;
            let shape = self.image.subset.item(table::FUNCTIONS, table::FUNCTION_BYTES, last);
            let shape = shape.ok_or_else(|| self.bad("function in record"))?;
            self.function(Shape { input: Input(shape), types: Vec::new() }, input)?;
        }
        Ok(())
    }

    /// A section, and the offset of its name.
    fn section(&mut self, input: &mut Input<'_>) -> Result<(u32, Section), SubsetError> {
        let offset = self.small(input)?;
        let name = self.string(u64::from(offset))?;
        let address = self.set.base.wrapping_add(self.delta(input)? as u64);
        Ok((offset, Section { name, address, size: self.number(input)? }))
    }

    /// A function: its shape, filled with what the record has for it.
    fn function(&mut self, mut shape: Shape<'a>, own: &mut Input<'_>) -> Result<(), SubsetError> {
        // The number that tells equal shapes apart.
        self.number(&mut shape.input)?;
        let name = self.name(&mut shape.input)?;
        let parameters = self.small(&mut shape.input)?;
        let variadic = self.byte(&mut shape.input)? != 0;
        let mut last = 0;
        for _ in 0..self.number(&mut shape.input)? {
            let ty = self.ty(&mut shape, own, &mut last)?;
            shape.types.push(ty);
        }
        let func = match self.number(&mut shape.input)? {
            0 => None,
            code => Some(self.refer(code - 1, &shape.types, own, &mut last)?),
        };
        let mut containers = Vec::new();
        let mut address = self.set.base;
        for _ in 0..self.number(&mut shape.input)? {
            let offset = self.small(&mut shape.input)?;
            let size = self.small(&mut shape.input)?;
            let unprobeable = self.unprobeable(&mut shape.input)?;
            address = address.wrapping_add(self.delta(own)? as u64);
            let known = self.containers.get(&(address, offset, size)).copied();
            let number = match known {
                Some(known) => known,
                None => {
                    let container =
                        Container { name: self.string(u64::from(offset))?, address, size: size.into(), unprobeable };
                    self.set.containers.push(container);
                    let number = self.set.containers.len() as u32 - 1;
                    self.containers.insert((address, offset, size), number);
                    number
                }
            };
            containers.push(number);
        }
        let count = self.number(&mut shape.input)?;
        let Some(func) = func else {
            return if count == 0 { Ok(()) } else { Err(self.bad("site without a function in record")) };
        };
        let function = self.set.functions.len() as u32;
        self.set.functions.push(Function { name, func, parameters, variadic });
        for _ in 0..count {
            let container = usize::try_from(self.number(&mut shape.input)?).ok().and_then(|nth| containers.get(nth));
            let container = *container.ok_or_else(|| self.bad("symbol of a site in record"))?;
            let number = self.number(&mut shape.input)?;
            let item = self.image.subset.item(table::SITES, table::SITE_BYTES, number);
            let item = item.ok_or_else(|| self.bad("site in record"))?;
            let site = self.site(&mut Input(item), function, container)?;
            self.set.sites.push(site);
        }
        Ok(())
    }

    fn unprobeable(&self, input: &mut Input<'_>) -> Result<Option<Unprobeable>, SubsetError> {
        match self.byte(input)? {
            0 => Ok(None),
            code => Unprobeable::from_code(code).map(Some).ok_or_else(|| self.bad("obstacle in record")),
        }
    }

    fn site(&mut self, input: &mut Input<'_>, function: u32, container: u32) -> Result<Site, SubsetError> {
        let kind = SiteKind::from_code(self.byte(input)?).ok_or_else(|| self.bad("kind of a site in record"))?;
        let marks = Marks(self.byte(input)?);
        let unprobeable = self.unprobeable(input)?;
        let moved = self.byte(input)?;
        let prototype = self.number(input)?;
        let prototype = self.prototype(prototype)?;
        let name = self.small(input)?;
        let section = *self.sections.get(&name).ok_or_else(|| self.bad("section of a site in record"))?;
        let start = self.set.containers.get(container as usize).map_or(0, |container| container.address);
        let address = start.wrapping_add(self.delta(input)? as u64);
        let (source, declared) = (self.source(input)?, self.source(input)?);
        Ok(Site {
            function,
            kind,
            address,
            moved,
            section,
            prototype,
            container,
            source,
            declared,
            // The copy that it is in is another function's, which the subset need not have.
            parent: None,
            marks,
            unprobeable,
        })
    }

    fn source(&mut self, input: &mut Input<'_>) -> Result<SourceLine, SubsetError> {
        let Some(offset) = self.small(input)?.checked_sub(1) else { return Ok(SourceLine::UNKNOWN) };
        let file = match self.files.get(&offset) {
            Some(&file) => file,
            None => {
                let name = self.string(u64::from(offset))?;
                self.set.files.push(name);
                let file = self.set.files.len() as u32 - 1;
                self.files.insert(offset, file);
                file
            }
        };
        Ok(SourceLine { file, line: self.small(input)? })
    }

    fn prototype(&mut self, number: u64) -> Result<u32, SubsetError> {
        if let Some(&known) = self.prototypes.get(&number) {
            return Ok(known);
        }
        let item = self.image.subset.item(table::PROTOTYPES, table::PROTOTYPE_BYTES, number);
        let mut input = Input(item.ok_or_else(|| self.bad("prototype in record"))?);
        let count = self.number(&mut input)?;
        let mut arguments: Vec<Argument> = Vec::new();
        for _ in 0..count {
            arguments.push(match self.byte(&mut input)? {
                0 => {
                    let decoded = program::decode(input.0, self.set.base, self.set.machine);
                    let (located, used) = decoded.ok_or_else(|| self.bad("location in record"))?;
                    input.0 = &input.0[used..];
                    Ok(located)
                }
                code => Err(Missing::from_code(code).ok_or_else(|| self.bad("reason in record"))?),
            });
        }
        self.set.prototypes.push(arguments.into());
        let known = self.set.prototypes.len() as u32 - 1;
        self.prototypes.insert(number, known);
        Ok(known)
    }

    /// The type that a reference is to.
    fn refer(&self, code: u64, types: &[TypeId], own: &mut Input<'_>, last: &mut i64) -> Result<TypeId, SubsetError> {
        match code {
            reference::VOID => Ok(0),
            reference::KERNELS => {
                *last = last.checked_add(self.delta(own)?).ok_or_else(|| self.bad("type in record"))?;
                let id = TypeId::try_from(*last).ok().filter(|id| (1..self.end).contains(id));
                id.ok_or_else(|| self.bad("type in record"))
            }
            code => {
                let nth = usize::try_from(code - reference::FIRST_OWN).ok();
                nth.and_then(|nth| types.get(nth)).copied().ok_or_else(|| self.bad("type in record"))
            }
        }
    }

    /// The next of a shape's own types.
    fn ty(&mut self, shape: &mut Shape<'a>, own: &mut Input<'_>, last: &mut i64) -> Result<TypeId, SubsetError> {
        let input = &mut shape.input;
        let kind = Kind::from_code(self.byte(input)?);
        // Lists are as long as their bytes: each element is read before there is room for the next.
        match kind {
            Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict => {
                let to = self.refer(self.number(input)?, &shape.types, own, last)?;
                Ok(self.set.types.modifier(kind, to))
            }
            Kind::Typedef | Kind::TypeTag => {
                let name = self.name(input)?;
                let to = self.refer(self.number(input)?, &shape.types, own, last)?;
                Ok(match kind {
                    Kind::Typedef => self.set.types.typedef(&name, to),
                    _ => self.set.types.type_tag(&name, to),
                })
            }
            Kind::Int => {
                let name = self.name(input)?;
                let (size, bits) = (self.small(input)?, self.small(input)?);
                let encoding = IntEncoding(self.byte(input)?);
                Ok(self.set.types.int(&name, size, bits, encoding))
            }
            Kind::Float => {
                let name = self.name(input)?;
                let size = self.small(input)?;
                Ok(self.set.types.float(&name, size))
            }
            Kind::Array => {
                let element = self.refer(self.number(input)?, &shape.types, own, last)?;
                let index = self.refer(self.number(input)?, &shape.types, own, last)?;
                let count = self.small(input)?;
                Ok(self.set.types.array(element, index, count))
            }
            Kind::Struct | Kind::Union => {
                let name = self.name(input)?;
                let size = self.small(input)?;
                let mut members = Vec::new();
                for _ in 0..self.number(input)? {
                    let name = self.name(input)?;
                    let ty = self.refer(self.number(input)?, &shape.types, own, last)?;
                    members.push((name, ty, self.small(input)?, self.small(input)?));
                }
                let members: Vec<Member<'_>> = members
                    .iter()
                    .map(|(name, ty, bit_offset, bits)| Member { name, ty: *ty, bit_offset: *bit_offset, bits: *bits })
                    .collect();
                Ok(self.set.types.composite(kind, &name, size, &members))
            }
            Kind::Enum | Kind::Enum64 => {
                let name = self.name(input)?;
                let size = self.small(input)?;
                let signed = self.byte(input)? != 0;
                let mut values = Vec::new();
                for _ in 0..self.number(input)? {
                    values.push((self.name(input)?, self.delta(input)?));
                }
                let values: Vec<Enumerator<'_>> =
                    values.iter().map(|(name, value)| Enumerator { name, value: *value }).collect();
                Ok(self.set.types.enumeration(&name, size, signed, &values))
            }
            Kind::Fwd => {
                let name = self.name(input)?;
                let is_union = self.byte(input)? != 0;
                Ok(self.set.types.fwd(&name, is_union))
            }
            Kind::FuncProto => {
                let returns = self.refer(self.number(input)?, &shape.types, own, last)?;
                let variadic = self.byte(input)? != 0;
                let mut params = Vec::new();
                for _ in 0..self.number(input)? {
                    let name = self.name(input)?;
                    params.push((name, self.refer(self.number(input)?, &shape.types, own, last)?));
                }
                Ok(self.set.types.func_proto(returns, &params, variadic))
            }
            Kind::Func => {
                let name = self.name(input)?;
                let proto = self.refer(self.number(input)?, &shape.types, own, last)?;
                let linkage = match self.byte(input)? {
                    0 => Linkage::Static,
                    1 => Linkage::Global,
                    2 => Linkage::Extern,
                    _ => return Err(self.bad("linkage in record")),
                };
                Ok(self.set.types.func(&name, proto, linkage))
            }
            _ => Err(self.bad("kind of a type in record")),
        }
    }
}
