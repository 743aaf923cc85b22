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
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// The server was there, and went away.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke")]
struct Broken(#[source] std::io::Error);

/// The server answered, and has no file to send.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {0}")]
pub(crate) struct Status(pub(crate) u16);

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
const REDIRECTS: usize = 5;
/// An error page is not a file; some servers send one with status 200.
const PAGE: &str = "text/html";

impl Client {
    pub(crate) fn new(limits: Limits) -> Client {
        let agent = |https_only: bool| -> Agent {
            let config = Agent::config_builder()
                .https_only(https_only)
                .http_status_as_error(false)
                .max_redirects(0)
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
            ureq::Error::BadUri(why) => format!("not an address that is fetched from: {why}").into(),
            other => other.into(),
        };
        HubError::Http { url: url.to_owned(), why }
    }

    fn silent(&self) -> Cause {
        format!("the server sent nothing for {} s, or took too long altogether", self.limits.silence.as_secs_f32())
            .into()
    }

    /// Asks for a file, from some byte on if it is still of a version. Redirections are followed to http and https
    /// alone, and from https to https.
    fn get(&self, url: &str, from: Option<(u64, &str)>) -> Result<Response<Body>, HubError> {
        let failed = |why: String| HubError::Http { url: url.to_owned(), why: why.into() };
        let mut at = url.to_owned();
        let mut is_secure = false;
        for _ in 0..=REDIRECTS {
            let agent = match scheme(&at) {
                Some("https") => &self.secure,
                Some("http") if is_secure => return Err(failed(format!("redirected to {at}, which is not https"))),
                Some("http") => &self.plain,
                _ if at == url => {
                    let why = "not an address that is fetched from: it begins neither with https:// nor with http://";
                    return Err(failed(why.to_owned()));
                }
                _ => return Err(failed(format!("redirected to {at}, which is neither https nor http"))),
            };
            is_secure = scheme(&at) == Some("https");
            let mut request = agent.get(&at);
            if let Some((offset, version)) = from {
                request = request.header(RANGE, format!("bytes={offset}-")).header(IF_RANGE, version);
            }
            let response = request.call().map_err(|error| self.failed(url, error))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return answered(url, response, from.is_some());
            }
            let to = header(&response, LOCATION).ok_or_else(|| failed("redirected, without an address".to_owned()))?;
            at = redirected(&at, &to);
        }
        Err(failed(format!("redirected more than {REDIRECTS} times, perhaps in a circle")))
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

/// What an address begins with, before `://`.
fn scheme(url: &str) -> Option<&str> {
    url.split_once("://").map(|(scheme, _)| scheme)
}

/// Where a redirection leads (RFC 9110, section 10.2.2): an address, or what stands for one beside the one that was
/// asked for.
fn redirected(from: &str, to: &str) -> String {
    let is_address = to.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '?', '#']));
    let start = from.find("://").map_or(0, |at| at + 3);
    let host = from[start..].find(['/', '?', '#']).map_or(from.len(), |at| start + at);
    if is_address {
        to.to_owned()
    } else if to.starts_with("//") {
        format!("{}{to}", &from[..start.saturating_sub(2)])
    } else if to.starts_with('/') {
        format!("{}{to}", &from[..host])
    } else {
        let path = from[..].find(['?', '#']).map_or(from, |at| &from[..at]);
        let folder = path.rfind('/').filter(|&at| at >= host).map_or(host, |at| at);
        format!("{}/{to}", &from[..folder])
    }
}

/// Checks that an answer is a file.
fn answered(url: &str, response: Response<Body>, is_rest: bool) -> Result<Response<Body>, HubError> {
    match response.status().as_u16() {
        200 | 206 => {}
        404 | 410 => return Err(HubError::NotThere { url: url.to_owned() }),
        416 if is_rest => {}
        status => return Err(HubError::Http { url: url.to_owned(), why: Status(status).into() }),
    }
    let kind = header(&response, CONTENT_TYPE).unwrap_or_default();
    if kind.starts_with(PAGE) {
        return Err(HubError::NotAFile { url: url.to_owned(), what: "a page (text/html)".to_owned() });
    }
    Ok(response)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections() {
        let from = "http://a.example:80/b/c?d=/e";
        for (to, expected) in [
            ("https://f.example/g", "https://f.example/g"),
            ("file:///etc/passwd", "file:///etc/passwd"),
            ("data:text/plain,x", "data:text/plain,x"),
            ("//f.example/g", "http://f.example/g"),
            ("/g:h", "http://a.example:80/g:h"),
            ("g", "http://a.example:80/b/g"),
            ("g?h=i:j", "http://a.example:80/b/g?h=i:j"),
        ] {
            assert_eq!(redirected(from, to), expected);
        }
        assert_eq!(redirected("http://a.example", "g"), "http://a.example/g");
        assert_eq!(redirected("http://a.example?b/c", "/g"), "http://a.example/g");
        assert_eq!(redirected("", ""), "/");
        assert_eq!(scheme("data:text/plain,x"), None);
    }
}
