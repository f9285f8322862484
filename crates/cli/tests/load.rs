//! `kelix load` and `kelix map` as a user meets them, against a server.

mod harness;

use harness::{Place, wait_until};

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
    let big = format!("id,name,boss_id\n1,{},\n", "x".repeat(70 << 20));
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

#[test]
fn a_suggested_map_is_loaded() {
    let place = Place::new();
    place.kelix(&["map", "suggest", "--from", "/tmp"]).failed(5, &["a map is suggested for postgres"]);
    place.kelix(&["map", "suggest", "--from", "sqlite:/nonexistent.db"]).failed(5, &["/nonexistent.db"]);
    place.kelix(&["map", "suggest", "--from", "postgres://ada@localhost:1/db"]).failed(5, &["is it running"]);
}
