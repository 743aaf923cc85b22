// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compressing, and decompressing what may be anything.

use crate::error::{Cause, HubError};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Component, Path};
use zstd::zstd_safe::CParameter;

/// The largest window that is accepted: so much memory the decompressor may take.
const WINDOW_LOG: u32 = 27;

/// Compresses by zstd. The window is as large as may be: site files have what is alike far apart.
///
/// # Errors
/// [`HubError::Packed`] if there is no memory.
pub fn compress(data: &[u8], level: i32) -> Result<Vec<u8>, HubError> {
    let packed = || -> io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
        encoder.set_parameter(CParameter::EnableLongDistanceMatching(true))?;
        encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        encoder.include_checksum(true)?;
        encoder.set_pledged_src_size(Some(data.len() as u64))?;
        io::copy(&mut &data[..], &mut encoder)?;
        encoder.finish()
    };
    packed().map_err(|error| HubError::Packed { what: "compressing".to_owned(), error })
}

/// The most bytes of a file and its base together: so much memory the decompressor may take for a difference.
const DELTA_LOG: u32 = 28;

/// Compresses what is different from a base. `None` if both together are too large for that.
///
/// # Errors
/// [`HubError::Packed`] if there is no memory.
pub fn compress_over(data: &[u8], base: &[u8], level: i32) -> Result<Option<Vec<u8>>, HubError> {
    let both = data.len().saturating_add(base.len());
    if both > 1 << DELTA_LOG {
        return Ok(None);
    }
    // All of the base is in reach from the end of the file.
    let window = both.next_power_of_two().ilog2().clamp(10, DELTA_LOG);
    let packed = || -> io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::with_ref_prefix(Vec::new(), level, base)?;
        encoder.set_parameter(CParameter::EnableLongDistanceMatching(true))?;
        encoder.set_parameter(CParameter::WindowLog(window))?;
        encoder.include_checksum(true)?;
        encoder.set_pledged_src_size(Some(data.len() as u64))?;
        io::copy(&mut &data[..], &mut encoder)?;
        encoder.finish()
    };
    packed().map(Some).map_err(|error| HubError::Packed { what: "compressing".to_owned(), error })
}

/// Decompresses a difference from a base to so many bytes.
///
/// # Errors
/// [`HubError::TooLarge`], [`HubError::Packed`], [`HubError::Malformed`]; `what` is named in them.
pub fn decompress_over(what: &str, data: &[u8], base: &[u8], bytes: u64) -> Result<Vec<u8>, HubError> {
    let failed = |error| HubError::Packed { what: what.to_owned(), error };
    let mut decoder = zstd::Decoder::with_ref_prefix(data, base).map_err(failed)?;
    decoder.window_log_max(DELTA_LOG).map_err(failed)?;
    let found = read(what, decoder, bytes)?;
    if found.len() as u64 == bytes {
        return Ok(found);
    }
    let why = format!("it has {} bytes, decompressed, and the index says {bytes}", found.len());
    Err(HubError::Malformed { what: what.to_owned(), why: why.into() })
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decompresses at most so many bytes.
///
/// # Errors
/// [`HubError::TooLarge`], [`HubError::Packed`]; `what` is named in them.
pub fn decompress(what: &str, data: impl Read, limit: u64) -> Result<Vec<u8>, HubError> {
    let failed = |error| HubError::Packed { what: what.to_owned(), error };
    let mut decoder = zstd::Decoder::new(data).map_err(failed)?;
    decoder.window_log_max(WINDOW_LOG).map_err(failed)?;
    read(what, decoder, limit)
}

fn read(what: &str, from: impl Read, limit: u64) -> Result<Vec<u8>, HubError> {
    let mut bytes = Vec::new();
    let read = from.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| HubError::Packed { what: what.to_owned(), error })?;
    if bytes.len() as u64 > limit {
        return Err(HubError::TooLarge { what: format!("{what}, decompressed,"), limit });
    }
    Ok(bytes)
}

/// An archive of files that lie in one folder.
///
/// # Errors
/// [`HubError::Packed`] if there is no memory.
pub fn archive(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>, HubError> {
    let failed = |error| HubError::Packed { what: "an archive".to_owned(), error };
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &data[..]).map_err(failed)?;
    }
    builder.into_inner().map_err(failed)
}

