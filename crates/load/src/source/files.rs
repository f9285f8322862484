//! Files of rows: one, or those of a directory.

use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::times::Times;
use super::{Sink, Source, cannot, csv, json};
use crate::changes::{State, no_query};
use crate::map::{FileRelation, Map, Relation};
use crate::problem::Problem;
use crate::read::relations;

/// Bytes that are read of a file at once.
const READ_BYTES: usize = 256 << 10;

/// Endings of names, and what they mean.
const FORMATS: [(&str, Format); 5] = [
    (".csv", Format::Csv(b',')),
    (".tsv", Format::Csv(b'\t')),
    (".jsonl", Format::Json),
    (".ndjson", Format::Json),
    (".json", Format::Json),
];

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Fields, with a delimiter.
    Csv(u8),
    /// An object a line.
    Json,
}

fn format_of(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    FORMATS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| *format)
}

/// The only file, or a directory.
pub(super) struct Files {
    path: PathBuf,
    is_directory: bool,
    seen: Seen,
}

/// Files that were read, and how they were then.
#[derive(Default)]
pub(super) struct Seen(RefCell<Vec<(PathBuf, u64, Option<SystemTime>)>>);

impl Seen {
    /// Notes how a file is, before it is read.
    pub fn note(&self, path: &Path) -> Result<(), Problem> {
        let (bytes, time) = state(&path.metadata().map_err(|source| cannot("read", path, &source))?);
        self.0.borrow_mut().push((path.to_path_buf(), bytes, time));
        Ok(())
    }

    /// Fails if one has changed.
    pub fn check(&self) -> Result<(), Problem> {
        for (path, bytes, time) in self.0.borrow().iter() {
            let now = path.metadata().map(|metadata| state(&metadata));
            if now.map_err(|source| cannot("read", path, &source))? != (*bytes, *time) {
                let text = format!("{} was changed while it was read; load again", path.display());
                return Err(Problem::Source(text));
            }
        }
        Ok(())
    }
}

