//! Loads from SQLite, and maps that are suggested for it.

mod support;

use kelix_load::{Map, OnDangling, Options, Report, load, suggest};
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

#[test]
fn keys_that_the_database_holds_equal_match() {
    let (_files, address) = database(
        "create table whole (id integer primary key, n);
         create table parts (id integer primary key, whole_id real references whole, sure text references whole, any references whole (id));
         create table names (name text primary key collate nocase);
         create table padded (code text collate rtrim, place int, primary key (code, place));
         create table texts (code text primary key);
         create table uses (id integer primary key, who text references names, padded text, place real, number int references texts,
             foreign key (padded, place) references padded);
         create table own (name text primary key references names);
         create table pairs (who text references names, whole real references whole, primary key (who, whole));
         insert into whole values (1, 'x'), (2, 'y');
         insert into parts values (1, 1, '1.0', 2.0), (2, null, ' 2', '1');
         insert into names values ('Ada'), ('Bob');
         insert into padded values ('a', 1), ('b ', 2);
         insert into texts values ('1'), ('01');
         insert into uses values (1, 'ADA', 'a  ', 1.0, 1), (2, 'bob', 'b', 2, 01), (3, null, null, 2, null);
         insert into own values ('ada');
         insert into pairs values ('ada', 2), ('BOB', 1), ('Ada', 1.0);
         pragma foreign_key_check;",
    );
    let map = suggest(&origin(&address)).unwrap();
    let (keeper, report) = loaded(&address, &parsed(&map));
    assert_eq!(report.links_left_out, 0);
    let links = |table: &str, key: &str, link: &str| keeper.item(table, key).links(link);
    assert_eq!(links("parts", "1", "whole"), ["whole/1"], "{map}");
    assert_eq!(
        (links("parts", "1", "sure"), links("parts", "1", "any")),
        (vec!["whole/1".to_string()], vec!["whole/2".to_string()])
    );
    assert_eq!(
        (links("parts", "2", "sure"), links("parts", "2", "any")),
        (vec!["whole/2".to_string()], vec!["whole/1".to_string()])
    );
    assert_eq!(
        (links("uses", "1", "who"), links("uses", "2", "who")),
        (vec!["names/Ada".to_string()], vec!["names/Bob".to_string()])
    );
    assert_eq!(
        (links("uses", "1", "padded"), links("uses", "2", "padded")),
        (vec!["padded/a/1".to_string()], vec!["padded/b /2".to_string()])
    );
    assert_eq!(
        (links("uses", "1", "number"), links("uses", "2", "number")),
        (vec!["texts/1".to_string()], vec!["texts/1".to_string()])
    );
    assert!(keeper.item("uses", "3").links.is_empty());
    assert_eq!(links("own", "ada", "name"), ["names/Ada"]);
    assert_eq!(links("names.whole", "Ada/0", "item"), ["whole/1", "whole/2"]);
    assert_eq!(links("whole.names", "1/0", "item"), ["names/Ada", "names/Bob"]);
}

#[test]
fn keys_of_several_columns_are_told_apart() {
    let (_files, address) = database(
        "create table files (dir text not null, name text not null, bytes int, primary key (dir, name));
         create table uses (id integer primary key, dir text, name text, foreign key (dir, name) references files);
         create table tags (id integer primary key);
         create table tagged (dir text, name text, tag int references tags, primary key (dir, name, tag), foreign key (dir, name) references files);
         insert into files values ('a/b', 'c', 1), ('a', 'b/c', 2), ('a\\', 'c', 3), ('a', '/c', 4), ('a/', 'c', 5), ('C:\\d', 'e', 6);
         insert into uses values (1, 'a/b', 'c'), (2, 'a', 'b/c'), (3, 'a\\', 'c'), (4, 'a', '/c'), (5, 'a/', 'c'), (6, 'C:\\d', 'e');
         insert into tags values (7);
         insert into tagged values ('a/b', 'c', 7), ('a', 'b/c', 7);",
    );
    let (keeper, _) = loaded(&address, &parsed(&suggest(&origin(&address)).unwrap()));
    let keys = ["a\\/b/c", "a/b/c", "a\\\\/c", "a//c", "a\\//c", "C:\\d/e"];
    for (number, key) in (1..).zip(keys) {
        assert_eq!(keeper.item("files", key).text("bytes"), Some(&number.to_string()[..]));
        assert_eq!(keeper.item("uses", number.to_string()).links("files"), [format!("files/{key}")]);
    }
    assert_eq!(keeper.item("tags.files", "7/0").links("item"), ["files/a/b/c", "files/a\\/b/c"]);
    assert_eq!(keeper.item("files.tags", "a\\/b/c/0").links("item"), ["tags/7"]);
    // A key of one column may be put together by those that lead there.
    let map = "dataset = \"d\"\n[[table]]\nname = \"paths\"\nquery = \"select dir || '/' || name as path from files\"\nkey = \"{path}\"\n\
               [[table]]\nname = \"uses\"\nquery = \"select * from uses where id <> 2\"\nkey = \"{id}\"\n[[table.link]]\nname = \"path\"\n\
               to = \"paths\"\nkey = \"{dir}/{name}\"\n";
    let map = map
        .replace("from files", "from files where (dir, name) <> ('a', 'b/c') and (dir, name) <> ('a/', 'c')");
    let (keeper, _) = loaded(&address, &parsed(&map));
    assert_eq!(keeper.item("uses", "1").links("path"), ["paths/a/b/c"]);
}

