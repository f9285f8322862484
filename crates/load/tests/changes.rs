//! Loads that are repeated, and skipped if nothing has changed.

mod support;

use std::time::{Duration, Instant};

use kelix_load::{Last, Map, Options, Problem, Progress, Report, Watch, load, load_if_changed};
use rusqlite::Connection;
use support::postgres::Postgres;
use support::{Files, Keeper, lines, origin, parsed};

/// How long it may take until a file is old enough. It takes two seconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn map(changed: Option<&str>, rows: &str) -> Map {
    let changed = changed.map_or(String::new(), |query| format!("changed = \"{query}\"\n"));
    parsed(&format!("dataset = \"d\"\n{changed}[[table]]\nname = \"t\"\nkey = \"{{id}}\"\n{rows}\n"))
}

const QUERY: &str = "query = \"select id from t\"";

/// Loads from one source into one store.
struct Loading {
    address: String,
    keeper: Keeper,
    last: Option<Last>,
}

impl Loading {
    fn from(address: String) -> Loading {
        Loading { address, keeper: Keeper::default(), last: None }
    }

    fn try_load(&mut self, map: &Map, watch: &mut dyn Watch) -> Result<Report, Problem> {
        let Loading { address, keeper, last } = self;
        keeper.items.clear();
        load_if_changed(&origin(address), map, Options::default(), keeper, last, watch)
    }

    /// Loads, and tells whether anything was.
    #[track_caller]
    fn loads(&mut self, map: &Map) -> bool {
        let begun = self.keeper.begun;
        let report = self.try_load(map, &mut ()).unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!((report.unchanged, self.keeper.begun), (self.keeper.begun == begun, self.keeper.finished));
        assert_eq!(Some(report.generation), self.keeper.in_force.generation);
        assert!(!report.unchanged || (report.rows == 0 && report.tables.is_empty()), "{report:?}");
        !report.unchanged
    }

    /// Loads until what was changed is old enough to tell that it is not changed any more.
    #[track_caller]
    fn loads_until_it_is_skipped(&mut self, map: &Map) {
        let began = Instant::now();
        assert!(self.loads(map));
        while self.loads(map) {
            assert!(began.elapsed() < PATIENCE, "never skipped");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!self.loads(map));
    }
}

/// Does something as soon as the first row was read, behind the snapshot.
struct Meddler<'m>(Option<&'m dyn Fn()>);

impl Watch for Meddler<'_> {
    fn at(&mut self, _: &Progress<'_>) {
        if let Some(meddle) = self.0.take() {
            meddle();
        }
    }
}

#[test]
fn postgres_tells_by_a_query() {
    let postgres = Postgres::start();
    postgres.run("create table t (id int, at int); insert into t values (1, 1)");
    let mut loading = Loading::from(postgres.address());
    let map_of = |changed: &str| map(Some(changed), QUERY);
    let by_time = map_of("select count(*), max(at) from t; ");
    assert!(loading.loads(&by_time));
    assert!(!loading.loads(&by_time) && !loading.loads(&by_time));
    postgres.run("insert into t values (2, 2)");
    assert!(loading.loads(&by_time) && !loading.loads(&by_time));
    assert_eq!(loading.keeper.keys("t").len(), 0);
    // What changes while it is loaded is loaded the next time.
    postgres.run("insert into t values (3, 3)");
    let meddle = || postgres.run("insert into t values (4, 4)");
    assert!(!loading.try_load(&by_time, &mut Meddler(Some(&meddle))).unwrap().unchanged);
    assert_eq!(loading.keeper.keys("t"), ["1", "2", "3"]);
    assert!(loading.loads(&by_time));
    assert_eq!(loading.keeper.keys("t"), ["1", "2", "3", "4"]);
    assert!(!loading.loads(&by_time));
    // Null is an answer, too, and not the same as an empty text.
    let texts = ["select null", "select ''", "select 1 where false"].map(map_of);
    for map in &texts {
        assert!(loading.loads(map) && !loading.loads(map));
    }
    // Without a query all is loaded each time.
    let without = map(None, QUERY);
    assert!(loading.loads(&without) && loading.loads(&without));
}

#[test]
fn a_load_that_fails_is_not_the_last_one() {
    let postgres = Postgres::start();
    postgres.run("create table t (id int); insert into t values (1)");
    let mut loading = Loading::from(postgres.address());
    let map = map(Some("select count(*) from t"), QUERY);
    assert!(loading.loads(&map));
    postgres.run("insert into t values (null)");
    for _ in 0..2 {
        assert!(matches!(loading.try_load(&map, &mut ()), Err(Problem::Rows(_))));
    }
    postgres.run("update t set id = 2 where id is null");
    assert!(loading.loads(&map) && !loading.loads(&map));
}

#[test]
fn another_map_and_another_store_are_loaded() {
    let postgres = Postgres::start();
    postgres.run("create table t (id int, name text); insert into t values (1, 'Ada')");
    let mut loading = Loading::from(postgres.address());
    let query = Some("select count(*) from t");
    let (one, other) =
        (map(query, QUERY), map(query, "query = \"select * from t\"\nattributes = [\"name\"]"));
    assert!(loading.loads(&one) && loading.loads(&other) && !loading.loads(&other));
    // Somebody else has loaded, or the server has begun anew.
    loading.keeper.in_force.generation = Some(17);
    assert!(loading.loads(&other) && !loading.loads(&other));
    loading.keeper.in_force.store = "another".into();
    assert!(loading.loads(&other) && !loading.loads(&other));
    loading.keeper.in_force.generation = None;
    assert!(loading.loads(&other));
}

