// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Asking `perf probe -D`, and reading its answers.
//!
//! perf prints a line a probe, in the syntax of the kernel's kprobe events (Documentation/trace/kprobetrace.rst):
//! `p:probe/foo symbol+off a=%di:x64 b=+8(%sp):s32 c=\5:x64`. All parameters are asked for at once; one location that
//! perf does not support makes it refuse the whole function, and then it is asked for the places alone, and for a few
//! of the parameters one by one.

use siteseer_sites::Machine;
use siteseer_sites::location::Location;
use siteseer_sites::machine::Register;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many parameters are asked for one by one.
const MAX_SINGLE: usize = 6;

/// What perf prints in place of an argument that a site lacks (`\deade12d`, "dead end").
const MAGIC: &str = "deade12d";

/// Where perf says that an argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerfLocation {
    /// A register's value.
    Register(Register),
    /// A constant.
    Constant(u64),
    /// Memory at another location's value plus an offset.
    Memory(Box<PerfLocation>, i64),
    /// Memory at an address, which is given as a symbol of data or as a number.
    At(String),
    /// perf's magic value: this site does not have the argument.
    Magic,
    /// Something else.
    Other(String),
}

impl PerfLocation {
    /// The same in the model of sites, where there is such a thing.
    pub fn normalised(&self) -> Option<Location> {
        match self {
            PerfLocation::Register(register) => Some(Location::Register(*register)),
            PerfLocation::Constant(value) => Some(Location::Constant(*value)),
            PerfLocation::Memory(base, offset) => match **base {
                PerfLocation::Register(register) => Some(Location::Memory(register, i32::try_from(*offset).ok()?)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// One probe of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The symbol that holds it.
    pub symbol: String,
    /// Bytes from the symbol.
    pub offset: u64,
    /// Names and locations of the arguments.
    pub arguments: Vec<(String, PerfLocation)>,
    /// As perf printed it.
    pub text: String,
}

/// What perf answered to one question.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The parameters that were asked for.
    pub parameters: Vec<String>,
    /// The probes, or the message with which perf refused.
    pub lines: Result<Vec<Line>, String>,
}

/// perf, and the image that it is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Perf<'a> {
    /// The kernel image.
    pub vmlinux: &'a Path,
    /// Its architecture.
    pub machine: Machine,
}

impl Perf<'_> {
    /// Whether perf can be run.
    ///
    /// # Errors
    /// What stands against it.
    pub fn check() -> io::Result<()> {
        let status = Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("perf --version: {status}"))) }
    }

    /// Asks for a function with all parameters, and if perf refuses that, for what it will say.
    ///
    /// # Errors
    /// If perf cannot be run.
    pub fn ask(&self, function: &str, parameters: &[String]) -> io::Result<Vec<Answer>> {
        let whole = self.ask_once(function, parameters)?;
        if whole.lines.is_ok() || parameters.is_empty() {
            return Ok(vec![whole]);
        }
        let places = self.ask_once(function, &[])?;
        let go_on = places.lines.is_ok() && parameters.len() > 1;
        let mut answers = vec![whole, places];
        if go_on {
            for parameter in parameters.iter().take(MAX_SINGLE) {
                answers.push(self.ask_once(function, std::slice::from_ref(parameter))?);
            }
        }
        Ok(answers)
    }

    fn ask_once(&self, function: &str, parameters: &[String]) -> io::Result<Answer> {
        let mut definition = function.to_owned();
        for parameter in parameters {
            definition.push(' ');
            definition.push_str(parameter);
        }
        let output = Command::new("perf")
            .args(["probe", "--no-demangle", "-k"])
            .arg(self.vmlinux)
            .args(["-D", &definition])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<Line> = text.lines().filter_map(|line| parse_line(line, self.machine)).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines = if (output.status.success() && !lines.is_empty()) || finds_none(&stderr) {
            Ok(lines)
        } else {
            Err(refusal(&stderr))
        };
        Ok(Answer { parameters: parameters.to_vec(), lines })
    }
}

/// Whether perf looked, and found no place at all: an answer, and no refusal.
fn finds_none(stderr: &str) -> bool {
    stderr.lines().any(|line| line.starts_with("Probe point '") && line.ends_with("' not found."))
}

/// The sentence that says why, of all that perf writes.
fn refusal(stderr: &str) -> String {
    let said = |line: &&str| !line.trim().is_empty();
    let telling = |line: &&str| said(line) && !line.contains("Failed to add events");
    let line = stderr.lines().find(telling).or_else(|| stderr.lines().find(said));
    line.map_or_else(|| "no word".to_owned(), |line| line.trim().to_owned())
}

