//! Reads a map.

use std::collections::HashMap;
use std::ops::Range;

use kelix::TableKind;
use kelix_types::limits::NAME_BYTES_MAX;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::{Reading, Section, Text};
use super::{
    ColumnName, Elements, FileRelation, LinkMap, ListMap, Map, Relation, TableMap, Template, list_table,
    nearest,
};
use crate::findings::Findings;
use crate::source::ONE_SIGN;

/// Links in a chunk of a list, unless the map says otherwise.
const CHUNK: usize = 100;
/// Most links in a chunk, so that a chunk stays a small item.
const CHUNK_MAX: usize = 10_000;

const MAP_KEYS: &[&str] = &["dataset", "changed", "table"];
/// Where the rows of a table or a list are, and how a file has them.
const ROWS_KEYS: &[&str] = &["query", "file", "elements", "delimiter", "quote", "escape", "null"];
const TABLE_KEYS: &[&str] =
    &["name", "kind", "key", "attributes", "value", "expires_in", "live", "link", "list"];
const LINK_KEYS: &[&str] = &["name", "to", "key", "bytes"];
const LIST_KEYS: &[&str] = &["name", "owner", "to", "key", "bytes", "chunk"];
const ATTRIBUTE_KEYS: &[&str] = &["name", "column"];

/// The tables' names with their kinds: what links may lead to.
type Targets = HashMap<String, (usize, TableKind)>;

pub(super) fn parse(name: &str, text: &str) -> Result<Map, Findings> {
    let mut reading = Reading { name, text, findings: Findings::new() };
    let map = match DeTable::parse(text) {
        Ok(file) => read_map(&mut reading, &file),
        Err(error) => {
            reading.wrong(error.span().unwrap_or(0..0), format!("this is no TOML: {}", error.message()));
            None
        }
    };
    match map {
        Some(map) if reading.findings.is_empty() => Ok(map),
        _ => Err(reading.findings),
    }
}

fn read_map(reading: &mut Reading<'_>, file: &Spanned<DeTable<'_>>) -> Option<Map> {
    let map = Section::new(reading, "the map", file.get_ref(), 0..0, &[MAP_KEYS]);
    let dataset = map.needed(reading, "dataset", "\"company\"").and_then(|text| name_of(reading, text));
    let changed = map.text(reading, "changed").map(|text| text.text);
    let sections: Vec<Section<'_, '_>> = map
        .sections(reading, "table")
        .into_iter()
        .map(|(table, span)| Section::new(reading, "[[table]]", table, span, &[TABLE_KEYS, ROWS_KEYS]))
        .collect();
    if sections.is_empty() && reading.findings.is_empty() {
        reading.wrong(0..0, "the map has no [[table]], so there is nothing to load");
    }
    let targets = targets(reading, &sections);
    let tables: Vec<_> = sections.iter().map(|section| read_table(reading, section, &targets)).collect();
    let tables = tables.into_iter().collect::<Option<Vec<_>>>()?;
    Some(Map { dataset: dataset?, changed, tables, text: reading.text.to_string() })
}

/// A name as the store takes it.
fn name_of(reading: &mut Reading<'_>, Text { text, span }: Text) -> Option<String> {
    let wrong = match () {
        () if text.len() > NAME_BYTES_MAX => {
            format!("a name has at most {NAME_BYTES_MAX} bytes, this one {}", text.len())
        }
        () if text.contains('/') => format!("a name cannot contain /, which ends it in links: \"{text}\""),
        () => return Some(text),
    };
    reading.wrong(span, wrong);
    None
}

fn kind_of(reading: &mut Reading<'_>, section: &Section<'_, '_>) -> Option<TableKind> {
    let Some(Text { text, span }) = section.text(reading, "kind") else { return Some(TableKind::Hash) };
    match &text[..] {
        "hash" => Some(TableKind::Hash),
        "u64" => Some(TableKind::Numbers),
        "inline8" => Some(TableKind::Inline),
        "bytes" => Some(TableKind::Strings),
        _ => {
            let wrong =
                format!("no kind of table is called \"{text}\"; there are hash, u64, inline8 and bytes");
            reading.wrong(span, wrong);
            None
        }
    }
}

