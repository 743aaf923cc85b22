// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Fetching files: bounded in size and time, and going on where it was cut off.
//!
//! What has come of a large file is kept in a hidden file (`.NAME.part`), with what the server said about the version
//! that it is of (`.NAME.from`). The next attempt asks for the rest, and for all if the server has another version by
//! now. That parts of two versions were joined nevertheless is found by the signature; then all is fetched again.

use crate::error::{Cause, HubError, io};
use siteseer_sites::with_causes;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Response;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// The server was there, and went away.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke")]
struct Broken(#[source] std::io::Error);

/// How long, and how much.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a server may send nothing.
    pub silence: Duration,
    /// How long one file may take altogether.
    pub whole: Duration,
    /// Bytes of a compressed file.
    pub packed: u64,
    /// Bytes of a site file, and of the files of all modules of a kernel together.
    pub unpacked: u64,
    /// Bytes of a debug image, or of a package with one.
    pub image: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            silence: Duration::from_secs(30),
            whole: Duration::from_secs(2 * 3600),
            packed: 256 << 20,
            unpacked: 1 << 30,
            image: 4 << 30,
        }
    }
}

/// Told how far something is.
pub trait Progress {
    /// Something begins that has so many bytes, if that is known.
    fn begin(&self, what: &str, bytes: Option<u64>);
    /// So many of them are done.
    fn at(&self, bytes: u64);
    /// Something to say.
    fn say(&self, text: &str);
}

/// An HTTP client.
pub(crate) struct Client {
    /// For https alone: such a place is not left for one without encryption.
    secure: Agent,
    plain: Agent,
    limits: Limits,
}

/// How often a broken download goes on by itself, as long as each time something comes.
const ATTEMPTS: usize = 5;
const REDIRECTS: u32 = 5;
/// An error page is not a file; some servers send one with status 200.
const PAGE: &str = "text/html";

impl Client {
    pub(crate) fn new(limits: Limits) -> Client {
        let agent = |https_only: bool| -> Agent {
            let config = Agent::config_builder()
                .https_only(https_only)
                .http_status_as_error(false)
                .max_redirects(REDIRECTS)
                .user_agent(concat!("siteseer/", env!("CARGO_PKG_VERSION")))
                .timeout_connect(Some(limits.silence))
                .timeout_recv_response(Some(limits.silence))
                .timeout_per_read(Some(limits.silence))
                .timeout_global(Some(limits.whole))
                .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build());
            config.build().into()
        };
        Client { secure: agent(true), plain: agent(false), limits }
    }

    fn failed(&self, url: &str, error: ureq::Error) -> HubError {
        let why = match error {
            ureq::Error::Timeout(_) => self.silent(),
            ureq::Error::RequireHttpsOnly(to) => format!("redirected to {to}, which is not https").into(),
            ureq::Error::BadUri(why) => format!("not an address that is fetched from: {why}").into(),
            other => other.into(),
        };
        HubError::Http { url: url.to_owned(), why }
    }

    fn silent(&self) -> Cause {
        format!("the server sent nothing for {} s, or took too long altogether", self.limits.silence.as_secs_f32())
            .into()
    }

    /// Asks for a file, from some byte on if it is still of a version.
    fn get(&self, url: &str, from: Option<(u64, &str)>) -> Result<Response<Body>, HubError> {
        let agent = match url.split_once("://") {
            Some(("https", _)) => &self.secure,
            Some(("http", _)) => &self.plain,
            _ => {
                let why = "not an address that is fetched from: it begins neither with https:// nor with http://";
                return Err(HubError::Http { url: url.to_owned(), why: why.into() });
            }
        };
        let mut request = agent.get(url);
        if let Some((offset, version)) = from {
            request = request.header(RANGE, format!("bytes={offset}-")).header(IF_RANGE, version);
        }
        let response = request.call().map_err(|error| self.failed(url, error))?;
        match response.status().as_u16() {
            200 | 206 => {}
            404 | 410 => return Err(HubError::NotThere { url: url.to_owned() }),
            416 if from.is_some() => {}
            status => {
                return Err(HubError::Http {
                    url: url.to_owned(),
                    why: format!("the server answered {status}").into(),
                });
            }
        }
        let kind = header(&response, CONTENT_TYPE).unwrap_or_default();
        if kind.starts_with(PAGE) {
            return Err(HubError::NotAFile { url: url.to_owned(), what: "a page (text/html)".to_owned() });
        }
        Ok(response)
    }

    /// A small file, in memory.
    pub(crate) fn small(&self, url: &str, limit: u64) -> Result<Vec<u8>, HubError> {
        let response = self.get(url, None)?;
        let mut bytes = Vec::new();
        let mut body = response.into_body().into_reader().take(limit + 1);
        body.read_to_end(&mut bytes).map_err(|error| self.broken(url, error))?;
        if bytes.len() as u64 > limit { Err(HubError::TooLarge { what: url.to_owned(), limit }) } else { Ok(bytes) }
    }

    fn broken(&self, url: &str, error: std::io::Error) -> HubError {
        let is_silence = error.kind() == ErrorKind::TimedOut || error.to_string().contains("timeout");
        let why = if is_silence { self.silent() } else { Broken(error).into() };
        HubError::Http { url: url.to_owned(), why }
    }

    /// A large file, into a folder's hidden part of a name. It is the caller's to remove ([`Part::discard`]).
    pub(crate) fn large(&self, url: &str, part: &Part, limit: u64, progress: &dyn Progress) -> Result<File, HubError> {
        let mut attempt = 0;
        loop {
            let before = part.have(url).map_or(0, |(have, _)| have);
            match self.once(url, part, limit, progress) {
                Ok(file) => return Ok(file),
                // What is left of it would be in the way of the next attempt, or of other files.
                Err(error @ (HubError::Io { .. } | HubError::TooLarge { .. } | HubError::NotThere { .. })) => {
                    part.discard();
                    return Err(error);
                }
                Err(error) => {
                    attempt += 1;
                    let after = part.have(url).map_or(0, |(have, _)| have);
                    if attempt >= ATTEMPTS || after <= before {
                        // What no later attempt can go on from is not kept.
                        if after == 0 {
                            part.discard();
                        }
                        return Err(error);
                    }
                    progress.say(&format!("{}; going on", with_causes(&error)));
                }
            }
        }
    }

    fn once(&self, url: &str, part: &Part, limit: u64, progress: &dyn Progress) -> Result<File, HubError> {
        let have = part.have(url);
        let mut response = self.get(url, have.as_ref().map(|(have, version)| (*have, version.as_str())))?;
        let mut start = 0;
        if let Some((had, version)) = have {
            let goes_on = begins_at(&response) == Some(had) && version_of(&response).as_ref() == Some(&version);
            match response.status().as_u16() {
                206 if goes_on => start = had,
                200 => {}
                // What is there is not the beginning of what the server has.
                _ => {
                    part.discard();
                    response = self.get(url, None)?;
                }
            }
        }
        let length = header(&response, CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
        let total = length.and_then(|length| length.checked_add(start));
        let too_large = || HubError::TooLarge { what: url.to_owned(), limit };
        if total.is_some_and(|total| total > limit) {
            return Err(too_large());
        }
        let mut file = part.open(url, start, version_of(&response).as_deref())?;
        progress.begin(url, total);
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 128 << 10];
        let mut at = start;
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(url, error)),
            };
            at += count as u64;
            if at > limit {
                return Err(too_large());
            }
            file.write_all(&buffer[..count]).map_err(io(&part.data))?;
            progress.at(at);
        }
        if total.is_some_and(|total| total != at) {
            return Err(HubError::Http { url: url.to_owned(), why: "the connection broke: the end is missing".into() });
        }
        file.seek(SeekFrom::Start(0)).map_err(io(&part.data))?;
        Ok(file)
    }
}

