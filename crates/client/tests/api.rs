//! The public interface of this crate, as a listing that is kept in the tree, so that changes of the
//! interface are seen.
//!
//! The listing is made of the sources, since what rustdoc writes for programs needs a nightly toolchain. It
//! begins at the root of the crate and follows `pub use`, into other crates of Kelix too: definitions without
//! private parts, methods without bodies, headers of implementations of traits, derived traits, and calls of
//! macros that implement a trait. What is hidden from the documentation, and what only tests, models,
//! measurements and the simulator see, is left out.
//!
//! After a change that is meant: `KELIX_BLESS=1 cargo test --package kelix --test api`.

use std::collections::BTreeMap;
use std::path::Path;

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Field, Fields, ImplItem, Item, ItemImpl, Meta, Token, TraitItem, Type, UseTree, Visibility,
};

const LISTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/api.txt");
const HEADER: &str = "// The public interface of the crate kelix, by names. tests/api.rs compares it,
// and writes it anew where KELIX_BLESS is set.\n";

/// Reads a file; `None`: there is none.
type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// A name that a module brings into scope: visibility, attributes, the name and the path that it stands for.
struct Import {
    public: bool,
    attributes: Vec<Attribute>,
    name: String,
    path: Vec<String>,
}

/// A definition that is reached from the root: by which path, in which crate it is, and the attributes on the
/// way to it.
struct Export {
    name: String,
    of: String,
    attributes: Vec<Attribute>,
    item: Item,
}

/// The items of all modules of a crate, by the modules' paths.
struct Crate {
    modules: BTreeMap<Vec<String>, Vec<Item>>,
}

/// All crates that are listed, by name; the first module of a path here is its crate.
struct Sources {
    crates: BTreeMap<String, Crate>,
}

impl Sources {
    fn read(crates: &[(&str, &str)], read: ReadFile<'_>) -> Sources {
        let crates = crates.iter().map(|(name, directory)| {
            let mut modules = BTreeMap::new();
            read_module(
                read,
                &Path::new(directory).join("lib.rs"),
                Path::new(directory),
                Vec::new(),
                &mut modules,
            );
            (name.to_string(), Crate { modules })
        });
        Sources { crates: crates.collect() }
    }

    /// Finds what a name means in a module of a crate: the crate where it is defined and the definitions, of
    /// which a name has several where a trait and its derive macro share it.
    fn resolve(&self, of: &str, module: &[String], name: &str) -> Vec<(String, Item)> {
        let Some(items) = self.crates[of].modules.get(module) else { return Vec::new() };
        let defined: Vec<_> = items.iter().filter(|item| name_of(item).as_deref() == Some(name)).collect();
        if !defined.is_empty() {
            return defined.into_iter().map(|item| (of.to_string(), item.clone())).collect();
        }
        let import = imports(items).into_iter().find(|import| import.name == name);
        import.map_or_else(Vec::new, |import| self.follow(of, module, &import.path))
    }

