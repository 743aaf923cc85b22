// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From nothing to a first trace by one command: site data of the running kernel is made to a hub, hidden, and fetched
//! by the command that needs it, from a server on the loopback.

use super::{Printed, run, workload};
use crate::case::Failure;
use crate::demo::TOOL;
use siteseer::Target;
use siteseer::internals::source::BaseTypes;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const CACHE: &str = "/var/cache/siteseer";
const HIDDEN: &str = "/var/cache/siteseer-hidden";
const HUB: &str = "/hub";

/// A hub that is served, until it is dropped. The site data comes back then.
struct Served {
    server: Option<Child>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(HUB);
        let _ = fs::remove_dir_all(CACHE);
        let _ = fs::rename(HIDDEN, CACHE);
    }
}

/// What the tool prints.
fn tool(arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(TOOL).args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// All calls are counted, those in the inlined copy too: three are of the body, two of the copy.
fn expect_all(printed: &Printed) -> Result<(), Failure> {
    let counted = printed.output.lines().last().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    match counted == ["5", "ns_capable"] {
        true => Ok(()),
        false => Err(format!("{}{}", printed.messages, printed.output).into()),
    }
}

pub(super) fn by_one_command(_: &Target) -> Result<String, Failure> {
    let id = BaseTypes::running()?.build_id.to_string();
    fs::rename(CACHE, HIDDEN)?;
    let mut served = Served { server: None };
    fs::create_dir(HUB)?;
    let key = tool(&["hub", "key", "/hub/secret"])?;
    let image = format!("{HIDDEN}/{id}.sites");
    tool(&["hub", "add", HUB, &image, "--key", "/hub/secret", "--level", "1"])?;
    let mut server = Command::new(TOOL);
    server.args(["hub", "serve", HUB, "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let server = served.server.insert(server.spawn()?);
    let mut url = String::new();
    BufReader::new(server.stdout.as_mut().ok_or("no output")?).read_line(&mut url)?;
    let environment = [("SITESEER_URLS", url.trim()), ("SITESEER_KEYS", key.trim())];
    let trace = |more: &[&str]| -> Result<(Printed, Duration), Failure> {
        let arguments = ["trace", "ns_capable", "--where", "comm = workload", "--count"];
        let arguments: Vec<String> = arguments.iter().chain(more).map(|&word| word.to_owned()).collect();
        let (start, ready) = (Instant::now(), OnceLock::new());
        let printed = run(&arguments, &environment, || {
            let _ = ready.set(start.elapsed());
            workload()
        })?;
        let ready = ready.get().copied().ok_or_else(|| format!("it did not trace: {}", printed.messages))?;
        Ok((printed, ready))
    };
    // Without the option, nothing is fetched, and the message names it.
    let (without, _) = trace(&[])?;
    if !without.messages.contains("with --fetch, siteseer fetches it first") || Path::new(CACHE).exists() {
        return Err(format!("without --fetch: {}", without.messages).into());
    }
    let (printed, ready) = trace(&["--fetch"])?;
    expect_all(&printed)?;
    if !printed.messages.contains("fetched /var/cache/siteseer/") {
        return Err(printed.messages.into());
    }
    // Now it is there.
    let (again, _) = trace(&["--fetch"])?;
    expect_all(&again)?;
    if again.messages.contains("fetched ") {
        return Err(again.messages.into());
    }
    let bytes = fs::metadata(format!("{HUB}/buildid/{id}/sites.zst"))?.len();
    Ok(format!("{bytes} bytes (zstd's level 1), tracing after {:.1} s", ready.as_secs_f64()))
}
