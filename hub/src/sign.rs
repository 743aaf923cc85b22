// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Signatures: minisign's, so that `minisign -V` checks a hub's files as well, and keys are made and kept as with it.

use crate::error::{Cause, HubError, io};
use crate::layout;
use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox, SignatureBox};
use std::fs::{self, OpenOptions};
use std::io::{Cursor, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The public keys that are believed.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<PublicKey>);

impl Keys {
    /// Reads keys: each is the line that minisign prints (`RW...`), or the path of a file that it wrote.
    ///
    /// # Errors
    /// [`HubError::Key`].
    pub fn parse<S: AsRef<str>>(keys: impl IntoIterator<Item = S>) -> Result<Keys, HubError> {
        let one = |text: S| {
            let text = text.as_ref().trim();
            // A key may have slashes in it, so that only what is none is taken for a path.
            let key = PublicKey::from_base64(text).or_else(|error| match Path::new(text).is_file() {
                true => PublicKey::from_file(text),
                false => Err(error),
            });
            key.map_err(|error| HubError::Key {
                what: text.to_owned(),
                why: format!("not a minisign key: {error}").into(),
            })
        };
        Ok(Keys(keys.into_iter().map(one).collect::<Result<_, _>>()?))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that one of the keys signed the bytes, as the file of that path.
    ///
    /// # Errors
    /// [`HubError::Signature`]; `what` is named in it.
    pub fn verify(&self, what: &str, data: &[u8], signature: &[u8], path: &str) -> Result<(), HubError> {
        let bad = |why: Cause| HubError::Signature { what: what.to_owned(), why };
        let text = std::str::from_utf8(signature).map_err(|_| bad("its signature is malformed".into()))?;
        let signature = SignatureBox::from_string(text);
        let signature = signature.map_err(|error| bad(format!("its signature is malformed: {error}").into()))?;
        let key = self.0.iter().find(|key| key.keynum() == signature.keynum());
        let key = key.ok_or_else(|| bad("its signature is by a key that is not trusted".into()))?;
        minisign::verify(key, &signature, Cursor::new(data), true, false, false)
            .map_err(|_| bad("its signature is not right: it was altered, or is not complete".into()))?;
        let comment = signature.trusted_comment().unwrap_or_default();
        if comment != layout::comment(path) {
            return Err(bad(format!("its signature is that of another file ({comment})").into()));
        }
        Ok(())
    }
}

/// The secret key of a hub.
#[derive(Debug)]
pub struct Signer(SecretKey);

impl Signer {
    /// Reads a key that minisign or [`Signer::make`] wrote. If it has a password, it is asked for on the terminal.
    ///
    /// # Errors
    /// [`HubError::Io`], [`HubError::Key`].
    pub fn open(path: &Path) -> Result<Signer, HubError> {
        let bad = |error: minisign::PError| HubError::Key { what: path.display().to_string(), why: error.into() };
        let text = fs::read_to_string(path).map_err(io(path))?;
        let unencrypted = SecretKeyBox::from_string(&text).map_err(bad)?.into_unencrypted_secret_key();
        let key = match unencrypted {
            Ok(key) => key,
            Err(_) => SecretKeyBox::from_string(&text).map_err(bad)?.into_secret_key(None).map_err(bad)?,
        };
        Ok(Signer(key))
    }

    /// Makes a key without a password, and its public key beside it (`.pub`). Neither file may be there. Returns the
    /// public key.
    ///
    /// # Errors
    /// [`HubError::Io`], [`HubError::Key`].
    pub fn make(path: &Path) -> Result<String, HubError> {
        let bad = |error: minisign::PError| HubError::Key { what: path.display().to_string(), why: error.into() };
        let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().map_err(bad)?;
        let mut public = path.as_os_str().to_owned();
        public.push(".pub");
        let write = |path: &Path, mode: u32, text: String| {
            let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(io(path))
        };
        write(path, 0o600, sk.to_box(Some("the secret key of a siteseer hub")).map_err(bad)?.into_string())?;
        write(Path::new(&public), 0o644, pk.to_box().map_err(bad)?.into_string())?;
        Ok(pk.to_base64())
    }

    /// The signature of the bytes as the file of that path.
    ///
    /// # Errors
    /// [`HubError::Key`].
    pub fn sign(&self, data: &[u8], path: &str) -> Result<Vec<u8>, HubError> {
        let comment = layout::comment(path);
        let signed =
            minisign::sign(None, &self.0, Cursor::new(data), Some(&comment), Some("signature of a siteseer hub"));
        let signed = signed.map_err(|error| HubError::Key { what: path.to_owned(), why: error.into() })?;
        Ok(signed.into_string().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::with_causes;

    #[test]
    fn signatures_are_of_one_file_by_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let path = folder.path().join(name);
            let public = Signer::make(&path).unwrap();
            (Signer::open(&path).unwrap(), Keys::parse([public]).unwrap())
        };
        let ((signer, keys), (_, others)) = (key("one"), key("other"));
        assert!(matches!(Signer::make(&folder.path().join("one")), Err(HubError::Io { .. })), "it is not overwritten");
        let signature = signer.sign(b"data", "buildid/00/sites.zst").unwrap();
        let verify = |keys: &Keys, data: &[u8], path: &str| keys.verify("it", data, &signature, path);
        verify(&keys, b"data", "buildid/00/sites.zst").unwrap();
        let why = |result: Result<(), HubError>| with_causes(&result.unwrap_err());
        assert!(why(verify(&keys, b"date", "buildid/00/sites.zst")).contains("is not right"));
        assert!(why(verify(&keys, b"data", "buildid/01/sites.zst")).contains("another file"));
        assert!(why(verify(&others, b"data", "buildid/00/sites.zst")).contains("not trusted"));
        assert!(why(keys.verify("it", b"data", b"hello", "x")).contains("malformed"));
        let from_file = Keys::parse([folder.path().join("one.pub").to_str().unwrap()]).unwrap();
        verify(&from_file, b"data", "buildid/00/sites.zst").unwrap();
        assert!(Keys::parse(["hello"]).is_err());
    }
}