    fn follow(&self, of: &str, module: &[String], path: &[String]) -> Vec<(String, Item)> {
        let (name, modules) = path.split_last().expect("a path has a name");
        let (mut of, mut at) = (of.to_string(), module.to_vec());
        for (index, segment) in modules.iter().enumerate() {
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ if index == 0 && self.crates.contains_key(segment) => {
                    of.clone_from(segment);
                    at.clear();
                }
                _ => at.push(segment.clone()),
            }
        }
        self.resolve(&of, &at, name)
    }

    /// The listing of a crate.
    fn list(&self, of: &str) -> String {
        let mut exports = Vec::new();
        self.add_exports(of, &mut Vec::new(), &[], &mut exports);
        exports.sort_by(|one, other| (&one.name, &one.of).cmp(&(&other.name, &other.of)));
        let names: Vec<String> = exports.iter().filter_map(|export| name_of(&export.item)).collect();
        let mut listing = String::from(HEADER);
        for Export { name, of: defined_in, attributes, item } in exports {
            listing += &format!("\n// {of}::{name}\n");
            listing += &printed(vec![without_private_parts(item.clone(), attributes)]);
            let defined = name_of(&item).expect("it was found by its name");
            listing += &self.implementations(&defined_in, &defined, &names, matches!(item, Item::Trait(_)));
        }
        listing
    }

    /// Adds what a module shows, and the public modules in it. The attributes are those of the module.
    fn add_exports(
        &self,
        of: &str,
        module: &mut Vec<String>,
        attributes: &[Attribute],
        exports: &mut Vec<Export>,
    ) {
        let items = &self.crates[of].modules[module];
        let full = |name: &str| [module.as_slice(), &[name.to_string()]].concat().join("::");
        for item in items.iter().filter(|item| is_public(item)) {
            if let Some(name) = name_of(item) {
                let (name, attributes) = (full(&name), attributes.to_vec());
                exports.push(Export { name, of: of.to_string(), attributes, item: item.clone() });
            }
        }
        for import in imports(items).into_iter().filter(|import| import.public) {
            let found = self.follow(of, module, &import.path);
            assert!(!found.is_empty(), "nothing is known of {}", import.path.join("::"));
            for (of, item) in found {
                let attributes = [attributes, &import.attributes].concat();
                exports.push(Export { name: full(&import.name), of, attributes, item });
            }
        }
        for item in items.iter().filter(|item| is_public(item)) {
            if let Item::Mod(inner) = item {
                module.push(inner.ident.to_string());
                self.add_exports(of, module, &[attributes, &kept(&inner.attrs)].concat(), exports);
                module.pop();
            }
        }
    }

    /// What a crate implements for a type; of a trait, for which other types it is implemented.
    fn implementations(&self, of: &str, name: &str, exports: &[String], is_trait: bool) -> String {
        // Methods of all blocks with one header, since it means nothing in which file a method stands.
        let mut blocks: BTreeMap<String, ItemImpl> = BTreeMap::new();
        let mut traits = Vec::new();
        for item in self.crates[of].modules.values().flatten() {
            match item {
                Item::Impl(block) => {
                    let target = last_name(&block.self_ty);
                    let of_trait = block.trait_.as_ref().map(|(path, _)| last(path));
                    match of_trait {
                        None if !is_trait && target == name => {
                            let parts = public_parts(block);
                            let empty =
                                ItemImpl { attrs: kept(&block.attrs), items: Vec::new(), ..block.clone() };
                            let header = printed(vec![Item::Impl(empty.clone())]);
                            blocks.entry(header).or_insert(empty).items.extend(parts);
                        }
                        Some(of_trait) if is_trait && of_trait == name && !exports.contains(&target) => {
                            traits.push(header(block));
                        }
                        Some(_) if !is_trait && target == name => traits.push(header(block)),
                        _ => {}
                    }
                }
                // A call of a macro beside a trait implements the trait.
                Item::Macro(call) if is_trait && call.ident.is_none() && implements(self, of, call, name) => {
                    traits.push(printed(vec![item.clone()]));
                }
                _ => {}
            }
        }
        let methods = blocks.into_values().filter(|block| !block.items.is_empty()).map(|mut block| {
            block.items.sort_by_key(part_name);
            printed(vec![Item::Impl(block)]).replace(" {}\n", ";\n")
        });
        let methods: String = methods.collect();
        traits.sort();
        methods + &traits.concat()
    }
}

/// Whether a call of a macro makes implementations of a trait.
fn implements(sources: &Sources, of: &str, call: &syn::ItemMacro, name: &str) -> bool {
    let called = call.mac.path.get_ident();
    sources.crates[of].modules.values().flatten().any(|item| match item {
        Item::Macro(made) if made.ident.as_ref() == called => {
            made.mac.tokens.to_string().contains(&format!("impl {name} for"))
        }
        _ => false,
    })
}

fn read_module(
    read: ReadFile<'_>,
    file: &Path,
    children: &Path,
    path: Vec<String>,
    modules: &mut BTreeMap<Vec<String>, Vec<Item>>,
) {
    let text = read(file).unwrap_or_else(|| panic!("no file {}", file.display()));
    let items = syn::parse_file(&text).expect("the compiler takes it").items;
    let beside = file.parent().expect("a file is in a directory");
    add_module(read, items, (beside, children), path, modules);
}

fn add_module(
    read: ReadFile<'_>,
    items: Vec<Item>,
    (beside, children): (&Path, &Path),
    path: Vec<String>,
    modules: &mut BTreeMap<Vec<String>, Vec<Item>>,
) {
    let items: Vec<Item> = items.into_iter().filter(|item| !is_left_out(attributes_of(item))).collect();
    for item in &items {
        let Item::Mod(module) = item else { continue };
        let (name, mut path) = (module.ident.to_string(), path.clone());
        path.push(name.clone());
        let own = children.join(&name);
        match &module.content {
            Some((_, items)) => add_module(read, items.clone(), (beside, &own), path, modules),
            None => {
                let flat = children.join(format!("{name}.rs"));
                let file = match file_of(&module.attrs) {
                    Some(file) => beside.join(file),
                    None if read(&flat).is_some() => flat,
                    None => own.join("mod.rs"),
                };
                read_module(read, &file, &own, path, modules);
            }
        }
    }
    // Systems differ in the file that a module has.
    modules.entry(path).or_default().extend(items);
}

