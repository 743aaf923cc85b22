// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The public interface of a crate as text, a line an item, from its sources.
//!
//! What is public is what lib.rs re-exports and does not hide, from modules that are private: of each name the
//! definition, with signatures; structures with their public members, enumerations with their variants, implementations
//! with their public functions and their traits. What is marked `#[doc(hidden)]` is left out. Types are written as the
//! sources write them.

use quote::ToTokens;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Type, UseTree, Visibility};

/// The interface of a crate.
pub(crate) struct Interface {
    /// What lib.rs re-exports.
    pub(crate) names: BTreeSet<String>,
    /// A line an item.
    pub(crate) lines: Vec<String>,
}

/// An item, and the module that it is in.
type Found = (Vec<String>, Item);

/// The interface of a crate whose `lib.rs` is in this folder.
///
/// # Errors
/// If a file cannot be read or parsed, or a name is not found.
pub(crate) fn interface(folder: &Path) -> Result<Interface, Box<dyn Error>> {
    let items = syn::parse_file(&fs::read_to_string(folder.join("lib.rs"))?)?.items;
    let mut paths: Vec<(Vec<String>, String)> = Vec::new();
    for item in &items {
        match item {
            Item::Use(item) if is_public(&item.vis) && !is_hidden(&item.attrs) => leaves(&item.tree, &[], &mut paths),
            Item::Mod(item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
                return Err(format!("the module {} is public: the facade re-exports names", item.ident).into());
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    modules(items, &[], folder, &mut all)?;
    let mut lines = Vec::new();
    for (path, name) in &paths {
        let [module @ .., original] = path.as_slice() else { continue };
        if module.is_empty() {
            lines.push(format!("{name}: crate {original}"));
            continue;
        }
        let defined: Vec<&Found> = all
            .iter()
            .filter(|(within, item)| within.starts_with(module) && name_of(item).as_deref() == Some(original))
            .collect();
        let (within, definition) = match defined.as_slice() {
            [one] => one,
            several => return Err(format!("{name} is defined {} times", several.len()).into()),
        };
        one(definition, name, &mut lines);
        let namesakes = all.iter().filter(|(_, item)| name_of(item).as_deref() == Some(original)).count();
        for (module, item) in &all {
            let Item::Impl(implementation) = item else { continue };
            let of = self_type(implementation);
            if of.as_deref() == Some(original) && (namesakes == 1 || module.first() == within.first()) {
                one(item, name, &mut lines);
            }
        }
    }
    lines.sort();
    lines.dedup();
    Ok(Interface { names: paths.into_iter().map(|(_, name)| name).collect(), lines })
}

/// The paths of a `use` item, and the names that they get.
fn leaves(tree: &UseTree, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &with(&path.ident), found),
        UseTree::Name(name) => found.push((with(&name.ident), name.ident.to_string())),
        UseTree::Rename(rename) => found.push((with(&rename.ident), rename.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, found)),
        UseTree::Glob(_) => found.push((before.to_vec(), "*".to_owned())),
    }
}

/// All items of a module and of those below it.
fn modules(items: Vec<Item>, path: &[String], folder: &Path, found: &mut Vec<Found>) -> Result<(), Box<dyn Error>> {
    for item in items {
        match item {
            Item::Mod(inner) if is_test(&inner.attrs) || is_hidden(&inner.attrs) => {}
            Item::Mod(inner) => {
                let name = inner.ident.to_string();
                let below = folder.join(&name);
                let items = match inner.content {
                    Some((_, items)) => items,
                    None => {
                        let files = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
                        let file = files.into_iter().find(|file| file.is_file());
                        let file = file.ok_or_else(|| format!("no file of {}::{name}", path.join("::")))?;
                        syn::parse_file(&fs::read_to_string(file)?)?.items
                    }
                };
                modules(items, &[path, &[name]].concat(), &below, found)?;
            }
            other => found.push((path.to_vec(), other)),
        }
    }
    Ok(())
}

/// The name of what an item defines.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Fn(item) => &item.sig.ident,
        Item::Const(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The name of the type that an implementation is of.
fn self_type(implementation: &ItemImpl) -> Option<String> {
    match &*implementation.self_ty {
        Type::Path(path) if path.path.segments.len() == 1 => Some(path.path.segments[0].ident.to_string()),
        _ => None,
    }
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

/// Whether it is left out of the documentation.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("doc") && text(&attribute.meta).contains("hidden"))
}

fn one(item: &Item, path: &str, lines: &mut Vec<String>) {
    let mut say = |attributes: &[Attribute], line: String| lines.push(format!("{path}: {}{line}", marks(attributes)));
    match item {
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
            for (nth, field) in
                item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis) && !is_hidden(&field.attrs))
            {
                let name = field.ident.as_ref().map_or_else(|| nth.to_string(), ToString::to_string);
                say(&field.attrs, format!("struct {}.{name}: {}", item.ident, text(&field.ty)));
            }
        }
        Item::Enum(item) if is_public(&item.vis) => {
            say(&item.attrs, format!("enum {}{}", item.ident, text(&item.generics)));
            for variant in item.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
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
            if is_hidden(&item.attrs) {
                return;
            }
            if let Some((_, implemented, _)) = &item.trait_ {
                say(&item.attrs, format!("impl{} {} for {of}", text(&item.generics), text(implemented)));
            }
            for member in item.items.iter().filter(|_| item.trait_.is_none()) {
                match member {
                    ImplItem::Fn(function) if is_public(&function.vis) && !is_hidden(&function.attrs) => {
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