#[test]
fn wrong_queries_are_errors_of_the_map() {
    let postgres = Postgres::start();
    postgres.run("create table t (id int)");
    let files = Files::new(&[("t.csv", "id\n1\n")]);
    let path = files.path().join("t.db");
    Connection::open(&path).unwrap().execute_batch("create table t (id int)").unwrap();
    let sqlite = format!("sqlite:{}", path.display());
    let said = |address: &str, changed: &str, rows: &str| {
        let checked = Options { check_only: true, ..Options::default() };
        let problem = load(&origin(address), &map(Some(changed), rows), checked, None, &mut ()).unwrap_err();
        assert!(matches!(problem, Problem::Map(_)), "{problem}");
        lines(&problem)
    };
    let postgres = postgres.address();
    assert_eq!(
        said(&postgres, "select max(at) from nobody", QUERY),
        ["the map, changed: PostgreSQL refuses its query: relation \"nobody\" does not exist"]
    );
    assert_eq!(
        said(&postgres, "delete from t returning id", QUERY),
        ["the map, changed: PostgreSQL refuses its query: cannot execute DELETE in a read-only transaction"]
    );
    assert_eq!(said(&postgres, "delete from t", QUERY), ["the map, changed: its query gives no rows"]);
    assert_eq!(
        said(&postgres, "select $1::int", QUERY),
        ["the map, changed: its query has parameters ($1), for which there are no values"]
    );
    // What else is wrong with the map is told with it.
    assert_eq!(
        said(&postgres, "select 1 / 0", "query = \"select ID as nothing from t\""),
        [
            "the map, changed: PostgreSQL refuses its query: division by zero",
            "t, column id: the map wants it for key, and there is no such column; there are nothing"
        ]
    );
    assert_eq!(
        said(&sqlite, "select max(at) from t", QUERY),
        [
            "the map, changed: SQLite refuses its query: no such column: at in select max(at) from t at offset 11"
        ]
    );
    assert_eq!(
        said(&sqlite, "delete from t returning id", QUERY),
        ["the map, changed: SQLite refuses its query: attempt to write a readonly database"]
    );
    assert_eq!(
        said(path.with_file_name("t.csv").to_str().unwrap(), "select 1", ""),
        [
            "the map, changed: files take no query: whether they have changed is told by their sizes and times; leave it out"
        ]
    );
}

#[test]
fn files_tell_by_sizes_and_times() {
    let files = Files::new(&[("t.csv", "id\n1\n"), ("other.csv", "id\n1\n")]);
    let mut loading = Loading::from(files.path().to_str().unwrap().into());
    let map = map(None, "");
    loading.loads_until_it_is_skipped(&map);
    // A file that the map does not name may change.
    files.write("other.csv", b"id\n2\n");
    assert!(!loading.loads(&map));
    files.write("t.csv", b"id\n2\n");
    loading.loads_until_it_is_skipped(&map);
    // Another file under the name, with the size and time of the one before.
    let new = files.write("new.csv", b"id\n3\n");
    let time = files.path().join("t.csv").metadata().unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&new).unwrap().set_modified(time).unwrap();
    std::fs::rename(&new, files.path().join("t.csv")).unwrap();
    assert!(loading.loads(&map));
    assert_eq!(loading.keeper.keys("t"), ["3"]);
}

#[test]
fn sqlite_tells_by_a_query_or_by_its_files() {
    for journal in ["delete", "wal"] {
        let files = Files::new(&[]);
        let path = files.path().join("t.db");
        let database = Connection::open(&path).unwrap();
        let run = |statements: &str| database.execute_batch(statements).unwrap();
        run(&format!(
            "pragma journal_mode = {journal}; create table t (id int, at int); insert into t values (1, 1)"
        ));
        let mut loading = Loading::from(format!("sqlite:{}", path.display()));
        let by_query = map(Some("select count(*), max(at), null from t"), QUERY);
        assert!(loading.loads(&by_query) && !loading.loads(&by_query));
        run("insert into t values (2, 1)");
        assert!(loading.loads(&by_query) && !loading.loads(&by_query));
        let by_times = map(None, QUERY);
        loading.loads_until_it_is_skipped(&by_times);
        run("update t set id = 3 where id = 2");
        loading.loads_until_it_is_skipped(&by_times);
        // Nobody else has the database open any more.
        run("update t set id = 4 where id = 3");
        drop(database);
        loading.loads_until_it_is_skipped(&by_times);
        Connection::open(&path).unwrap().execute_batch("delete from t where id = 4").unwrap();
        assert!(loading.loads(&by_times), "{journal}");
        assert_eq!(loading.keeper.keys("t"), ["1"]);
    }
}

/// Gives up after so many looks.
struct Leaver(std::cell::Cell<u32>);

impl Watch for Leaver {
    fn at(&mut self, _: &Progress<'_>) {}

    fn gives_up(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

#[test]
fn a_load_that_is_given_up_leaves_nothing() {
    let rows: String = (0..50_000).map(|id| format!("{id}\n")).collect();
    let files = Files::new(&[("t.csv", &format!("id\n{rows}"))]);
    let mut ended = 0;
    for looks in 1.. {
        let mut loading = Loading::from(files.path().to_str().unwrap().into());
        match loading.try_load(&map(None, ""), &mut Leaver(looks.into())) {
            Err(Problem::GivenUp) => {
                assert_eq!((loading.keeper.finished, loading.keeper.abandoned), (0, loading.keeper.begun))
            }
            other => {
                assert_eq!((other.unwrap().rows, loading.keeper.finished), (50_000, 1));
                break;
            }
        }
        assert_eq!(loading.last, None);
        ended += loading.keeper.begun;
    }
    assert!(ended > 1, "given up while it was built, too");
}
