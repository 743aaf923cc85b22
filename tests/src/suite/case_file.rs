// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A case's folder: its table `case.toml`, its sources, its BPF programs. tests/cases/README.md says what the fields
//! mean.

use super::family::{Family, On};
use super::limits;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What names of modules begin with: they are in one space with the kernel's own.
pub const PREFIX: &str = "siteseer_";
/// The BPF programs of a case.
pub const PROGRAMS: &str = "prog.bpf.c";
const TABLE: &str = "case.toml";
/// So that the module's name fits into the kernel's (`MODULE_NAME_LEN`, include/linux/moduleparam.h).
const LONGEST_NAME: usize = 40;

/// One case.
#[derive(Debug, Clone)]
pub struct CaseFile {
    /// The folder's name.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// A few words.
    pub title: String,
    /// A sentence or two.
    pub about: String,
    /// The number that is written to the module's parameter.
    pub run: u32,
    /// Whether calls by other processes count.
    pub any_process: bool,
    /// Where it has no meaning, and why.
    pub not_for: Vec<NotFor>,
    /// What shows that the compiler did it: alternatives.
    pub exercised: Vec<Exercised>,
    /// What must come out.
    pub expect: Vec<Expect>,
}

/// Where a case has no meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFor {
    /// Where.
    pub on: On,
    /// Why.
    pub because: String,
}

/// Conditions on the module that hold together.
#[derive(Debug, Clone)]
pub struct Exercised {
    /// For which kernels they are.
    pub on: On,
    /// The conditions.
    pub conditions: Conditions,
}

/// Conditions on what is in a module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// Each is met by a function symbol.
    pub symbols: Vec<String>,
    /// None is met by a function symbol.
    pub no_symbols: Vec<String>,
    /// Copies that there are.
    pub inlined: Vec<Copies>,
    /// Copies that there are not.
    pub not_inlined: Vec<Copies>,
    /// Parameters that have a location at the entry.
    pub located: Vec<Parameter>,
    /// Parameters that have none.
    pub not_located: Vec<Parameter>,
    /// Functions with copies that begin at one address.
    pub same_entry: Vec<SameEntry>,
    /// Copies that begin at an instruction that the kernel patches: a jump label or a static call.
    pub patched: Vec<Copies>,
    /// Functions whose signature was changed.
    pub changed: Vec<String>,
    /// Numbers of call sites.
    pub calls: Vec<CallSites>,
}

/// Inlined copies of a function.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// The function.
    pub function: String,
    /// What the symbol meets that holds the copy.
    pub into: String,
    /// How many at least.
    #[serde(default = "one")]
    pub copies: usize,
}

/// A parameter in copies of a function.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The function.
    pub function: String,
    /// The parameter.
    pub parameter: String,
    /// What the symbol meets that holds the copy.
    #[serde(rename = "in")]
    pub within: String,
}

/// Copies that begin at one address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameEntry {
    /// The functions.
    pub functions: Vec<String>,
    /// What the symbol meets that holds the copies.
    pub into: String,
}

/// Call sites of a function.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSites {
    /// The function that is called.
    pub function: String,
    /// What the symbol meets that holds the calls.
    pub from: String,
    /// How many there are.
    pub count: usize,
}

/// A value that a program sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// This number.
    Number(u64),
    /// The run-time address of a symbol, and an offset.
    Address(String, u64),
    /// The program says that there is none.
    Absent,
}

/// What one run of a program sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The program.
    pub program: String,
    /// The values.
    pub values: Vec<Value>,
}

/// What must come of attaching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// These events.
    Events(Vec<Event>),
    /// It is refused, for these reasons.
    Refused(Vec<String>),
}

/// A limit of the kernel or of the debug information that may be in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The reasons for which attaching may be refused.
    pub reasons: Vec<String>,
    /// Which limit that is.
    pub because: String,
    /// Whether it must be refused: one day nothing may be in the way any more, and then the case has to say so.
    pub is_required: bool,
}

/// Where the debug information has arguments that are not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubtful {
    /// On which kernels.
    pub on: On,
    /// What comes of attaching there.
    pub leaves: Leaves,
}