/// Reads a line, or `None` if it is not a probe definition.
fn parse_line(line: &str, machine: Machine) -> Option<Line> {
    let mut words = line.split_whitespace();
    words.next().filter(|word| word.starts_with("p:"))?;
    let place = words.next()?;
    let (symbol, offset) = match place.rsplit_once('+') {
        Some((symbol, offset)) => (symbol, number(offset)?),
        None => (place, 0),
    };
    let arguments = words.map(|word| {
        let (name, value) = word.split_once('=').unwrap_or(("", word));
        (name.to_owned(), parse_value(value, machine))
    });
    Some(Line { symbol: symbol.to_owned(), offset, arguments: arguments.collect(), text: line.to_owned() })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => Some(number(digits)?.wrapping_neg() as i64),
        None => Some(number(text.strip_prefix('+').unwrap_or(text))? as i64),
    }
}

/// Reads a value with its type.
fn parse_value(text: &str, machine: Machine) -> PerfLocation {
    let after = text.rfind(')').map_or(0, |place| place + 1);
    let end = text[after..].find(':').map_or(text.len(), |place| after + place);
    parse_location(&text[..end], machine).unwrap_or_else(|| PerfLocation::Other(text.to_owned()))
}

fn parse_location(text: &str, machine: Machine) -> Option<PerfLocation> {
    if let Some(constant) = text.strip_prefix('\\') {
        if constant == MAGIC {
            return Some(PerfLocation::Magic);
        }
        return signed(constant).map(|value| PerfLocation::Constant(value as u64));
    }
    if let Some(name) = text.strip_prefix('%') {
        return register(name, machine).map(PerfLocation::Register);
    }
    if let Some(address) = text.strip_prefix('@') {
        return Some(PerfLocation::At(address.to_owned()));
    }
    let (offset, inner) = text.strip_suffix(')')?.split_once('(')?;
    Some(PerfLocation::Memory(Box::new(parse_location(inner, machine)?), signed(offset)?))
}

/// The number of a register by the name that kprobe events have for it: x86-64's without the `r` of those that older
/// processors had (`regs_query_register_offset()`).
fn register(name: &str, machine: Machine) -> Option<Register> {
    let names = machine.register_names();
    let place = names
        .iter()
        .position(|&known| known == name || (machine == Machine::X86_64 && known.strip_prefix('r') == Some(name)))?;
    Register::try_from(place).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> PerfLocation {
        parse_value(text, Machine::X86_64)
    }

    #[test]
    fn lines_are_read() {
        let line = parse_line(r"p:probe/f sym+17 a=%di:x64 b=+8(%sp):s32 c=\5:x64", Machine::X86_64).unwrap();
        assert_eq!((line.symbol.as_str(), line.offset), ("sym", 17));
        assert_eq!(
            line.arguments,
            [
                ("a".to_owned(), PerfLocation::Register(5)),
                ("b".to_owned(), PerfLocation::Memory(Box::new(PerfLocation::Register(7)), 8)),
                ("c".to_owned(), PerfLocation::Constant(5)),
            ]
        );
        assert_eq!(parse_line("Error: no", Machine::X86_64), None);
    }

    #[test]
    fn values_are_read() {
        assert_eq!(value("%r14:x64"), PerfLocation::Register(14));
        assert_eq!(value(r"\deade12d:x64"), PerfLocation::Magic);
        assert_eq!(value(r"\-1:s32"), PerfLocation::Constant(u64::MAX));
        assert_eq!(value("@init_task+8:x64"), PerfLocation::At("init_task+8".to_owned()));
        let inner = PerfLocation::Memory(Box::new(PerfLocation::Register(4)), -8);
        assert_eq!(value("+0(-8(%si)):b4@2/8"), PerfLocation::Memory(Box::new(inner), 0));
        assert_eq!(value("%xmm0:x64"), PerfLocation::Other("%xmm0:x64".to_owned()));
    }

    #[test]
    fn a_refusal_is_the_telling_line() {
        let stderr = "Sorry, we don't support this variable location yet.\n  Error: Failed to add events.\n";
        assert_eq!(refusal(stderr), "Sorry, we don't support this variable location yet.");
        assert!(!finds_none(stderr));
        assert!(finds_none("Probe point '__do_sys_x' not found.\n  Error: Failed to add events.\n"));
        assert_eq!(refusal("  Error: Failed to add events.\n"), "Error: Failed to add events.");
    }
}
