//! `kelix load` and `kelix map` as a user meets them, against a server.

mod harness;

use harness::{Place, Writing, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const MAP: &str = r#"
dataset = "company"
[[table]]
name = "people"
key = "person:{id}"
attributes = ["name"]
[[table.link]]
name = "boss"
to = "people"
key = "person:{boss_id}"
[[table.list]]
name = "followers"
file = "follows.csv"
owner = "person:{user_id}"
to = "people"
key = "person:{follower_id}"
chunk = 1
[[table]]
name = "orders"
kind = "u64"
key = "{id}"
value = "what"
"#;

/// A directory with files to load from, and where they are.
fn files(place: &Place) -> [String; 2] {
    place.file("people.csv", b"id,name,boss_id\n1,Ada,\n2,\"Bob, B\",1\n3,Eve,2\n");
    place.file("follows.csv", b"user_id,follower_id\n1,2\n1,3\n");
    place.file("orders.jsonl", b"{\"id\": 7, \"what\": \"bread\"}\n{\"id\": 11, \"what\": null}\n");
    let map = place.file("map.toml", MAP.as_bytes());
    [place.path(), &map].map(|path| path.to_str().expect("a name").to_string())
}

#[test]
fn files_become_tables() {
    let (place, _server) = Place::served();
    let [from, map] = files(&place);
    let done = place.kelix(&["load", "--from", &from, "--map", &map]);
    let lines: Vec<&str> = done.ok().lines().collect();
    assert_eq!(lines[..3], ["people\t3 items", "orders\t2 items", "people.followers\t2 items"]);
    assert!(lines[3].starts_with("loaded 7 rows in ") && lines[3].contains(" s, about "), "{lines:?}");

    place.kelix(&["chase", "people", "person:3", "boss.boss"]).failed(0, &[]);
    assert!(place.kelix(&["chase", "people", "person:3", "boss.boss"]).text().contains("name: Ada"));
    let chased = place.kelix(&["chase", "people", "person:1", "followers.next.item", "--json"]).json();
    assert_eq!(chased[3]["key"], "person:3", "{chased}");
    assert_eq!(place.kelix(&["scan", "orders", "--keys-only"]).ok(), "7\n11\n");
    assert_eq!(place.kelix(&["get", "orders", "7"]).ok(), "bread\n");

    let report = place.kelix(&["load", "--from", &from, "--map", &map, "--json"]).json();
    assert_eq!(report["tables"][0], serde_json::json!({"table": "people", "items": 3}));
    assert_eq!((&report["rows"], &report["checked_only"]), (&7.into(), &false.into()));
}

#[test]
fn nothing_is_loaded_of_what_is_wrong() {
    let (place, _server) = Place::served();
    let [from, map] = files(&place);
    let load = |more: &[&str]| place.kelix(&[&["load", "--from", &from, "--map", &map], more].concat());
    place.file("people.csv", b"id,name,boss_id\n1,Ada,\n2,Bob,9\n3,Eve,2\n");
    load(&[]).failed(5, &["people.csv, line 3, column boss_id: the link boss leads to people/\"person:9\""]);
    assert_eq!(load(&["--json"]).error(5)["kind"], "wrong rows");
    load(&["--check"]).failed(5, &["--on-dangling"]);
    assert_eq!(place.kelix(&["table", "list"]).ok(), "");
    load(&["--on-dangling", "drop", "--check"]).failed(0, &[]);
    assert!(load(&["--on-dangling", "drop"]).ok().contains("left out: 2 links and 2 items"));
    assert!(load(&["--on-dangling", "null"]).ok().contains("left out: 1 link and 0 items"));

    place.file("map.toml", MAP.replace("attributes", "atributes").as_bytes());
    load(&[]).failed(2, &["line 6: [[table]] has no key \"atributes\"; perhaps attributes is meant"]);
    place.file("map.toml", MAP.replace("boss_id", "chief_id").as_bytes());
    load(&[]).failed(2, &["people.csv, column chief_id: the map wants it for [[table.link]]"]);
    place.kelix(&["load", "--from", &from, "--map", "/nonexistent"]).failed(5, &["/nonexistent"]);
    place.kelix(&["load", "--from", "/nonexistent", "--map", &map]).failed(5, &["/nonexistent"]);
    load(&["--check", "--every", "1s"]).failed(2, &["--every"]);
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let (place, _server) = Place::served();
    let [from, map] = files(&place);
    let big = "x".repeat(36 << 20);
    let big = format!("id,name,boss_id\n1,{big},\n2,{big},\n");
    place.file("people.csv", big.as_bytes());
    place.file("follows.csv", b"user_id,follower_id\n");
    place.kelix(&["load", "--from", &from, "--map", &map]).failed(4, &["MiB free; serve with more --memory"]);
    assert_eq!(place.kelix(&["table", "list"]).ok(), "");
}

#[test]
fn a_check_needs_no_server() {
    let place = Place::new();
    let [from, map] = files(&place);
    assert!(
        place.kelix(&["load", "--from", &from, "--map", &map, "--check"]).ok().starts_with("checked 7 rows")
    );
    place.kelix(&["load", "--from", &from, "--map", &map]).failed(3, &["no server"]);
}

#[test]
fn a_load_is_repeated_and_failures_are_told() {
    let (place, _server) = Place::served();
    let [from, map] = files(&place);
    let mut loading =
        place.kelix_writing(&["--json", "load", "--from", &from, "--map", &map, "--every", "20ms"]);
    assert!(loading.line().contains("\"rows\":7"));
    place.file("people.csv", b"id,nam\n");
    place.file("people.csv", b"id,name,boss_id\n1,Zoe,\n2,Bob,1\n3,Eve,2\n4,Pia,1\n");
    wait_until("the new row", || Some(()).filter(|()| place.kelix(&["get", "people", "person:4"]).code == 0));
    loading.leave();
    assert!(place.kelix(&["get", "people", "person:1"]).ok().contains("Zoe"));
}

/// Its next line, as JSON.
fn json_line(loading: &mut Writing) -> Value {
    serde_json::from_str(&loading.line()).expect("an object a line")
}

#[test]
fn what_has_not_changed_is_skipped() {
    let (place, server) = Place::served();
    let [from, map] = files(&place);
    let args = ["--json", "load", "--from", &from, "--map", &map, "--every", "100ms"];
    let mut loading = place.kelix_writing(&args);
    let mut next = |unchanged: bool| {
        wait_until("a load, or none", || {
            Some(json_line(&mut loading)).filter(|line| line["unchanged"] == unchanged)
        })
    };
    assert_eq!(next(false)["rows"], 7);
    // Files that were written a moment ago are loaded until that is told by their times.
    let skipped = next(true);
    assert_eq!((&skipped["rows"], &skipped["tables"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(next(true)["generation"], skipped["generation"]);
    place.file("people.csv", b"id,name,boss_id\n1,Zoe,\n2,Bob,1\n3,Eve,2\n");
    let loaded = next(false);
    assert!(loaded["generation"].as_u64() > skipped["generation"].as_u64(), "{loaded}");
    next(true);
    // A server that begins anew has nothing, whatever the files say.
    drop(server);
    let _server = place.serve(&[]);
    assert_eq!(next(false)["generation"], 1);
    assert!(place.kelix(&["get", "people", "person:1"]).ok().contains("Zoe"));
    loading.signal(Signal::TERM);
    let done = loading.rest();
    assert_eq!(done.code, 0, "{done:?}");

    let mut loading = place.kelix_writing(&args[1..]);
    wait_until("a line about it", || {
        Some(loading.line()).filter(|line| line.starts_with("nothing has changed: generation "))
    });
    loading.signal(Signal::INT);
    assert_eq!(loading.rest().code, 0);
}

#[test]
fn the_next_load_is_tried_whatever_became_of_the_last() {
    let place = Place::new();
    let [from, map] = files(&place);
    let mut loading = place.kelix_writing(&["load", "--from", &from, "--map", &map, "--every", "200ms"]);
    let _server = place.serve(&[]);
    assert_eq!(loading.line(), "people\t3 items\n");
    place.file("map.toml", b"dataset");
    place.file("people.csv", b"id\n");
    let rows = place.file("follows.csv", b"user_id,follower_id\n1,1\n");
    place.file("people.csv", b"id,name,boss_id\n1,Lea,\n");
    place.file("map.toml", MAP.as_bytes());
    wait_until("the new row", || {
        Some(()).filter(|()| place.kelix(&["get", "people", "person:1"]).text().contains("Lea"))
    });
    std::fs::remove_file(rows).expect("our file");
    loading.signal(Signal::TERM);
    assert_eq!(loading.rest().code, 0);
}

#[test]
fn a_signal_ends_the_wait_between_loads() {
    let (place, _server) = Place::served();
    let [from, map] = files(&place);
    for signal in [Signal::TERM, Signal::INT] {
        let mut loading =
            place.kelix_writing(&["--json", "load", "--from", &from, "--map", &map, "--every", "7d"]);
        assert_eq!(json_line(&mut loading)["rows"], 7);
        loading.signal(signal);
        let done = loading.rest();
        assert_eq!((done.code, &done.err[..], done.text()), (0, "", ""));
    }
}

/// Begins a load that takes a while, and waits until tables are being built.
fn building(place: &Place) -> Writing {
    let [from, map] = files(place);
    let rows: String = (1..=150_000).map(|id| format!("{id},name {id},{}\n", id / 2 + 1)).collect();
    place.file("people.csv", format!("id,name,boss_id\n{rows}").as_bytes());
    let loading = place.kelix_writing(&["load", "--from", &from, "--map", &map, "--every", "7d"]);
    wait_until("a generation that is built", || Some(()).filter(|()| !generations(place).is_empty()));
    loading
}

fn generations(place: &Place) -> Vec<Value> {
    let statistics = place.kelix(&["stat", "--json"]).json();
    statistics["generations"].as_array().expect("generations").clone()
}

/// There is nothing of it, and nobody keeps others from loading.
fn nothing_is_left(place: &Place) {
    assert_eq!(place.kelix(&["table", "list"]).ok(), "");
    wait_until("the end of what was built", || Some(()).filter(|()| generations(place).is_empty()));
    let [from, map] = files(place);
    place.kelix(&["load", "--from", &from, "--map", &map]).ok();
}

#[test]
fn a_signal_ends_a_load() {
    let (place, _server) = Place::served();
    let loading = building(&place);
    loading.signal(Signal::TERM);
    let done = loading.rest();
    assert_eq!((done.code, &done.err[..], done.text()), (0, "", ""));
    nothing_is_left(&place);
}

#[test]
fn a_signal_ends_a_load_that_waits_for_a_server_that_stands_still() {
    let (place, server) = Place::served();
    let loading = building(&place);
    server.stand_still();
    loading.signal(Signal::INT);
    let done = loading.rest();
    server.signal(Signal::CONT);
    assert_eq!((done.code, &done.err[..], done.text()), (0, "", ""));
    nothing_is_left(&place);
}

#[test]
fn tables_of_numbers() {
    let (place, _server) = Place::served();
    let map = "dataset = \"d\"\n[[table]]\nname = \"stock\"\nkind = \"inline8\"\nkey = \"{item}\"\nvalue = \"count\"\n\
               [[table]]\nname = \"items\"\nkey = \"{item}\"\nfile = \"stock.csv\"\nattributes = [\"count\"]\n\
               [[table.link]]\nname = \"stock\"\nto = \"stock\"\nkey = \"{item}\"\n";
    let map = place.file("map.toml", map.as_bytes());
    place.file("stock.csv", b"item,count\n7,258\n11,0\n18446744073709551615,18446744073709551615\n");
    let (from, map) = (place.path().to_str().expect("a name"), map.to_str().expect("a name"));
    place.kelix(&["load", "--from", from, "--map", map]).ok();
    let last = u64::MAX.to_string();
    for (key, value) in [("7", "258"), ("11", "0"), (&last, &last)] {
        assert_eq!(place.kelix(&["get", "stock", key]).ok(), format!("{value}\n"));
        // Links lead there as to any other table.
        let chased = place.kelix(&["chase", "items", key, "stock", "--json"]).json();
        assert_eq!((&chased[1]["table"], &chased[1]["value"]), (&"stock".into(), &value.into()), "{chased}");
    }
    assert_eq!(place.kelix(&["get", "stock", "7", "--raw"]).out, 258u64.to_le_bytes());
    assert_eq!(place.kelix(&["scan", "stock", "--to", "12", "--keys-only"]).ok(), "7\n11\n");
    assert!(place.kelix(&["table", "list"]).ok().contains("stock\tordered, u64 keys, inline8 values\n"));
    place.kelix(&["put", "stock", "7", "1"]).failed(5, &["load"]);
}

#[test]
fn times_that_make_no_sense() {
    let place = Place::new();
    let load = |time: &str| place.kelix(&["load", "--from", "a.csv", "--map", "m", "--every", time]);
    load("0s").failed(2, &["no time between one load and the next"]);
    load("40000d").failed(2, &["without --every it is loaded once"]);
    place.kelix(&["serve", "--view-lease", "0ms"]).failed(2, &["a view would end before it could be used"]);
    place.kelix(&["--retry", "0s", "stat"]).failed(2, &["nothing would be tried again"]);
    place.kelix(&["put", "t", "k", "v", "--expires", "0s"]).failed(2, &["the item would end at once"]);
}

#[test]
fn a_suggested_map_is_loaded() {
    let place = Place::new();
    place.kelix(&["map", "suggest", "--from", "/tmp"]).failed(5, &["a map is suggested for postgres"]);
    place.kelix(&["map", "suggest", "--from", "sqlite:/nonexistent.db"]).failed(5, &["/nonexistent.db"]);
    place.kelix(&["map", "suggest", "--from", "postgres://ada@localhost:1/db"]).failed(5, &["is it running"]);
}