/// What comes of attaching without doubtful arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaves {
    /// A refusal. Why they are not believed.
    Nothing(String),
    /// Sites with these events.
    Events(Vec<Event>),
}

/// How programs are attached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the policy is `complete`; `None` for the section's own.
    pub complete: Option<bool>,
    /// A function in place of the section's.
    pub function: Option<String>,
    /// The file that declares it.
    pub file: Option<String>,
    /// Whether functions of the name with other prototypes are taken too.
    pub all_prototypes: bool,
    /// Whether doubtful arguments are read, too.
    pub accept_doubt: bool,
    /// The cookie.
    pub cookie: u64,
}

/// One expectation.
#[derive(Debug, Clone)]
pub struct Expect {
    /// On which kernels.
    pub on: On,
    /// The programs, attached in this order.
    pub programs: Vec<String>,
    /// How.
    pub options: Options,
    /// What must come of it.
    pub outcome: Outcome,
    /// What may be in the way.
    pub unsupported: Option<Unsupported>,
    /// Where arguments are doubtful: it is as it should be with those accepted, and refused or attached in part else.
    pub doubtful: Option<Doubtful>,
    /// Sites that are attached, by kind.
    pub sites: Option<BTreeMap<String, usize>>,
    /// Sites that are not, by reason.
    pub skipped: Option<BTreeMap<String, usize>>,
    /// Reasons for which some are not.
    pub skipped_for: Vec<String>,
}

impl Expect {
    /// What to call it in a result.
    pub fn label(&self) -> String {
        let mut label = self.programs.join("+");
        match self.options.complete {
            Some(true) => label.push_str(" (complete)"),
            Some(false) => label.push_str(" (best_effort)"),
            None => {}
        }
        if let Some(function) = &self.options.function {
            label.push_str(&format!(" on {function}"));
        }
        if let Some(file) = &self.options.file {
            label.push_str(&format!(" of {file}"));
        }
        if self.options.accept_doubt {
            label.push_str(" (accept_doubt)");
        }
        label
    }

    /// What is tried on a kernel: where arguments are doubtful, first without these, and then with them.
    pub fn on(&self, family: &Family) -> Vec<Expect> {
        let doubtful = match &self.doubtful {
            _ if !self.on.holds(family) => return Vec::new(),
            Some(doubtful) if doubtful.on.holds(family) => doubtful,
            _ => return vec![self.clone()],
        };
        let mut accepting = self.clone();
        accepting.options.accept_doubt = true;
        let mut certain = Expect { sites: None, skipped: None, skipped_for: Vec::new(), ..self.clone() };
        match &doubtful.leaves {
            Leaves::Events(events) => {
                certain.outcome = Outcome::Events(events.clone());
                certain.skipped_for = vec![MISSING.to_owned()];
            }
            Leaves::Nothing(because) => {
                let (reasons, because) = (vec![MISSING.to_owned()], because.clone());
                certain.unsupported = Some(Unsupported { reasons, because, is_required: true });
            }
        }
        vec![certain, accepting]
    }
}

/// Why a site is not attached that lacks an argument, also if it has a doubtful one.
const MISSING: &str = "missing_arguments";

fn one<T: From<u8>>() -> T {
    T::from(1)
}

