//! The rows.

use std::net::Ipv4Addr;
use std::time::Duration;

use kelix::{
    Client, ClientTls, Credentials, FabricChoice, Identity, Path, Session, SessionOptions, Table, TableKind,
    Values,
};
use kelix_fabric::tcp::ServerTls;
use kelix_server::ServerConfig;

use super::echo::Echo;
use crate::store::{Numbers, Store, key_of, memory_for, put_all, put_records, verify};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::interleave::{compare, compared as compared_times, median, take_turns};
use kelix_report::report::{Row, Sense, as_rate, compared};

/// Blocks of an echo that is placed.
const PLACED: usize = 5;
/// Gets of a batch, sent at once.
const BATCH: usize = 64;
/// Bytes of a READ frame and of the answer with an item of the benchmark's records.
const READ_BYTES: (usize, usize) = (16, 80);
/// The same of a get by message: the frame, the ring's indicator, the request or reply.
const MESSAGE_BYTES: (usize, usize) = (48, 104);

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Between two records that are got one after the other; a prime, so that all of them come.
const UNKNOWN_STEP: u64 = 7919;

fn session(store: &Store, path: Path, table: &str) -> Result<(Session, Table), String> {
    let options = SessionOptions::default().fabric(FabricChoice::Tcp).path(path);
    let mut session = store.client.session_with(options).map_err(text)?;
    let table = session.table(table).map_err(text)?;
    Ok((session, table))
}

/// Gets over TCP, one at a time and many at once, beside an echo.
pub(super) fn tcp(store: &mut Store) -> Result<Vec<Row>, String> {
    let (rounds, records) = (store.rounds, store.records);
    // So few that the pointer cache has them all, and so many that the processor's caches have not.
    let hot = records.min(100_000);
    let mut rows = Vec::new();
    for (id, name, path, (request, reply)) in [
        ("tcp_get_echo", "get by cached pointer over TCP / a bare echo", Path::Pointer, READ_BYTES),
        ("tcp_get_message", "get by message over TCP / a bare echo", Path::Message, MESSAGE_BYTES),
    ] {
        let (mut session, table) = session(store, path, "records")?;
        // An echo is as fast as its placement: on its client's core it waits for no other core to wake, on
        // another one it may be answering while its client still sends. Both are timed first, and none is
        // pinned beside ours, since whoever is moved about between two blocks is slow for a while.
        let last = cores() - 1;
        let echo = |core| Echo::start(request, reply, core).map_err(text);
        let mut echoes = [echo(Some(last))?, echo(Some(0))?];
        pin(last);
        let placed = take_turns(PLACED, 2, |side| echoes[side].exchange(1).map(|()| 1));
        unpin();
        drop(echoes);
        let placed = placed.map_err(text)?;
        let [near, apart] = [0, 1].map(|side| median(&placed[side]));
        let mut echo = echo(None)?;
        let mut value = [0; 32];
        let mut record = 0;
        let mut get = |session: &mut Session| {
            let found = session.get_into(table, &key_of(record), &mut value).expect("a get");
            assert_eq!(found.map(|(bytes, _)| bytes), Some(32), "record {record}");
            verify(&value, record);
            record = (record + 1) % hot;
            1
        };
        if path == Path::Pointer {
            // Once by the index, so that pointers are known.
            (0..hot).for_each(|_| {
                get(&mut session);
            });
        }
        let before = session.cost();
        let times = take_turns(rounds, 2, |side| {
            if side == 0 { Ok(get(&mut session)) } else { echo.exchange(1).map(|()| 1) }
        });
        let times = times.map_err(text)?;
        // The fastest counts: a block in which the echo slept must not make a row hold.
        let faster: Vec<f64> = times[1].iter().map(|free| free.min(near).min(apart)).collect();
        let comparison = compared_times(&times[0], &faster);
        let cost = session.cost().since(before);
        let note = format!(
            "{} READs, {} messages; the echo on its client's core {near:.0} ns, on another {apart:.0} ns, left alone {:.0} ns, of which the fastest counts; ",
            cost.reads,
            cost.messages,
            median(&times[1]),
        );
        rows.push(compared(id, name, "ns", 1.3, comparison, &note));
    }
    let name = "get of an unknown record over TCP / by READs of a bucket and an item";
    rows.push(unknown(store, ("tcp_get_unknown", name), ("records", records), key_of)?);
    let (in_order, count) = ("in order", records / 8);
    let table = store.session.create_table_of(TableKind::Numbers, in_order).map_err(text)?;
    let key = u64::to_be_bytes;
    put_all(&mut store.session, table, (0..count).map(|of| (key(of), store.walk.value_of(of))))?;
    let name = "get of an unknown record of an ordered table over TCP / by READs of a leaf and an item";
    rows.push(unknown(store, ("tcp_ordered_unknown", name), (in_order, count), key)?);
    rows.push(pipeline(store, rounds, hot)?);
    Ok(rows)
}

/// Gets over TCP of records that the session has not met before, so that it knows no pointer: by a FIND,
/// beside READs.
fn unknown<K: AsRef<[u8]>>(
    store: &Store,
    (id, name): (&'static str, &'static str),
    (table, records): (&str, u64),
    key: impl Fn(u64) -> K,
) -> Result<Row, String> {
    let [mut found, mut read] =
        [Path::Auto, Path::Index].map(|path| session(store, path, table).map(|of| (of, 0, 0)));
    let mut get = |side: usize| {
        let ((session, table), record, gets) = match if side == 0 { &mut found } else { &mut read } {
            Ok(of) => of,
            Err(why) => return Err(why.clone()),
        };
        let mut value = [0; 32];
        let of = session.get_into(*table, key(*record).as_ref(), &mut value).map_err(text)?;
        (of.map(|(bytes, _)| bytes) == Some(32)).then_some(()).ok_or("a record is missing")?;
        verify(&value, *record);
        // Nobody meets one twice before all of them have had their turn.
        *record = (*record + UNKNOWN_STEP) % records;
        *gets += 1;
        Ok(1)
    };
    let times = take_turns(store.rounds, 2, &mut get)?;
    let ((session, ..), _, gets) = found?;
    let cost = session.cost();
    let note = format!("{gets} gets, {} READs, {} messages; ", cost.reads, cost.messages);
    Ok(compared(id, name, "ns", 0.7, compared_times(&times[0], &times[1]), &note))
}

