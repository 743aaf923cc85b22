// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Reading the section: one address at a time, by a search in the pieces and a walk over the data of one of them.

use super::super::elf::RANGES;
use super::super::ext::{NONE24, from24, wide};
use super::super::leb::Input;
use super::super::read::{FileError, SiteFile, string};
use super::super::site::Source;
use super::{
    DATA, FILES, FUNCTIONS, HAS_LINES, MAGIC, PIECES, RawFunction, RawHeader, RawPiece, STRINGS, SUMS, TABLES, VERSION,
    root, unzigzag,
};
use crate::btf::Strings;
use crate::site::SourceLine;
use crate::sums::Sums;
use std::ops::ControlFlow;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Why the section cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangesError {
    /// The header is malformed.
    #[error("malformed header: {0}")]
    Header(&'static str),
    /// Another version.
    #[error("it has version {0}, which is not supported: it was written by another release")]
    Version(u8),
    /// A table is not inside the section, or not a whole number of records.
    #[error("the {0} table is malformed")]
    Table(&'static str),
    /// A checksum is another, or the section belongs to another file.
    #[error("it is damaged at {offset:#x}: encode the image again")]
    Damaged {
        /// Where the damaged block begins, counted from the header's end.
        offset: usize,
    },
    /// A record contradicts the rest of the section.
    #[error("{what} {index} is damaged")]
    Corrupt {
        /// What was read.
        what: &'static str,
        /// Its number.
        index: u32,
    },
}

impl RangesError {
    pub(super) fn corrupt(what: &'static str, index: usize) -> RangesError {
        RangesError::Corrupt { what, index: u32::try_from(index).unwrap_or(u32::MAX) }
    }
}

/// A function of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The function's name in the source; empty if the debug information has lines here, and no function.
    pub function: &'a str,
    /// Where the function is declared.
    pub declared: Option<Source<'a>>,
    /// The line of this function that the address belongs to: for all but the innermost one, where the one before was
    /// called. For the innermost one it is `None` unless the file has source lines.
    pub line: Option<Source<'a>>,
}

/// The functions that an address is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain<'a> {
    /// From the innermost copy to the function that has text of its own, which is the last one.
    pub frames: Vec<Frame<'a>>,
}

/// The chains of an image or module: section `.BTF.inline.ranges`, open for reading.
///
/// What is read is checked by its checksums. A lookup is a binary search, and then a walk over the data of one
/// function. For very many addresses, [`Chains::index`] decodes all of it once.
#[derive(Debug)]
pub struct Chains<'f, 'a> {
    pub(super) file: &'f SiteFile<'a>,
    pub(super) base: u64,
    pub(super) has_lines: bool,
    pub(super) pieces: &'a [RawPiece],
    pub(super) data: &'a [u8],
    pub(super) functions: &'a [RawFunction],
    pub(super) files: &'a [U32],
    strings: Strings<'a>,
    own_strings: usize,
    sums: Sums<'a>,
}

/// A function or copy of a tree that is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// The node that it is in; [`NOTHING`] for the first.
    pub(super) parent: u32,
    /// Number of the function; [`NOTHING`] if none is known.
    pub(super) function: u32,
    /// Where it was called.
    pub(super) call: SourceLine,
    /// Where the function is declared.
    declared: SourceLine,
}

/// In place of a number.
pub(super) const NOTHING: u32 = u32::MAX;

/// A run that is being read.
pub(super) struct ReadRun {
    pub(super) size: u32,
    pub(super) node: u32,
    pub(super) line: SourceLine,
}

impl<'a> SiteFile<'a> {
    /// The chains of functions that addresses are in; `None` if the file does not have them (`siteseer encode --ranges`
    /// writes them).
    ///
    /// # Errors
    /// [`FileError::Ranges`] if the section is malformed or of another version.
    pub fn chains(&self) -> Result<Option<Chains<'_, 'a>>, FileError> {
        let (Some(bytes), Some(ext)) = (self.ranges, &self.ext) else { return Ok(None) };
        Chains::parse(self, bytes, ext.root()).map(Some).map_err(FileError::Ranges)
    }
}

