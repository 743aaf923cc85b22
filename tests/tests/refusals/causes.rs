// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What caused an error is said once: by `source()`, or by the error's own text, never by both and never by neither.

use super::{read, root};
use std::path::{Path, PathBuf};
use syn::{Attribute, Field, Fields, Item, ItemEnum, Type, Variant};

const CRATES: [&str; 6] = ["sites/src", "encoder/src", "loader/src", "capi/src", "hub/src", "vmtest/src"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// Whether the type is an error, or a box with one.
fn is_error(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    last.ident.to_string().ends_with("Error") || quote::quote!(#last).to_string().contains("Error >")
}

/// The format string of `#[error("...")]`; `None` for `#[error(transparent)]`.
fn text(variant: &Variant) -> Option<String> {
    let attribute = variant.attrs.iter().find(|attribute| attribute.path().is_ident("error"))?;
    let tokens = attribute.meta.require_list().ok()?.tokens.to_string();
    tokens.starts_with('"').then_some(tokens)
}

/// What is wrong with the cause that a field holds.
fn fault(text: &str, name: &str, field: &Field) -> Option<&'static str> {
    let is_source = has(&field.attrs, "source") || has(&field.attrs, "from") || name == "source";
    let is_said = text.contains(&format!("{{{name}}}")) || text.contains(&format!("{{{name}:"));
    match (is_source, is_said) {
        (true, true) => Some("is said by the text, and again by source()"),
        (false, false) if is_error(&field.ty) => Some("is said neither by the text nor by source()"),
        _ => None,
    }
}

fn faults(enumeration: &ItemEnum) -> Vec<String> {
    let mut wrong = Vec::new();
    for variant in &enumeration.variants {
        let Some(text) = text(variant) else { continue };
        let fields = match &variant.fields {
            Fields::Named(fields) => fields.named.iter().collect::<Vec<_>>(),
            Fields::Unnamed(fields) => fields.unnamed.iter().collect(),
            Fields::Unit => Vec::new(),
        };
        for (nth, field) in fields.into_iter().enumerate() {
            let name = field.ident.as_ref().map_or(nth.to_string(), ToString::to_string);
            if let Some(fault) = fault(&text, &name, field) {
                wrong.push(format!("{}::{}: {name} {fault}", enumeration.ident, variant.ident));
            }
        }
    }
    wrong
}

#[test]
fn causes_are_said_once() {
    let (mut paths, mut wrong, mut count) = (Vec::new(), Vec::new(), 0);
    CRATES.iter().for_each(|folder| sources(&root().join(folder), &mut paths));
    for path in paths {
        let file = syn::parse_file(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for item in file.items {
            let Item::Enum(enumeration) = item else { continue };
            count += usize::from(enumeration.variants.iter().any(|variant| has(&variant.attrs, "error")));
            wrong.extend(faults(&enumeration).into_iter().map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    assert!(count > 20, "only {count} enumerations of errors were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn faults_are_found() {
    let enumeration: ItemEnum = syn::parse_quote! {
        enum ToyError {
            #[error("read: {error}")]
            Twice { #[source] error: io::Error },
            #[error("read")]
            Hidden { error: io::Error },
            #[error("{0}")]
            From(#[from] BtfError),
            #[error("said: {error}")]
            Said { error: io::Error },
            #[error("given")]
            Given { #[source] error: Box<TargetError> },
            #[error(transparent)]
            Other(#[from] BtfError),
        }
    };
    let found: Vec<String> =
        faults(&enumeration).iter().filter_map(|fault| fault.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(found, ["ToyError::Twice:", "ToyError::Hidden:", "ToyError::From:"]);
}