/// The file of a module that says it.
fn file_of(attributes: &[Attribute]) -> Option<String> {
    let path = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &path.meta {
        Meta::NameValue(syn::MetaNameValue {
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }),
            ..
        }) => Some(file.value()),
        _ => None,
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether users of the crate see nothing of it.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            ["test", "loom", "kelix_sim", "measure"].iter().any(|word| condition.contains(word))
                && !condition.contains("not")
        }
        Meta::List(list) if list.path.is_ident("doc") => list.tokens.to_string() == "hidden",
        _ => false,
    })
}

/// The attributes that are part of an interface.
fn kept(attributes: &[Attribute]) -> Vec<Attribute> {
    const KEPT: [&str; 6] = ["cfg", "derive", "must_use", "non_exhaustive", "proc_macro_derive", "default"];
    let is_kept = |attribute: &&Attribute| KEPT.iter().any(|kept| attribute.path().is_ident(kept));
    attributes.iter().filter(is_kept).cloned().collect()
}

/// The name by which an item is found. A derive macro has another name than its function.
fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => {
            let derive = item.attrs.iter().find(|attribute| attribute.path().is_ident("proc_macro_derive"));
            return match derive.map(|derive| &derive.meta) {
                Some(Meta::List(list)) => list.tokens.clone().into_iter().next().map(|name| name.to_string()),
                _ => Some(item.sig.ident.to_string()),
            };
        }
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
}

fn imports(items: &[Item]) -> Vec<Import> {
    let mut found = Vec::new();
    for item in items {
        let Item::Use(item) = item else { continue };
        let public = matches!(item.vis, Visibility::Public(_));
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        for (name, path) in leaves {
            found.push(Import { public, attributes: kept(&item.attrs), name, path });
        }
    }
    found
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    let leaf = |path: &[String], name: String| [path, &[name]].concat();
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            flatten(&tree.tree, path, leaves);
            path.pop();
        }
        UseTree::Name(tree) => leaves.push((tree.ident.to_string(), leaf(path, tree.ident.to_string()))),
        UseTree::Rename(tree) => leaves.push((tree.rename.to_string(), leaf(path, tree.ident.to_string()))),
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| flatten(tree, path, leaves)),
        // Tests and private modules may have one; of a public one nothing would be found.
        UseTree::Glob(_) => {}
    }
}

fn last(path: &syn::Path) -> String {
    path.segments.last().expect("a path has segments").ident.to_string()
}

/// The name of a type without its path and parameters.
fn last_name(of: &Type) -> String {
    match of {
        Type::Path(of) => last(&of.path),
        Type::Reference(of) => last_name(&of.elem),
        _ => String::new(),
    }
}

/// A definition as others see it.
fn without_private_parts(mut item: Item, more: Vec<Attribute>) -> Item {
    let keep = |attributes: &mut Vec<Attribute>| *attributes = [more.clone(), kept(attributes)].concat();
    match &mut item {
        Item::Struct(item) => {
            keep(&mut item.attrs);
            without_private_fields(&mut item.fields);
        }
        Item::Enum(item) => {
            keep(&mut item.attrs);
            for variant in &mut item.variants {
                variant.attrs = kept(&variant.attrs);
                variant.fields.iter_mut().for_each(|field| field.attrs = kept(&field.attrs));
            }
        }
        Item::Trait(item) => {
            keep(&mut item.attrs);
            for part in &mut item.items {
                match part {
                    TraitItem::Fn(method) => {
                        method.attrs = kept(&method.attrs);
                        method.default.iter_mut().for_each(|body| body.stmts.clear());
                    }
                    TraitItem::Const(part) => part.attrs = kept(&part.attrs),
                    TraitItem::Type(part) => part.attrs = kept(&part.attrs),
                    _ => {}
                }
            }
        }
        Item::Fn(item) => {
            keep(&mut item.attrs);
            item.block.stmts.clear();
        }
        Item::Type(item) => keep(&mut item.attrs),
        Item::Const(item) => keep(&mut item.attrs),
        other => panic!("a definition of a kind that no listing shows yet: {}", printed(vec![other.clone()])),
    }
    item
}

