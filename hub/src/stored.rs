// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site files as a hub has them: packed in columns, then compressed; and as hubs of version 1 have them: compressed.

use crate::error::{Cause, HubError, io};
use crate::layout::{BTF, Base, Index, Kernel, MODULES, SITES, Sizes};
use crate::local::{build_id, look};
use crate::pack;
use siteseer_sites::file::packed::{self, UnpackError};
use std::fs;
use std::path::Path;

/// zstd's level, unless another is asked for.
const DEFAULT_LEVEL: i32 = 12;

/// A `.BTF` that is smaller stays in the site file: a request of its own would cost more.
const BTF_BESIDE: usize = 64 << 10;

/// Packs the site files of an image, with this `.BTF`, and of its modules: the files of a kernel by name, before they
/// are compressed.
///
/// # Errors
/// [`HubError::Malformed`] if what was packed does not come out again.
pub(crate) fn pack_all(
    what: &str,
    image: &[u8],
    btf: &[u8],
    modules: &[(String, Vec<u8>)],
) -> Result<Vec<(&'static str, Vec<u8>)>, HubError> {
    let mut files = vec![(SITES, packed(what, &[image], beside(btf))?)];
    if beside(btf).is_some() {
        files.push((BTF, packed(what, &[btf], None)?));
    }
    if !modules.is_empty() {
        let modules: Vec<&[u8]> = modules.iter().map(|(_, data)| data.as_slice()).collect();
        files.push((MODULES, packed(what, &modules, Some(btf))?));
    }
    Ok(files)
}

fn beside(btf: &[u8]) -> Option<&[u8]> {
    (btf.len() >= BTF_BESIDE).then_some(btf)
}

fn packed(what: &str, files: &[&[u8]], btf: Option<&[u8]>) -> Result<Vec<u8>, HubError> {
    let packed = packed::pack(files, btf);
    let total = files.iter().map(|file| file.len()).sum::<usize>();
    // Who fetches it cannot ask again.
    if packed::unpack(&packed, btf, ROOM.saturating_add(total.saturating_mul(2))).is_ok_and(|out| out == files) {
        return Ok(packed);
    }
    let why: Cause = "what was packed does not come out as it was".into();
    Err(HubError::Malformed { what: what.to_owned(), why })
}

/// A file of a kernel as [`pack_all`] made it, if the kernel's site file is at hand and is enough for it.
pub(crate) fn packed_again(image: &[u8], file: &str) -> Option<Vec<u8>> {
    let btf = look("", image, |file| file.base_btf_bytes().map(<[u8]>::to_vec)).ok()??;
    match file {
        SITES => Some(packed::pack(&[image], beside(&btf))),
        BTF => Some(packed::pack(&[&btf], None)),
        _ => None,
    }
}

/// Compresses a file of a kernel: whole, or as the difference from a base if that is much smaller.
///
/// # Errors
/// [`HubError::Packed`] if there is no memory.
pub(crate) fn compress(
    data: &[u8],
    base: Option<(&Kernel, Vec<u8>)>,
    level: i32,
) -> Result<(Vec<u8>, Option<Base>), HubError> {
    let whole = pack::compress(data, level)?;
    let Some((kernel, base)) = base else { return Ok((whole, None)) };
    match pack::compress_over(data, &base, level)? {
        Some(delta) if delta.len().saturating_mul(10) < whole.len().saturating_mul(WORTH) => {
            let unpacked = data.len() as u64;
            // Who fetches it cannot ask again.
            if pack::decompress_over("a difference", &delta, &base, unpacked)? != data {
                return Ok((whole, None));
            }
            let base = Base { build_id: kernel.build_id.clone(), sha256: pack::sha256(&base), unpacked };
            Ok((delta, Some(base)))
        }
        _ => Ok((whole, None)),
    }
}

/// A difference that has more tenths of the whole is not worth that two files are fetched.
const WORTH: usize = 6;

/// The kernel in an index that a file of another is stored over. Its file is whole, so that no more than two are
/// needed.
///
/// # Errors
/// [`HubError::Base`]; `what` is named in it.
pub(crate) fn base_of<'i>(what: &str, index: &'i Index, base: &Base, file: &str) -> Result<&'i Kernel, HubError> {
    let bad = |why: &str| HubError::Base { what: what.to_owned(), base: base.build_id.clone(), why: why.into() };
    let found = index.kernels.iter().find(|kernel| kernel.build_id == base.build_id);
    match found {
        None => Err(bad("the index of the hub has no such kernel")),
        Some(kernel) if kernel.part(file).base.is_some() => Err(bad("that is stored as a difference itself")),
        Some(kernel) if kernel.part(file).stored == 0 => Err(bad("that does not have this file")),
        Some(kernel) => Ok(kernel),
    }
}

/// Checks that the bytes of a base are those that a difference was made from.
///
/// # Errors
/// [`HubError::Base`]; `what` is named in it.
pub(crate) fn check_base(what: &str, base: &Base, data: &[u8]) -> Result<(), HubError> {
    let found = pack::sha256(data);
    if found == base.sha256 {
        return Ok(());
    }
    let why = format!(
        "its bytes are not those that the difference was made from: their SHA-256 is {found}, not {}",
        base.sha256
    );
    Err(HubError::Base { what: what.to_owned(), base: base.build_id.clone(), why: why.into() })
}

/// A file of a kernel in a folder, decompressed.
///
/// # Errors
/// [`HubError`].
pub(crate) fn load(folder: &Path, index: &Index, kernel: &Kernel, file: &'static str) -> Result<Vec<u8>, HubError> {
    let part = kernel.part(file);
    let path = folder.join("buildid").join(&kernel.build_id).join(part.name(file));
    let what = path.display().to_string();
    let data = fs::read(&path).map_err(io(&path))?;
    let Some(base) = &part.base else { return pack::decompress(&what, &data[..], u64::MAX - 1) };
    let over = load(folder, index, base_of(&what, index, base, file)?, file)?;
    check_base(&what, base, &over)?;
    pack::decompress_over(&what, &data, &over, base.unpacked)
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

/// The parts of a file of a hub, decompressed.
///
/// # Errors
/// [`HubError::Packed`], [`HubError::Malformed`].
pub(crate) fn parts(what: &str, data: &[u8]) -> Result<Vec<(&'static str, Sizes)>, HubError> {
    let parts =
        packed::parts(data).map_err(|error| HubError::Malformed { what: what.to_owned(), why: error.into() })?;
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
        let stored = pack_all("it", &data, &btf, &[]).unwrap();
        assert_eq!(stored.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [SITES, BTF]);
        let read = |name: &str| stored.iter().find(|(other, _)| *other == name).unwrap().1.clone();
        assert!(pack::compress(&read(SITES), 3).unwrap().len() < 2000);
        assert!([SITES, BTF].iter().all(|name| packed_again(&data, name) == Some(read(name))));
        assert_eq!(packed_again(&data, MODULES), None);
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
        assert_eq!(pack_all("it", &data, &btf, &[]).unwrap().len(), 1);
    }
}
