//! A whole load from PostgreSQL against `COPY` of the same rows to a client that reads and drops them.

use std::time::{Duration, Instant};

use kelix::SessionOptions;
use kelix_load::{Map, Options, Origin, Progress, SessionStore, Watch, load};
use kelix_postgres::Postgres;
use kelix_server::ServerConfig;

use super::FULL_RECORDS;
use super::chain::text;
use super::generations::{by_turns, timed, wait_until_one_is_left};
use crate::store::Store;
use kelix_report::report::{Row, Sense, as_rate, compared};

/// Rows of the database, and rounds. A small run is a check that all works.
const PEOPLE: u64 = 1_000_000;
const FULL: usize = 7;
const SMALL: usize = 2;
/// The server's memory for a person: in two generations, and what their neighbours leave.
const PERSON_BYTES: u64 = 1536;
/// So that a generation that was superseded goes at once.
const LEASE: Duration = Duration::from_millis(100);

const QUERY: &str = "select id, name, dept_id, boss_id from people";

/// People whose bosses are anybody, in no order that memory has.
fn fill(postgres: &Postgres, people: u64) -> Result<(), String> {
    postgres.run(&format!(
        "create unlogged table people (id bigint primary key, name text not null, dept_id int not null, boss_id bigint not null);
         insert into people select n, rpad('person ' || n || ' ', 80, md5(n::text)), n % 1000, (n * 7919 + 1) % {people}
             from generate_series(0::bigint, {people} - 1) n"
    ))?;
    postgres.run("vacuum freeze people")?;
    postgres.run("analyze people; checkpoint")
}

fn map() -> Result<Map, String> {
    let map = format!(
        "dataset = \"company\"\n[[table]]\nname = \"people\"\nquery = \"{QUERY}\"\nkey = \"person:{{id}}\"\n\
         attributes = [\"name\", \"dept_id\"]\n[[table.link]]\nname = \"boss\"\nto = \"people\"\nkey = \"person:{{boss_id}}\"\n"
    );
    Map::parse("the benchmark's map", &map).map_err(text)
}

/// When each part of a load began.
#[derive(Default)]
struct Parts {
    checking: Option<Instant>,
    putting: Option<Instant>,
    /// When the last item was put: what follows is links, and the switch.
    finishing: Option<Instant>,
}

impl Watch for Parts {
    fn at(&mut self, progress: &Progress<'_>) {
        let now = Instant::now();
        match progress {
            Progress::Reading { .. } => {}
            Progress::Checking => self.checking = Some(now),
            Progress::Building { .. } => {
                self.putting.get_or_insert(now);
                self.finishing = Some(now);
            }
        }
    }
}

/// Where the rows are and where they go.
struct Loading {
    postgres: Postgres,
    origin: Origin,
    map: Map,
    store: Store,
    target: SessionStore,
    people: u64,
    /// What the last load was doing for how long.
    parts: String,
}

impl Loading {
    fn start(people: u64) -> Result<Loading, String> {
        let postgres = Postgres::start_with(&["listen_addresses=", "autovacuum=off"], |_| {})?;
        fill(&postgres, people)?;
        let config = ServerConfig {
            memory_bytes: (people * PERSON_BYTES).max(256 << 20),
            view_lease: LEASE,
            ..ServerConfig::default()
        };
        let store = Store::start("load", config)?;
        let target = SessionStore::new(store.client.clone(), SessionOptions::default()).map_err(text)?;
        let origin = Origin { address: postgres.address(), ..Origin::default() };
        Ok(Loading { postgres, origin, map: map()?, store, target, people, parts: String::new() })
    }

    /// Loads everything, and waits until what was loaded before is gone. Nanoseconds a row, without the
    /// waiting.
    fn load(&mut self) -> Result<f64, String> {
        let Loading { origin, map, target, people, .. } = self;
        let (mut parts, began) = (Parts::default(), Instant::now());
        let mut items = 0;
        let time = timed(*people, || {
            let report = load(origin, map, Options::default(), Some(target), &mut parts).map_err(text)?;
            items = report.tables.iter().map(|(_, items)| items).sum();
            Ok(())
        })?;
        if items != *people {
            return Err(format!("{items} people were loaded of {people}"));
        }
        self.tell(began, &parts);
        wait_until_one_is_left(&self.store)?;
        Ok(time)
    }

    fn tell(&mut self, began: Instant, parts: &Parts) {
        let moments = [Some(began), parts.checking, parts.putting, parts.finishing, Some(Instant::now())];
        let moments: Vec<Instant> = moments.into_iter().flatten().collect();
        let seconds = moments.windows(2).map(|two| (two[1] - two[0]).as_secs_f64());
        let parts = ["reading", "checking", "putting", "links and switch"].into_iter().zip(seconds);
        let parts: Vec<String> = parts.map(|(part, seconds)| format!("{part} {seconds:.2} s")).collect();
        self.parts = format!("of the last load {}", parts.join(", "));
    }

    /// What came is what the table says.
    fn verify(&mut self) -> Result<(), String> {
        let table = self.store.session.table("people").map_err(text)?;
        for row in self.postgres.rows(&format!("{QUERY} where id % 997 = 0"))? {
            let [Some(id), Some(name), Some(dept), Some(boss)] = &row[..] else {
                return Err("a null".into());
            };
            let session = &mut self.store.session;
            let item = session.get(table, format!("person:{id}").as_bytes()).map_err(text)?;
            let item = item.ok_or_else(|| format!("person {id} is not there"))?;
            let own = [item.bytes("name"), item.bytes("dept_id")];
            if own != [Some(name.as_bytes()), Some(dept.as_bytes())] {
                return Err(format!("person {id} is another"));
            }
            let next = session.follow(&item, "boss").map_err(text)?.ok_or("a boss is not there")?;
            if next.key() != format!("person:{boss}").as_bytes() {
                return Err(format!("person {id} has another boss"));
            }
        }
        Ok(())
    }
}

/// The row.
pub(super) fn row(records: Option<u64>) -> Result<Row, String> {
    let people = records.map_or(PEOPLE, |records| records.clamp(1000, PEOPLE));
    let rounds = if people < FULL_RECORDS { SMALL } else { FULL };
    let mut loading = Loading::start(people)?;
    // The first load finds memory that nobody has touched yet.
    loading.load()?;
    loading.verify()?;
    let bytes = loading.postgres.copy(QUERY)?;
    let loading = std::cell::RefCell::new(loading);
    let comparison = by_turns(rounds, &mut || loading.borrow_mut().load(), &mut || {
        let postgres = &loading.borrow().postgres;
        timed(people, || match postgres.copy(QUERY)? {
            copied if copied == bytes => Ok(()),
            copied => Err(format!("{copied} bytes were copied instead of {bytes}")),
        })
    })?;
    let parts = loading.into_inner().parts;
    let note = format!("{people} rows of {} bytes as COPY writes them; {parts}; ", bytes / people);
    let name = "a row of a whole load from PostgreSQL / of COPY to a client that drops it";
    Ok(Row { sense: Sense::AtLeast, ..compared("load_pg", name, "ns", 0.5, as_rate(comparison), &note) })
}