fn state(metadata: &Metadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

/// An error if a file is a pipe or a device, which can be read once: a load looks at the columns of all files
/// before it reads any.
pub(super) fn ordinary(path: &Path) -> Result<(), Problem> {
    let metadata = path.metadata().map_err(|source| cannot("read", path, &source))?;
    if metadata.is_file() {
        return Ok(());
    }
    let text = format!(
        "{} is no ordinary file, and a load reads its files more than once: write what comes from there into a file first",
        path.display()
    );
    Err(Problem::Source(text))
}

/// What is said of a map, or of a file by its name and a map, that takes one sign for two things.
pub(crate) const ONE_SIGN: &str = "what stands between its fields cannot be quote or escape, too: give delimiter, quote and escape signs of their own";

/// How a file has its fields, by what is said of it and by the delimiter that its name tells.
fn csv_format(said: &FileRelation, delimiter: u8) -> csv::Format {
    let quote = said.quote.unwrap_or(Some(b'"'));
    csv::Format {
        delimiter: said.delimiter.unwrap_or(delimiter),
        quote,
        // A quote that is escaped by a quote is one that is written twice, as always.
        escape: said.escape.filter(|escape| quote != Some(*escape)),
        null: said.null.clone().unwrap_or_default().into_bytes(),
    }
}

impl Files {
    pub fn directory(path: PathBuf) -> Files {
        Files { path, is_directory: true, seen: Seen::default() }
    }

    pub fn file(path: PathBuf) -> Result<Files, Problem> {
        if format_of(&path).is_none() {
            let endings = FORMATS.map(|(ending, _)| ending).join(", ");
            let text = format!(
                "{}: its name does not tell what it is; it has to end with {endings} or .osm.pbf",
                path.display()
            );
            return Err(Problem::Source(text));
        }
        Ok(Files { path, is_directory: false, seen: Seen::default() })
    }

    /// The file of a relation.
    fn find(&self, relation: &Relation, table: &str) -> Result<PathBuf, String> {
        let said = match relation {
            Relation::Query(_) => return Err("files take no query; say file".into()),
            Relation::Elements(_) => return Err("elements are for maps of OpenStreetMap; say file".into()),
            Relation::File(FileRelation { name, .. }) => name.as_deref(),
            Relation::Unsaid => None,
        };
        if !self.is_directory {
            let own = self.path.file_name().and_then(|name| name.to_str());
            return match said.is_none_or(|said| Some(said) == own || Path::new(said) == self.path) {
                true => Ok(self.path.clone()),
                false => Err(format!(
                    "the source is the file {} and no other; load from the directory to have several",
                    self.path.display()
                )),
            };
        }
        if let Some(said) = said {
            let path = self.path.join(said);
            let stays =
                Path::new(said).components().all(|part| matches!(part, std::path::Component::Normal(_)));
            return match () {
                () if !stays => {
                    Err(format!("the file \"{said}\" is not in the directory {}", self.path.display()))
                }
                () if !path.is_file() => Err(format!("there is no file {}", path.display())),
                () if format_of(&path).is_none() => {
                    let endings = FORMATS.map(|(ending, _)| ending).join(", ");
                    Err(format!(
                        "the name of {} does not tell what it is; it has to end with {endings}",
                        path.display()
                    ))
                }
                () => Ok(path),
            };
        }
        let mut named = FORMATS.iter().map(|(ending, _)| self.path.join(format!("{table}{ending}")));
        named.find(|path| path.is_file()).ok_or_else(|| {
            format!("there is no {table}.csv, .tsv or .jsonl in {}; say file", self.path.display())
        })
    }
}

impl Source for Files {
    fn state(&mut self, map: &Map) -> Result<Option<State>, Problem> {
        no_query(map)?;
        let mut times = Times::new();
        for (what, name) in relations(map) {
            // A file that is not there is told of when its columns are looked at.
            if let Ok(path) = self.find(what.relation(map), &name) {
                times.add(&path);
            }
        }
        Ok(times.state())
    }

    fn name(&self, relation: &Relation, table: &str) -> String {
        match self.find(relation, table) {
            Ok(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            Err(_) => table.to_string(),
        }
    }

    fn place(&self, _: &Relation, _: &str) -> &'static str {
        "line"
    }

    fn check(&self, relation: &Relation, table: &str) -> Result<(), String> {
        let path = self.find(relation, table)?;
        let format = format_of(&path);
        if let (Relation::File(said), Some(Format::Csv(delimiter))) = (relation, format) {
            let format = csv_format(said, delimiter);
            if [format.quote, format.escape].contains(&Some(format.delimiter)) {
                return Err(ONE_SIGN.into());
            }
        }
        match relation {
            Relation::File(FileRelation {
                delimiter: None, quote: None, escape: None, null: None, ..
            }) => Ok(()),
            Relation::File(_) if format == Some(Format::Json) => {
                Err("delimiter, quote, escape and null are for CSV, and this is JSON".into())
            }
            _ => Ok(()),
        }
    }

    fn rows(
        &mut self,
        relation: &Relation,
        table: &str,
        wanted: &[String],
        sink: &mut dyn Sink,
    ) -> Result<(), Problem> {
        let path = self.find(relation, table).map_err(Problem::Source)?;
        ordinary(&path)?;
        self.seen.note(&path)?;
        let file = File::open(&path).map_err(|source| cannot("read", &path, &source))?;
        let input = BufReader::with_capacity(READ_BYTES, file);
        let name = self.name(relation, table);
        let said = match relation {
            Relation::File(said) => said.clone(),
            _ => FileRelation::default(),
        };
        match format_of(&path).expect("checked when it was found") {
            Format::Json => json::read(&name, input, wanted, sink),
            Format::Csv(delimiter) => csv::read(&name, input, csv_format(&said, delimiter), sink),
        }
    }

    fn check_unchanged(&self) -> Result<(), Problem> {
        self.seen.check()
    }
}
