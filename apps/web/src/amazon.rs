//! Products and reviews from files of Amazon Review Data 2018, or others in the same format: `meta_*.json.gz`
//! with a product a line, and `*_5.json.gz` with a review a line, both as JSON.
//!
//! A line that cannot be read ends it, with its file and number: a shop with holes is worse than none. What
//! refers to products that are in none of the files is left out and counted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use kelix_report::progress::show as progress;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::catalogue::{Catalogue, Product, Review, User, is_id, price};

/// Longest texts that are taken in, in bytes; what is behind that is cut off.
const TEXT_BYTES_MAX: usize = 20_000;
/// Bytes of the name of a character, and the semicolon behind it.
const NAME_BYTES_MAX: usize = 10;
/// Lines between two words about how far it is.
const LINES_A_WORD: usize = 10_000;

/// A line about a product.
#[derive(Deserialize)]
struct ProductLine {
    asin: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    brand: String,
    #[serde(default)]
    price: String,
    #[serde(default)]
    description: Paragraphs,
    #[serde(default)]
    also_buy: Vec<String>,
}

/// One text or several: files of one year have the one, others the other.
#[derive(Deserialize)]
#[serde(untagged)]
enum Paragraphs {
    One(String),
    Several(Vec<String>),
}

impl Default for Paragraphs {
    fn default() -> Self {
        Paragraphs::Several(Vec::new())
    }
}

/// A line about a review.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewLine {
    asin: String,
    #[serde(rename = "reviewerID")]
    reviewer_id: String,
    reviewer_name: Option<String>,
    overall: f64,
    summary: Option<String>,
    review_text: Option<String>,
    unix_review_time: i64,
}

/// Reads all such files of a folder. Whatever is left out is said in words.
pub fn read(folder: &Path) -> Result<(Catalogue, Vec<String>), String> {
    let files = files(folder)?;
    let of_kind = |is: fn(&str) -> bool| {
        let named =
            files.iter().filter(move |file| is(&file.file_name().unwrap_or_default().to_string_lossy()));
        named.collect::<Vec<_>>()
    };
    let products = of_kind(|name| plain_name(name).is_some_and(|name| name.starts_with("meta_")));
    let reviews = of_kind(|name| plain_name(name).is_some_and(|name| name.ends_with("_5")));
    if products.is_empty() || reviews.is_empty() {
        let folder = folder.display();
        return Err(format!(
            "{folder} has no meta_*.json.gz with products, or no *_5.json.gz with reviews of them"
        ));
    }
    let mut reader = Reader::default();
    reader.catalogue.origin = format!("from {}", folder.display());
    for file in products {
        lines(file, |line| reader.product(line))?;
    }
    reader.link();
    for file in reviews {
        lines(file, |line| reader.review(line))?;
    }
    progress("");
    if reader.catalogue.products.is_empty() {
        return Err(format!("{}: its files have no products", folder.display()));
    }
    let said = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let left_out = [
        said(reader.again, "products were left out that came again"),
        said(reader.foreign, "reviews were left out of products that no file has"),
    ];
    Ok((reader.catalogue, left_out.into_iter().flatten().collect()))
}

/// The name of a file without its ending, if it is one of JSON lines.
fn plain_name(name: &str) -> Option<&str> {
    name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".json")
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error| format!("cannot read {}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(cannot)?;
    let mut files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    files.iter_mut().for_each(|files| files.sort());
    files.map_err(cannot)
}