/// The names of all tables, those of lists among them, each of which may be there once.
fn targets(reading: &mut Reading<'_>, sections: &[Section<'_, '_>]) -> Targets {
    let mut targets = Targets::new();
    for (number, section) in sections.iter().enumerate() {
        let mut quiet = Reading { findings: Findings::new(), ..*reading };
        let kind = kind_of(&mut quiet, section).unwrap_or_default();
        let Some(name) = section.text(&mut quiet, "name") else { continue };
        if targets.insert(name.text.clone(), (number, kind)).is_some() {
            reading.wrong(
                name.span,
                format!("there is another table \"{}\" above; their names have to differ", name.text),
            );
        }
    }
    targets
}

fn read_table(reading: &mut Reading<'_>, section: &Section<'_, '_>, targets: &Targets) -> Option<TableMap> {
    let name = section.needed(reading, "name", "\"people\"").and_then(|text| name_of(reading, text));
    let kind = kind_of(reading, section);
    let relation = read_relation(reading, section);
    let key = read_key(reading, section, "key", "\"person:{id}\"", kind.unwrap_or_default());
    let attributes = read_attributes(reading, section);
    let expires_in = section.text(reading, "expires_in").map(|text| text.text);
    let overlay = read_live(reading, section);
    if kind == Some(TableKind::Inline) {
        check_inline(reading, section);
    }
    let name = name?;
    let links = read_links(reading, section, targets);
    let lists = read_lists(reading, section, (&name, kind.unwrap_or_default()), targets);
    check_names(reading, section, &attributes, &links, &lists);
    let (links, lists) =
        (links.into_iter().collect::<Option<_>>()?, lists.into_iter().collect::<Option<_>>()?);
    Some(TableMap {
        name,
        kind: kind?,
        relation: relation?,
        key: key?,
        attributes,
        expires_in,
        overlay,
        links,
        lists,
    })
}

/// A table whose values are numbers needs one for each key, and has nothing else.
fn check_inline(reading: &mut Reading<'_>, section: &Section<'_, '_>) {
    section.needed(reading, "value", "\"count\"");
    for (key, what) in [
        (
            "attributes",
            "values that are numbers, and no attributes; the column of the number is named by value",
        ),
        ("link", "values that are numbers, and no links"),
        ("list", "values that are numbers, and no links"),
        ("expires_in", "values that are numbers, which do not expire"),
        ("live", "values that are numbers, of which none can be told to be a client's; leave live out"),
    ] {
        if let Some(span) = section.span_of(key) {
            reading.wrong(span, format!("a table of the kind inline8 has {what}"));
        }
    }
}

fn read_live(reading: &mut Reading<'_>, section: &Section<'_, '_>) -> bool {
    match section.text(reading, "live") {
        None => false,
        Some(Text { text, .. }) if text == "overlay" => true,
        Some(Text { text, span }) => {
            reading.wrong(span, format!("live is \"{text}\"; it can be \"overlay\", or left out"));
            false
        }
    }
}