/// The files of an archive, which may have nothing else in it: no folders, no links, no paths.
///
/// # Errors
/// [`HubError::Malformed`]; `what` is named in it.
pub fn files<'a>(what: &str, data: &'a [u8]) -> Result<Vec<(String, &'a [u8])>, HubError> {
    let bad = |why: Cause| HubError::Malformed { what: what.to_owned(), why };
    let mut archive = tar::Archive::new(data);
    let mut files = Vec::new();
    for entry in archive.entries().map_err(|error| bad(error.into()))? {
        let entry = entry.map_err(|error| bad(format!("the archive is damaged: {error}").into()))?;
        let path = entry.path().map_err(|error| bad(error.into()))?.into_owned();
        let mut components = path.components();
        let name = match (components.next(), components.next()) {
            (Some(Component::Normal(name)), None) if entry.header().entry_type().is_file() => name.to_str(),
            _ => None,
        };
        let name = name
            .ok_or_else(|| bad(format!("{} in the archive is not a plain file", Path::new(&path).display()).into()))?;
        let at = usize::try_from(entry.raw_file_position()).ok();
        let range = at.and_then(|at| Some(at..at.checked_add(usize::try_from(entry.size()).ok()?)?));
        let bytes = range.and_then(|range| data.get(range));
        files.push((name.to_owned(), bytes.ok_or_else(|| bad(format!("the archive is cut in {name}").into()))?));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let data: Vec<u8> = (0..300_000u32).flat_map(|word| (word / 7).to_le_bytes()).collect();
        let packed = compress(&data, 3).unwrap();
        assert!(packed.len() < data.len() / 2);
        assert_eq!(decompress("it", &packed[..], data.len() as u64).unwrap(), data);
        let limit = data.len() as u64 - 1;
        assert!(matches!(decompress("it", &packed[..], limit), Err(HubError::TooLarge { .. })));
        assert!(matches!(decompress("it", &packed[..packed.len() - 3], 1 << 30), Err(HubError::Packed { .. })));
        assert!(matches!(decompress("it", &b"<html>"[..], 10), Err(HubError::Packed { .. })));
        // A gigabyte of zeros in 32 KB.
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        io::copy(&mut io::repeat(0).take(1 << 30), &mut encoder).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 1 << 20);
        assert!(matches!(decompress("it", &bomb[..], 1 << 20), Err(HubError::TooLarge { .. })));
    }

    #[test]
    fn a_difference_needs_its_base() {
        let base: Vec<u8> = (0..300_000u64).flat_map(|word| (word.wrapping_mul(word) >> 3).to_le_bytes()).collect();
        let mut data = base.clone();
        data[100_000] ^= 1;
        data.extend_from_slice(b"more");
        let delta = compress_over(&data, &base, 3).unwrap().unwrap();
        assert!(delta.len() < 1000, "{}", delta.len());
        let bytes = data.len() as u64;
        assert_eq!(decompress_over("it", &delta, &base, bytes).unwrap(), data);
        assert!(matches!(decompress_over("it", &delta, &base, bytes - 1), Err(HubError::TooLarge { .. })));
        assert!(matches!(decompress_over("it", &delta, &base, bytes + 1), Err(HubError::Malformed { .. })));
        assert!(decompress_over("it", &delta, &data, bytes).is_err());
        assert!(decompress_over("it", &delta, b"", bytes).is_err());
        assert!(matches!(decompress("it", &delta[..], bytes), Err(HubError::Packed { .. })));
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn archives_have_plain_files() {
        let packed = archive(&[("a.sites".to_owned(), vec![1, 2]), ("b.sites".to_owned(), vec![3; 5000])]).unwrap();
        let found = files("it", &packed).unwrap();
        assert_eq!(found, [("a.sites".to_owned(), &[1, 2][..]), ("b.sites".to_owned(), &[3; 5000][..])]);
        assert!(files("it", &packed[..2000]).is_err());
        assert!(files("it", b"hello").is_err());
        let with = |path: &str, kind: tar::EntryType| {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_cksum();
            let mut builder = tar::Builder::new(Vec::new());
            builder.append(&header, io::empty()).unwrap();
            builder.into_inner().unwrap()
        };
        for (path, kind) in [
            ("../x", tar::EntryType::Regular),
            ("/etc/x", tar::EntryType::Regular),
            ("a/x", tar::EntryType::Regular),
            ("x", tar::EntryType::Symlink),
            ("x", tar::EntryType::Directory),
        ] {
            assert!(matches!(files("it", &with(path, kind)), Err(HubError::Malformed { .. })), "{path}");
        }
    }
}