#[test]
fn tables_with_rows_of_their_own_stay_tables() {
    let (_files, address) = database(
        "create table airports (code text primary key, name text);
         create table flights (id integer primary key, origin text references airports, destination text references airports);
         create table bookings (id integer primary key, flight int references flights, passenger text);
         create table emp (id integer primary key, boss int references emp, mentor int references emp);
         create table legs (origin text references airports, destination text references airports, primary key (origin, destination));
         create table stops (id integer primary key, origin text, destination text, foreign key (origin, destination) references legs);
         create table lanes (origin text references airports, destination text references airports, lane int, side int,
             primary key (origin, destination, lane, side));
         create table routes (origin text references airports, destination text references airports, primary key (origin, destination));
         create table ranked (origin text references airports, destination text references airports, rank int,
             primary key (origin, destination, rank));
         create table met (one int references emp, other int references emp);
         create table loose (at text); create table tied (id integer primary key, at text references loose (at));
         insert into airports values ('a', null), ('b', null);
         insert into flights values (1, 'a', 'b'); insert into bookings values (1, 1, 'Ada');
         insert into emp values (1, null, null), (2, 1, 1);
         insert into legs values ('a', 'b'); insert into stops values (1, 'a', 'b');
         insert into lanes values ('a', 'b', 1, 2); insert into routes values ('b', 'a');
         insert into ranked values ('a', 'b', 5);
         insert into met values (1, 2);",
    );
    let map = suggest(&origin(&address)).unwrap();
    let (keeper, _) = loaded(&address, &parsed(&map));
    let links = |table: &str, key: &str, link: &str| keeper.item(table, key).links(link);
    assert_eq!(
        (links("flights", "1", "origin"), links("flights", "1", "destination")),
        (vec!["airports/a".to_string()], vec!["airports/b".to_string()])
    );
    assert_eq!(links("bookings", "1", "flight"), ["flights/1"]);
    assert_eq!(
        (links("emp", "2", "boss"), links("emp", "2", "mentor")),
        (vec!["emp/1".to_string()], vec!["emp/1".to_string()])
    );
    assert_eq!(
        (links("legs", "a/b", "origin"), links("stops", "1", "legs")),
        (vec!["airports/a".to_string()], vec!["legs/a/b".to_string()])
    );
    assert_eq!(links("lanes", "a/b/1/2", "destination"), ["airports/b"]);
    assert_eq!(links("emp.other", "1/0", "item"), ["emp/2"]);
    let tables: Vec<&str> =
        keeper.tables.iter().map(|table| &table.name[..]).filter(|name| !name.contains('.')).collect();
    assert_eq!(tables, ["airports", "bookings", "emp", "flights", "lanes", "legs", "stops", "tied"], "{map}");
    // The column that a pair has beside stands at the link.
    let chunk = &keeper.items[&("airports.destination".to_string(), b"a/0".to_vec())];
    assert_eq!(chunk.links[0].1, ("airports".to_string(), b"b".to_vec(), b"5".to_vec()), "{map}");
    assert!(map.contains("# (at) names rows of loose, which are left out, so there is no link."), "{map}");
}

#[test]
fn links_that_lead_nowhere_by_their_texts_alone_are_not_left_out() {
    let (_files, address) = database(
        "pragma foreign_keys = off; create table p (id integer primary key); create table n (name text primary key collate nocase);
         create table c (id integer primary key, p real references p, n text references n);
         insert into p values (1); insert into n values ('Ada'); insert into c values (1, 1, 'ada'), (2, 5, 'Eve');",
    );
    let attempt = |p: &str, n: &str, on_dangling| {
        let map = format!(
            "dataset = \"d\"\n[[table]]\nname = \"c\"\nquery = \"select id, {p}, {n} from c\"\nkey = \"{{id}}\"\n[[table.link]]\nname = \"p\"\nto = \"p\"\n\
             key = \"{{p}}\"\n[[table]]\nname = \"p\"\nquery = \"select id from p\"\nkey = \"{{id}}\"\n[[table]]\nname = \"n\"\n\
             query = \"select name from n\"\nkey = \"{{name}}\"\n[[table.list]]\nname = \"cs\"\nquery = \"select {n}, id from c\"\nowner = \"{{n}}\"\n\
             to = \"c\"\nkey = \"{{id}}\"\n"
        );
        let options = Options { on_dangling, ..Options::default() };
        load(&origin(&address), &parsed(&map), options, None, &mut ()).map_err(|problem| problem.to_string())
    };
    for on_dangling in [OnDangling::Error, OnDangling::Null, OnDangling::Drop] {
        let refused = attempt("p", "n", on_dangling).unwrap_err();
        assert!(refused.contains("p is of the type REAL, id of p of the type INTEGER"), "{refused}");
        assert!(
            refused.contains("n is of the type TEXT, name of n of the type TEXT collate NOCASE"),
            "{refused}"
        );
    }
    let left_out = attempt("cast(p as int) as p", "replace(n, 'a', 'A') as n", OnDangling::Null)
        .map(|report| report.links_left_out);
    assert_eq!(left_out, Ok(3));
}
