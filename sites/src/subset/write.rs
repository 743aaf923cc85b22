// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Making a subset of the site data of many kernels, one after the other.

use super::{HEADER, MAGIC, SubsetError, TABLES, VERSION, reference, table};
use crate::btf::{Btf, Kind, Linkage, Type, TypeId};
use crate::file::leb::{sleb, uleb};
use crate::file::program;
use crate::file::{ContainerRef, FunctionRef, SiteFile, SiteRef, Source};
use crate::location::Argument;
use crate::sums::of_blocks;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// How deep types may refer to one another: those that a prototype needs are trees that end soon.
const MAX_DEPTH: usize = 64;

/// A subset that is being made.
#[derive(Debug, Default)]
pub struct SubsetWriter {
    strings: Strings,
    functions: Pool,
    sites: Pool,
    prototypes: Pool,
    asked: Vec<u32>,
    /// Their records, by build id.
    images: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Distinct byte strings, in the order in which they came.
#[derive(Debug, Default)]
struct Pool {
    /// Where each begins.
    starts: Vec<u32>,
    bytes: Vec<u8>,
    index: HashMap<Box<[u8]>, u32>,
}

impl Pool {
    fn number(&mut self, item: &[u8]) -> u32 {
        if let Some(&known) = self.index.get(item) {
            return known;
        }
        let number = self.starts.len() as u32;
        self.starts.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(item);
        self.index.insert(item.into(), number);
        number
    }

    /// The table of their places, with the end.
    fn places(&self) -> Vec<u8> {
        self.starts.iter().chain([&(self.bytes.len() as u32)]).flat_map(|start| start.to_le_bytes()).collect()
    }
}

/// Distinct strings, each with a NUL after it.
#[derive(Debug, Default)]
struct Strings {
    bytes: Vec<u8>,
    index: HashMap<Box<str>, u32>,
}

impl Strings {
    /// The offset of a string. What follows a NUL in it is dropped: the table cannot hold it.
    fn add(&mut self, string: &str) -> u32 {
        let string = string.split('\0').next().unwrap_or_default();
        if let Some(&known) = self.index.get(string) {
            return known;
        }
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(string.as_bytes());
        self.bytes.push(0);
        self.index.insert(string.into(), offset);
        offset
    }
}

/// What is said about one function on one kernel: what other kernels may share, and what is this one's.
#[derive(Default)]
struct Split {
    shape: Vec<u8>,
    own: Vec<u8>,
}

/// Symbols that a shape names, and the types that it has.
#[derive(Default)]
struct Parts<'a> {
    containers: Vec<ContainerRef<'a>>,
    /// Which of them has that address and name.
    places: HashMap<(u64, &'a str), u64>,
    /// Numbers of types that are the kernel's, in the order in which the shape refers to them.
    kernels: Vec<TypeId>,
    /// The shape's own types.
    types: Vec<u8>,
    numbers: HashMap<TypeId, u64>,
}

impl SubsetWriter {
    /// An empty subset for functions that were asked for so: names and patterns as the application's loader knows them.
    pub fn new<S: AsRef<str>>(asked: impl IntoIterator<Item = S>) -> SubsetWriter {
        let mut writer = SubsetWriter::default();
        // Offset 0 is the empty string.
        writer.strings.add("");
        let mut asked: Vec<String> = asked.into_iter().map(|text| text.as_ref().to_owned()).collect();
        asked.sort_unstable();
        asked.dedup();
        writer.asked = asked.iter().map(|text| writer.strings.add(text)).collect();
        writer
    }