/// Puts one mark in the place of all private fields.
fn without_private_fields(fields: &mut Fields) {
    let (fields, mark) = match fields {
        Fields::Named(fields) => (&mut fields.named, "_private: _"),
        Fields::Unnamed(fields) => (&mut fields.unnamed, "_"),
        Fields::Unit => return,
    };
    let all = std::mem::take(fields);
    let (shown, hidden): (Vec<Field>, Vec<Field>) = all
        .into_iter()
        .partition(|field| matches!(field.vis, Visibility::Public(_)) && !is_left_out(&field.attrs));
    fields.extend(shown.into_iter().map(|field| Field { attrs: kept(&field.attrs), ..field }));
    if !hidden.is_empty() {
        let parse = if mark == "_" { Field::parse_unnamed } else { Field::parse_named };
        let marks = Punctuated::<Field, Token![,]>::from_iter(parse.parse_str(mark));
        fields.extend(marks);
    }
}

/// The public methods and constants of a block, without bodies.
fn public_parts(block: &ItemImpl) -> Vec<ImplItem> {
    let mut parts = block.items.clone();
    parts.retain_mut(|part| match part {
        ImplItem::Fn(method) => {
            let shown = matches!(method.vis, Visibility::Public(_)) && !is_left_out(&method.attrs);
            method.attrs = kept(&method.attrs);
            method.block.stmts.clear();
            method.sig.inputs.iter_mut().for_each(without_mut);
            shown
        }
        ImplItem::Const(part) => {
            let shown = matches!(part.vis, Visibility::Public(_)) && !is_left_out(&part.attrs);
            part.attrs = kept(&part.attrs);
            shown
        }
        _ => false,
    });
    parts
}

/// Whether a method changes its copy of an argument is its own business.
fn without_mut(argument: &mut syn::FnArg) {
    if let syn::FnArg::Typed(argument) = argument {
        if let syn::Pat::Ident(name) = &mut *argument.pat {
            name.mutability = None;
        }
    }
}

fn part_name(part: &ImplItem) -> String {
    match part {
        ImplItem::Fn(method) => method.sig.ident.to_string(),
        ImplItem::Const(part) => part.ident.to_string(),
        _ => String::new(),
    }
}

/// An implementation of a trait: its first line, and the types that go with it.
fn header(block: &ItemImpl) -> String {
    let mut block = block.clone();
    block.attrs = kept(&block.attrs);
    block.items.retain(|part| matches!(part, ImplItem::Type(_)));
    printed(vec![Item::Impl(block)])
}

fn printed(items: Vec<Item>) -> String {
    prettyplease::unparse(&syn::File { shebang: None, frontmatter: None, attrs: Vec::new(), items })
}

/// Lines that only one of two listings has, as `- old` and `+ new`.
fn difference(old: &str, new: &str) -> String {
    let only = |of: &str, other: &str, sign: char| -> String {
        let mut others: Vec<&str> = other.lines().collect();
        let missing = of.lines().filter(|line| match others.iter().position(|other| other == line) {
            Some(at) => {
                others.swap_remove(at);
                false
            }
            None => true,
        });
        missing.map(|line| format!("{sign} {line}\n")).collect()
    };
    only(old, new, '-') + &only(new, old, '+')
}

#[test]
fn the_interface_is_as_listed() {
    let directory = |name: &str| format!("{}/../{name}/src", env!("CARGO_MANIFEST_DIR"));
    let crates = [
        ("kelix", directory("client")),
        ("kelix_derive", directory("derive")),
        ("kelix_fabric", directory("fabric")),
        ("kelix_types", directory("types")),
    ];
    let crates: Vec<(&str, &str)> =
        crates.iter().map(|(name, directory)| (*name, directory.as_str())).collect();
    let new = Sources::read(&crates, &|file| std::fs::read_to_string(file).ok()).list("kelix");
    if std::env::var_os("KELIX_BLESS").is_some() {
        std::fs::write(LISTING, &new).expect("the listing can be written");
    }
    let old = std::fs::read_to_string(LISTING).unwrap_or_default();
    assert!(
        old == new,
        "the public interface is not as crates/client/api.txt lists it:\n{}if that is meant: \
         KELIX_BLESS=1 cargo test --package kelix --test api, and a line in CHANGELOG.md",
        difference(&old, &new),
    );
}

