//! Building a generation of a dataset: new tables, filled beside those that are read, and put in force at
//! once.

use std::time::Duration;

use kelix_fabric::Clock;
use kelix_types::limits::{DATASET_TABLES_MAX, FRAME_BYTES_MAX, MESSAGE_VALUE_BYTES_MAX, TABLES_MAX};
use kelix_types::{Error, ErrorKind, Result, TableId, TableKind, mark};
use kelix_wire::generation::{
    BuildRefusal, LoadedTable, NewItem as Packed, RESOLVED, any_of, decode_tables, encode_tables,
};
use kelix_wire::{Op, RequestHead, Status};

use crate::Table;
use crate::catalogue::check_name;
use crate::engine::{Patience, Pipeline, check_answer, check_key};
use crate::item::{NewAttribute, NewItem};
use crate::key::Key;
use crate::session::Session;

mod item;
mod overlay;

pub use item::ItemWriter;
use item::Writing;
use overlay::Overlays;

/// Words of items that go in one message.
const FRAME_WORDS: usize = FRAME_BYTES_MAX / 8 / 2;
/// Between two looks whether shards have answered each other.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
/// Messages to all shards that are not answered yet.
const UNDER_WAY: usize = 4;

/// A table of a generation that is to be built.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NewTable<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it holds.
    pub kind: TableKind,
    /// Clients may write to it once it is in force.
    pub overlay: bool,
}

impl<'a> NewTable<'a> {
    /// A table to which clients do not write.
    pub fn new(name: &'a str, kind: TableKind) -> NewTable<'a> {
        NewTable { name, kind, overlay: false }
    }

    /// Lets clients write to it once it is in force.
    pub fn overlay(self, overlay: bool) -> NewTable<'a> {
        NewTable { overlay, ..self }
    }
}

/// What was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Built {
    /// The generation's number.
    pub generation: u64,
    /// Items in all tables.
    pub items: u64,
    /// Links in them.
    pub links: u64,
    /// Of the items, those that clients had put into the generation before.
    pub overlays: u64,
    /// Links whose target is not there.
    pub dangling: u64,
}

/// A generation that is being built. Dropped without [`Build::finish`], it leaves nothing behind.
///
/// It goes with the connection over which it began. Where that is lost, as when another node of a cluster
/// takes over, the generation is given up, and calls end with [`ErrorKind::ViewExpired`], whose `retry` says
/// that the build can be begun anew; what was in force stays in force. An answer of [`Build::finish`] that
/// was lost is asked for again: the generation is in force then exactly if that returns `Ok`.
pub struct Build<'s> {
    session: &'s mut Session,
    state: BuildState,
}

/// A build that was set aside: it holds no borrow of its session, which can do something else meanwhile.
/// Dropped, it is given up by the server when the session ends.
pub struct PausedBuild {
    state: BuildState,
}

impl PausedBuild {
    /// Goes on with the build, in the session that began it. An error: that session's server has gone, and
    /// the build with it.
    pub fn resume(self, session: &mut Session) -> Result<Build<'_>> {
        session.catalogue.check_life(&session.engine, self.state.life, "build", "begin anew")?;
        Ok(Build { session, state: self.state })
    }
}

/// How far a build is. The one without a generation has been set aside, or is over.
#[derive(Default)]
struct BuildState {
    dataset: String,
    /// The life of the store that it is of, and how many connections the session had before the one over
    /// which it was begun: it goes with that one.
    life: u64,
    ways: u32,
    tables: Vec<LoadedTable>,
    built: Built,
    /// Items that are not sent yet, by table and shard.
    packed: Vec<Vec<u64>>,
    writing: Writing,
    under_way: Pipeline<()>,
    patience: Patience,
}

const OPERATION: &str = "build";

fn refusal(dataset: &str, tables: &[LoadedTable], why: Option<BuildRefusal>) -> Error {
    let context = match why {
        Some(BuildRefusal::UnderWay) => {
            format!("another generation of \"{dataset}\" is being built: wait for its end")
        }
        Some(BuildRefusal::NameTaken(index)) => format!(
            "the name of table \"{}\" of \"{dataset}\" is taken by another table: drop that (`kelix table drop`), or choose \
             another name",
            tables.get(index).map_or("?", |table| &table.name)
        ),
        Some(BuildRefusal::NoTables) => format!(
            "there are as many tables as there can be ({TABLES_MAX} of a kind, with those dropped ones that somebody may know yet): none is left for \"{dataset}\""
        ),
        None => format!("the server does not let \"{dataset}\" be built"),
    };
    // One whose builder has just gone ends by itself.
    let ends = matches!(why, Some(BuildRefusal::UnderWay));
    Error::unnamed(ErrorKind::InvalidArgument, context).with_retry(ends)
}