    /// How many images were added.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Adds what the site data of an image or a module say about functions of these names. A name that they do not have
    /// is left out.
    ///
    /// # Errors
    /// [`SubsetError::Unsuitable`] if they come without a companion section, a copy of `.BTF` or a build id;
    /// [`SubsetError::Twice`]; [`SubsetError::File`] if they are damaged. Nothing was added then.
    pub fn add<'n>(
        &mut self,
        file: &SiteFile<'_>,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), SubsetError> {
        if !file.is_complete() {
            return Err(SubsetError::Unsuitable("there is no .BTF.inline.ext: encode the image"));
        }
        let btf = file.base_btf_bytes().ok_or(SubsetError::Unsuitable("there is no copy of .BTF"))?;
        file.whole()?;
        let id = file.build_id();
        let Ok(length) = u8::try_from(id.len()) else {
            return Err(SubsetError::Unsuitable("its build id is longer than 255 bytes"));
        };
        if id.is_empty() {
            return Err(SubsetError::Unsuitable("it has no build id, by which it would be found"));
        }
        if self.images.contains_key(id) {
            return Err(SubsetError::Twice(id.iter().map(|byte| format!("{byte:02x}")).collect()));
        }
        let mut record = vec![length];
        record.extend_from_slice(id);
        uleb(&mut record, u64::from(file.machine().to_elf()));
        record.extend_from_slice(&file.base_address().to_le_bytes());
        uleb(&mut record, btf.len() as u64);
        record.extend_from_slice(&crc32fast::hash(btf).to_le_bytes());
        self.module(&mut record, file);
        let sections = file.sections();
        uleb(&mut record, sections.len() as u64);
        for section in sections {
            self.section(&mut record, file, (section.name, section.address, section.size));
        }
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let mut functions: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for name in names {
            for function in file.functions(name)? {
                let split = self.function(file, &function)?;
                self.place(&mut functions, split);
            }
            let symbols = file.containers_of(name)?;
            if !symbols.is_empty() {
                let split = self.symbols(file, name, symbols);
                self.place(&mut functions, split);
            }
        }
        uleb(&mut record, functions.len() as u64);
        let mut last = 0;
        for (number, own) in &functions {
            // In order, so that no shape is there twice, and small.
            uleb(&mut record, u64::from(number - last));
            record.extend_from_slice(own);
            last = *number;
        }
        file.whole()?;
        self.images.insert(id.to_vec(), record);
        Ok(())
    }

    /// Adds a function to those of a kernel. Two that have the same shape in one kernel are told apart by a number.
    fn place(&mut self, functions: &mut BTreeMap<u32, Vec<u8>>, split: Split) {
        for nth in 0u64.. {
            let mut shape = Vec::with_capacity(split.shape.len() + 1);
            uleb(&mut shape, nth);
            shape.extend_from_slice(&split.shape);
            let number = self.functions.number(&shape);
            if let std::collections::btree_map::Entry::Vacant(free) = functions.entry(number) {
                free.insert(split.own);
                return;
            }
        }
    }

    fn string(&mut self, out: &mut Vec<u8>, string: &str) {
        uleb(out, u64::from(self.strings.add(string)));
    }

    /// What only a module has.
    fn module(&mut self, out: &mut Vec<u8>, file: &SiteFile<'_>) {
        let Some(module) = file.module() else { return out.push(0) };
        out.push(1);
        self.string(out, module.name);
        uleb(out, module.kernel_build_id.len() as u64);
        out.extend_from_slice(module.kernel_build_id);
        let loaded: Vec<_> = file.loaded_sections().collect();
        uleb(out, loaded.len() as u64);
        for section in loaded {
            self.section(out, file, (section.name, section.address, section.size));
        }
    }

    fn section(&mut self, out: &mut Vec<u8>, file: &SiteFile<'_>, (name, address, size): (&str, u64, u64)) {
        self.string(out, name);
        sleb(out, address.wrapping_sub(file.base_address()) as i64);
        uleb(out, size);
    }

    /// A function of a name and a prototype, with its sites.
    fn function(&mut self, file: &SiteFile<'_>, function: &FunctionRef<'_, '_>) -> Result<Split, SubsetError> {
        let prototype = function.prototype()?;
        let mut parts = Parts::default();
        let mut last = Vec::new();
        let func = self.reference(file.btf(), function.func(), &mut parts, &mut last, 0)?;
        parts.kernels.append(&mut last);
        let mut sites = Vec::new();
        let mut count = 0u64;
        for site in function.sites() {
            let site = site?;
            let holder = site.container().ok_or(SubsetError::Unsuitable("a site is in no symbol"))?;
            let Parts { containers, places, .. } = &mut parts;
            let container = *places.entry((holder.address, holder.name)).or_insert_with(|| {
                containers.push(holder);
                containers.len() as u64 - 1
            });
            uleb(&mut sites, container);
            let number = self.site(file, &site, holder)?;
            uleb(&mut sites, u64::from(number));
            count += 1;
        }
        let mut split = Split::default();
        self.string(&mut split.shape, function.name());
        uleb(&mut split.shape, prototype.params.len() as u64);
        split.shape.push(u8::from(prototype.variadic));
        uleb(&mut split.shape, parts.numbers.len() as u64);
        split.shape.extend_from_slice(&parts.types);
        // One more than the reference: 0 is a name that only symbols have.
        uleb(&mut split.shape, func + 1);
        self.containers(&mut split, file, &parts);
        uleb(&mut split.shape, count);
        split.shape.extend_from_slice(&sites);
        Ok(split)
    }

