//! Long values, from each source, and the longest.

mod support;

use kelix_load::{Options, load};
use kelix_postgres::Postgres;
use support::{Files, Keeper, lines, origin, parsed};

const LONG: usize = 1 << 20;
const LONGEST: usize = 64 << 20;

/// A text of so many bytes, none of which is like its neighbours, with a quote, a backslash and an end of a
/// line.
fn long(bytes: usize) -> String {
    let mut text = "a \"quote\", a \\, an end\n".to_string();
    text.extend((0..bytes - text.len()).map(|at| char::from(b'a' + (at % 23) as u8)));
    text
}

fn map(rows: &str) -> String {
    format!(
        "dataset = \"d\"\n[[table]]\nname = \"t\"\nkey = \"{{id}}\"\n{rows}\nvalue = \"text\"\nattributes = [\"other\"]\n"
    )
}

fn csv(rows: &[(&str, &str)]) -> String {
    let row = |(id, text): &(&str, &str)| format!("{id},\"{}\",x\n", text.replace('"', "\"\""));
    "id,text,other\n".to_string() + &rows.iter().map(row).collect::<String>()
}

#[track_caller]
fn comes(address: &str, map: &str, text: &str) {
    let mut keeper = Keeper::default();
    let report =
        load(&origin(address), &parsed(map), Options::default(), Some(&mut keeper), &mut ()).unwrap();
    for key in ["1", "2"] {
        // Not compared by a message of that length.
        assert!(keeper.item("t", key).text("") == Some(text), "{key}");
        assert_eq!(keeper.item("t", key).text("other"), Some("x"));
    }
    assert!(report.memory_bytes > 2 * text.len() as u64, "{report:?}");
}

#[test]
fn values_of_a_mebibyte_come_from_files() {
    let text = long(LONG);
    let line = |id: u8| serde_json::json!({"id": id, "text": text, "other": "x"}).to_string();
    let files = Files::new(&[
        ("csv.csv", &csv(&[("1", &text), ("2", &text)])),
        ("json.jsonl", &format!("{}\n{}\n", line(1), line(2))),
    ]);
    for name in ["csv.csv", "json.jsonl"] {
        comes(files.path().join(name).to_str().unwrap(), &map(""), &text);
    }
}

#[test]
fn values_of_a_mebibyte_come_from_databases() {
    let (text, files) = (long(LONG), Files::new(&[]));
    let path = files.path().join("long.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("create table t (id int, text text, other text)").unwrap();
    for id in [1, 2] {
        database.execute("insert into t values (?1, ?2, 'x')", (id, &text)).unwrap();
    }
    let map = map("query = \"select * from t\"");
    comes(&format!("sqlite:{}", path.display()), &map, &text);

    let postgres = Postgres::start().expect("a server");
    let hexadecimal: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let filled = format!(
        "create table t (id int, text bytea, other text); insert into t values (1, '\\x{hexadecimal}', 'x')"
    );
    postgres.run(&filled).expect("done");
    postgres.run("insert into t select 2, text, other from t").expect("done");
    comes(&postgres.address(), &map, &text);
    let as_text = map.replace("select *", "select id, convert_from(text, 'UTF8') as text, other");
    comes(&postgres.address(), &as_text, &text);
}

#[test]
fn the_longest_value_comes_and_a_longer_one_is_told() {
    let text = long(LONGEST);
    let files = Files::new(&[("t.csv", &csv(&[("1", &text), ("2", &text)]))]);
    comes(files.path().join("t.csv").to_str().unwrap(), &map(""), &text);
    drop(text);
    let longer = long(LONGEST + 1);
    let expected = |source: &str, place: &str| {
        format!(
            "{source}, {place}, column text: a value of 67108865 bytes; the longest that can be loaded has 67108864 (64 MiB)"
        )
    };
    files.write("t.csv", csv(&[("1", "short"), ("2", &longer)]).as_bytes());
    files.write("t.jsonl", serde_json::json!({"id": 2, "text": longer, "other": "x"}).to_string().as_bytes());
    let said = |address: &str, map: &str| {
        lines(&load(&origin(address), &parsed(map), Options::default(), None, &mut ()).unwrap_err())
    };
    let file = |name: &str| files.path().join(name).to_str().unwrap().to_string();
    assert_eq!(said(&file("t.csv"), &map("")), [expected("t.csv", "line 3")]);
    assert_eq!(said(&file("t.jsonl"), &map("")), [expected("t.jsonl", "line 1")]);

    let (path, query) = (files.path().join("long.db"), map("query = \"select * from t\""));
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch("create table t (id int, text text, other text); insert into t values (1, '', 'x')")
        .unwrap();
    database.execute("insert into t values (2, ?1, 'x')", [&longer]).unwrap();
    assert_eq!(said(&format!("sqlite:{}", path.display()), &query), [expected("t", "row 2")]);
    let postgres = Postgres::start().expect("a server");
    postgres
        .run(&format!("create table t as select 7 as id, repeat('x', {LONGEST} + 1) as text, 'x' as other"))
        .expect("done");
    assert_eq!(said(&postgres.address(), &query), [expected("t", "row 1")]);
}

#[test]
fn rows_without_an_end_are_told() {
    let files = Files::new(&[("t.csv", "id,text,other\n1,"), ("t.jsonl", "{\"id\": 1, \"text\": \"")]);
    for name in ["t.csv", "t.jsonl"] {
        // A hole in a file reads as zeros, of which none is an end of a line.
        let file = std::fs::OpenOptions::new().write(true).open(files.path().join(name)).unwrap();
        file.set_len(600 << 20).unwrap();
        let refused =
            load(&files.origin(name), &parsed(&map("")), Options::default(), None, &mut ()).unwrap_err();
        let line = if name == "t.csv" { 2 } else { 1 };
        let expected = format!(
            "{name}, line {line}: it has more than 256 MiB, which no row may have; what follows was not read"
        );
        assert_eq!(lines(&refused), [expected]);
    }
}

#[test]
fn links_carry_less() {
    let files =
        Files::new(&[("t.csv", &csv(&[("1", &"x".repeat((64 << 10) + 1)), ("2", &"x".repeat(64 << 10))]))]);
    let link = "[[table.link]]\nname = \"l\"\nto = \"t\"\nkey = \"{id}\"\nbytes = \"text\"\n";
    assert_eq!(
        files.refused(&(map("file = \"t.csv\"") + link)),
        ["t.csv, line 2, column text: 65537 bytes, and a link carries at most 65536"]
    );
}
