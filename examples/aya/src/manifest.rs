// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The manifest of `siteseer compile`, and what has to be checked before anything is attached by it: its version, that
//! the object is the one that it describes, and that the kernel is the one that both are for.

use serde::Deserialize;
use std::error::Error;
use std::fs;
use std::path::Path;

const SCHEMA: &str = "siteseer-manifest/1";

/// What every version of the manifest says.
#[derive(Deserialize)]
struct Version {
    schema: String,
}

/// The manifest, as far as it is needed to attach.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    build_id: String,
    object: Object,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
struct Object {
    crc32: String,
}

/// A program, and a place to attach it to.
#[derive(Deserialize)]
pub(crate) struct Attachment {
    pub(crate) program: String,
    pub(crate) mechanism: String,
    pub(crate) symbol: String,
    pub(crate) offset: u64,
    cookie: String,
}

/// A site that the object does not reach.
#[derive(Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) function: String,
    pub(crate) holder: String,
    pub(crate) holder_offset: u64,
    pub(crate) why: String,
    /// Its code never runs again.
    pub(crate) dead: bool,
}

impl Attachment {
    /// The link's cookie.
    pub(crate) fn cookie(&self) -> Result<u64, Box<dyn Error>> {
        let digits = self.cookie.strip_prefix("0x").ok_or("the manifest has a malformed cookie")?;
        Ok(u64::from_str_radix(digits, 16)?)
    }
}

impl Manifest {
    /// Reads a manifest that is about an object and the running kernel.
    pub(crate) fn read(path: &Path, object: &[u8]) -> Result<Manifest, Box<dyn Error>> {
        let failed = |why: String| format!("{}: {why}", path.display());
        let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
        // The version first: of another one, nothing else may be understood.
        let version: Version = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if version.schema != SCHEMA {
            return Err(
                failed(format!("its version is {:?}, and this program knows {SCHEMA:?}", version.schema)).into()
            );
        }
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        let checksum = format!("{:#010x}", crc32fast::hash(object));
        if checksum != manifest.object.crc32 {
            return Err(failed("it is about another object: compile it again".to_owned()).into());
        }
        let running = running_build_id()?;
        if running != manifest.build_id {
            let wanted = &manifest.build_id;
            return Err(failed(format!("it is for the kernel with build id {wanted}, and {running} is running")).into());
        }
        Ok(manifest)
    }
}

/// The build id of the running kernel: a note of type 3 of the owner "GNU".
fn running_build_id() -> Result<String, Box<dyn Error>> {
    let notes = fs::read("/sys/kernel/notes")?;
    let mut rest = notes.as_slice();
    while let Some((header, after)) = rest.split_first_chunk::<12>() {
        let word =
            |at: usize| header[at..at + 4].iter().rev().fold(0usize, |word, byte| word << 8 | usize::from(*byte));
        let (name, description) = (word(0).next_multiple_of(4), word(4));
        let end = name + description.next_multiple_of(4);
        let (Some(owner), Some(id)) = (after.get(..word(0)), after.get(name..name + description)) else { break };
        if word(8) == 3 && owner == b"GNU\0" {
            return Ok(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        rest = after.get(end..).unwrap_or_default();
    }
    Err("/sys/kernel/notes has no build id".into())
}