fn table<'a, T: FromBytes + Immutable + KnownLayout>(
    body: &'a [u8],
    entries: &[[U32; 2]],
    nth: usize,
    name: &'static str,
) -> Result<&'a [T], RangesError> {
    let malformed = RangesError::Table(name);
    let [offset, len] = entries.get(nth).ok_or(malformed)?.map(|word| word.get() as usize);
    let bytes = offset.checked_add(len).and_then(|end| body.get(offset..end)).ok_or(malformed)?;
    <[T]>::ref_from_bytes(bytes).map_err(|_| malformed)
}

impl<'f, 'a> Chains<'f, 'a> {
    fn parse(file: &'f SiteFile<'a>, section: &'a [u8], companion: u32) -> Result<Self, RangesError> {
        let truncated = RangesError::Header("it is truncated");
        let (header, rest) = RawHeader::ref_from_prefix(section).map_err(|_| truncated)?;
        if header.magic.get() != MAGIC {
            return Err(RangesError::Header("its magic number is another"));
        }
        if header.version != VERSION {
            return Err(RangesError::Version(header.version));
        }
        let entries = header.header_len.get().checked_sub(size_of::<RawHeader>() as u32);
        let entries = entries.map(|len| len as usize / size_of::<[U32; 2]>()).filter(|&count| count >= TABLES);
        let entries = entries.ok_or(RangesError::Header("its length is less than a header's"))?;
        let entries = entries.checked_mul(size_of::<[U32; 2]>()).and_then(|len| rest.get(..len)).ok_or(truncated)?;
        let entries = <[[U32; 2]]>::ref_from_bytes(entries).map_err(|_| truncated)?;
        let (header_bytes, body) = section.split_at_checked(header.header_len.get() as usize).ok_or(truncated)?;
        let sums: &[U32] = table(body, entries, SUMS, "checksum")?;
        let [sums_at, _] = entries[SUMS].map(|word| word.get() as usize);
        let (&own, sums) = sums.split_first().ok_or(RangesError::Table("checksum"))?;
        if own.get() != root(companion, header_bytes, sums.as_bytes()) {
            return Err(RangesError::Damaged { offset: 0 });
        }
        // The checksums come last: what is before them they are of.
        let tables = body.get(..sums_at).unwrap_or_default();
        let sums = Sums::new(&[(RANGES, tables)], sums).ok_or(RangesError::Table("checksum"))?;
        let get = |nth, name| table::<u8>(tables, entries, nth, name);
        let own = get(STRINGS, "string")?;
        let strings = file.strings.continued(own).ok_or(RangesError::Table("string"))?;
        Ok(Chains {
            file,
            base: wide(header.base_low, header.base_high),
            has_lines: header.flags & HAS_LINES != 0,
            pieces: table(tables, entries, PIECES, "piece")?,
            data: get(DATA, "data")?,
            functions: table(tables, entries, FUNCTIONS, "function")?,
            files: table(tables, entries, FILES, "file")?,
            strings,
            own_strings: own.len(),
            sums,
        })
    }

    /// Whether the innermost functions have source lines.
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// How many contiguous parts of functions there are.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of each table, without the checksums.
    pub fn table_sizes(&self) -> [(&'static str, usize); 5] {
        [
            ("pieces", size_of_val(self.pieces)),
            ("data", self.data.len()),
            ("functions", size_of_val(self.functions)),
            ("files", size_of_val(self.files)),
            ("strings", self.own_strings),
        ]
    }

    /// The chain that a link-time address is in; `None` if the debug information has no function there.
    ///
    /// # Errors
    /// [`FileError::Ranges`] if what is read is damaged.
    pub fn at(&self, address: u64) -> Result<Option<Chain<'a>>, FileError> {
        let found = self.find(address).and_then(|found| self.checked(found)).map_err(FileError::Ranges)?;
        self.file.whole()?;
        Ok(found)
    }