/// Why a case cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}", path = path.display())]
pub struct CaseError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl CaseError {
    fn new(path: &Path, why: impl fmt::Display) -> CaseError {
        CaseError { path: path.to_owned(), why: why.to_string() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    about: String,
    #[serde(default = "one")]
    run: u32,
    #[serde(default)]
    any_process: bool,
    #[serde(default)]
    not_for: Vec<NotForTable>,
    exercised: Vec<toml::Table>,
    expect: Vec<ExpectTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotForTable {
    on: Vec<String>,
    because: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectTable {
    #[serde(default)]
    on: Vec<String>,
    program: Option<String>,
    #[serde(default)]
    programs: Vec<String>,
    events: Option<Vec<EventTable>>,
    refused: Option<Vec<String>>,
    #[serde(default)]
    unsupported: Vec<String>,
    because: Option<String>,
    policy: Option<Policy>,
    sites: Option<BTreeMap<String, usize>>,
    skipped: Option<BTreeMap<String, usize>>,
    #[serde(default)]
    skipped_for: Vec<String>,
    function: Option<String>,
    file: Option<String>,
    #[serde(default)]
    all_prototypes: bool,
    #[serde(default)]
    accept_doubt: bool,
    cookie: Option<toml::Value>,
    doubtful: Option<DoubtfulTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DoubtfulTable {
    on: Vec<String>,
    leaves: Option<Vec<EventTable>>,
    because: Option<String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Policy {
    Complete,
    BestEffort,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EventTable {
    Values(Vec<toml::Value>),
    Of(EventOf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventOf {
    program: String,
    values: Vec<toml::Value>,
}

/// A case's name, and the case if it can be read.
pub type Named = (String, Result<CaseFile, CaseError>);

/// The cases of a folder, by name.
///
/// # Errors
/// If the folder cannot be read. A case that is wrong is in the list, with its error.
pub fn all(folder: &Path) -> Result<Vec<Named>, CaseError> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| CaseError::new(folder, error))? {
        let path = entry.map_err(|error| CaseError::new(folder, error))?.path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            cases.push((name, CaseFile::read(&path)));
        }
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(cases)
}

/// The workspace's own cases.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

impl CaseFile {
    /// Reads a case.
    ///
    /// # Errors
    /// If its table is wrong, or it lacks sources.
    pub fn read(folder: &Path) -> Result<CaseFile, CaseError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_fine) {
            let rule = format!("a name is of small letters, digits and underscores, at most {LONGEST_NAME}");
            return Err(CaseError::new(folder, rule));
        }
        let path = folder.join(TABLE);
        let text = std::fs::read_to_string(&path).map_err(|error| CaseError::new(&path, error))?;
        let case = CaseFile::parse(&name, folder, &text).map_err(|why| CaseError::new(&path, why))?;
        if !folder.join(PROGRAMS).is_file() {
            return Err(CaseError::new(folder, format!("it has no {PROGRAMS}")));
        }
        if case.sources()?.is_empty() {
            return Err(CaseError::new(folder, "it has no sources of a module"));
        }
        Ok(case)
    }

    /// The module's name.
    pub fn module(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// The module's sources, sorted.
    ///
    /// # Errors
    /// If the folder cannot be read, or a source has the module's own name, which Kbuild takes for the module.
    pub fn sources(&self) -> Result<Vec<PathBuf>, CaseError> {
        let mut sources = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(|error| CaseError::new(&self.folder, error))? {
            let path = entry.map_err(|error| CaseError::new(&self.folder, error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".c") && !name.ends_with(".bpf.c") {
                if name.strip_suffix(".c") == Some(&self.module()) {
                    return Err(CaseError::new(&path, "a source may not be named as the module is"));
                }
                sources.push(path.clone());
            }
        }
        sources.sort();
        Ok(sources)
    }

    fn parse(name: &str, folder: &Path, text: &str) -> Result<CaseFile, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        if table.exercised.is_empty() || table.expect.is_empty() {
            return Err("it takes an [[exercised]] and an [[expect]]".to_owned());
        }
        let not_for = |entry: NotForTable| {
            if entry.on.is_empty() {
                return Err("not_for: it has no meaning anywhere".to_owned());
            }
            Ok(NotFor { on: On::parse(&entry.on)?, because: sentence("not_for", Some(entry.because))? })
        };
        Ok(CaseFile {
            name: name.to_owned(),
            folder: folder.to_owned(),
            title: table.title,
            about: table.about.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            run: table.run,
            any_process: table.any_process,
            not_for: table.not_for.into_iter().map(not_for).collect::<Result<_, _>>()?,
            exercised: table.exercised.into_iter().map(exercised).collect::<Result<_, _>>()?,
            expect: table.expect.into_iter().map(expect).collect::<Result<_, _>>()?,
        })
    }
}

fn sentence(of: &str, because: Option<String>) -> Result<String, String> {
    because.filter(|text| !text.trim().is_empty()).ok_or_else(|| format!("{of}: `because` has to say why"))
}

fn exercised(mut table: toml::Table) -> Result<Exercised, String> {
    let on: Vec<String> = match table.remove("on") {
        Some(on) => on.try_into().map_err(|error| format!("exercised: on: {error}"))?,
        None => Vec::new(),
    };
    let conditions: Conditions = toml::Value::Table(table).try_into().map_err(|error| format!("exercised: {error}"))?;
    if conditions == Conditions::default() {
        return Err("exercised: without a condition it shows nothing".to_owned());
    }
    if conditions.same_entry.iter().any(|same| same.functions.len() < 2) {
        return Err("exercised: same_entry: it takes two functions or more".to_owned());
    }
    if conditions.inlined.iter().chain(&conditions.patched).any(|copies| copies.copies == 0) {
        return Err("exercised: inlined, patched: no copy at all is `not_inlined`".to_owned());
    }
    Ok(Exercised { on: On::parse(&on)?, conditions })
}

fn expect(table: ExpectTable) -> Result<Expect, String> {
    let mut programs = table.programs;
    programs.extend(table.program);
    let one = match &programs[..] {
        [] => return Err("expect: it names no program".to_owned()),
        [one] => Some(one.clone()),
        _ => None,
    };
    let of = |what: &str| format!("expect: {}: {what}", programs.join("+"));
    let event = |entry: EventTable| {
        let (program, values) = match entry {
            EventTable::Values(values) => {
                (one.clone().ok_or_else(|| of("events: say which program sends each"))?, values)
            }
            EventTable::Of(EventOf { program, values }) => (program, values),
        };
        if !programs.contains(&program) {
            return Err(of(&format!("events: {program:?} is not among the programs")));
        }
        let values: Result<Vec<Value>, String> = values.iter().map(value).collect();
        Ok(Event { program, values: values.map_err(|why| of(&format!("events: {why}")))? })
    };
    let outcome = match (table.events, table.refused) {
        (Some(events), None) => Outcome::Events(events.into_iter().map(event).collect::<Result<_, _>>()?),
        (None, Some(reasons)) if !reasons.is_empty() => Outcome::Refused(reasons),
        _ => return Err(of("it takes either `events` or `refused`")),
    };
    let unsupported = match (table.unsupported, table.because) {
        (reasons, None) if reasons.is_empty() => None,
        (reasons, because) if reasons.is_empty() => {
            // A refusal that must come may say why, too.
            sentence("expect", because)?;
            None
        }
        (reasons, because) => Some(Unsupported { because: sentence("expect", because)?, reasons, is_required: false }),
    };
    let doubtful = match table.doubtful {
        None => None,
        Some(_) if table.accept_doubt => return Err(of("`doubtful` stands in place of `accept_doubt`")),
        Some(DoubtfulTable { on, leaves, because }) => {
            let leaves = match (leaves, because) {
                (Some(_), Some(_)) => return Err(of("doubtful: it takes either `leaves` or `because`")),
                (Some(events), None) => Leaves::Events(events.into_iter().map(event).collect::<Result<_, _>>()?),
                (None, because) => Leaves::Nothing(sentence("doubtful", because)?),
            };
            Some(Doubtful { on: On::parse(&on)?, leaves })
        }
    };
    if doubtful.is_some() && matches!(outcome, Outcome::Refused(_)) {
        return Err(of("`doubtful` stands beside `events`"));
    }
    if let Some(unsupported) = &unsupported {
        if matches!(outcome, Outcome::Refused(_)) {
            return Err(of("`unsupported` stands beside `events`"));
        }
        if let Some(ours) = unsupported.reasons.iter().find(|reason| !limits::can_be_a_limit(reason)) {
            return Err(of(&format!("unsupported: {ours:?} is not a limit of the kernel or of the debug information")));
        }
    }
    if matches!(outcome, Outcome::Refused(_))
        && (table.sites.is_some() || table.skipped.is_some() || !table.skipped_for.is_empty())
    {
        return Err(of("where it is refused there are no sites to count"));
    }
    let refused = match &outcome {
        Outcome::Refused(reasons) => &reasons[..],
        Outcome::Events(_) => &[],
    };
    let skipped = table.skipped.iter().flat_map(|counts| counts.keys()).chain(&table.skipped_for);
    if let Some(unknown) = refused.iter().chain(skipped).find(|reason| !limits::is_reason(reason)) {
        return Err(of(&format!("{unknown:?} is not a reason")));
    }
    if let Some(unknown) = table.sites.iter().flat_map(|counts| counts.keys()).find(|kind| !KINDS.contains(&&***kind)) {
        return Err(of(&format!("sites: {unknown:?} is not a kind of site")));
    }
    let cookie = match table.cookie.as_ref().map(value) {
        None => 0,
        Some(Ok(Value::Number(cookie))) => cookie,
        Some(_) => return Err(of("cookie: it is not a number")),
    };
    Ok(Expect {
        on: On::parse(&table.on)?,
        programs,
        options: Options {
            complete: table.policy.map(|policy| policy == Policy::Complete),
            function: table.function,
            file: table.file,
            all_prototypes: table.all_prototypes,
            accept_doubt: table.accept_doubt,
            cookie,
        },
        outcome,
        unsupported,
        doubtful,
        sites: table.sites,
        skipped: table.skipped,
        skipped_for: table.skipped_for,
    })
}

/// Kinds of site, as the model names them.
const KINDS: [&str; 3] = ["body", "clone", "inline"];

fn value(value: &toml::Value) -> Result<Value, String> {
    let wrong = || format!("{value} is not a value");
    match value {
        toml::Value::Integer(number) => Ok(Value::Number(*number as u64)),
        toml::Value::String(text) => {
            if text == "absent" {
                return Ok(Value::Absent);
            }
            if let Some(symbol) = text.strip_prefix('&') {
                let (symbol, offset) = symbol.split_once('+').unwrap_or((symbol, "0"));
                return Ok(Value::Address(symbol.to_owned(), number(offset).ok_or_else(wrong)?));
            }
            if let Some(quoted) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
                return match quoted.as_bytes() {
                    [byte] => Ok(Value::Number(u64::from(*byte))),
                    _ => Err(wrong()),
                };
            }
            Ok(Value::Number(number(text).ok_or_else(wrong)?))
        }
        _ => Err(wrong()),
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CaseFile, String> {
        CaseFile::parse("example", Path::new("example"), text)
    }

    const HEAD: &str = "title = 't'\nabout = \"a\\n b\"\n[[exercised]]\nsymbols = ['foo']\n";

    #[test]
    fn values_of_every_form() {
        let case = parse(&format!(
            "{HEAD}[[expect]]\nprogram = 'p'\ncookie = '0xffffffffffffffff'\nevents = [[-1, 0x7f, '0xfffffffffffffffe', \"'x'\", 'absent', '&foo+0x8', '12']]"
        ))
        .unwrap();
        let Outcome::Events(events) = &case.expect[0].outcome else { panic!("{case:?}") };
        let wanted = [
            Value::Number(u64::MAX),
            Value::Number(0x7f),
            Value::Number(u64::MAX - 1),
            Value::Number(120),
            Value::Absent,
            Value::Address("foo".to_owned(), 8),
            Value::Number(12),
        ];
        assert_eq!(events[0], Event { program: "p".to_owned(), values: wanted.to_vec() });
        assert_eq!((case.about.as_str(), case.run, case.expect[0].options.cookie), ("a b", 1, u64::MAX));
    }

    #[test]
    fn what_says_nothing_is_refused() {
        for (text, why) in [
            ("[[expect]]\nprogram = 'p'", "either"),
            ("[[expect]]\nprogram = 'p'\nevents = []\nrefused = ['notrace']", "either"),
            ("[[expect]]\nprogram = 'p'\nrefused = []", "either"),
            ("[[expect]]\nevents = []", "names no program"),
            ("[[expect]]\nprogram = 'p'\nevents = [['any']]", "is not a value"),
            ("[[expect]]\nprogram = 'p'\nevents = [[1.5]]", "is not a value"),
            ("[[expect]]\nprogram = 'p'\nrefused = ['no_such']", "is not a reason"),
            ("[[expect]]\nprogram = 'p'\nevents = []\nunsupported = ['notrace']", "because"),
            ("[[expect]]\nprogram = 'p'\nevents = []\nunsupported = ['program']\nbecause = 'x'", "is not a limit"),
            ("[[expect]]\nprogram = 'p'\nrefused = ['notrace']\nunsupported = ['notrace']\nbecause = 'x'", "beside"),
            ("[[expect]]\nprogram = 'p'\nevents = []\ndoubtful = { on = ['clang'] }", "because"),
            (
                "[[expect]]\nprogram = 'p'\nevents = []\naccept_doubt = true\ndoubtful = { on = ['clang'], because = 'x' }",
                "in place of",
            ),
            (
                "[[expect]]\nprogram = 'p'\nrefused = ['notrace']\ndoubtful = { on = ['clang'], because = 'x' }",
                "beside",
            ),
            ("[[expect]]\nprograms = ['p', 'q']\nevents = [[1]]", "which program"),
            ("[[expect]]\nprogram = 'p'\nevents = [{ program = 'q', values = [] }]", "not among"),
            ("[[expect]]\nprogram = 'p'\nevents = []\nsites = { inlined = 1 }", "is not a kind"),
            ("[[expect]]\nprogram = 'p'\nrefused = ['notrace']\nsites = { body = 1 }", "no sites to count"),
            ("[[expect]]\nprogram = 'p'\nevents = []\non = ['icc']", "is not a condition"),
            ("[[expect]]\nprogram = 'p'\nevents = []\ncookie = 'absent'", "is not a number"),
            ("[[expect]]\nprogram = 'p'\nevents = []\n[[not_for]]\non = []\nbecause = 'x'", "anywhere"),
            ("[[expect]]\nprogram = 'p'\nevents = []\n[[exercised]]\non = ['gcc']", "shows nothing"),
            ("[[expect]]\nprogram = 'p'\nevents = []\n[[exercised]]\nsymbol = ['x']", "symbol"),
        ] {
            let error = parse(&format!("{HEAD}{text}")).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(parse("title = 't'\nabout = 'a'\nexercised = []\nexpect = []").is_err());
    }

    #[test]
    fn what_is_doubtful_is_tried_without_and_with_it() {
        let case = |leaves: &str| {
            let table = format!("doubtful = {{ on = ['gcc14'], {leaves} }}");
            parse(&format!("{HEAD}[[expect]]\nprogram = 'p'\nevents = [[1], [2]]\nsites = {{ body = 2 }}\n{table}"))
                .unwrap()
        };
        let gcc14 = crate::suite::family::tests::gcc14();
        let refused = &case("because = 'x'").expect[0].on(&gcc14)[..];
        let [certain, accepting] = refused else { panic!("{refused:?}") };
        assert!(certain.unsupported.as_ref().is_some_and(|unsupported| unsupported.is_required));
        assert!(certain.sites.is_none() && !certain.options.accept_doubt);
        assert!(accepting.unsupported.is_none() && accepting.sites.is_some() && accepting.options.accept_doubt);
        let case = case("leaves = [[1]]");
        let left = &case.expect[0].on(&gcc14)[0];
        assert!(matches!(&left.outcome, Outcome::Events(events) if events.len() == 1));
        assert_eq!((left.skipped_for.as_slice(), &left.unsupported), (&[MISSING.to_owned()][..], &None));
        let other = crate::suite::family::Family { major: 12, ..gcc14 };
        assert!(matches!(&case.expect[0].on(&other)[..], [only] if only.sites.is_some() && !only.options.accept_doubt));
    }

    #[test]
    fn the_workspaces_cases_can_be_read() {
        let cases = all(&folder()).unwrap();
        assert!(cases.len() >= 2);
        for (name, case) in cases {
            assert!(case.is_ok(), "{name}: {}", case.unwrap_err());
        }
    }
}