/// Batches of puts by a session that may ask again, which keeps them and lets the shard keep its answers,
/// beside one that does not.
pub(super) fn retries(store: &mut Store) -> Result<Row, String> {
    let (records, rounds, table, walk) = (store.records, store.rounds, store.table, store.walk);
    let put = |retry_for: Duration| {
        let options = SessionOptions::default().retry_for(retry_for);
        let mut session = store.client.session_with(options).map_err(text)?;
        let (wanted, mut batch) = (Numbers(3).records(records, 1 << 16), 0);
        Ok::<_, String>(move || {
            let first = batch * BATCH % wanted.len();
            batch += 1;
            put_records(&mut session, table, walk, &wanted[first..first + BATCH]).expect("a batch");
            BATCH as u64
        })
    };
    let (mut again, mut once) = (put(Duration::from_secs(1))?, put(Duration::ZERO)?);
    let comparison = compare(rounds, &mut again, &mut once);
    let name = "puts in batches of 64 that may be asked again / that may not";
    Ok(compared("retries", name, "ns a put", 1.1, comparison, ""))
}

/// A certificate for 127.0.0.1, its key, and who has issued it: known to everybody, and good for measuring
/// only.
const CERTIFICATE: [(&str, &[u8]); 3] = [
    ("server.pem", include_bytes!("tls/server.pem")),
    ("server.key", include_bytes!("tls/server.key")),
    ("authority.pem", include_bytes!("tls/authority.pem")),
];

/// Many gets at once with TLS, beside the same without, each from a server of its own.
pub(super) fn tls(plain: &mut Store, records: u64) -> Result<Row, String> {
    let folder = plain.directory.join("tls");
    std::fs::create_dir_all(&folder).map_err(text)?;
    for (name, bytes) in CERTIFICATE {
        std::fs::write(folder.join(name), bytes).map_err(text)?;
    }
    let [certificates, key, authority] = CERTIFICATE.map(|(name, _)| folder.join(name));
    let own = Identity { certificates: &certificates, key: &key };
    let config = ServerConfig {
        memory_bytes: memory_for(records),
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        tls: Some(ServerTls::load(own, None).map_err(text)?),
        pin: false,
        ..ServerConfig::default()
    };
    let mut store = Store::start("tls", config)?;
    store.load(records)?;
    let credentials = Credentials::default().tls(Some(ClientTls::load(&authority, None).map_err(text)?));
    store.client = Client::connect_with(&store.directory, credentials).map_err(text)?;
    let hot = records.min(100_000);
    let (mut sealed, mut open) = (Batches::new(&store, hot)?, Batches::new(plain, hot)?);
    let comparison = as_rate(compare(plain.rounds, &mut || sealed.get(), &mut || open.get()));
    let row = compared(
        "tls",
        "64 gets at once with TLS / without",
        "ns an item",
        0.0,
        comparison,
        "ratio of rates; ",
    );
    Ok(Row { sense: Sense::AtLeast, wanted: None, ..row })
}

/// Gets of many records at once, over TCP by cached pointers.
struct Batches {
    session: Session,
    table: Table,
    values: Values,
    record: u64,
    hot: u64,
}

impl Batches {
    fn new(store: &Store, hot: u64) -> Result<Batches, String> {
        let (session, table) = session(store, Path::Pointer, "records")?;
        let mut batches = Batches { session, table, values: Values::new(), record: 0, hot };
        // Once by the index, so that pointers are known.
        (0..hot).step_by(BATCH).for_each(|_| {
            batches.get();
        });
        Ok(batches)
    }

    fn get(&mut self) -> u64 {
        let records: Vec<u64> = (0..BATCH as u64).map(|step| (self.record + step) % self.hot).collect();
        let keys: Vec<[u8; 16]> = records.iter().map(|record| key_of(*record)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        self.session.multi_get_into(self.table, &keys, &mut self.values).expect("a batch");
        for (index, record) in records.iter().enumerate() {
            verify(self.values.get(index).expect("a record"), *record);
        }
        self.record = (self.record + BATCH as u64) % self.hot;
        BATCH as u64
    }
}

fn pipeline(store: &Store, rounds: usize, hot: u64) -> Result<Row, String> {
    let mut batches = Batches::new(store, hot)?;
    let mut echo = Echo::start(READ_BYTES.0, READ_BYTES.1, None).map_err(text)?;
    let before = batches.session.cost();
    let comparison = as_rate(compare(rounds, &mut || batches.get(), &mut || {
        echo.exchange(BATCH).expect("an echo");
        BATCH as u64
    }));
    let cost = batches.session.cost().since(before);
    let note = format!("{} READs, {} messages; ratio of rates; ", cost.reads, cost.messages);
    let row = compared(
        "tcp_pipeline",
        "64 gets at once over TCP / a bare echo of 64 at once",
        "ns an item",
        0.5,
        comparison,
        &note,
    );
    Ok(Row { sense: Sense::AtLeast, ..row })
}
