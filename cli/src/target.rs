// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which kernel a command is about, and which modules with it.

use crate::Failure;
use clap::Args;
use siteseer::source::{Dwarf, SiteData, SourceOptions};
use siteseer::{Target, function::Function, section::Wanted};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct About {
    /// A kernel image with debug information
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Site data made by `siteseer encode`
    #[arg(long, value_name = "FILE", conflicts_with = "vmlinux")]
    sites: Option<PathBuf>,
    #[command(flatten)]
    modules: Modules,
}

#[derive(Args)]
pub(crate) struct Modules {
    /// Site data of a module made by `siteseer encode`, or a module with debug information. May be given again. Of the running
    /// kernel each is used if that very module is loaded
    #[arg(long = "module", value_name = "FILE")]
    modules: Vec<PathBuf>,
    /// Read also the DWARF of debug images that are found in the usual places. With privileges, only that of files that are given
    /// is read otherwise
    #[arg(long)]
    dwarf: bool,
}

impl Modules {
    /// The running kernel's site data, these modules' among them.
    pub(crate) fn options(&self, file: Option<PathBuf>) -> SourceOptions {
        let dwarf = if self.dwarf { Dwarf::Found } else { Dwarf::default() };
        SourceOptions { file, modules: self.modules.clone(), dwarf }
    }
}

impl About {
    /// The image that was given, or the running kernel.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let Some(path) = self.sites.as_ref().or(self.vmlinux.as_ref()) else {
            return Ok(Target::running(&self.modules.options(None))?);
        };
        let open = |path: &PathBuf| SiteData::open_module(path, None, true);
        let modules = self.modules.modules.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Target::image(SiteData::open(path, None, true)?)?.with_modules(modules)?)
    }
}

/// The functions of a name, `[module:]function`.
pub(crate) fn function(target: &Target, name: &str) -> Result<Function, Failure> {
    let wanted = Wanted::parse(name)?;
    Ok(target.functions(&[wanted])?.pop().ok_or_else(|| format!("there is no function {name}"))?)
}
