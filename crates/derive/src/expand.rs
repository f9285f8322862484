//! From a struct to the implementation of `kelix::Record`, as tokens, so that tests see what is made and what
//! is refused.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, LitStr, Result};

/// What is made of a field.
enum Role {
    Attribute(String),
    Link(String),
    Skipped,
}

/// The words of a field's `#[kelix(...)]`, each with where it stands.
#[derive(Default)]
struct Words {
    rename: Option<(Ident, LitStr)>,
    link: Option<(Ident, Option<LitStr>)>,
    skip: Option<Ident>,
}

/// The implementation for a struct, or what is wrong with that.
pub(crate) fn record(input: &DeriveInput) -> Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => return Err(Error::new_spanned(&input.ident, "a record is a struct with named fields")),
        },
        _ => return Err(Error::new_spanned(&input.ident, "a record is a struct with named fields")),
    };
    if let Some(attribute) = input.attrs.iter().find(|attribute| attribute.path().is_ident("kelix")) {
        return Err(Error::new_spanned(attribute, "`#[kelix(...)]` stands at fields"));
    }
    let record = &input.ident;
    let mut names: Vec<String> = Vec::new();
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for field in fields {
        let ident = field.ident.as_ref().expect("a named field");
        let index = names.len();
        let (name, call) = match role(field, ident)? {
            Role::Skipped => {
                reads.push(quote!(#ident: ::core::default::Default::default()));
                continue;
            }
            Role::Attribute(name) => (name, quote!(attribute)),
            Role::Link(name) => (name, quote!(links)),
        };
        if names.contains(&name) {
            return Err(Error::new_spanned(ident, format!("another field has the name \"{name}\" already")));
        }
        names.push(name);
        let shown = format!("{}.{}", record.unraw(), ident.unraw());
        writes.push(quote!(item.#call(#index, &self.#ident);));
        reads.push(quote!(#ident: item.#call(#index, #shown)?));
    }
    let (impl_generics, type_generics, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        // A record without fields has no use for the item.
        #[allow(unused_variables)]
        impl #impl_generics ::kelix::Record for #record #type_generics #bounds {
            const NAMES: &'static [&'static str] = &[#(#names),*];

            fn write(&self, item: &mut ::kelix::RecordWriter<'_>) {
                #(#writes)*
            }

            fn read(item: &::kelix::RecordReader<'_>) -> ::kelix::Result<Self> {
                ::core::result::Result::Ok(Self { #(#reads),* })
            }
        }
    })
}

fn role(field: &Field, ident: &Ident) -> Result<Role> {
    let mut words = Words::default();
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("kelix")) {
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().cloned();
            match word.as_ref().map(ToString::to_string).as_deref() {
                Some("rename") => words.rename = word.zip(Some(meta.value()?.parse()?)),
                Some("link") => {
                    let name =
                        if meta.input.peek(syn::Token![=]) { Some(meta.value()?.parse()?) } else { None };
                    words.link = word.zip(Some(name));
                }
                Some("skip") => words.skip = word,
                _ => {
                    return Err(
                        meta.error("there are `rename = \"...\"`, `link`, `link = \"...\"` and `skip`")
                    );
                }
            }
            Ok(())
        })?;
    }
    let own = || ident.unraw().to_string();
    match words {
        Words { rename: None, link: None, skip: Some(_) } => Ok(Role::Skipped),
        Words { skip: Some(skip), .. } => {
            Err(Error::new_spanned(skip, "a field that is skipped has no name"))
        }
        Words { rename: None, link: Some((_, name)), .. } => {
            Ok(Role::Link(name.map_or_else(own, |name| name.value())))
        }
        Words { rename: Some((rename, _)), link: Some(_), .. } => {
            Err(Error::new_spanned(rename, "the name of a link stands behind it: `link = \"...\"`"))
        }
        Words { rename, link: None, .. } => {
            Ok(Role::Attribute(rename.map_or_else(own, |(_, name)| name.value())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> String {
        let input = syn::parse_str(source).expect("Rust");
        record(&input).expect_err("it is wrong").to_string()
    }

    #[test]
    fn fields_are_named_and_numbered_in_their_order() {
        let input = syn::parse_str(
            "struct Person { name: String, #[kelix(rename = \"born\")] year: u16, #[kelix(skip)] seen: bool,
                #[kelix(link)] r#in: Vec<LinkTarget>, #[kelix(link = \"boss\")] chief: Option<LinkTarget> }",
        );
        let made = record(&input.expect("Rust")).expect("it is right").to_string();
        for wanted in [
            "& [\"name\" , \"born\" , \"in\" , \"boss\"]",
            "item . attribute (1usize , & self . year)",
            "item . links (3usize , & self . chief)",
            "r#in : item . links (2usize , \"Person.in\") ?",
            "seen : :: core :: default :: Default :: default ()",
        ] {
            assert!(made.contains(wanted), "no {wanted} in {made}");
        }
    }

    #[test]
    fn parameters_of_a_struct_stay() {
        let input = syn::parse_str("struct Of<T: AttributeValue> where T: Clone { value: T }").expect("Rust");
        let made = record(&input).expect("it is right").to_string();
        assert!(
            made.contains("impl < T : AttributeValue > :: kelix :: Record for Of < T > where T : Clone"),
            "{made}"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (source, wanted) in [
            ("enum E { A }", "a record is a struct with named fields"),
            ("struct S(u8);", "a record is a struct with named fields"),
            ("#[kelix(skip)] struct S { a: u8 }", "`#[kelix(...)]` stands at fields"),
            ("struct S { #[kelix(name = \"b\")] a: u8 }", "there are `rename = \"...\"`, `link`"),
            ("struct S { #[kelix(rename)] a: u8 }", "expected `=`"),
            ("struct S { #[kelix(rename = 3)] a: u8 }", "expected string literal"),
            ("struct S { #[kelix(skip, link)] a: u8 }", "a field that is skipped has no name"),
            ("struct S { #[kelix(link, rename = \"b\")] a: u8 }", "the name of a link stands behind it"),
            (
                "struct S { a: u8, #[kelix(rename = \"a\")] b: u8 }",
                "another field has the name \"a\" already",
            ),
            ("struct S { a: u8, #[kelix(link = \"a\")] b: u8 }", "another field has the name \"a\" already"),
        ] {
            let refusal = refusal(source);
            assert!(refusal.contains(wanted), "{source}: {refusal}");
        }
    }
}