fn read_relation(reading: &mut Reading<'_>, section: &Section<'_, '_>) -> Option<Relation> {
    let query = section.text(reading, "query");
    let file = section.text(reading, "file");
    let elements = section.text(reading, "elements");
    let said = [&query, &file, &elements].into_iter().flatten().count();
    if said > 1 {
        reading.wrong(
            section.span.clone(),
            "query, file and elements are three ways to say one thing; say one of them",
        );
        return None;
    }
    let delimiter = section.text(reading, "delimiter").and_then(|text| {
        let wrong = "a delimiter is one character of ASCII, neither a quote nor the end of a line";
        sign_of(reading, text, b"\"\r\n", wrong)
    });
    let quote = section.any_text(reading, "quote").and_then(|text| match &text.text[..] {
        "" | "none" => Some(None),
        _ => {
            let wrong = "quote, if it is not \"\" for none, is one character of ASCII, not the end of a line";
            sign_of(reading, text, b"\r\n", wrong).map(Some)
        }
    });
    let escape = section.text(reading, "escape").and_then(|text| {
        sign_of(reading, text, b"\r\n", "escape is one character of ASCII, not the end of a line")
    });
    if delimiter.is_some() && (quote.flatten() == delimiter || escape == delimiter) {
        reading.wrong(section.span.clone(), ONE_SIGN);
    }
    let null = section.text(reading, "null").map(|text| text.text);
    let said = delimiter.is_some() || quote.is_some() || escape.is_some() || null.is_some();
    if said && (query.is_some() || elements.is_some()) {
        let wrong = "delimiter, quote, escape and null are for files, and this is none";
        reading.wrong(section.span.clone(), wrong);
    }
    let of_file = |name| Some(Relation::File(FileRelation { name, delimiter, quote, escape, null }));
    match (query, file, elements) {
        (Some(query), ..) => Some(Relation::Query(query.text)),
        (_, Some(file), _) => of_file(Some(file.text)),
        (.., Some(elements)) => elements_of(reading, &elements).map(Relation::Elements),
        _ if said => of_file(None),
        _ => Some(Relation::Unsaid),
    }
}

/// One character that stands for something in a file; `wrong` says what may stand for it.
fn sign_of(reading: &mut Reading<'_>, Text { text, span }: Text, never: &[u8], wrong: &str) -> Option<u8> {
    match text.as_bytes() {
        [sign] if !never.contains(sign) => Some(*sign),
        _ => {
            reading.wrong(span, wrong);
            None
        }
    }
}

fn elements_of(reading: &mut Reading<'_>, Text { text, span }: &Text) -> Option<Elements> {
    let known = Elements::ALL.iter().find(|(_, name)| name == text);
    if known.is_none() {
        let names = Elements::ALL.map(|(_, name)| name).join(", ");
        reading.wrong(span.clone(), format!("no elements are called \"{text}\"; there are {names}"));
    }
    known.map(|(elements, _)| *elements)
}

fn read_key(
    reading: &mut Reading<'_>,
    section: &Section<'_, '_>,
    key: &'static str,
    example: &str,
    kind: TableKind,
) -> Option<Template> {
    let Text { text, span } = section.needed(reading, key, example)?;
    let template = match Template::parse(&text) {
        Ok(template) => template,
        Err(wrong) => {
            reading.wrong(span, wrong);
            return None;
        }
    };
    if kind.has_numbers() && template.only_column().is_none() {
        let column = template.columns().next().expect("a template has one");
        let text = format!(
            "the keys of that table are numbers, so this has to be a column and nothing else: \"{{{column}}}\""
        );
        reading.wrong(span, text);
        return None;
    }
    Some(template)
}

fn read_attributes(reading: &mut Reading<'_>, section: &Section<'_, '_>) -> Vec<(String, ColumnName)> {
    let mut attributes = Vec::new();
    if let Some(value) = section.text(reading, "value") {
        attributes.push((String::new(), value.text));
    }
    for entry in section.array(reading, "attributes", "an array of names of columns") {
        match entry.get_ref() {
            DeValue::String(name) if !name.is_empty() && name.len() <= NAME_BYTES_MAX => {
                attributes.push((name.to_string(), name.to_string()));
            }
            DeValue::Table(table) => attributes.extend(read_attribute(reading, table, entry.span())),
            _ => {
                let text =
                    "an attribute is the name of a column, or { name = \"since\", column = \"hired\" }";
                reading.wrong(entry.span(), text);
            }
        }
    }
    attributes
}

fn read_attribute(
    reading: &mut Reading<'_>,
    table: &DeTable<'_>,
    span: Range<usize>,
) -> Option<(String, ColumnName)> {
    let attribute = Section::new(reading, "an attribute", table, span, &[ATTRIBUTE_KEYS]);
    let name = attribute.needed(reading, "name", "\"since\"").and_then(|text| name_of(reading, text));
    let column = attribute.needed(reading, "column", "\"hired\"");
    Some((name?, column?.text))
}