impl Drop for Build<'_> {
    fn drop(&mut self) {
        let engine = &mut self.session.engine;
        self.state.under_way.abandon(engine);
        if self.state.built.generation != 0 {
            let head = self.head(Op::Abandon, TableId::CATALOGUE);
            self.session.engine.post_unawaited(0, head, &[], &[]);
        }
    }
}

impl<'s> Build<'s> {
    /// Begins to build, in a session whose server is there.
    pub(crate) fn begin(
        session: &'s mut Session,
        dataset: &str,
        tables: &[NewTable<'_>],
    ) -> Result<Build<'s>> {
        loop {
            let state = Build::begin_state(session, dataset, tables).map_err(|error| error.of(OPERATION))?;
            let mut begun = Build { session: &mut *session, state };
            let met = begun.meet_others();
            let has_lost_connection = begun.has_lost_connection();
            match met {
                Ok(()) => {
                    let PausedBuild { state } = begun.pause();
                    return Ok(Build { session, state });
                }
                // It is given up, and nothing is in it yet: another one is as good.
                Err(_) if has_lost_connection => mark!("build begun once more"),
                Err(error) => return Err(error.of(OPERATION)),
            }
        }
    }

    /// Has the server begin a generation.
    fn begin_state(session: &mut Session, dataset: &str, tables: &[NewTable<'_>]) -> Result<BuildState> {
        check_name(dataset)?;
        tables.iter().try_for_each(|table| check_name(table.name))?;
        if tables.len() > DATASET_TABLES_MAX {
            let context =
                format!("a dataset has {DATASET_TABLES_MAX} tables at most, \"{dataset}\" {}", tables.len());
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        session.heal()?;
        let wanted: Vec<LoadedTable> = tables
            .iter()
            .map(|table| LoadedTable {
                table: TableId(0),
                name_id: any_of(table.kind),
                name: table.name.to_string(),
                overlay: table.overlay,
            })
            .collect();
        let head = RequestHead::new(Op::Build, 0, TableId::CATALOGUE);
        let answer = session.engine.call(0, head, dataset.as_bytes(), &encode_tables(&wanted))?;
        if answer.status == Status::Taken {
            return Err(refusal(dataset, &wanted, BuildRefusal::of_word(answer.version)));
        }
        check_answer(&answer)?;
        let told = answer.item.split_first().and_then(|(bytes, words)| {
            decode_tables(kelix_image::words::bytes_of(words).get(..*bytes as usize)?)
        });
        let tables = told.ok_or_else(|| {
            Error::unnamed(ErrorKind::Protocol, "the server did not say which tables it has made")
        })?;
        let state = BuildState {
            dataset: dataset.to_string(),
            life: session.engine.transport.handles(),
            ways: session.engine.connection.ways,
            built: Built { generation: answer.version, ..Built::default() },
            packed: vec![Vec::new(); tables.len() * session.engine.transport.shards()],
            writing: Writing::of(tables.len()),
            tables,
            ..BuildState::default()
        };
        Ok(state)
    }

    /// Sets the build aside, so that its session can do something else until [`PausedBuild::resume`].
    pub fn pause(mut self) -> PausedBuild {
        // What is dropped here has nothing to be given up.
        PausedBuild { state: std::mem::take(&mut self.state) }
    }

    fn head(&self, op: Op, table: TableId) -> RequestHead {
        RequestHead { argument: Some(self.state.built.generation), ..RequestHead::new(op, 0, table) }
    }

    /// Waits until the other shards know of the generation, which shard 0 tells them.
    fn meet_others(&mut self) -> Result<()> {
        for shard in 1..self.session.engine.transport.shards() {
            let mut patience = Patience::default();
            loop {
                let head = self.head(Op::Build, TableId::CATALOGUE);
                let answer = self.session.engine.call(shard, head, &[], &[])?;
                if answer.status != Status::Frozen {
                    check_answer(&answer)?;
                    break;
                }
                if self.has_lost_connection() {
                    // The shards are not told of it any more.
                    return Err(self.given_up());
                }
                self.wait_for_shards(&mut patience)?;
            }
        }
        Ok(())
    }

    /// Whether the connection is lost over which the generation was begun, and the generation with it: the
    /// server, or the one that goes on in its place, has given it up.
    fn has_lost_connection(&self) -> bool {
        self.session.engine.connection.ways != self.state.ways
    }

    fn given_up(&self) -> Error {
        let dataset = &self.state.dataset;
        let why = match self.has_lost_connection() {
            true => "the connection over which it began is lost, as where another server takes over",
            false => "it has taken too long while clients who write had to wait",
        };
        let context = format!(
            "the generation of \"{dataset}\" that was built is given up, since {why}: begin the build anew"
        );
        Error::unnamed(ErrorKind::ViewExpired, context).with_retry(true)
    }

    /// The error of a build, which says what to do about it.
    fn explain(&self, error: Error) -> Error {
        let error = if error.kind() == ErrorKind::ViewExpired { self.given_up() } else { error };
        error.of(OPERATION)
    }

    /// Waits a little for what shards tell each other; an error, if that has lasted too long.
    fn wait_for_shards(&mut self, patience: &mut Patience) -> Result<()> {
        if patience.waited(self.session.engine.transport.fabric.now_ns()) > self.session.engine.limit() {
            let context = "the server's shards do not answer each other";
            return Err(Error::unnamed(ErrorKind::TimedOut, context));
        }
        self.session.engine.connection.setup.nap(BETWEEN_LOOKS);
        Ok(())
    }

    /// One of the tables, in their order: to name it in links, and to read it before others can.
    pub fn table(&self, index: usize) -> Table {
        let server = self.session.engine.transport.handles();
        Table { id: self.state.tables[index].table, server, generation: self.state.built.generation }
    }

    /// Puts a plain item into a table.
    pub fn put(&mut self, index: usize, key: impl Key, value: &[u8]) -> Result<()> {
        let key = key.into_bytes();
        let key = key.as_ref();
        let item = Packed { key, body: value, attributes: false, expiry: None, client_flags: 0 };
        let packed = self.pack(index, item, value.len(), |body| body.copy_from_slice(value));
        packed.map_err(|error| self.explain(error))
    }

    /// Puts an item with attributes and links. Targets of links may come later. [`Build::item`] does the same
    /// without an item that is made before.
    pub fn put_item(&mut self, index: usize, key: impl Key, item: &NewItem) -> Result<()> {
        let key = key.into_bytes();
        let mut writer = self.item(index, key.as_ref());
        for (name, attribute) in &item.attributes {
            writer = match attribute {
                NewAttribute::Bytes(bytes) => writer.bytes(name, bytes),
                NewAttribute::Link { table, key, bytes } => writer.link_with(name, *table, key, bytes),
            };
        }
        writer.expiry = item.expiry;
        writer.flags(item.flags).end()
    }

    /// Begins an item with attributes and links. It is put once it is ended.
    pub fn item<'b>(&'b mut self, index: usize, key: &'b [u8]) -> ItemWriter<'b, 's> {
        ItemWriter::begin(self, index, key)
    }

    /// Adds an item, with a body of so many bytes, to those that are sent together.
    #[inline]
    fn pack(
        &mut self,
        index: usize,
        item: Packed<'_>,
        body_bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let table = self.state.tables[index].table;
        check_key(table, item.key)?;
        if body_bytes > MESSAGE_VALUE_BYTES_MAX {
            let mut body = vec![0; body_bytes];
            write(&mut body);
            return self.put_large(table, item, &body);
        }
        let (_, shard) = self.session.engine.transport.route(table, item.key);
        let at = index * self.session.engine.transport.shards() + shard;
        if self.state.packed[at].len() + item.words_with(body_bytes) > FRAME_WORDS {
            self.send(at)?;
        }
        item.push_by(&mut self.state.packed[at], body_bytes, write);
        Ok(())
    }

    /// Puts an item that is too long to be sent with others.
    fn put_large(&mut self, table: TableId, item: Packed<'_>, body: &[u8]) -> Result<()> {
        let head = RequestHead {
            expiry: item.expiry,
            client_flags: item.client_flags,
            attributes: item.attributes,
            ..self.head(Op::Put, table)
        };
        self.session.engine.write(head, item.key, body)?;
        self.state.built.items += 1;
        Ok(())
    }

    fn send(&mut self, at: usize) -> Result<()> {
        let shards = self.session.engine.transport.shards();
        let head = self.head(Op::Load, self.state.tables[at / shards].table);
        let words = std::mem::take(&mut self.state.packed[at]);
        let bytes = kelix_image::words::bytes_of(&words);
        let id = self.session.engine.post(at % shards, head, &[], bytes, &mut self.state.patience)?;
        self.session.engine.transport.send(at % shards);
        self.state.under_way.push(id, ());
        self.state.packed[at] = words;
        self.state.packed[at].clear();
        self.take_answers(UNDER_WAY)
    }

    fn take_answers(&mut self, left: usize) -> Result<()> {
        let Build { session, state } = self;
        while state.under_way.len() > left {
            let Some((answer, ())) = state.under_way.next(&mut session.engine, &mut state.patience) else {
                break;
            };
            let answer = answer?;
            check_answer(&answer)?;
            state.built.items += answer.version;
        }
        Ok(())
    }

    /// Puts the generation in force, when all of its items are there and their links lead where they are to.
    pub fn finish(self) -> Result<Built> {
        let mut build = self;
        // What clients wrote last into the generation before is not on a mirror yet.
        build.session.engine.transport.read_at_primary_only(true);
        let built = build.put_in_force().map_err(|error| build.explain(error));
        build.session.engine.transport.read_at_primary_only(false);
        built
    }

    fn put_in_force(&mut self) -> Result<Built> {
        for at in 0..self.state.packed.len() {
            if !self.state.packed[at].is_empty() {
                self.send(at)?;
            }
        }
        self.take_answers(0)?;
        let mut overlays = Overlays::of(self)?;
        overlays.take_over(self)?;
        for shard in 0..self.session.engine.transport.shards() {
            for index in 0..self.state.tables.len() {
                self.resolve(shard, self.state.tables[index].table)?;
            }
        }
        let any = self.state.tables.first().map(|first| first.table);
        for (shard, table) in
            (0..self.session.engine.transport.shards()).filter_map(|shard| Some((shard, any?)))
        {
            let (mut left, mut patience) = (u64::MAX, Patience::default());
            loop {
                let now = self.ask_about_links(shard, table, RESOLVED, &[])?.0;
                if now == 0 {
                    break;
                }
                if now < left {
                    (left, patience) = (now, Patience::default());
                }
                self.wait_for_shards(&mut patience)?;
            }
        }
        overlays.freeze(self)?;
        // Shard 0 last: with it the generation is in force.
        for shard in (0..self.session.engine.transport.shards()).rev() {
            let head = self.head(Op::Switch, TableId::CATALOGUE);
            let answer = self.session.engine.call(shard, head, &[], &[])?;
            check_answer(&answer)?;
        }
        // Where memory is out of reach of loads names are looked up from time to time; who has just built a
        // generation is to find it by them.
        self.session.catalogue.forget_names();
        Ok(std::mem::take(&mut self.state.built))
    }

    /// Lets a shard write the locations of the links in a table.
    fn resolve(&mut self, shard: usize, table: TableId) -> Result<()> {
        let (mut cursor, mut after) = (0, Vec::new());
        let mut patience = Patience::default();
        loop {
            let (next, behind) = self.ask_about_links(shard, table, cursor, &after)?;
            if next == 0 {
                return Ok(());
            }
            if (next, &behind) == (cursor, &after) {
                // It waits for other shards.
                self.wait_for_shards(&mut patience)?;
            } else {
                patience = Patience::default();
            }
            (cursor, after) = (next, behind);
        }
    }

    /// Where to go on with the links of a table.
    fn ask_about_links(
        &mut self,
        shard: usize,
        table: TableId,
        cursor: u64,
        after: &[u8],
    ) -> Result<(u64, Vec<u8>)> {
        let head = RequestHead { argument: Some(cursor), ..RequestHead::new(Op::Resolve, 0, table) };
        let answer = self.session.engine.call(shard, head, after, &[])?;
        check_answer(&answer)?;
        let [links, dangling, bytes, rest @ ..] = &answer.item[..] else {
            let context = "an answer about links that makes no sense";
            return Err(Error::unnamed(ErrorKind::Protocol, context));
        };
        self.state.built.links += links;
        self.state.built.dangling += dangling;
        let behind = kelix_image::words::bytes_of(rest).get(..*bytes as usize).unwrap_or_default();
        Ok((answer.version, behind.to_vec()))
    }
}