    /// The symbols of a name, whether or not sites tell about them.
    fn symbols(&mut self, file: &SiteFile<'_>, name: &str, symbols: Vec<ContainerRef<'_>>) -> Split {
        let mut split = Split::default();
        self.string(&mut split.shape, name);
        // No parameters, not variadic, no types, no FUNC.
        split.shape.extend_from_slice(&[0, 0, 0, 0]);
        self.containers(&mut split, file, &Parts { containers: symbols, ..Parts::default() });
        split.shape.push(0);
        split
    }

    fn containers(&mut self, split: &mut Split, file: &SiteFile<'_>, parts: &Parts<'_>) {
        let mut last = 0;
        for &id in &parts.kernels {
            // Types that are used together often lie together.
            sleb(&mut split.own, i64::from(id) - last);
            last = i64::from(id);
        }
        uleb(&mut split.shape, parts.containers.len() as u64);
        let mut last = file.base_address();
        for container in &parts.containers {
            self.string(&mut split.shape, container.name);
            uleb(&mut split.shape, u64::from(container.size));
            split.shape.push(container.unprobeable.map_or(0, |why| why as u8));
            sleb(&mut split.own, container.address.wrapping_sub(last) as i64);
            last = container.address;
        }
    }

    /// A site, relative to its symbol.
    fn site(
        &mut self,
        file: &SiteFile<'_>,
        site: &SiteRef<'_, '_>,
        holder: ContainerRef<'_>,
    ) -> Result<u32, SubsetError> {
        let kind = site.kind().ok_or(SubsetError::Unsuitable("a site's kind is not known"))?;
        let unprobeable = site.unprobeable().map_or(0, |why| why as u8);
        let mut bytes = vec![kind as u8, site.marks().0, unprobeable, site.moved()];
        let prototype = self.prototype(&site.arguments()?, file.base_address());
        uleb(&mut bytes, u64::from(prototype));
        self.string(&mut bytes, site.section().name);
        sleb(&mut bytes, site.address().wrapping_sub(holder.address) as i64);
        self.source(&mut bytes, site.source());
        self.source(&mut bytes, site.declared()?);
        Ok(self.sites.number(&bytes))
    }

    fn source(&mut self, out: &mut Vec<u8>, source: Option<Source<'_>>) {
        let Some(source) = source else { return out.push(0) };
        uleb(out, u64::from(self.strings.add(source.file)) + 1);
        uleb(out, u64::from(source.line));
    }

    fn prototype(&mut self, arguments: &[Argument], base: u64) -> u32 {
        let mut bytes = Vec::new();
        uleb(&mut bytes, arguments.len() as u64);
        for argument in arguments {
            match argument {
                Err(missing) => bytes.push(*missing as u8),
                Ok(located) => {
                    bytes.push(0);
                    bytes.extend_from_slice(&program::encode(located, base));
                }
            }
        }
        self.prototypes.number(&bytes)
    }

    /// How a shape refers to a type. One that the kernel's BTF does not have is taken along, after those that it refers
    /// to.
    fn reference(
        &mut self,
        btf: &Btf<'_>,
        id: TypeId,
        parts: &mut Parts<'_>,
        kernels: &mut Vec<TypeId>,
        depth: usize,
    ) -> Result<u64, SubsetError> {
        if id == 0 {
            return Ok(reference::VOID);
        }
        if id < btf.first_id() {
            kernels.push(id);
            return Ok(reference::KERNELS);
        }
        if let Some(&known) = parts.numbers.get(&id) {
            return Ok(known);
        }
        let ty = btf.ty(id).filter(|_| depth < MAX_DEPTH).ok_or(SubsetError::Corrupt { what: "type", index: id })?;
        // What it refers to itself is written after what the types refer to that it refers to.
        let (mut bytes, mut own) = (Vec::new(), Vec::new());
        self.ty(btf, ty, &mut bytes, parts, &mut own, depth + 1)?;
        parts.kernels.append(&mut own);
        let number = reference::FIRST_OWN + parts.numbers.len() as u64;
        parts.types.extend_from_slice(&bytes);
        parts.numbers.insert(id, number);
        Ok(number)
    }