    fn find(&self, address: u64) -> Result<Option<Chain<'a>>, RangesError> {
        let Some(offset) = address.checked_sub(self.base).and_then(|offset| u32::try_from(offset).ok()) else {
            return Ok(None);
        };
        let after = self.pieces.partition_point(|piece| {
            self.sums.touch(piece.as_bytes());
            piece.address.get() <= offset
        });
        let Some(nth) = after.checked_sub(1) else { return Ok(None) };
        let wrong = || RangesError::corrupt("piece", nth);
        let (mut nodes, mut last) = (Vec::new(), Vec::new());
        let mut input = self.piece(nth, &mut nodes).ok_or_else(wrong)?;
        let mut here = self.pieces[nth].address.get();
        let mut found = None;
        let runs = self.runs(&mut input, &nodes, &mut last, |run| {
            here = here.checked_add(run.size)?;
            if here > offset {
                found = Some((run.node, run.line));
                return Some(ControlFlow::Break(()));
            }
            Some(ControlFlow::Continue(()))
        });
        self.touch_data(&self.data[self.pieces[nth].data.get() as usize..], input.0);
        runs.ok_or_else(wrong)?;
        let Some((mut node, line)) = found else { return Ok(None) };
        let mut line = if self.has_lines { self.source(line)? } else { None };
        let mut frames = Vec::new();
        while let Some(&Node { parent, function, call, declared }) = nodes.get(node as usize) {
            frames.push(Frame { function: self.name(function)?, declared: self.source(declared)?, line });
            line = self.source(call)?;
            node = parent;
        }
        Ok(Some(Chain { frames }))
    }

    /// Reads the tree of a piece into `nodes`; what is left are the piece's runs. `None` if they are damaged.
    pub(super) fn piece(&self, nth: usize, nodes: &mut Vec<Node>) -> Option<Input<'a>> {
        let at = self.pieces.get(nth)?.data.get() as usize;
        let mut input = Input(self.data.get(at..)?);
        match self.back(nth, &mut input)? {
            0 => self.tree(&mut input, nodes)?,
            back => {
                let from = self.data.get(at.checked_sub(back)?..)?;
                let mut tree = Input(from);
                // A tree follows a zero.
                (tree.uleb()? == 0).then_some(())?;
                self.tree(&mut tree, nodes)?;
                self.touch_data(from, tree.0);
            }
        }
        Some(input)
    }

    /// How many bytes before a piece its tree is.
    pub(super) fn back(&self, nth: usize, input: &mut Input<'a>) -> Option<usize> {
        self.sums.touch(self.pieces.get(nth)?.as_bytes());
        usize::try_from(input.uleb()?).ok()
    }

    /// Notes that data were read, from their beginning to what is left.
    pub(super) fn touch_data(&self, from: &'a [u8], left: &[u8]) {
        self.sums.touch(&from[..from.len().saturating_sub(left.len())]);
    }

    /// Reads a tree.
    pub(super) fn tree(&self, input: &mut Input<'a>, nodes: &mut Vec<Node>) -> Option<()> {
        nodes.clear();
        let function = match input.uleb()? {
            0 => NOTHING,
            number => u32::try_from(number - 1).ok()?,
        };
        nodes.push(Node { parent: NOTHING, function, call: SourceLine::UNKNOWN, declared: self.declared(function)? });
        let count = input.uleb()?;
        // Every copy takes some bytes.
        let count = u32::try_from(count).ok().filter(|&count| count as usize <= input.0.len())?;
        nodes.reserve(count as usize);
        for before in 0..count {
            let head = input.uleb()?;
            let mut parent = before;
            // A step outwards undoes one inwards: all of them together are no more than the copies.
            for _ in 0..head >> 1 {
                parent = nodes.get(parent as usize)?.parent;
            }
            let around = nodes.get(parent as usize)?.declared;
            let function = u32::try_from(input.uleb()?).ok()?;
            let line = moved(around.line, input.uleb()?)?;
            let file = if head & 1 == 0 { around.file } else { file(input.uleb()?)? };
            let call = SourceLine { file, line };
            nodes.push(Node { parent, function, call, declared: self.declared(function)? });
        }
        Some(())
    }

    /// Reads the runs of a piece, one by one. `last` is room for what was last read of each node.
    pub(super) fn runs(
        &self,
        input: &mut Input<'a>,
        nodes: &[Node],
        last: &mut Vec<SourceLine>,
        mut each: impl FnMut(ReadRun) -> Option<ControlFlow<()>>,
    ) -> Option<()> {
        last.clear();
        if self.has_lines {
            last.extend(nodes.iter().map(|node| node.declared));
        }
        let mut node = 0u32;
        for _ in 0..input.uleb()? {
            let head = input.uleb()?;
            let (size, is_other) = if self.has_lines { (head >> 1, head & 1 != 0) } else { (head, true) };
            if is_other {
                node = moved(node, input.uleb()?).filter(|&node| (node as usize) < nodes.len())?;
            }
            let mut line = SourceLine::UNKNOWN;
            if self.has_lines {
                let code = input.uleb()?;
                let last = last.get_mut(node as usize)?;
                last.line = moved(last.line, code >> 1)?;
                if code & 1 != 0 {
                    last.file = file(input.uleb()?)?;
                }
                line = *last;
            }
            if each(ReadRun { size: u32::try_from(size).ok()?, node, line })?.is_break() {
                break;
            }
        }
        Some(())
    }

    fn function(&self, number: u32) -> Option<&'a RawFunction> {
        let raw = self.functions.get(number as usize)?;
        self.sums.touch(raw.as_bytes());
        Some(raw)
    }

    /// Where a function is declared.
    fn declared(&self, function: u32) -> Option<SourceLine> {
        if function == NOTHING {
            return Some(SourceLine::UNKNOWN);
        }
        let raw = self.function(function)?;
        let file = Some(from24(raw.file)).filter(|&file| file != NONE24).unwrap_or(SourceLine::NO_FILE);
        Some(SourceLine { file, line: from24(raw.line) })
    }

    /// The name of a function; empty if there is none.
    pub(super) fn name(&self, function: u32) -> Result<&'a str, RangesError> {
        if function == NOTHING {
            return Ok("");
        }
        let name = self.function(function).and_then(|raw| self.string(raw.name.get()));
        name.ok_or(RangesError::Corrupt { what: "function", index: function })
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        // It is the file's or the section's own, and each checks its own bytes.
        let text = string(self.strings, Some(&self.sums), offset)?;
        self.file.touch_string(text.as_bytes());
        Some(text)
    }

    /// The name of a source file.
    pub(super) fn file_name(&self, file: u32) -> Result<&'a str, RangesError> {
        let name = self.files.get(file as usize).and_then(|name| {
            self.sums.touch(name.as_bytes());
            self.string(name.get())
        });
        name.ok_or(RangesError::Corrupt { what: "file", index: file })
    }

    /// A place in the source; `None` if it is not known.
    fn source(&self, at: SourceLine) -> Result<Option<Source<'a>>, RangesError> {
        if at.file == SourceLine::NO_FILE {
            return Ok(None);
        }
        Ok(Some(Source { file: self.file_name(at.file)?, line: at.line }))
    }

    /// What was read, unless some of it was damaged.
    pub(super) fn checked<T>(&self, read: T) -> Result<T, RangesError> {
        self.sums.whole().map(|()| read).map_err(|damage| RangesError::Damaged { offset: damage.offset })
    }
}

/// A number that is told by its distance from another one.
fn moved(from: u32, distance: u64) -> Option<u32> {
    i64::from(from).checked_add(unzigzag(distance)).and_then(|sum| u32::try_from(sum).ok())
}

/// A file as it is stored.
fn file(code: u64) -> Option<u32> {
    match code {
        0 => Some(SourceLine::NO_FILE),
        code => u32::try_from(code - 1).ok().filter(|&file| file != SourceLine::NO_FILE),
    }
}
