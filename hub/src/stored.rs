// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site files as a hub has them: packed in columns, then compressed; and as hubs of version 1 have them: compressed.

use crate::error::{Cause, HubError};
use crate::layout::{BTF, MODULES, SITES, Sizes};
use crate::local::{build_id, look};
use crate::pack;
use siteseer_sites::file::packed::{self, UnpackError};

/// zstd's level, unless another is asked for.
const DEFAULT_LEVEL: i32 = 12;

/// A `.BTF` that is smaller stays in the site file: a request of its own would cost more.
const BTF_BESIDE: usize = 64 << 10;

/// The files of a kernel, by name.
pub(crate) struct Stored {
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
}

impl Stored {
    /// How many bytes a file has.
    pub(crate) fn len(&self, name: &str) -> u64 {
        self.files.iter().find(|(other, _)| *other == name).map_or(0, |(_, data)| data.len() as u64)
    }
}

/// Packs and compresses the site files of an image, with this `.BTF`, and of its modules.
///
/// # Errors
/// [`HubError::Packed`] if there is no memory, or what was packed does not come out again.
pub(crate) fn store(
    what: &str,
    image: &[u8],
    btf: &[u8],
    modules: &[(String, Vec<u8>)],
    level: i32,
) -> Result<Stored, HubError> {
    let beside = (btf.len() >= BTF_BESIDE).then_some(btf);
    let mut files = vec![(SITES, packed(what, &[image], beside, level)?)];
    if beside.is_some() {
        files.push((BTF, packed(what, &[btf], None, level)?));
    }
    if !modules.is_empty() {
        let modules: Vec<&[u8]> = modules.iter().map(|(_, data)| data.as_slice()).collect();
        files.push((MODULES, packed(what, &modules, Some(btf), level)?));
    }
    Ok(Stored { files })
}

fn packed(what: &str, files: &[&[u8]], btf: Option<&[u8]>, level: i32) -> Result<Vec<u8>, HubError> {
    let packed = packed::pack(files, btf);
    let total = files.iter().map(|file| file.len()).sum::<usize>();
    // Who fetches it cannot ask again.
    if packed::unpack(&packed, btf, ROOM.saturating_add(total.saturating_mul(2))).is_ok_and(|out| out == files) {
        return pack::compress(&packed, level);
    }
    let why: Cause = "what was packed does not come out as it was".into();
    Err(HubError::Malformed { what: what.to_owned(), why })
}

/// More bytes than site files have are counted while they are unpacked.
const ROOM: usize = 1 << 20;

/// The site file of an image, of a decompressed file of a hub. `known` is the kernel's `.BTF` if it is at hand; `fetch`
/// gets the file that has it.
///
/// # Errors
/// [`HubError::Malformed`], [`HubError::TooLarge`], and those of `fetch`.
pub(crate) fn image(
    what: &str,
    data: Vec<u8>,
    known: Option<&[u8]>,
    limit: u64,
    fetch: impl FnOnce() -> Result<Vec<u8>, HubError>,
) -> Result<Vec<u8>, HubError> {
    // Version 1 has the site file itself. Anything else is looked at as one, and refused.
    if !packed::is_packed(&data) {
        return Ok(data);
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    match unpack_one(what, &data, known, limit) {
        // It needs a .BTF, and this one is not the right one.
        Err(HubError::Malformed { why, .. }) if why.downcast_ref() == Some(&UnpackError::Malformed) => {
            let btf = unpack_one(what, &fetch()?, None, limit)?;
            unpack_one(what, &data, Some(&btf), limit)
        }
        other => other,
    }
}

fn unpack_one(what: &str, data: &[u8], btf: Option<&[u8]>, limit: usize) -> Result<Vec<u8>, HubError> {
    let mut files = unpacked(what, data, btf, limit)?;
    match (files.pop(), files.is_empty()) {
        (Some(file), true) => Ok(file),
        _ => Err(HubError::Malformed { what: what.to_owned(), why: "there is not one site file in it".into() }),
    }
}

/// The site files of modules, with their names. `image` is that of their kernel.
///
/// # Errors
/// [`HubError::Malformed`], [`HubError::TooLarge`].
pub(crate) fn modules(what: &str, data: &[u8], image: &[u8], limit: u64) -> Result<Vec<(String, Vec<u8>)>, HubError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let btf = look(what, image, |file| file.base_btf_bytes().map(<[u8]>::to_vec))?.unwrap_or_default();
    let named = |data: Vec<u8>| {
        let id = build_id(&data).unwrap_or_default();
        (format!("{id}.sites"), data)
    };
    Ok(unpacked(what, data, Some(&btf), limit)?.into_iter().map(named).collect())
}