    fn ty(
        &mut self,
        btf: &Btf<'_>,
        ty: Type<'_>,
        out: &mut Vec<u8>,
        parts: &mut Parts<'_>,
        kernels: &mut Vec<TypeId>,
        depth: usize,
    ) -> Result<(), SubsetError> {
        let kind = ty.kind();
        let unsupported = || SubsetError::Type { id: ty.id(), kind: kind.code() };
        let mut refer = |writer: &mut Self, id: TypeId| writer.reference(btf, id, parts, kernels, depth);
        out.push(kind.code());
        match kind {
            Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict => uleb(out, refer(self, ty.size_or_type())?),
            Kind::Typedef | Kind::TypeTag => {
                self.string(out, ty.name());
                uleb(out, refer(self, ty.size_or_type())?);
            }
            Kind::Int => {
                let int = ty.int().ok_or_else(unsupported)?;
                self.string(out, ty.name());
                uleb(out, u64::from(int.size));
                uleb(out, u64::from(int.bits));
                out.push(int.encoding.0);
            }
            Kind::Float => {
                self.string(out, ty.name());
                uleb(out, u64::from(ty.size_or_type()));
            }
            Kind::Array => {
                let array = ty.array().ok_or_else(unsupported)?;
                uleb(out, refer(self, array.element)?);
                uleb(out, refer(self, array.index)?);
                uleb(out, u64::from(array.count));
            }
            Kind::Struct | Kind::Union => {
                self.string(out, ty.name());
                uleb(out, u64::from(ty.size_or_type()));
                uleb(out, ty.members().len() as u64);
                for member in ty.members() {
                    self.string(out, member.name);
                    uleb(out, refer(self, member.ty)?);
                    uleb(out, u64::from(member.bit_offset));
                    uleb(out, u64::from(member.bits));
                }
            }
            Kind::Enum | Kind::Enum64 => {
                let values: Vec<_> = ty.enumerators().collect();
                self.string(out, ty.name());
                uleb(out, u64::from(ty.size_or_type()));
                out.push(u8::from(ty.flag()));
                uleb(out, values.len() as u64);
                for value in values {
                    self.string(out, value.name);
                    sleb(out, value.value);
                }
            }
            Kind::Fwd => {
                self.string(out, ty.name());
                out.push(u8::from(ty.flag()));
            }
            Kind::FuncProto => {
                uleb(out, refer(self, ty.size_or_type())?);
                out.push(u8::from(ty.is_variadic()));
                uleb(out, ty.params().len() as u64);
                for param in ty.params() {
                    self.string(out, param.name);
                    uleb(out, refer(self, param.ty)?);
                }
            }
            Kind::Func => {
                self.string(out, ty.name());
                uleb(out, refer(self, ty.size_or_type())?);
                out.push(match ty.linkage() {
                    Some(Linkage::Global) => 1,
                    Some(Linkage::Extern) => 2,
                    Some(Linkage::Static) | None => 0,
                });
            }
            _ => return Err(unsupported()),
        }
        Ok(())
    }

    /// The subset.
    ///
    /// # Errors
    /// [`SubsetError::TooMany`].
    pub fn finish(&self) -> Result<Vec<u8>, SubsetError> {
        let (mut images, mut records) = (Vec::new(), Vec::new());
        for record in self.images.values() {
            images.extend_from_slice(&(records.len() as u32).to_le_bytes());
            records.extend_from_slice(record);
        }
        let mut tables: [Vec<u8>; TABLES] = Default::default();
        tables[table::IMAGES] = images;
        tables[table::RECORDS] = records;
        tables[table::FUNCTIONS] = self.functions.places();
        tables[table::FUNCTION_BYTES] = self.functions.bytes.clone();
        tables[table::SITES] = self.sites.places();
        tables[table::SITE_BYTES] = self.sites.bytes.clone();
        tables[table::PROTOTYPES] = self.prototypes.places();
        tables[table::PROTOTYPE_BYTES] = self.prototypes.bytes.clone();
        tables[table::STRINGS] = self.strings.bytes.clone();
        tables[table::ASKED] = self.asked.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let body: usize = tables.iter().map(|table| table.len() + 4).sum();
        if body > (u32::MAX - (1 << 24)) as usize {
            return Err(SubsetError::TooMany("site data"));
        }
        let mut header = MAGIC.to_vec();
        let header_len = HEADER + 8 * TABLES;
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(header_len as u32).to_le_bytes());
        let mut body: Vec<u8> = Vec::with_capacity(body);
        for bytes in &tables[..table::CHECKSUMS] {
            header.extend_from_slice(&((header_len + body.len()) as u32).to_le_bytes());
            header.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            body.extend_from_slice(bytes);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let blocks: Vec<u8> = of_blocks(&body).flat_map(u32::to_le_bytes).collect();
        header.extend_from_slice(&((header_len + body.len()) as u32).to_le_bytes());
        header.extend_from_slice(&(4 + blocks.len() as u32).to_le_bytes());
        let mut first = crc32fast::Hasher::new();
        first.update(&header);
        first.update(&blocks);
        let first = first.finalize().to_le_bytes();
        Ok([&header[..], &body, &first, &blocks].concat())
    }
}
