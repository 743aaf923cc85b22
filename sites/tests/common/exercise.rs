// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Asks for everything that parsed data offer. Errors are fine; panics and endless walks are not. Shared by the
//! property tests and the fuzz targets.

use siteseer_sites::btf::{self, Btf, NameIndex, Type};
use siteseer_sites::file::{FileError, SiteFile};

/// Everything about a type.
fn exercise_type(btf: &Btf<'_>, ty: Type<'_>) -> usize {
    let mut sum = ty.name().len() + ty.vlen() as usize + ty.tail().len();
    sum += ty.int().map_or(0, |int| int.bits as usize) + ty.array().map_or(0, |array| array.count as usize & 1);
    sum += ty.members().map(|member| member.name.len()).sum::<usize>();
    sum += ty.params().map(|param| param.name.len()).sum::<usize>() + usize::from(ty.is_variadic());
    sum += ty.enumerators().map(|enumerator| enumerator.name.len()).sum::<usize>();
    sum += ty.variables().count() + ty.loc_proto().len() + ty.locsec().len();
    sum += ty.component().map_or(0, |index| index as usize & 1) + usize::from(ty.linkage().is_some());
    sum += ty.loc_param().map_or(0, |(_, words)| words.len()) + usize::from(ty.target().is_some());
    sum += usize::from(btf.resolve(ty.id()).is_some()) + usize::from(btf.size_of(ty.id()).is_some());
    sum + usize::from(ty.size().is_some())
}

/// Everything about BTF.
pub(crate) fn exercise_btf(btf: &Btf<'_>) -> usize {
    let mut sum = 0usize;
    for (nth, id) in btf.ids().enumerate() {
        let Some(ty) = btf.ty(id) else { continue };
        sum = sum.wrapping_add(exercise_type(btf, ty));
        if nth < 200 {
            sum += btf::type_name(btf, id).len() + btf::declaration(btf, id, "name").len();
            sum += btf::format_value(btf, id, &[1, 2]).len();
        }
    }
    sum += btf.types().count();
    sum += usize::from(btf.ty(btf.end_id()).is_some()) + usize::from(btf.ty(u32::MAX).is_some());
    sum += NameIndex::new(btf, &[btf::Kind::Func]).get(btf::Kind::Func, "base1").count();
    sum + usize::from(btf.find(btf::Kind::Struct, "none").is_some())
}

/// Everything about the chains that addresses are in.
fn exercise_chains(file: &SiteFile<'_>) -> Result<usize, FileError> {
    let Some(chains) = file.chains()? else { return Ok(0) };
    let base = file.base_address();
    let mut sum = 0usize;
    let mut failed = None;
    // One address at a time, also where another one is damaged.
    for offset in (0..0x4000u64).step_by(37).chain([u64::from(u32::MAX), u64::MAX]) {
        match chains.at(base.wrapping_add(offset)) {
            Ok(chain) => sum += chain.map_or(0, |chain| chain.frames.iter().map(|frame| frame.function.len()).sum()),
            Err(error) => failed = Some(error),
        }
    }
    let index = chains.index()?;
    sum += index.copies() + index.runs();
    for offset in (0..0x4000u64).step_by(37) {
        let frames = index.at(base.wrapping_add(offset));
        sum += frames.map_or(0, |frames| frames.map(|frame| frame.function.len()).sum());
    }
    failed.map_or(Ok(sum), Err)
}

/// The sums of the code at all sites.
fn exercise_code(file: &SiteFile<'_>) -> Result<usize, FileError> {
    let Some(code) = file.code()? else { return Ok(0) };
    (0..file.site_count().min(100_000)).try_fold(0, |sum, site| Ok(sum + code.of(site)?.range().end))
}

/// Everything about site data. The result tells whether all of it could be read.
pub(crate) fn exercise_file(file: &SiteFile<'_>) -> Result<usize, FileError> {
    let mut first_error = None;
    let mut sum = exercise_btf(file.btf()) + exercise_btf(file.base_btf());
    let mut note = |error: FileError| {
        first_error.get_or_insert(error);
    };
    // A damaged file may claim far more functions and sites than it is long; each costs little, all of them much.
    for function in file.all_functions().take(5000) {
        let function = match function {
            Ok(function) => function,
            Err(error) => {
                note(error);
                continue;
            }
        };
        sum += function.name().len();
        match function.prototype() {
            Ok(prototype) => sum += prototype.params.len(),
            Err(error) => note(error),
        }
        function.site_count().map_or_else(&mut note, |count| sum += count as usize & 1);
        for site in function.sites().take(5000) {
            match site.and_then(|site| Ok((site.declared()?, site.arguments()?))) {
                Ok((declared, arguments)) => {
                    sum += arguments.len() + usize::from(declared.is_some());
                }
                Err(error) => note(error),
            }
        }
    }
    for site in file.sites().take(5000) {
        let Ok(site) = site else { continue };
        sum += site.function_name().len() + usize::from(site.kind().is_some());
        sum = sum.wrapping_add(site.address() as usize ^ site.entry_address() as usize);
        sum += usize::from(site.parent().is_some()) + usize::from(site.source().is_some());
        sum += usize::from(site.container_offset().is_some()) + usize::from(site.unprobeable().is_some());
        sum += usize::from(site.declared().is_ok());
    }
    sum += usize::from(file.site(u32::MAX).is_ok()) + usize::from(file.function(u32::MAX).is_ok());
    sum += file.functions("base1").map_or(0, |functions| functions.len());
    sum += file.nearest_names("bsae1", 3).len() + file.function_names().count();
    sum += file.containers().count() + file.containers_of("base1").map_or(0, |containers| containers.len());
    sum += file.base_functions("base1").map_or(0, |functions| functions.len());
    for more in [exercise_chains(file), exercise_code(file)] {
        match more {
            Ok(more) => sum += more,
            Err(error) => note(error),
        }
    }
    if let Err(error) = file.whole() {
        note(error);
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(sum),
    }
}