fn unpacked(what: &str, data: &[u8], btf: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, HubError> {
    packed::unpack(data, btf, limit).map_err(|error| match error {
        UnpackError::TooLarge(limit) => HubError::TooLarge { what: what.to_owned(), limit: limit as u64 },
        other => HubError::Malformed { what: what.to_owned(), why: other.into() },
    })
}

/// The parts of a file of a hub.
///
/// # Errors
/// [`HubError::Packed`], [`HubError::Malformed`].
pub(crate) fn parts(what: &str, data: &[u8]) -> Result<Vec<(&'static str, Sizes)>, HubError> {
    let data = pack::decompress(what, data, u64::MAX - 1)?;
    let parts =
        packed::parts(&data).map_err(|error| HubError::Malformed { what: what.to_owned(), why: error.into() })?;
    let sizes = |(name, part): (&'static str, Vec<u8>)| {
        let stored = pack::compress(&part, DEFAULT_LEVEL)?.len() as u64;
        Ok((name, Sizes { files: 0, bytes: part.len() as u64, stored }))
    };
    parts.into_iter().map(sizes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::btf::{Btf, IntEncoding, Linkage, SplitBtf};
    use siteseer_sites::set::{Container, Function, Section};
    use siteseer_sites::site::SourceLine;
    use siteseer_sites::{Machine, Marks, Missing, Site, SiteKind, SiteSet, file};

    /// A site file with one site, and its `.BTF`, which has so many types.
    fn site_file(count: u32) -> (Vec<u8>, Vec<u8>) {
        let mut types = SplitBtf::standalone();
        let ids: Vec<u32> = (0..count).map(|nth| types.int(&format!("t{nth}"), 4, 32, IntEncoding::SIGNED)).collect();
        let proto = types.func_proto(ids[0], &[("a", ids[0])], false);
        let func = types.func("foo", proto, Linkage::Static);
        let base_btf = types.to_bytes();
        let site = Site {
            function: 0,
            kind: SiteKind::Inline,
            address: 0x1010,
            moved: 0,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::default(),
            unprobeable: None,
        };
        let set = SiteSet {
            module: None,
            machine: Machine::X86_64,
            build_id: vec![7; 20],
            base: 0x1000,
            types: SplitBtf::new(&Btf::parse(&base_btf).unwrap()),
            sections: vec![Section { name: ".text".to_owned(), address: 0x1000, size: 0x100 }],
            functions: vec![Function { name: "foo".to_owned(), func, parameters: 1, variadic: false }],
            prototypes: vec![Box::from([Err(Missing::OptimisedOut)])],
            containers: vec![Container { name: "bar".to_owned(), address: 0x1000, size: 0x80, unprobeable: None }],
            files: Vec::new(),
            sites: vec![site],
            base_btf: base_btf.clone(),
        };
        (file::write(&set).unwrap(), base_btf)
    }

    #[test]
    fn btf_is_left_out_and_fetched_if_it_is_not_at_hand() {
        let (data, btf) = site_file(5000);
        let (_, other) = site_file(5001);
        let stored = store("it", &data, &btf, &[], 3).unwrap();
        assert!(stored.len(BTF) > 0 && stored.len(SITES) < 2000 && stored.len(MODULES) == 0);
        let read = |name: &str| {
            let (_, data) = stored.files.iter().find(|(other, _)| *other == name).unwrap();
            pack::decompress("it", &data[..], 1 << 20).unwrap()
        };
        let nothing = || -> Result<Vec<u8>, HubError> { panic!("fetched without need") };
        assert_eq!(image("it", read(SITES), Some(&btf), 1 << 20, nothing).unwrap(), data);
        // What is not the kernel's is of no use, and what comes is the right one: the caller compares it.
        for known in [None, Some(&other[..]), Some(&b"hello"[..])] {
            assert_eq!(image("it", read(SITES), known, 1 << 20, || Ok(read(BTF))).unwrap(), data);
        }
        let wrong = packed::pack(&[&other], None);
        assert!(matches!(image("it", read(SITES), None, 1 << 20, || Ok(wrong)), Err(HubError::Malformed { .. })));
        assert!(matches!(image("it", read(SITES), Some(&btf), 1000, nothing), Err(HubError::TooLarge { .. })));
        // Two files in place of one, and a site file as hubs of version 1 have it.
        let two = packed::pack(&[&data, &data], None);
        assert!(matches!(image("it", two, None, 1 << 20, nothing), Err(HubError::Malformed { .. })));
        assert_eq!(image("it", data.clone(), None, 1 << 20, nothing).unwrap(), data);
        // A small one stays.
        let (data, btf) = site_file(5);
        let stored = store("it", &data, &btf, &[], 3).unwrap();
        assert_eq!((stored.files.len(), stored.len(BTF)), (1, 0));
    }
}
