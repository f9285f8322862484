//! What the tests of loading share: a store that keeps what it is given, files, a PostgreSQL of one's own.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod postgres;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kelix_load::{
    Building, Field, InForce, Map, Options, Origin, Problem, Report, Rows, Store, Summary, TableSpec, load,
};
use tempfile::TempDir;

/// A link: table, key and bytes.
pub type Link = (String, Vec<u8>, Vec<u8>);

/// An item as a store was given it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Kept {
    pub attributes: BTreeMap<String, Vec<u8>>,
    pub links: Vec<(String, Link)>,
    pub expires_in_ms: Option<u64>,
}

impl Kept {
    /// An attribute as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(|bytes| std::str::from_utf8(bytes).expect("text"))
    }

    /// The links of a name, as `table/key`.
    pub fn links(&self, name: &str) -> Vec<String> {
        let own = self.links.iter().filter(|(own, _)| own == name);
        own.map(|(_, (table, key, _))| format!("{table}/{}", String::from_utf8_lossy(key))).collect()
    }
}

/// A store that keeps what it is given.
#[derive(Default)]
pub struct Keeper {
    pub free_bytes: Option<u64>,
    /// What is told to be in force.
    pub in_force: InForce,
    pub dataset: String,
    pub tables: Vec<TableSpec>,
    pub items: BTreeMap<(String, Vec<u8>), Kept>,
    pub begun: u32,
    pub finished: u32,
    pub abandoned: u32,
    /// Fails when so many items are there.
    pub fails_at: Option<usize>,
}

impl Keeper {
    /// The item of a key that has to be there.
    #[track_caller]
    pub fn item(&self, table: &str, key: impl AsRef<[u8]>) -> &Kept {
        let key = key.as_ref();
        let found = self.items.get(&(table.to_string(), key.to_vec()));
        found.unwrap_or_else(|| {
            panic!("no {table}/{:?} in {:?}", String::from_utf8_lossy(key), self.items.keys())
        })
    }

    /// The keys of a table, as text.
    pub fn keys(&self, table: &str) -> Vec<String> {
        let own = self.items.keys().filter(|(own, _)| own == table);
        own.map(|(_, key)| String::from_utf8_lossy(key).into_owned()).collect()
    }
}

impl Store for Keeper {
    fn free_bytes(&mut self) -> kelix::Result<u64> {
        Ok(self.free_bytes.unwrap_or(1 << 40))
    }

    fn in_force(&mut self, _: &str) -> kelix::Result<InForce> {
        Ok(self.in_force.clone())
    }

    fn begin<'s>(&'s mut self, dataset: &str, tables: &[TableSpec]) -> kelix::Result<Box<dyn Building + 's>> {
        self.dataset = dataset.into();
        self.tables = tables.to_vec();
        self.begun += 1;
        self.abandoned += 1;
        Ok(Box::new(Keeping(self)))
    }
}

/// Tables that are being built.
struct Keeping<'k>(&'k mut Keeper);

impl Building for Keeping<'_> {
    fn put(&mut self, table: usize, rows: &Rows) -> kelix::Result<()> {
        let spec = self.0.tables[table].clone();
        let name = |name: u16| spec.names[usize::from(name)].clone();
        for row in rows.iter() {
            let mut item = Kept { expires_in_ms: row.expires_in_ms(), ..Kept::default() };
            for field in row.fields() {
                match field {
                    Field::Bytes { name: own, bytes } => {
                        drop(item.attributes.insert(name(own), bytes.to_vec()))
                    }
                    Field::Link { name: own, table, key, bytes } => {
                        let to = self.0.tables[usize::from(table)].name.clone();
                        item.links.push((name(own), (to, key.to_vec(), bytes.to_vec())));
                    }
                }
            }
            let before = self.0.items.insert((spec.name.clone(), row.key().to_vec()), item);
            assert_eq!(before, None, "a key came twice");
        }
        match self.0.fails_at.is_some_and(|most| self.0.items.len() >= most) {
            true => Err(kelix::Error::new(kelix::ErrorKind::OutOfMemory, "put", "full")),
            false => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> kelix::Result<Summary> {
        self.0.finished += 1;
        self.0.abandoned -= 1;
        let generation = self.0.in_force.generation.unwrap_or(0) + 1;
        self.0.in_force.generation = Some(generation);
        Ok(Summary { generation, items: self.0.items.len() as u64 })
    }
}

/// A directory with files.
pub struct Files {
    directory: TempDir,
}

impl Files {
    pub fn new(files: &[(&str, &str)]) -> Files {
        let directory = tempfile::Builder::new().prefix("kelix-load-").tempdir().expect("a directory");
        let files_in = Files { directory };
        for (name, text) in files {
            files_in.write(name, text.as_bytes());
        }
        files_in
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// The directory, or a file of it, as a source.
    pub fn origin(&self, name: &str) -> Origin {
        origin(self.path().join(name).to_str().expect("a name"))
    }

    /// What a load from the directory gives.
    #[track_caller]
    pub fn load(&self, map: &str, options: Options) -> Result<(Keeper, Report), Problem> {
        let mut keeper = Keeper::default();
        let report = load(&self.origin(""), &parsed(map), options, Some(&mut keeper), &mut ())?;
        assert_eq!((keeper.begun, keeper.finished, keeper.abandoned), (1, 1, 0));
        Ok((keeper, report))
    }

    /// The same of one that has to be refused: what is said, line by line.
    #[track_caller]
    pub fn refused(&self, map: &str) -> Vec<String> {
        lines(&self.load(map, Options::default()).map(|(_, report)| report).expect_err("refused"))
    }
}

/// A source by its address.
pub fn origin(address: &str) -> Origin {
    Origin { address: address.into(), ..Origin::default() }
}

/// A map that has to be right.
#[track_caller]
pub fn parsed(map: &str) -> Map {
    Map::parse("map.toml", map).unwrap_or_else(|findings| panic!("{findings}"))
}

/// What a problem says, line by line.
pub fn lines(problem: &Problem) -> Vec<String> {
    problem.to_string().lines().map(str::to_string).collect()
}
