// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The site file: all sites of a kernel image, in a form that is searched where it lies.
//!
//! It is an ELF file (ELF64, little-endian, relocatable, of the image's machine) with four to six sections:
//!
//! | section | holds |
//! |---|---|
//! | `.note.gnu.build-id` | the build id of the image, as the image has it |
//! | `.BTF` | a copy of the image's BTF, so that the file explains itself and stock tools can dump its types |
//! | `.BTF.inline` | split BTF over it in upstream's kinds: FUNCs, LOC_PARAMs, LOC_PROTOs, a LOCSEC per text section |
//! | `.BTF.inline.ext` | what these kinds cannot carry |
//! | `.BTF.inline.ranges` | which copy each instruction belongs to, if that was asked for (see `ranges.rs`) |
//! | `.BTF.inline.code` | a short sum of the instructions at each site, if the writer knew them (see `code.rs`) |
//!
//! A reader that knows upstream's kinds alone reads the first three and loses nothing that these kinds can say; one
//! that does not know them steps over them by the layout section.
//!
//! # `.BTF.inline.ext`
//!
//! A header, then tables of fixed little-endian records, each 4-byte aligned. The header is {u16 magic 0x5353, u8
//! version 3, u8 flags, u32 header length, u64 base address, u32 number of types in `.BTF`, u32 number of types in
//! `.BTF.inline`}, then {u32 offset, u32 length} in bytes for each table, offsets counted from the header's end. A
//! later writer may add tables: the header's length tells.
//!
//! | table | record |
//! |---|---|
//! | 0 sections | {name, u64 address, u64 size, LOCSEC's type, first site, number of sites} |
//! | 1 functions | {name, FUNC, first run, first declaration}, sorted by name (bytes), then FUNC; a last one ends the others' ranges |
//! | 2 runs | {first site, number of sites}: a function's sites are contiguous in each LOCSEC |
//! | 3 declarations | {file, line} |
//! | 4 sites | {details, container, parent's site + 1, line and file (24 bits each), declaration (16 bits, from the function's first)}: 20 bytes, parallel to the LOCSECs' entries, these taken one after the other |
//! | 5 details | {prototype, u8 kind, u8 marks, u8 unprobeable, u8 bytes moved} |
//! | 6 prototypes | u32 words: the number of parameters, then for each: 0, its location is in the LOC_PROTO; up to 255, the code of a [`crate::Missing`]; else 256 + offset in table 7 |
//! | 7 programs | bytes: locations that upstream has no shape for, and doubtful ones, each with its [`crate::Doubt`] (see the source of `program.rs`) |
//! | 8 containers | {name, u64 address, size (24 bits), why its first byte cannot be probed (8 bits, 0: it can)}, sorted by address |
//! | 9 files | name |
//! | 10 strings | NUL-terminated |
//! | 11, 12 | offset in the type section of every 8th type of `.BTF` and `.BTF.inline` |
//! | 13 container names | indices of containers, sorted by name |
//! | 14 base functions | FUNCs of `.BTF`, sorted by name |
//! | 15 checksums | of each 4096 bytes of both BTFs and of the other tables; it lies last |
//! | 16 loaded sections | of a module: {name, u64 address, u64 size}, sorted by address |
//! | 17 module | of a module: its name, then the bytes of its kernel's build id |
//!
//! Names are offsets of strings. They continue those of the split part, as its continue the base's: the file names of
//! functions and symbols that are in BTF already are not stored again.
//!
//! Tables 11 and 12 are why opening costs nothing: a type is found from the nearest stored offset in at most 7 steps,
//! so that neither BTF has to be walked. A lookup by name touches the pages of its binary searches (functions, symbols,
//! FUNCs), of its function's sites and of their types, and no others.
//!
//! A site's *index* is its place in table 4. It is the same for the same file, and stands for the site in reports and
//! in the program's own data.
//!
//! A file may be damaged or hostile. Opening checks the tables' bounds and that they agree in number; everything else
//! is checked when it is reached, and gives a [`FileError`]. What is read is checked by its checksum when it is read
//! (the source of `sums.rs` says how), so that damage is an error and never another answer.

mod by_address;
mod by_file;
mod by_name;
mod code;
mod companion;
mod elf;
mod ext;
mod function;
mod join;
pub(crate) mod leb;
mod nearest;
pub mod packed;
pub(crate) mod program;
mod ranges;
mod read;
mod site;
mod write;

pub use code::Code;
pub use function::{FunctionRef, Prototype};
pub use join::join;
pub use nearest::nearest;
pub use ranges::{Chain, ChainIndex, Chains, Frame, IndexedFrame, IndexedFrames, RangesError};
pub use read::{
    FileError, Image, LoadedSection, ModuleRef, SiteFile, Sizes, TextSection, has_sites, module_kernel, section_names,
};
pub use site::{ContainerRef, PrototypeKey, SiteRef, Source};
pub use write::{Optional, WriteError, write, write_raw, write_to, write_with};