fn target_of(
    reading: &mut Reading<'_>,
    section: &Section<'_, '_>,
    targets: &Targets,
) -> Option<(usize, TableKind)> {
    let Text { text, span } = section.needed(reading, "to", "\"departments\"")?;
    let target = targets.get(&text);
    if target.is_none() {
        let near = nearest(&text, targets.keys().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("; perhaps \"{near}\" is meant"));
        reading.wrong(span, format!("the map has no table \"{text}\" for links to lead to{near}"));
    }
    target.copied()
}

fn read_links(
    reading: &mut Reading<'_>,
    section: &Section<'_, '_>,
    targets: &Targets,
) -> Vec<Option<LinkMap>> {
    let sections = section.sections(reading, "link").into_iter();
    sections
        .map(|(table, span)| {
            let link = Section::new(reading, "[[table.link]]", table, span, &[LINK_KEYS]);
            let name = link.needed(reading, "name", "\"department\"").and_then(|text| name_of(reading, text));
            let target = target_of(reading, &link, targets);
            let kind = target.map_or(TableKind::Hash, |(_, kind)| kind);
            let key = read_key(reading, &link, "key", "\"dept:{dept_id}\"", kind);
            let bytes = link.text(reading, "bytes").map(|text| text.text);
            Some(LinkMap { name: name?, to: target?.0, key: key?, bytes })
        })
        .collect()
}

fn read_lists(
    reading: &mut Reading<'_>,
    section: &Section<'_, '_>,
    (table_name, kind): (&str, TableKind),
    targets: &Targets,
) -> Vec<Option<ListMap>> {
    let sections = section.sections(reading, "list").into_iter();
    sections
        .map(|(table, span)| {
            let list = Section::new(reading, "[[table.list]]", table, span.clone(), &[LIST_KEYS, ROWS_KEYS]);
            let name = list.needed(reading, "name", "\"followers\"").and_then(|text| name_of(reading, text));
            if let Some(name) = name.as_ref().map(|name| list_table(table_name, name)) {
                if targets.contains_key(&name) || name.len() > NAME_BYTES_MAX {
                    let text = format!("the list's chunks would be in a table \"{name}\", which cannot be: \
                                        there is another, or the name is too long; call the list something else");
                    reading.wrong(span.clone(), text);
                }
            }
            let relation = read_relation(reading, &list);
            if relation == Some(Relation::Unsaid) {
                let text = "[[table.list]] does not say where its rows are; it needs query, file or elements";
                reading.wrong(span, text);
            }
            let owner = read_key(reading, &list, "owner", "\"person:{user_id}\"", kind);
            let target = target_of(reading, &list, targets);
            let to_kind = target.map_or(TableKind::Hash, |(_, kind)| kind);
            let key = read_key(reading, &list, "key", "\"person:{follower_id}\"", to_kind);
            let bytes = list.text(reading, "bytes").map(|text| text.text);
            let chunk = list.number(reading, "chunk", 1..CHUNK_MAX + 1).unwrap_or(CHUNK);
            Some(ListMap { name: name?, relation: relation?, owner: owner?, to: target?.0, key: key?, bytes, chunk })
        })
        .collect()
}

/// An attribute and a link of one name would be told apart by nobody; links of one name are a list.
fn check_names(
    reading: &mut Reading<'_>,
    section: &Section<'_, '_>,
    attributes: &[(String, ColumnName)],
    links: &[Option<LinkMap>],
    lists: &[Option<ListMap>],
) {
    let mut taken: HashMap<&str, &str> = HashMap::new();
    let attributes = attributes.iter().map(|(name, _)| (&name[..], "an attribute"));
    let lists = lists.iter().flatten().map(|list| (&list.name[..], "a list"));
    let mut links: Vec<&str> = links.iter().flatten().map(|link| &link.name[..]).collect();
    links.sort_unstable();
    links.dedup();
    let links = links.into_iter().map(|name| (name, "a link"));
    for (name, what) in attributes.chain(links).chain(lists) {
        if let Some(other) = taken.insert(name, what) {
            let text =
                format!("the table has {other} \"{name}\" and {what} of the same name; rename one of them");
            reading.wrong(section.span.clone(), text);
        }
    }
}
