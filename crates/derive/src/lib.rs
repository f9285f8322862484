//! The derive macro of the crate `kelix`, which re-exports it as `kelix::Record` where its feature `derive`
//! is on. The trait of that name tells what fields may be, and what is made of them.

#![forbid(unsafe_code)]

mod expand;

/// Implements `kelix::Record` for a struct with named fields: each is an attribute of an item, or its links.
///
/// | attribute of a field | meaning |
/// |---|---|
/// | none | an attribute under the field's name; the type is an `AttributeValue` |
/// | `#[kelix(rename = "name")]` | the same under another name |
/// | `#[kelix(link)]` | links under the field's name; the type is a `LinkValue` |
/// | `#[kelix(link = "name")]` | the same under another name |
/// | `#[kelix(skip)]` | not part of the item; read as the type's default |
///
/// It does not compile for other types than structs with named fields, with other words in `#[kelix(...)]`,
/// or with two fields under one name.
#[proc_macro_derive(Record, attributes(kelix))]
pub fn derive_record(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let expanded = syn::parse(input).and_then(|input| expand::record(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
