//! The shape of session and shard: parts that own their state, and few files that know all of them.
//!
//! A struct that grows beyond what is allowed here is to be divided by who owns which field, and not by a bag
//! inside it.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Fields, Item, Type};

/// Most fields of a struct of client or shard.
const FIELDS_MAX: usize = 15;
/// Most fields of `Session` and `Shard`, and most files that extend each.
const OWNED_MAX: usize = 12;
const FILES_MAX: usize = 6;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The structs of a crate with their numbers of fields, and the files with `impl NAME`.
struct Shape {
    structs: Vec<(String, usize)>,
    files: Vec<PathBuf>,
}

fn shape(source: &str, path: &Path, name: &str, shape: &mut Shape) {
    for item in syn::parse_file(source).unwrap_or_else(|error| panic!("{}: {error}", path.display())).items {
        match item {
            Item::Struct(of) => {
                let Fields::Named(fields) = of.fields else { continue };
                shape.structs.push((of.ident.to_string(), fields.named.len()));
            }
            Item::Impl(of) if of.trait_.is_none() => {
                let Type::Path(to) = *of.self_ty else { continue };
                let is_it = to.path.segments.last().is_some_and(|last| last.ident == name);
                if is_it && !shape.files.iter().any(|file| file == path) {
                    shape.files.push(path.to_path_buf());
                }
            }
            _ => {}
        }
    }
}

/// What is wrong with the shape of a crate whose main struct has this name.
fn faults(of: &Shape, name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (other, fields) in &of.structs {
        let most = if other == name { OWNED_MAX } else { FIELDS_MAX };
        if *fields > most {
            faults.push(format!("{other} has {fields} fields; {most} are allowed"));
        }
    }
    if of.files.len() > FILES_MAX {
        faults.push(format!(
            "{} files have impl {name}; {FILES_MAX} are allowed: {:?}",
            of.files.len(),
            of.files
        ));
    }
    faults
}

#[test]
fn session_and_shard_have_parts_that_own_their_state() {
    for (folder, name) in [("crates/client/src", "Session"), ("crates/shard/src", "Shard")] {
        let (mut paths, mut of) = (Vec::new(), Shape { structs: Vec::new(), files: Vec::new() });
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder), &mut paths);
        for path in &paths {
            shape(&fs::read_to_string(path).unwrap(), path, name, &mut of);
        }
        assert!(of.structs.iter().any(|(other, _)| other == name), "{folder} has no {name}");
        assert_eq!(faults(&of, name), Vec::<String>::new(), "{folder}");
    }
}

/// The check sees what it is to see.
#[test]
fn a_struct_with_too_many_fields_is_found_and_so_are_too_many_files() {
    let mut of = Shape { structs: Vec::new(), files: Vec::new() };
    let fields = |count: usize| (0..count).map(|at| format!("field{at}: u8,")).collect::<String>();
    let source = format!("struct Shard {{ {} }} struct Part {{ {} }}", fields(13), fields(16));
    shape(&source, Path::new("shard.rs"), "Shard", &mut of);
    for file in 0..7 {
        shape("impl Shard {} impl Drop for Shard {}", Path::new(&format!("{file}.rs")), "Shard", &mut of);
    }
    let found = faults(&of, "Shard");
    assert_eq!(found.len(), 3, "{found:?}");
}