/// Reads a file line by line.
fn lines<L: DeserializeOwned>(
    file: &Path,
    mut take: impl FnMut(L) -> Result<(), String>,
) -> Result<(), String> {
    let name = file.display();
    let opened = File::open(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let plain: Box<dyn Read> = match file.extension().is_some_and(|ending| ending == "gz") {
        true => Box::new(MultiGzDecoder::new(opened)),
        false => Box::new(opened),
    };
    let mut reader = BufReader::with_capacity(1 << 16, plain);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|error| format!("{name}, line {number}: {error}"))? == 0 {
            return Ok(());
        }
        if number % LINES_A_WORD == 0 {
            progress(&format!("reading {name}: {number} lines"));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed = serde_json::from_slice(&line).map_err(|error| error.to_string());
        parsed.and_then(&mut take).map_err(|error| format!("{name}, line {number}: {error}"))?;
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    catalogue: Catalogue,
    products: HashMap<String, usize>,
    users: HashMap<String, usize>,
    /// The ids of what each product was bought with.
    bought: Vec<Vec<String>>,
    again: usize,
    foreign: usize,
}

fn check_id(what: &str, id: &str) -> Result<(), String> {
    if is_id(id) {
        return Ok(());
    }
    Err(format!(
        "the {what} {id:?} is not one: it has 1 to 64 letters, digits, hyphens, points and underscores"
    ))
}

impl Reader {
    fn product(&mut self, line: ProductLine) -> Result<(), String> {
        check_id("asin", &line.asin)?;
        if self.products.contains_key(&line.asin) {
            self.again += 1;
            return Ok(());
        }
        let description = match line.description {
            Paragraphs::One(text) => text,
            Paragraphs::Several(texts) => texts.join(" "),
        };
        let title = text_of(&line.title);
        self.products.insert(line.asin.clone(), self.catalogue.products.len());
        self.bought.push(line.also_buy);
        self.catalogue.products.push(Product {
            title: if title.is_empty() { line.asin.clone() } else { title },
            id: line.asin,
            brand: text_of(&line.brand),
            // Some files have parts of a web page there.
            price: price(&line.price).unwrap_or_default(),
            description: text_of(&description),
            bought: Vec::new(),
        });
        Ok(())
    }

    /// Lets the ids of other products lead to them, once all are there.
    fn link(&mut self) {
        for (index, others) in std::mem::take(&mut self.bought).into_iter().enumerate() {
            let bought = &mut self.catalogue.products[index].bought;
            for other in others.iter().filter_map(|other| self.products.get(other).copied()) {
                if other != index && !bought.contains(&other) {
                    bought.push(other);
                }
            }
        }
    }

    fn review(&mut self, line: ReviewLine) -> Result<(), String> {
        check_id("asin", &line.asin)?;
        check_id("reviewerID", &line.reviewer_id)?;
        let rating = (1..=5).find(|stars| f64::from(*stars) == line.overall);
        let rating =
            rating.ok_or_else(|| format!("overall is {}, not a number from 1 to 5", line.overall))?;
        let Some(product) = self.products.get(&line.asin).copied() else {
            self.foreign += 1;
            return Ok(());
        };
        let users = &mut self.catalogue.users;
        let user = *self.users.entry(line.reviewer_id.clone()).or_insert_with(|| {
            let name = text_of(&line.reviewer_name.unwrap_or_default());
            let name = if name.is_empty() { "somebody".into() } else { name };
            users.push(User { id: line.reviewer_id, name });
            users.len() - 1
        });
        self.catalogue.reviews.push(Review {
            product,
            user,
            rating,
            time: line.unix_review_time,
            summary: text_of(&line.summary.unwrap_or_default()),
            text: text_of(&line.review_text.unwrap_or_default()),
        });
        Ok(())
    }
}

/// The text of what is a piece of a web page in these files: without tags, with characters for their names,
/// and with single spaces.
fn text_of(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        text += &rest[..at];
        rest = &rest[at..];
        let (replaced, bytes) = tag(rest).or_else(|| character(rest)).unwrap_or((rest.chars().next(), 1));
        text.extend(replaced);
        rest = &rest[bytes..];
    }
    text += rest;
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

/// A tag that something begins with: a space, and its length.
fn tag(html: &str) -> Option<(Option<char>, usize)> {
    let inner = html.strip_prefix('<')?;
    let begins = inner.starts_with(|first: char| first.is_ascii_alphabetic() || "/!".contains(first));
    let end = inner.find('>').filter(|_| begins)?;
    Some((Some(' '), end + 2))
}

/// The name of a character that something begins with: the character, and its length.
fn character(html: &str) -> Option<(Option<char>, usize)> {
    let name = html.strip_prefix('&')?;
    let name = &name[..name.bytes().take(NAME_BYTES_MAX).position(|byte| byte == b';')?];
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        name => {
            let number = name.strip_prefix('#')?;
            let hexadecimal =
                number.strip_prefix(['x', 'X']).map(|digits| u32::from_str_radix(digits, 16).ok());
            char::from_u32(hexadecimal.unwrap_or_else(|| number.parse().ok())?)?
        }
    };
    Some((Some(character), name.len() + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_pages_become_text() {
        let known = [
            (" Maggiano&#39;s &amp; Co&#x2e; ", "Maggiano's & Co."),
            ("<div class=\"a\"> <br>Box of 50<br /><br/>cards</div>", "Box of 50 cards"),
            ("I <3 it & 2 < 3 &lt;b&gt;", "I <3 it & 2 < 3 <b>"),
            ("&unknown; &#xfffffff; &#0", "&unknown; &#xfffffff; &#0"),
            ("<a not closed", "<a not closed"),
            ("\u{e4}&\u{e4};", "\u{e4}&\u{e4};"),
        ];
        for (html, text) in known {
            assert_eq!(text_of(html), text);
        }
        assert_eq!(text_of(&"\u{e4}".repeat(20_001)).len(), TEXT_BYTES_MAX);
    }
}
