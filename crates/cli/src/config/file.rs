//! The file: which one it is, and what it says.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::options::{Kind, Section, key};
use crate::Failure;

/// What is said of an option: nothing but its name, or with values.
pub(crate) type Values = Vec<OsString>;

/// An entry.
pub(crate) struct Entry {
    pub section: Section,
    /// The option's name.
    pub key: String,
    /// Its values. `None`: it is a flag that is off.
    pub values: Option<Values>,
    pub line: usize,
}

/// A file that was read.
pub(crate) struct File {
    pub path: PathBuf,
    pub entries: Vec<Entry>,
}

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The files that are looked for when none is named, in this order.
pub(crate) fn usual_places() -> Vec<PathBuf> {
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    home.map(|home| home.join("kelix.toml")).into_iter().chain(["/etc/kelix.toml".into()]).collect()
}

impl File {
    /// Reads the file that is in force, if there is one. One that is named has to be there.
    pub fn in_force(program: &Command, named: Option<&Path>) -> Result<Option<File>, Failure> {
        let named = named.map(Path::to_path_buf).or_else(|| set("KELIX_CONFIG"));
        let path = named.or_else(|| usual_places().into_iter().find(|path| path.exists()));
        path.map(|path| File::read(program, &path)).transpose()
    }

    pub fn read(program: &Command, path: &Path) -> Result<File, Failure> {
        let text = std::fs::read_to_string(path).map_err(|source| {
            Failure::io("read the configuration", format!("cannot read {}", path.display()), &source)
        })?;
        let entries = parse(program, &text).map_err(|Slip { span, text: what }| {
            let line = line_of(&text, &span);
            Failure::usage("read the configuration", format!("{}, line {line}: {what}", path.display()))
        })?;
        Ok(File { path: path.to_path_buf(), entries })
    }
}

/// What is wrong, and where.
struct Slip {
    span: Range<usize>,
    text: String,
}

/// The line of a text in which a place stands.
pub(crate) fn line_of(text: &str, span: &Range<usize>) -> usize {
    text[..span.start.min(text.len())].matches('\n').count() + 1
}

fn parse(program: &Command, text: &str) -> Result<Vec<Entry>, Slip> {
    let file = DeTable::parse(text).map_err(|error| Slip {
        span: error.span().unwrap_or(0..0),
        text: format!("this is no TOML: {}", error.message()),
    })?;
    let mut entries = Vec::new();
    let mut slips = Vec::new();
    for (name, value) in file.get_ref() {
        let mut slip = |text: String| slips.push(Slip { span: name.span(), text });
        let known = || Section::ALL.iter().map(|section| section.name());
        let Some(section) = Section::named(name.get_ref()) else {
            slip(unknown_section(program, name.get_ref(), known()));
            continue;
        };
        let DeValue::Table(table) = value.get_ref() else {
            slip(format!("{} is a section: write [{0}] on a line of its own", section.name()));
            continue;
        };
        for (key, value) in table {
            match entry(program, text, section, (key.get_ref(), key.span()), value) {
                Ok(entry) => entries.push(entry),
                Err(slip) => slips.push(slip),
            }
        }
    }
    entries.sort_by_key(|entry| entry.line);
    // Tables come in the order of their names, and whoever corrects a file goes from its first line to its
    // last.
    slips.into_iter().min_by_key(|slip| slip.span.start).map_or(Ok(entries), Err)
}

fn entry(
    program: &Command,
    text: &str,
    section: Section,
    (name, span): (&str, Range<usize>),
    value: &Spanned<DeValue<'_>>,
) -> Result<Entry, Slip> {
    let options = section.options(program);
    let Some(option) = options.iter().find(|option| key(option) == name) else {
        return Err(Slip { span, text: unknown_key(program, section, name) });
    };
    match values(option, value.get_ref()) {
        Some(values) => Ok(Entry { section, key: name.into(), values, line: line_of(text, &span) }),
        None => {
            let (wanted, found) = (Kind::of(option).wanted(), a_kind_of(value.get_ref()));
            Err(Slip { span: value.span(), text: format!("{name} is {found}, and has to be {wanted}") })
        }
    }
}

/// The values that an option is given. `None`: it takes no such thing.
fn values(option: &Arg, value: &DeValue<'_>) -> Option<Option<Values>> {
    let text = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(OsString::from(text.as_ref())),
        _ => None,
    };
    let number = |value: &DeValue<'_>| match value {
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()?;
            Some(OsString::from(number.to_string()))
        }
        _ => None,
    };
    let one = |value: OsString| Some(Some(vec![value]));
    match (Kind::of(option), value) {
        (Kind::Flag | Kind::Texts, DeValue::Boolean(on)) => Some(on.then(Vec::new)),
        (Kind::Number, value) => one(number(value)?),
        (Kind::Text, value) => one(text(value)?),
        (Kind::TextOrNumber, value) => one(text(value).or_else(|| number(value))?),
        (Kind::Texts, DeValue::Array(all)) => {
            all.iter().map(|value| text(value.get_ref())).collect::<Option<Values>>().map(Some)
        }
        (Kind::Texts, value) => one(text(value)?),
        (Kind::Flag, _) => None,
    }
}

fn a_kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a section",
    }
}

fn unknown_section<'n>(program: &Command, name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let of = Section::ALL
        .into_iter()
        .find(|section| section.options(program).iter().any(|option| key(option) == name));
    match (of, nearest(name, known, name.chars().count().div_ceil(2))) {
        (Some(section), _) => format!("{name} belongs below [{}]", section.name()),
        (None, Some(near)) => format!("there is no section [{name}]; perhaps [{near}] is meant"),
        (None, None) => format!("there is no section [{name}]; there are [serve] and [client]"),
    }
}

fn unknown_key(program: &Command, section: Section, name: &str) -> String {
    let known: Vec<&str> = section.options(program).into_iter().map(key).collect();
    let mut others = Section::ALL.into_iter().filter(|other| *other != section);
    let other = others.find(|other| other.options(program).iter().any(|option| key(option) == name));
    let section = section.name();
    match (other, nearest(name, known.iter().copied(), name.chars().count().div_ceil(2))) {
        (Some(other), _) => format!("{name} belongs in [{}], not in [{section}]", other.name()),
        (None, Some(near)) => format!("[{section}] has no key \"{name}\"; perhaps {near} is meant"),
        (None, None) => format!("[{section}] has no key \"{name}\"; there are {}", known.join(", ")),
    }
}

/// Of some names that which is most like another, if so few letters are different at most.
pub(crate) fn nearest<'n>(
    name: &str,
    names: impl Iterator<Item = &'n str>,
    letters_max: usize,
) -> Option<&'n str> {
    let near = names.map(|other| (strsim::damerau_levenshtein(name, other), other));
    let (far, other) = near.min_by_key(|(far, _)| *far)?;
    (far <= letters_max).then_some(other)
}