fn header(response: &Response<Body>, name: ureq::http::HeaderName) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}

/// What tells a version of a file from others, if the server says: what If-Range takes.
fn version_of(response: &Response<Body>) -> Option<String> {
    let tag = header(response, ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| header(response, LAST_MODIFIED)).filter(|version| !version.contains('\n'))
}

fn begins_at(response: &Response<Body>) -> Option<u64> {
    header(response, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

/// Where what has come of a file is kept.
#[derive(Debug)]
pub(crate) struct Part {
    data: PathBuf,
    from: PathBuf,
}

impl Part {
    pub(crate) fn new(folder: &Path, name: &str) -> Part {
        Part { data: folder.join(format!(".{name}.part")), from: folder.join(format!(".{name}.from")) }
    }

    /// How much there is of what a URL gives, and the version of it.
    fn have(&self, url: &str) -> Option<(u64, String)> {
        let from = fs::read_to_string(&self.from).ok()?;
        let (whence, version) = from.split_once('\n')?;
        let length = fs::symlink_metadata(&self.data).ok().filter(fs::Metadata::is_file)?.len();
        (whence == url && !version.is_empty() && length > 0).then(|| (length, version.to_owned()))
    }

    /// Opens it for what comes from an offset on.
    fn open(&self, url: &str, offset: u64, version: Option<&str>) -> Result<File, HubError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if offset == 0 {
            self.discard();
            options.create_new(true);
            // Without a version nothing can go on.
            fs::write(&self.from, format!("{url}\n{}", version.unwrap_or_default())).map_err(io(&self.from))?;
        }
        let mut file = options.open(&self.data).map_err(io(&self.data))?;
        file.set_len(offset).and_then(|()| file.seek(SeekFrom::Start(offset))).map_err(io(&self.data))?;
        Ok(file)
    }

    /// Removes it.
    pub(crate) fn discard(&self) {
        // What cannot be removed is hidden, and is not read.
        let _ = fs::remove_file(&self.data);
        let _ = fs::remove_file(&self.from);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.data
    }
}
