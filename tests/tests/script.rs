//! The script of operations that each language's binding runs (`tests/script`), in Rust.

use std::collections::HashMap;
use std::time::Duration;

use kelix::{
    CompareAndSet, Completion, Error, Frontier, Item, NewItem, NewTable, Outcome, PausedBuild, Rows, Scan,
    Session, Table, TableKind, Values, Version, View, Walk,
};
use kelix_tests::process::ServerProgram;
use kelix_tests::{RunDir, fabrics, session_over, watchdog};

type Word = Vec<u8>;
type Done = Result<Vec<Word>, Failure>;

/// What an operation ended with that is no result.
enum Failure {
    /// An error of the store.
    Store(Error),
    /// The script asks for what this cannot do.
    Script(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

fn pattern(bytes: usize) -> Word {
    (0..bytes as u64).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

fn number(word: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(word);
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// The words of a line.
fn words(line: &str) -> Vec<Word> {
    let (mut words, mut bytes) = (Vec::new(), line.bytes().peekable());
    while let Some(first) = bytes.next() {
        match first {
            b' ' => {}
            b'"' => {
                let mut word = Vec::new();
                loop {
                    match bytes.next().expect("a quote that is closed") {
                        b'"' => break,
                        b'\\' => match bytes.next().expect("something behind \\") {
                            b'x' => {
                                let digits =
                                    [bytes.next(), bytes.next()].map(|digit| digit.expect("two digits"));
                                let digits = String::from_utf8_lossy(&digits).into_owned();
                                word.push(u8::from_str_radix(&digits, 16).expect("two digits"));
                            }
                            other => word.push(other),
                        },
                        other => word.push(other),
                    }
                }
                words.push(word);
            }
            first => {
                let mut word = vec![first];
                while let Some(next) = bytes.next_if(|next| *next != b' ') {
                    word.push(next);
                }
                words.push(expand(word));
            }
        }
    }
    words
}

/// The bytes that a word without quotes stands for.
fn expand(word: Word) -> Word {
    let parts: Vec<String> = text(&word).split(':').map(String::from).collect();
    match &parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pattern", bytes] => pattern(number(bytes.as_bytes()) as usize),
        ["tail", bytes, last] => {
            let (bytes, last) = (number(bytes.as_bytes()) as usize, number(last.as_bytes()) as usize);
            pattern(bytes)[bytes - last..].to_vec()
        }
        ["long-key", bytes] => vec![b'k'; number(bytes.as_bytes()) as usize],
        _ => word,
    }
}

/// A word before a sign, and what is behind it.
fn split<'w>(word: &'w [u8], sign: &str) -> Option<(&'w [u8], &'w [u8])> {
    let at = word.windows(sign.len()).position(|part| part == sign.as_bytes())?;
    Some((&word[..at], &word[at + sign.len()..]))
}

fn kind(word: &[u8]) -> TableKind {
    match word {
        b"hash" => TableKind::Hash,
        b"inline" => TableKind::Inline,
        b"numbers" => TableKind::Numbers,
        b"strings" => TableKind::Strings,
        _ => panic!("no kind: {}", text(word)),
    }
}

/// A key of a table as its bytes.
fn key(table: Table, word: &[u8]) -> Word {
    match table.kind().has_numbers() && word.iter().all(u8::is_ascii_digit) {
        true => number(word).to_be_bytes().to_vec(),
        false => word.to_vec(),
    }
}

/// The same as a word.
fn shown(table: Table, key: &[u8]) -> Word {
    match key.try_into() {
        Ok(bytes) if table.kind().has_numbers() => u64::from_be_bytes(bytes).to_string().into_bytes(),
        _ => key.to_vec(),
    }
}

fn some_or(found: Option<&[u8]>, absent: &str) -> Word {
    found.map_or_else(|| absent.as_bytes().to_vec(), <[u8]>::to_vec)
}

fn yes(is_so: bool) -> Done {
    Ok(vec![if is_so { b"yes".to_vec() } else { b"no".to_vec() }])
}

fn ok() -> Done {
    Ok(vec![b"ok".to_vec()])
}

fn all_or_nothing(words: Vec<Word>) -> Vec<Word> {
    if words.is_empty() { vec![b"nothing".to_vec()] } else { words }
}

struct Runner {
    session: Session,
    tables: HashMap<String, Table>,
    versions: HashMap<Word, Version>,
    views: HashMap<Word, View>,
    build: Option<(PausedBuild, Vec<String>)>,
}

impl Runner {
    fn table(&mut self, name: &[u8]) -> Result<Table, Failure> {
        let name = text(name);
        match self.tables.get(&name) {
            Some(table) => Ok(*table),
            None => Ok(*self.tables.entry(name.clone()).or_insert(self.session.table(&name)?)),
        }
    }

    fn version(&self, word: &[u8]) -> Option<Version> {
        if word == b"absent" { None } else { Some(self.versions[word]) }
    }

    fn told(version: Option<Version>) -> Word {
        version.map_or(b"absent".to_vec(), |version| format!("{version}").into_bytes())
    }

    fn item(&mut self, table: &[u8], name: &[u8]) -> Result<Item, Failure> {
        let table = self.table(table)?;
        let item = self.session.get(table, &key(table, name))?;
        item.ok_or_else(|| Failure::Script(format!("no item {}", text(name))))
    }

    fn scan_of(&mut self, table: Table, options: &[&[u8]]) -> Scan {
        let (mut scan, mut from, mut to) = (Scan::all(), None, None);
        for option in options {
            match split(option, "=") {
                Some((b"prefix", prefix)) => scan = Scan::prefix(prefix),
                Some((b"from", from_key)) => from = Some(key(table, from_key)),
                Some((b"to", to_key)) => to = Some(key(table, to_key)),
                Some((b"limit", limit)) => scan = scan.limit(number(limit)),
                _ if *option == b"backwards" => scan = scan.backwards(),
                _ => panic!("no option of a scan: {}", text(option)),
            }
        }
        match (from, to) {
            (None, None) => scan,
            (Some(from), None) => scan.range(&from[..]..),
            (None, Some(to)) => scan.range(..&to[..]),
            (Some(from), Some(to)) => scan.range(&from[..]..&to[..]),
        }
    }

    fn rows(table: Table, rows: &Rows) -> Vec<Word> {
        let row = |row| [&shown(table, rows.key(row))[..], b"=", rows.value(row)].concat();
        (0..rows.len()).map(row).collect()
    }

    fn compared(compared: CompareAndSet) -> Vec<Word> {
        match compared {
            CompareAndSet::Done(None) => vec![b"done".to_vec()],
            CompareAndSet::Done(version) => vec![b"done".to_vec(), Self::told(version)],
            CompareAndSet::Mismatch(version) => vec![b"mismatch".to_vec(), Self::told(version)],
        }
    }

    fn run(&mut self, operation: &str, words: &[Word]) -> Done {
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        match (operation, &words[..]) {
            ("create", [name, of]) => {
                let table = self.session.create_table_of(kind(of), &text(name))?;
                self.tables.insert(text(name), table);
                ok()
            }
            ("open", [name]) => {
                self.session.table(&text(name)).map(drop).map_err(Failure::from).and_then(|()| ok())
            }
            ("drop", [name]) => {
                let is_dropped = self.session.drop_table(&text(name))?;
                self.tables.remove(&text(name));
                yes(is_dropped)
            }
            ("tables", []) => {
                let mut names = self.session.tables()?;
                names.sort();
                Ok(names.into_iter().map(String::into_bytes).collect())
            }
            ("put", [name, name_of_key, value, options @ ..]) => {
                let table = self.table(name)?;
                let mut item = NewItem::new().bytes("", value);
                for option in options {
                    item = match split(option, "=") {
                        Some((b"flags", flags)) => item.flags(number(flags) as u32),
                        Some((b"ends", seconds)) => item.expires_in(Duration::from_secs(number(seconds))),
                        _ => panic!("no option of a put: {}", text(option)),
                    };
                }
                let key = key(table, name_of_key);
                let version = match options.is_empty() {
                    true => self.session.put(table, &key, value)?,
                    false => self.session.put_item(table, &key, &item)?,
                };
                Ok(vec![Self::told(Some(version))])
            }
            ("get", [name, name_of_key]) => {
                let table = self.table(name)?;
                let item = self.session.get(table, &key(table, name_of_key))?;
                Ok(vec![some_or(item.as_ref().map(Item::value), "absent")])
            }
            ("version" | "flags" | "ends", [name, name_of_key]) => {
                let item = self.item(name, name_of_key)?;
                let word = match operation {
                    "version" => Self::told(Some(item.version())),
                    "flags" => item.flags().to_string().into_bytes(),
                    _ if item.expires().is_some() => b"later".to_vec(),
                    _ => b"never".to_vec(),
                };
                Ok(vec![word])
            }
            ("small", [name, name_of_key, bytes]) => {
                let (table, mut buffer) = (self.table(name)?, vec![0; number(bytes) as usize]);
                let got = self.session.get_into(table, &key(table, name_of_key), &mut buffer)?;
                Ok(vec![some_or(got.map(|(length, _)| &buffer[..length]), "absent")])
            }
            ("delete", [name, name_of_key]) => {
                let table = self.table(name)?;
                yes(self.session.delete(table, &key(table, name_of_key))?)
            }
            ("cas", [name, name_of_key, expected, value]) => {
                let (table, expected) = (self.table(name)?, self.version(expected));
                let key = key(table, name_of_key);
                Ok(Self::compared(self.session.compare_and_set(table, &key, expected, value)?))
            }
            ("cad", [name, name_of_key, expected]) => {
                let (table, expected) = (self.table(name)?, self.version(expected).expect("a version"));
                let key = key(table, name_of_key);
                Ok(Self::compared(self.session.compare_and_delete(table, &key, expected)?))
            }
            ("range", [name, name_of_key, from, bytes]) => {
                let (table, mut buffer) = (self.table(name)?, vec![0; number(bytes) as usize]);
                let key = key(table, name_of_key);
                let part = self.session.get_range_into(table, &key, number(from), &mut buffer)?;
                Ok(part.map_or(vec![b"absent".to_vec()], |part| {
                    vec![buffer[..part.copied].to_vec(), part.value_bytes.to_string().into_bytes()]
                }))
            }
            ("mget", [name, keys @ ..]) => {
                let (table, mut values) = (self.table(name)?, Values::new());
                let keys: Vec<Word> = keys.iter().map(|word| key(table, word)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                self.session.multi_get_into(table, &keys, &mut values)?;
                let found = (0..keys.len()).map(|index| some_or(values.get(index), "absent"));
                Ok(all_or_nothing(found.collect()))
            }
            ("mput", [name, items @ ..]) => {
                let table = self.table(name)?;
                let items = items.iter().map(|item| split(item, "=").expect("a key and a value"));
                let items: Vec<(Word, &[u8])> =
                    items.map(|(word, value)| (key(table, word), value)).collect();
                let items: Vec<(&[u8], &[u8])> =
                    items.iter().map(|(key, value)| (&key[..], *value)).collect();
                for put in self.session.multi_put(table, &items)? {
                    put?;
                }
                ok()
            }
            ("scan", [name, options @ ..]) => {
                let (table, mut rows) = (self.table(name)?, Rows::new());
                let scan = self.scan_of(table, options);
                self.session.scan_into(table, &scan, &mut rows)?;
                Ok(all_or_nothing(Self::rows(table, &rows)))
            }
            ("pages", [name, most]) => {
                let (table, mut rows, mut all) = (self.table(name)?, Rows::new(), Vec::new());
                let mut scan = self.session.open_scan(table, &Scan::all())?;
                while scan.next_rows(&mut self.session, &mut rows, number(most))? || !rows.is_empty() {
                    all.extend(Self::rows(table, &rows));
                }
                Ok(all_or_nothing(all))
            }
            ("count", [name, options @ ..]) => {
                let table = self.table(name)?;
                let scan = self.scan_of(table, options);
                Ok(vec![self.session.count(table, &scan)?.to_string().into_bytes()])
            }
            ("columns", [name, attribute]) => {
                let (table, attribute) = (self.table(name)?, text(attribute));
                let mut rows = Rows::with_attributes(&[&attribute]);
                self.session.scan_into(table, &Scan::all(), &mut rows)?;
                Ok((0..rows.len()).map(|row| some_or(rows.attribute(row, 0), "absent")).collect())
            }
            ("item", [name, name_of_key, attributes @ ..]) => {
                let (table, mut item) = (self.table(name)?, NewItem::new());
                for attribute in attributes {
                    item = match (split(attribute, "->"), split(attribute, "=")) {
                        (Some((name, target)), _) => {
                            let (of, target) = split(target, "/").expect("a table and a key");
                            let of = self.table(of)?;
                            item.link(&text(name), of, &key(of, target))
                        }
                        (None, Some((name, bytes))) => item.bytes(&text(name), bytes),
                        _ => panic!("no attribute: {}", text(attribute)),
                    };
                }
                let version = self.session.put_item(table, &key(table, name_of_key), &item)?;
                Ok(vec![Self::told(Some(version))])
            }
            ("attribute", [name, name_of_key, attribute]) => {
                let item = self.item(name, name_of_key)?;
                Ok(vec![some_or(item.bytes(&text(attribute)), "absent")])
            }
            ("links", [name, name_of_key, link]) => {
                let item = self.item(name, name_of_key)?;
                let mut links = Vec::new();
                for link in item.links(&text(link)) {
                    let table = self.session.table_by_id(link.table);
                    let name = self.session.table_name(link.table)?.unwrap_or_default();
                    links.push([name.as_bytes(), b"/", &shown(table, link.key)].concat());
                }
                Ok(all_or_nothing(links))
            }
            ("follow", [name, name_of_key, link]) => {
                let item = self.item(name, name_of_key)?;
                let found = self.session.follow(&item, &text(link))?;
                Ok(vec![some_or(found.as_ref().map(Item::key), "absent")])
            }
            ("walk", [name, name_of_key, links, depth]) => {
                let table = self.table(name)?;
                let links = text(links);
                let links: Vec<&str> = links.split(',').collect();
                let walk = Walk::along(&links).to_depth(number(depth) as u32);
                let from = key(table, name_of_key);
                let mut walker = self.session.begin_walk(&[(table, &from)], &walk)?;
                let mut keys = Vec::new();
                loop {
                    let arrivals = walker.next_batch(&mut self.session, 2)?;
                    if arrivals.is_empty() {
                        return Ok(all_or_nothing(keys));
                    }
                    keys.extend(arrivals.iter().map(|arrival| arrival.item.key().to_vec()));
                }
            }
            ("visit", [name, keys @ ..]) => {
                let (table, mut frontier, mut items) = (self.table(name)?, Frontier::new(), Vec::new());
                keys.iter().for_each(|word| frontier.add(table, &key(table, word)));
                self.session.visit_batch(&frontier, 0..keys.len(), &mut items)?;
                Ok(items.iter().map(|item| some_or(item.as_ref().map(Item::key), "absent")).collect())
            }
            ("build", [dataset, tables @ ..]) => {
                let tables = tables.iter().map(|table| split(table, ":").expect("a name and a kind"));
                let tables: Vec<(String, TableKind)> =
                    tables.map(|(name, of)| (text(name), kind(of))).collect();
                let new: Vec<NewTable<'_>> =
                    tables.iter().map(|(name, kind)| NewTable::new(name, *kind)).collect();
                let build = self.session.build(&text(dataset), &new)?.pause();
                self.build = Some((build, tables.into_iter().map(|(name, _)| name).collect()));
                ok()
            }
            ("bput", [name, name_of_key, value]) => {
                let (build, names) = self.build.take().expect("a build");
                let index = names.iter().position(|of| *of == text(name)).expect("a table of the build");
                let mut build = build.resume(&mut self.session)?;
                let table = build.table(index);
                build.put(index, &key(table, name_of_key), value)?;
                self.build = Some((build.pause(), names));
                ok()
            }
            ("finish", []) => {
                let (build, _) = self.build.take().expect("a build");
                let built = build.resume(&mut self.session)?.finish()?;
                Ok(vec![built.items.to_string().into_bytes()])
            }
            ("abandon", []) => {
                let (build, _) = self.build.take().expect("a build");
                drop(build.resume(&mut self.session)?);
                ok()
            }
            ("forget", [dataset]) => yes(self.session.drop_dataset(&text(dataset))?),
            ("view", [dataset, name]) => {
                let view = self.session.view(&text(dataset))?;
                self.views.insert(name.to_vec(), view);
                ok()
            }
            ("vget", [view, name, name_of_key]) => {
                let table = self.views[*view].table(&text(name))?;
                let item = self.session.get(table, &key(table, name_of_key))?;
                Ok(vec![some_or(item.as_ref().map(Item::value), "absent")])
            }
            ("close", [view]) => {
                self.views.remove(*view).expect("a view");
                ok()
            }
            ("submit", [b"put", name, name_of_key, value, own]) => {
                let table = self.table(name)?;
                let ticket = self.session.submit_put(table, &key(table, name_of_key), value)?;
                self.session.set_number(ticket, number(own));
                ok()
            }
            ("submit", [what @ (b"get" | b"delete"), name, name_of_key, own]) => {
                let table = self.table(name)?;
                let key = key(table, name_of_key);
                let ticket = match *what {
                    b"get" => self.session.submit_get(table, &key)?,
                    _ => self.session.submit_delete(table, &key)?,
                };
                self.session.set_number(ticket, number(own));
                ok()
            }
            ("poll", []) => {
                let (mut completions, mut ended) = (Vec::new(), Vec::new());
                while self.session.outstanding() > 0 {
                    self.session.poll_at_most(&mut completions, 1)?;
                }
                for Completion { number, outcome, .. } in completions {
                    let told = match outcome? {
                        Outcome::Written(_) => b"written".to_vec(),
                        Outcome::Item(item) => some_or(item.as_ref().map(Item::value), "absent"),
                        Outcome::Deleted(is_deleted) => yes(is_deleted)?.remove(0),
                        other => {
                            return Err(Failure::Script(format!(
                                "an outcome that was not asked for: {other:?}"
                            )));
                        }
                    };
                    ended.push([number.to_string().as_bytes(), b"=", &told].concat());
                }
                ended.sort();
                Ok(all_or_nothing(ended))
            }
            _ => Err(Failure::Script("no such operation".into())),
        }
    }

    /// Whether a result is the wanted one. Versions of what was written are noted, and others compared.
    fn is_wanted(&mut self, operation: &str, got: &[Word], wanted: &[Word]) -> bool {
        let writes = ["put", "item"].contains(&operation) || wanted[0] == b"done";
        got.len() == wanted.len()
            && got.iter().zip(wanted).all(|(got, wanted)| match wanted.first() {
                Some(b'$') if writes => {
                    self.versions.insert(wanted.clone(), Version(number(got)));
                    true
                }
                Some(b'$') => {
                    self.versions.get(wanted).copied().map(Some).map(Self::told).as_ref() == Some(got)
                }
                _ => got == wanted,
            })
    }

    /// Runs a line, which says what is to come of it.
    fn check(&mut self, line: &str) -> Result<(), String> {
        let (call, wanted) = line.split_once(" -> ").expect("an operation and its result");
        let (call, wanted) = (words(call), words(wanted));
        let operation = text(&call[0]);
        let shown =
            |words: &[Word]| words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>();
        match self.run(&operation, &call[1..]) {
            Ok(got) if self.is_wanted(&operation, &got, &wanted) => Ok(()),
            Ok(got) => Err(format!("it brings {:.200}", shown(&got).join(" "))),
            Err(Failure::Script(why)) => Err(why),
            Err(Failure::Store(error)) => {
                let mut told = vec![b"error".to_vec(), error.kind().name().as_bytes().to_vec()];
                told.extend(error.needed_bytes().map(|bytes| bytes.to_string().into_bytes()));
                if told == wanted { Ok(()) } else { Err(error.to_string()) }
            }
        }
    }
}

#[test]
fn the_script_of_all_languages_runs_in_rust() {
    let _watchdog = watchdog("the script");
    for fabric in fabrics() {
        let run = RunDir::new();
        let program = env!("CARGO_BIN_EXE_kelix-test-server");
        let program = ServerProgram {
            program,
            directory: run.path(),
            shards: 2,
            memory_bytes: 256 << 20,
            take_over: false,
        };
        let server = program.serve();
        let session = session_over(fabric, &server.client(), Default::default());
        let mut runner = Runner {
            session,
            tables: HashMap::new(),
            versions: HashMap::new(),
            views: HashMap::new(),
            build: None,
        };
        let script = include_str!("../script/operations.txt");
        let lines = script.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let wrong: Vec<String> = lines
            .filter_map(|line| runner.check(line).err().map(|why| format!("{line}\n    {why}")))
            .collect();
        assert!(wrong.is_empty(), "over {fabric:?}:\n{}", wrong.join("\n"));
    }
}