/// A small crate: its files, each with its text.
const SMALL: [(&str, &str); 3] = [
    (
        "/small/lib.rs",
        "mod inner;
         mod private { pub struct Unseen; }
         #[cfg(test)] mod tests { pub struct Test; }
         pub use inner::{Deep, Shape as Form, Thing};
         pub use other::Error;
         /// Documented.
         pub fn free(number: u8) -> u8 { number }
         #[cfg(feature = \"more\")] pub mod more { pub type More = u8; }
         #[cfg(feature = \"measure\")] pub mod measure { pub fn unlisted() {} }
         #[doc(hidden)] pub fn hidden() {}",
    ),
    (
        "/small/inner/mod.rs",
        "pub use self::deep::Deep;
         mod deep { #[derive(Clone)] pub struct Deep(pub u8, u16); }
         pub struct Thing<T> { pub shown: T, hidden: u8 }
         impl<T: Copy> Thing<T> {
             pub fn get(&self) -> T { self.shown }
             pub fn set(&mut self, mut to: T) {}
             fn own(&self) {}
             pub(crate) fn near(&self) {}
         }
         impl<T> Iterator for Thing<T> { type Item = T; fn next(&mut self) -> Option<T> { None } }
         pub trait Shape { const SIDES: u8; fn needed(&self); fn given(&self) { self.needed() } }
         impl Shape for u8 { const SIDES: u8 = 3; fn needed(&self) {} }
         macro_rules! shapes {
             ($($t:ty)*) => { $(impl Shape for $t { const SIDES: u8 = 4; fn needed(&self) {} })* }
         }
         shapes! { u16 u32 }",
    ),
    ("/other/lib.rs", "#[non_exhaustive] pub enum Error { First { at: u64 }, Second(String) }"),
];

fn small(change: impl Fn(&str) -> String) -> String {
    let file = |path: &Path| {
        let found = SMALL.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| change(text))
    };
    Sources::read(&[("small", "/small"), ("other", "/other")], &file).list("small")
}

#[test]
fn all_that_is_public_is_listed_and_nothing_else() {
    let listing = small(str::to_string);
    let wanted = "
// small::Deep
#[derive(Clone)]
pub struct Deep(pub u8, _);

// small::Error
#[non_exhaustive]
pub enum Error {
    First { at: u64 },
    Second(String),
}

// small::Form
pub trait Shape {
    const SIDES: u8;
    fn needed(&self);
    fn given(&self) {}
}
impl Shape for u8 {}
shapes! {
    u16 u32
}

// small::Thing
pub struct Thing<T> {
    pub shown: T,
    _private: _,
}
impl<T: Copy> Thing<T> {
    pub fn get(&self) -> T;
    pub fn set(&mut self, to: T);
}
impl<T> Iterator for Thing<T> {
    type Item = T;
}

// small::free
pub fn free(number: u8) -> u8 {}

// small::more::More
#[cfg(feature = \"more\")]
pub type More = u8;
";
    assert_eq!(listing, format!("{HEADER}{wanted}"), "{}", difference(wanted, &listing));
}

#[test]
fn each_change_of_the_interface_is_seen_and_no_other() {
    let before = small(str::to_string);
    for (old, new, shown) in [
        ("pub shown: T", "pub shown: Box<T>", "-     pub shown: T,\n+     pub shown: Box<T>,\n"),
        (
            "pub fn get(&self)",
            "pub fn get(&mut self)",
            "-     pub fn get(&self) -> T;\n+     pub fn get(&mut self) -> T;\n",
        ),
        ("Second(String)", "Second(String), Third", "+     Third,\n"),
        ("#[derive(Clone)]", "#[derive(Copy, Clone)]", "- #[derive(Clone)]\n+ #[derive(Copy, Clone)]\n"),
        ("u16 u32", "u16", "-     u16 u32\n+     u16\n"),
        (
            "fn given(&self) { self.needed() }",
            "fn given(&self);",
            "-     fn given(&self) {}\n+     fn given(&self);\n",
        ),
        ("impl Shape for u8", "impl Shape for i8", "- impl Shape for u8 {}\n+ impl Shape for i8 {}\n"),
        // Bodies, private parts and words of the documentation are no part of it.
        ("{ number }", "{ number + 1 }", ""),
        ("hidden: u8", "hidden: u16", ""),
        ("fn own(&self) {}", "fn other(&self) {}", ""),
        ("/// Documented.", "/// Told.", ""),
        ("pub struct Test;", "pub struct Other;", ""),
        ("fn own(&self) {}", "} impl<T: Copy> Thing<T> { fn own(&self) {}", ""),
    ] {
        let after = small(|text| text.replace(old, new));
        assert_eq!(difference(&before, &after), shown, "{old} -> {new}");
    }
}
