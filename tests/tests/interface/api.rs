// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The public interface of a crate as text, a line an item, from its sources.
//!
//! It is what the sources say: modules that are public, in them what is `pub`, with signatures; structures with their public
//! members, enumerations with their variants, implementations with their public functions, and of which traits. Types are
//! written as the sources write them, so that an alias that becomes another shows where it is defined.

use quote::ToTokens;
use std::error::Error;
use std::fs;
use std::path::Path;
use syn::{Attribute, Fields, ImplItem, Item, Visibility};

/// The interface of a crate whose `lib.rs` is in this folder.
///
/// # Errors
/// If a file cannot be read or parsed.
pub(crate) fn listing(folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut lines = Vec::new();
    let items = syn::parse_file(&fs::read_to_string(folder.join("lib.rs"))?)?.items;
    module(&items, "", folder, &mut lines)?;
    lines.sort();
    lines.dedup();
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// One line of text, with no more space than it takes.
fn text(tokens: impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    [
        (" ,", ","),
        (" ;", ";"),
        (" :: ", "::"),
        (":: ", "::"),
        ("& ", "&"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        (" :", ":"),
        ("' ", "'"),
    ]
    .iter()
    .fold(text, |text, (from, to)| text.replace(from, to))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// What an item is only there with, or for: `cfg` and the like.
fn marks(attributes: &[Attribute]) -> String {
    let shown = |attribute: &&Attribute| {
        ["cfg", "non_exhaustive", "must_use", "repr", "derive"].iter().any(|name| attribute.path().is_ident(name))
    };
    attributes.iter().filter(shown).map(|attribute| format!("{} ", text(&attribute.meta))).collect()
}

fn is_test(attributes: &[Attribute]) -> bool {
    marks(attributes).contains("cfg(test)")
}

fn module(items: &[Item], path: &str, folder: &Path, lines: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for item in items {
        match item {
            Item::Mod(inner) if is_public(&inner.vis) && !is_test(&inner.attrs) => {
                let name = inner.ident.to_string();
                let below = folder.join(&name);
                let inner_path = format!("{path}::{name}");
                lines.push(format!("mod {inner_path}"));
                if let Some((_, items)) = &inner.content {
                    module(items, &inner_path, &below, lines)?;
                } else {
                    let file =
                        [folder.join(format!("{name}.rs")), below.join("mod.rs")].into_iter().find(|f| f.is_file());
                    let file = file.ok_or_else(|| format!("no file of {inner_path}"))?;
                    module(&syn::parse_file(&fs::read_to_string(file)?)?.items, &inner_path, &below, lines)?;
                }
            }
            // Implementations may be in private modules.
            Item::Mod(inner) if !is_test(&inner.attrs) && inner.content.is_none() => {
                let name = inner.ident.to_string();
                let below = folder.join(&name);
                let file = [folder.join(format!("{name}.rs")), below.join("mod.rs")].into_iter().find(|f| f.is_file());
                let file = file.ok_or_else(|| format!("no file of {path}::{name}"))?;
                module(
                    &syn::parse_file(&fs::read_to_string(file)?)?.items,
                    &format!("{path}::({name})"),
                    &below,
                    lines,
                )?;
            }
            other => one(other, path, lines),
        }
    }
    Ok(())
}

fn one(item: &Item, path: &str, lines: &mut Vec<String>) {
    let mut say = |attributes: &[Attribute], line: String| lines.push(format!("{path}: {}{line}", marks(attributes)));
    match item {
        Item::Use(item) if is_public(&item.vis) => say(&item.attrs, text(item)),
        Item::Fn(item) if is_public(&item.vis) => say(&item.attrs, text(&item.sig)),
        Item::Const(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("const {}: {}", item.ident, text(&item.ty)));
        }
        Item::Static(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("static {}: {}", item.ident, text(&item.ty)));
        }
        Item::Type(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("type {}{} = {}", item.ident, text(&item.generics), text(&item.ty)));
        }
        Item::Struct(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("struct {}{}", item.ident, text(&item.generics)));
            for (nth, field) in item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
                let name = field.ident.as_ref().map_or_else(|| nth.to_string(), ToString::to_string);
                say(&field.attrs, format!("struct {}.{name}: {}", item.ident, text(&field.ty)));
            }
        }
        Item::Enum(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("enum {}{}", item.ident, text(&item.generics)));
            for variant in &item.variants {
                let fields = match &variant.fields {
                    Fields::Unit => String::new(),
                    Fields::Unnamed(fields) => {
                        let types: Vec<String> = fields.unnamed.iter().map(|field| text(&field.ty)).collect();
                        format!("({})", types.join(", "))
                    }
                    Fields::Named(fields) => {
                        let of = |field: &syn::Field| {
                            format!(
                                "{}: {}",
                                field.ident.as_ref().map(ToString::to_string).unwrap_or_default(),
                                text(&field.ty)
                            )
                        };
                        format!(" {{ {} }}", fields.named.iter().map(of).collect::<Vec<_>>().join(", "))
                    }
                };
                say(&[], format!("enum {}::{}{fields}", item.ident, variant.ident));
            }
        }
        Item::Trait(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("trait {}", item.ident));
            for member in &item.items {
                if let syn::TraitItem::Fn(function) = member {
                    say(&function.attrs, format!("trait {}: {}", item.ident, text(&function.sig)));
                }
            }
        }
        Item::Impl(item) if !is_test(&item.attrs) => {
            let of = text(&item.self_ty);
            if let Some((_, implemented, _)) = &item.trait_ {
                say(&item.attrs, format!("impl{} {} for {of}", text(&item.generics), text(implemented)));
            }
            for member in item.items.iter().filter(|_| item.trait_.is_none()) {
                match member {
                    ImplItem::Fn(function) if is_public(&function.vis) => {
                        say(&function.attrs, format!("{of}: {}", text(&function.sig)));
                    }
                    ImplItem::Const(constant) if is_public(&constant.vis) => {
                        say(&constant.attrs, format!("{of}: const {}: {}", constant.ident, text(&constant.ty)));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
