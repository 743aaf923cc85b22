// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Chains of functions, as text and as JSON.

use super::places::{Found, without_chains};
use super::query::At;
use super::stack::StackLine;
use crate::Failure;
use crate::sites::location;
use serde_json::{Value, json};
use siteseer_sites::btf;
use siteseer_sites::file::{ContainerRef, FileError, Frame, SiteRef, Source};
use std::io::{self, Write};

/// What is known about an address.
pub(super) struct Answer<'p> {
    address: u64,
    module: Option<&'p str>,
    symbol: Option<(ContainerRef<'p>, u64)>,
    frames: Vec<Frame<'p>>,
    /// The functions with a body that starts there.
    sites: Vec<Starting<'p>>,
}

/// A function with a body that starts at the address.
struct Starting<'p> {
    function: &'p str,
    kind: Option<&'static str>,
    /// Each argument's declaration, and where it is.
    arguments: Vec<(String, String)>,
}

impl<'p> Answer<'p> {
    /// Looks a place up, so many bytes before it if it is where a call returns to.
    pub(super) fn of<'f: 'p>(found: &Found<'p, 'f>, back: u64) -> Result<Answer<'p>, Failure> {
        let place = found.place;
        let Some(chains) = &place.chains else {
            return Err(without_chains(&format!(
                "the site data of {}",
                place.module.as_deref().unwrap_or("the image")
            )));
        };
        let link = found.link.saturating_sub(back);
        let symbol = place.file.containers_at(link)?.first().map(|&symbol| (symbol, found.link - symbol.address));
        let frames = chains.at(link)?.map_or(Vec::new(), |chain| chain.frames);
        let sites = if back == 0 { place.file.sites_at(link)? } else { Vec::new() };
        let sites = sites.iter().map(Starting::of).collect::<Result<Vec<_>, FileError>>()?;
        Ok(Answer { address: place.run_time(found.link), module: place.module.as_deref(), symbol, frames, sites })
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{:#x}", self.address)?;
        if let Some((symbol, offset)) = &self.symbol {
            write!(out, " {}+{offset:#x}/{:#x}", symbol.name, symbol.size)?;
        }
        if let Some(module) = self.module {
            write!(out, " [{module}]")?;
        }
        writeln!(out)?;
        for (nth, frame) in self.frames.iter().enumerate() {
            let name = if frame.function.is_empty() { "(no function)" } else { frame.function };
            let inlined = if nth + 1 < self.frames.len() { " (inlined)" } else { "" };
            writeln!(out, "    {name}{inlined}{}", place(frame.line))?;
        }
        for site in &self.sites {
            let arguments: Vec<String> = site.arguments.iter().map(|(what, at)| format!("{what} [{at}]")).collect();
            writeln!(
                out,
                "  {} starts here: {}({})",
                site.kind.unwrap_or("a body"),
                site.function,
                arguments.join(", ")
            )?;
        }
        Ok(())
    }

    pub(super) fn json(&self, query: &str) -> Value {
        let frames: Vec<Value> = self
            .frames
            .iter()
            .enumerate()
            .map(|(nth, frame)| frame_json(frame.function, nth + 1 < self.frames.len(), frame.line))
            .collect();
        let sites: Vec<Value> = self
            .sites
            .iter()
            .map(|site| {
                let arguments: Vec<Value> =
                    site.arguments.iter().map(|(what, at)| json!({ "declaration": what, "location": at })).collect();
                json!({ "function": site.function, "kind": site.kind, "arguments": arguments })
            })
            .collect();
        json!({
            "query": query,
            "address": format!("{:#x}", self.address),
            "module": self.module,
            "symbol": self.symbol.map(|(symbol, _)| symbol.name),
            "offset": self.symbol.map(|(_, offset)| offset),
            "frames": frames,
            "sites": sites,
        })
    }
}

fn frame_json(function: &str, is_inlined: bool, line: Option<Source<'_>>) -> Value {
    json!({
        "function": Some(function).filter(|function| !function.is_empty()),
        "inlined": is_inlined,
        "file": line.map(|line| line.file),
        "line": line.map(|line| line.line).filter(|&line| line > 0),
    })
}

impl<'p> Starting<'p> {
    fn of(site: &SiteRef<'p, 'p>) -> Result<Starting<'p>, FileError> {
        let file = site.file();
        let arguments = site.arguments()?;
        let function =
            file.functions(site.function_name())?.into_iter().find(|function| function.func() == site.func());
        let parameters = function.map_or(Ok(Vec::new()), |function| function.prototype().map(|proto| proto.params))?;
        let parameter = |(nth, parameter): (usize, &btf::Param<'_>)| {
            let declared = btf::declaration(file.btf(), parameter.ty, parameter.name);
            (declared, location(arguments.get(nth), file.machine()))
        };
        Ok(Starting {
            function: site.function_name(),
            kind: site.kind().map(|kind| match kind {
                siteseer_sites::SiteKind::Body => "the body",
                siteseer_sites::SiteKind::Clone => "a clone",
                siteseer_sites::SiteKind::Inline => "an inlined copy",
            }),
            arguments: parameters.iter().enumerate().map(parameter).collect(),
        })
    }
}

/// A place in the source, with space before it.
fn place(line: Option<Source<'_>>) -> String {
    match line {
        None => String::new(),
        // Code that the compiler made up.
        Some(Source { file, line: 0 }) => format!("  {file}:?"),
        Some(Source { file, line }) => format!("  {file}:{line}"),
    }
}

/// Writes a frame of a stack with what is known about it: first the inlined copies, a line for each, and then the line
/// itself, with its place in the source at the end. Says whether anything is known; else nothing is written.
pub(super) fn annotate(
    frame: &StackLine<'_>,
    found: &Found<'_, '_>,
    back: u64,
    line: &str,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    // Nothing is before the first instruction of a function.
    let is_start = matches!(frame.query.at, At::Symbol { offset: 0, .. });
    let link = if is_start { found.link } else { found.link.saturating_sub(back) };
    let Some(frames) = found.place.index()?.and_then(|index| index.at(link)) else { return Ok(false) };
    let mut frames = frames.peekable();
    if as_json {
        let mut all = Vec::new();
        while let Some(one) = frames.next() {
            all.push(frame_json(one.function, frames.peek().is_some(), one.line));
        }
        let address = format!("{:#x}", found.place.run_time(found.link));
        let module = found.place.module.as_deref();
        let text = json!({ "frame": line.trim(), "address": address, "module": module, "frames": all });
        writeln!(out, "{text}")?;
        return Ok(true);
    }
    while let Some(one) = frames.next() {
        if frames.peek().is_none() {
            out.write_all(line.as_bytes())?;
        } else {
            out.write_all(frame.indent.as_bytes())?;
            if !frame.digits.is_empty() {
                out.write_all(frame.digits.as_bytes())?;
                out.write_all(b" ")?;
            }
            out.write_all(one.function.as_bytes())?;
            out.write_all(b" (inlined)")?;
        }
        match one.line {
            None => {}
            Some(Source { file, line: 0 }) => write!(out, "  {file}:?")?,
            Some(Source { file, line }) => write!(out, "  {file}:{line}")?,
        }
        out.write_all(b"\n")?;
    }
    Ok(true)
}
