// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! All sites of one kernel image or module, in memory: what the encoder makes and a site file is written from.

use crate::btf::{SplitBtf, TypeId};
use crate::location::Argument;
use crate::machine::Machine;
use crate::site::{Site, Unprobeable};

/// All sites of one kernel image or module.
#[derive(Debug, Clone)]
pub struct SiteSet {
    /// The architecture.
    pub machine: Machine,
    /// The GNU build id of the image.
    pub build_id: Vec<u8>,
    /// Link-time address of the image's base (`_text`): what [`crate::Location::Address`] is encoded relative to.
    pub base: u64,
    /// The image's own BTF: the types that everything here refers to. Copied into the site file.
    pub base_btf: Vec<u8>,
    /// New types, FUNCs and FUNC_PROTOs over the base.
    pub types: SplitBtf,
    /// Executable sections that hold sites.
    pub sections: Vec<Section>,
    /// Functions that have sites.
    pub functions: Vec<Function>,
    /// Distinct location prototypes: per parameter its location or the reason why there is none.
    /// [`crate::Located::signed`] is that of the parameter's type: a location in upstream's kinds comes back with it,
    /// whatever it has here.
    pub prototypes: Vec<Box<[Argument]>>,
    /// Out-of-line symbols: those that contain sites, and those that may be bodies without a site.
    pub containers: Vec<Container>,
    /// Names of source files.
    pub files: Vec<String>,
    /// The sites.
    pub sites: Vec<Site>,
    /// What only a module has; `None` for the kernel's image.
    pub module: Option<Module>,
}

/// What only a module has. The kernel places each of its sections by itself, so what is told of places is told of all
/// of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name, as the kernel has it: with underscores.
    pub name: String,
    /// The GNU build id of the kernel whose BTF the module's is split over; empty if it is not known.
    pub kernel_build_id: Vec<u8>,
    /// All sections that are loaded, at the addresses that everything else here is relative to. They do not overlap.
    pub loaded: Vec<Section>,
}

/// An executable section of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Name, such as `.text`.
    pub name: String,
    /// Link-time address. A module's sections have none: the encoder gives each a range of its own.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// A function that has sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Name in the source.
    pub name: String,
    /// BTF FUNC, in the base or the split part. Several functions of one name and prototype share one.
    pub func: TypeId,
    /// How many parameters it has.
    pub parameters: u32,
    /// Whether it takes further arguments.
    pub variadic: bool,
}

impl Function {
    /// How many elements its FUNC_PROTO has: one for each parameter, and one more if it takes further arguments.
    pub fn vlen(&self) -> u32 {
        self.parameters.saturating_add(u32::from(self.variadic))
    }
}

/// An out-of-line symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Symbol name.
    pub name: String,
    /// Link-time address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Why its first byte cannot be probed, if so.
    pub unprobeable: Option<Unprobeable>,
}
