//! Loads from SQLite, and maps that are suggested for it.

mod support;

use kelix_load::{Map, Options, Report, load, suggest};
use rusqlite::Connection;
use support::{Files, Keeper, lines, origin, parsed};

const SCHEMA: &str = "
    create table departments (code text primary key, title text);
    create table people (
        id integer primary key, name text not null, boss_id integer references people,
        department_code text references DEPARTMENTS (CODE), photo blob, size real);
    create table follows (user_id integer references people, follower_id integer references people,
        primary key (user_id, follower_id));
    create table log (line text);
    insert into departments values ('r', 'research'), ('s', null);
    insert into people values (1, 'Ada', null, 'r', x'00ff', 1.5), (2, 'Bob', 1, null, null, 2), (3, 'Zo\u{eb}', 2, 's', x'', -1e300);
    insert into follows values (1, 2), (1, 3), (2, 1);";

fn database(schema: &str) -> (Files, String) {
    let files = Files::new(&[]);
    let path = files.path().join("company.db");
    Connection::open(&path).unwrap().execute_batch(schema).unwrap();
    let address = format!("sqlite:{}", path.display());
    (files, address)
}

#[track_caller]
fn loaded(address: &str, map: &Map) -> (Keeper, Report) {
    let mut keeper = Keeper::default();
    let report = load(&origin(address), map, Options::default(), Some(&mut keeper), &mut ());
    (keeper, report.unwrap_or_else(|problem| panic!("{problem}")))
}

#[test]
fn values_of_all_kinds() {
    let (_files, address) = database(SCHEMA);
    let map = "dataset = \"d\"\n[[table]]\nname = \"people\"\nquery = \"select * from people;\"\nkey = \"{id}\"\n\
               attributes = [\"name\", \"photo\", \"size\"]\n";
    let (keeper, _) = loaded(&address, &parsed(map));
    let attribute =
        |key: &str, name: &str| keeper.item("people", key).attributes.get(name).map(|bytes| &bytes[..]);
    assert_eq!(attribute("1", "photo"), Some(&b"\x00\xff"[..]));
    assert_eq!((attribute("2", "photo"), attribute("3", "photo")), (None, Some(&b""[..])));
    assert_eq!(
        (attribute("1", "size"), attribute("2", "size"), attribute("3", "size")),
        (Some(&b"1.5"[..]), Some(&b"2.0"[..]), Some(&b"-1.0e+300"[..]))
    );
    assert_eq!(attribute("3", "name"), Some("Zo\u{eb}".as_bytes()));
}

#[test]
fn a_suggested_map_is_loaded_as_it_is() {
    let (_files, address) = database(SCHEMA);
    let map = suggest(&origin(&address)).unwrap();
    let (keeper, report) = loaded(&address, &parsed(&map));
    assert_eq!(report.tables.iter().map(|(_, items)| items).sum::<u64>(), 2 + 3 + 2 + 3, "{map}\n{report:?}");
    let bob = keeper.item("people", "2");
    assert_eq!((bob.links("boss"), bob.links("department").len()), (vec!["people/1".to_string()], 0));
    assert_eq!(keeper.item("people", "1").links("department"), ["departments/r"]);
    assert_eq!(keeper.item("people", "1").links("follower"), ["people.follower/1/0"]);
    assert_eq!(keeper.item("people.follower", "1/0").links("item"), ["people/2", "people/3"]);
    assert_eq!(keeper.item("people.user", "1/0").links("item"), ["people/2"]);
    assert!(map.contains("# log has no primary key, so its rows have no keys: left out."), "{map}");
}

#[test]
fn what_is_wrong_is_said() {
    let (files, address) = database(SCHEMA);
    let said = |map: &str| {
        let map = format!("dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{{id}}\"\n{map}\n");
        let problem = load(&origin(&address), &parsed(&map), Options::default(), None, &mut ()).unwrap_err();
        lines(&problem)
    };
    assert_eq!(said(""), ["the map, table t: it does not say where its rows are; say query"]);
    assert_eq!(
        said("file = \"a.csv\""),
        ["the map, table t: the source is a database, which has no files; say query"]
    );
    assert_eq!(
        said("query = \"select id from nobody\""),
        ["the map, table t: SQLite refuses its query: no such table: nobody"]
    );
    assert_eq!(
        said("query = \"select name from people\""),
        ["t, column id: the map wants it for key, and there is no such column; there are name"]
    );
    assert_eq!(
        said("query = \"delete from people returning id\""),
        ["the query of t failed in DIR/company.db: attempt to write a readonly database"]
            .map(|text| text.replace("DIR", files.path().to_str().unwrap()))
    );
    assert_eq!(said("query = \"select 1 as id from people\"").len(), 2);
    assert!(
        said("query = \"select null as id from people\"")[0].starts_with("t, row 1, column id: it is null")
    );

    let missing = load(
        &origin("sqlite:/nonexistent.db"),
        &parsed("dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{id}\"\n"),
        Options::default(),
        None,
        &mut (),
    );
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .starts_with("cannot read /nonexistent.db with SQLite: unable to open")
    );
    files.write("no.db", b"this is no database, however long it may be");
    let address = format!("sqlite:{}", files.path().join("no.db").display());
    assert!(suggest(&origin(&address)).unwrap_err().to_string().contains("not a database"));
    assert!(suggest(&files.origin("")).unwrap_err().to_string().contains("a map is suggested for postgres"));
}

#[test]
fn foreign_keys_of_several_columns() {
    let (_files, address) = database(
        "create table places (country text, code text, name text, primary key (country, code));
         create table visits (id integer primary key, land text, place text, foreign key (place, land) references places (code, country));
         insert into places values ('ee', 't', 'Tallinn');
         insert into visits values (1, 'ee', 't'), (2, null, 't');",
    );
    let (keeper, _) = loaded(&address, &parsed(&suggest(&origin(&address)).unwrap()));
    assert_eq!(keeper.item("visits", "1").links("places"), ["places/ee/t"]);
    assert!(keeper.item("visits", "2").links.is_empty());
}
