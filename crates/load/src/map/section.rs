//! Sections of a TOML file, read with the line of whatever is wrong.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::findings::{Finding, Findings};

/// The file, and what is wrong with it.
pub(super) struct Reading<'t> {
    pub name: &'t str,
    pub text: &'t str,
    pub findings: Findings,
}

impl Reading<'_> {
    /// Notes something wrong at a place.
    pub fn wrong(&mut self, span: Range<usize>, text: impl Into<String>) {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        let (source, text) = (self.name.to_string(), text.into());
        self.findings.add(|| Finding { source, place: Some(format!("line {line}")), column: None, text });
    }
}

/// A section: a table of TOML, of which each key is asked for by name.
pub(super) struct Section<'s, 't> {
    table: &'s DeTable<'t>,
    /// Where it begins.
    pub span: Range<usize>,
    /// What it is called in messages.
    what: &'static str,
    known: Vec<&'static str>,
}

/// A text, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub text: String,
    pub span: Range<usize>,
}

fn a_kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a section",
    }
}

impl<'s, 't> Section<'s, 't> {
    /// A section that may have these keys; any other is wrong.
    pub fn new(
        reading: &mut Reading<'_>,
        what: &'static str,
        table: &'s DeTable<'t>,
        span: Range<usize>,
        known: &[&[&'static str]],
    ) -> Section<'s, 't> {
        let known = known.concat();
        let mut unknown: Vec<_> = table.keys().filter(|key| !known.contains(&&**key.get_ref())).collect();
        unknown.sort_by_key(|key| key.span().start);
        for key in unknown {
            let text = unknown_key(key.get_ref(), what, &known);
            reading.wrong(key.span(), text);
        }
        Section { table, span, what, known }
    }

    fn get(&self, key: &'static str) -> Option<&'s Spanned<DeValue<'t>>> {
        debug_assert!(self.known.contains(&key), "{key}");
        self.table.get(key)
    }

    /// Where the value of a key stands, if there is one; of sections, the first.
    pub fn span_of(&self, key: &'static str) -> Option<Range<usize>> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::Array(entries) => entries.first().map(Spanned::span).or(Some(value.span())),
            _ => Some(value.span()),
        }
    }

    fn other_kind(&self, reading: &mut Reading<'_>, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let kind = a_kind_of(value.get_ref());
        reading.wrong(value.span(), format!("{key} of {} is {kind}, and has to be {wanted}", self.what));
    }

    /// A text that may be left out, and is not empty.
    pub fn text(&self, reading: &mut Reading<'_>, key: &'static str) -> Option<Text> {
        let text = self.any_text(reading, key)?;
        if text.text.is_empty() {
            reading.wrong(text.span, format!("{key} of {} is empty", self.what));
            return None;
        }
        Some(text)
    }

    /// A text that may be left out, and may be empty.
    pub fn any_text(&self, reading: &mut Reading<'_>, key: &'static str) -> Option<Text> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(Text { text: text.to_string(), span: value.span() }),
            _ => {
                self.other_kind(reading, key, value, "a text in quotes");
                None
            }
        }
    }

    /// A text that has to be there.
    pub fn needed(&self, reading: &mut Reading<'_>, key: &'static str, example: &str) -> Option<Text> {
        if self.get(key).is_none() {
            reading.wrong(
                self.span.clone(),
                format!("{} has no {key}; it needs one, as in {key} = {example}", self.what),
            );
        }
        self.text(reading, key)
    }

    /// A whole number of a range, that may be left out.
    pub fn number(&self, reading: &mut Reading<'_>, key: &'static str, range: Range<usize>) -> Option<usize> {
        let value = self.get(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = (range.start, range.end - 1);
            self.other_or_outside(reading, key, value, least, most);
        }
        number
    }

    fn other_or_outside(
        &self,
        reading: &mut Reading<'_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        least: usize,
        most: usize,
    ) {
        match value.get_ref() {
            DeValue::Integer(number) => {
                let text =
                    format!("{key} of {} is {number}, and has to be from {least} to {most}", self.what);
                reading.wrong(value.span(), text);
            }
            _ => self.other_kind(reading, key, value, "a whole number"),
        }
    }

    /// The entries of an array that may be left out.
    pub fn array(
        &self,
        reading: &mut Reading<'_>,
        key: &'static str,
        wanted: &str,
    ) -> &'s [Spanned<DeValue<'t>>] {
        match self.get(key) {
            None => &[],
            Some(value) => match value.get_ref() {
                DeValue::Array(entries) => entries,
                _ => {
                    self.other_kind(reading, key, value, wanted);
                    &[]
                }
            },
        }
    }

    /// The sections that stand under `[[key]]`.
    pub fn sections(
        &self,
        reading: &mut Reading<'_>,
        key: &'static str,
    ) -> Vec<(&'s DeTable<'t>, Range<usize>)> {
        let wanted = "sections, each under [[...]]";
        let mut sections = Vec::new();
        for entry in self.array(reading, key, wanted) {
            match entry.get_ref() {
                DeValue::Table(table) => sections.push((table, entry.span())),
                _ => self.other_kind(reading, key, entry, wanted),
            }
        }
        sections
    }
}

/// What is said of a key that nobody knows.
fn unknown_key(key: &str, what: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(near) => format!("{what} has no key \"{key}\"; perhaps {near} is meant"),
        None => format!("{what} has no key \"{key}\"; there are {}", known.join(", ")),
    }
}

/// Of some names that which is most like another, if one is like it at all.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near =
        names.map(|other| (strsim::damerau_levenshtein(name, other), other)).min_by_key(|(far, _)| *far)?;
    let (far, other) = near;
    (far <= name.chars().count().max(other.chars().count()) / 2).then_some(other)
}
