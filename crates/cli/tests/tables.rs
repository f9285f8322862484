//! Tables as a whole, as people and scripts use them: described, scanned, dropped, exported, imported.

mod harness;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::{Place, wait_until};
use serde_json::{Value, json};

/// The items of a table as `scan` prints them, without their versions.
fn items(place: &Place, table: &str) -> BTreeSet<String> {
    let scanned = place.kelix(&["scan", table, "--json"]);
    let item = |line: &str| {
        let mut item: Value = serde_json::from_str(line).expect("an object");
        item.as_object_mut().expect("an object").retain(|name, _| name != "table" && name != "version");
        item.to_string()
    };
    scanned.ok().lines().map(item).collect()
}

/// Checks that a table has the items of another one, which end when those do.
#[track_caller]
fn check_copy(place: &Place, copy: &str, table: &str) {
    assert_eq!(items(place, copy), items(place, table), "{copy}");
}

fn path(file: &Path) -> &str {
    file.to_str().expect("text")
}

/// Items of every sort.
fn fill(place: &Place, table: &str) {
    let put = |args: &[&str]| {
        place.kelix(&[&["put", table], args].concat()).ok();
    };
    put(&["plain", "a value"]);
    put(&["empty", "", "--flags", "5"]);
    put(&["hex:00ff0a", "hex:0d0a00"]);
    put(&["a, \"quoted\" key", "text:->looks/like a link"]);
    put(&["ends", "later", "--expires", "7d", "--flags", "0xffffffff"]);
    put(&["attributes", "--attr", "name=X, Y", "--attr", "key=taken", "--attr", "attr:odd=1", "text:"]);
    put(&["links", "--link", "to=others/a/b", "--attr", "name=text:"]);
    put(&["edge", "--link", "to=others/hex:613d62=weight 3"]);
}

#[test]
fn what_is_exported_can_be_imported() {
    let (place, _server) = Place::served();
    fill(&place, "people");
    for name in ["people.jsonl", "people.csv"] {
        let file = place.path().join(name);
        let exported = place.kelix(&["table", "export", "people", path(&file), "--json"]).json();
        assert_eq!((&exported["items"], &exported["went_on_from"]), (&json!(8), &json!(0)));
        let imported = place.kelix(&["table", "import", name, path(&file), "--json"]).json();
        assert_eq!(imported["items"], 8);
        check_copy(&place, name, "people");
        // Once more is nothing new.
        place.kelix(&["table", "import", name, path(&file)]).ok();
        check_copy(&place, name, "people");
        place.kelix(&["table", "export", "people", path(&file)]).failed(2, &[name, "--overwrite"]);
        place.kelix(&["table", "export", "people", path(&file), "--overwrite"]).ok();
    }
    // Without a file it is standard output, and input.
    let text = place.kelix(&["table", "export", "people"]).ok().to_string();
    place.kelix_reading(&["table", "import", "again"]).give(text.as_bytes()).ok();
    check_copy(&place, "again", "people");
    let scanned = place.kelix(&["scan", "people", "--json"]).ok().to_string();
    place.kelix_reading(&["table", "import", "scanned"]).give(scanned.as_bytes()).ok();
    check_copy(&place, "scanned", "people");
}

#[test]
fn ordered_tables_are_exported_in_their_order() {
    let (place, _server) = Place::served();
    place.kelix(&["table", "create", "counts", "--ordered", "--keys", "u64", "--values", "inline8"]).ok();
    for number in ["30", "7", "1000"] {
        place.kelix(&["put", "counts", number, number]).ok();
    }
    let csv = place.kelix(&["table", "export", "counts", "--format", "csv"]).ok().to_string();
    assert_eq!(csv, "key,value,expires_unix_ms,client_flags\n7,7,,\n30,30,,\n1000,1000,,\n");
    let into =
        ["table", "import", "copy", "--format", "csv", "--ordered", "--keys", "u64", "--values", "inline8"];
    place.kelix_reading(&into).give(csv.as_bytes()).ok();
    assert_eq!(place.kelix(&["table", "export", "copy", "--format", "csv"]).ok(), csv);
    // Numbers may be numbers of JSON.
    place.kelix_reading(&["table", "import", "copy"]).give(b"{\"key\":5,\"value\":6}\n").ok();
    assert_eq!(place.kelix(&["get", "copy", "5"]).ok(), "6\n");
}

#[test]
fn columns_of_others_are_attributes() {
    let (place, _server) = Place::served();
    let file =
        place.file("cities.csv", b"name,country,people,in\nTurku,FI,200000,->countries/FI\nOulu,FI,,\n");
    place
        .kelix(&["table", "import", "cities", path(&file)])
        .failed(2, &["\"key\"", "name, country, people, in"]);
    place.kelix(&["table", "import", "cities", path(&file), "--key", "name"]).ok();
    let turku = place.kelix(&["get", "cities", "Turku"]);
    assert_eq!(turku.ok(), "country: FI\npeople: 200000\nin -> countries/FI\n");
    assert_eq!(place.kelix(&["get", "cities", "Oulu"]).ok(), "country: FI\n");
}

#[test]
fn what_csv_cannot_hold_is_refused() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "people", "a", "--link", "to=people/b", "--link", "to=people/c"]).ok();
    let file = place.file("wrong.csv", b"key,value,client_flags\na,b,4294967296\n");
    place.kelix(&["table", "import", "people", path(&file)]).failed(2, &["client_flags", "32 bits"]);
    let refused = place.kelix(&["table", "export", "people", "--format", "csv"]);
    refused.failed(2, &["people/a", "\"to\" more than once", "jsonl"]);
}

#[test]
fn a_wrong_line_is_named_and_the_import_goes_on_there() {
    let (place, _server) = Place::served();
    let line = |number: usize| format!("{{\"key\":\"k{number}\",\"value\":\"{number}\"}}\n");
    let good: String = (0..1000).map(line).collect();
    for (wrong, words) in [
        ("{\"key\":\"k\",\"valve\":\"1\"}\n", &["valve"][..]),
        ("{\"key\":\"k\"}\n", &["neither a value nor attributes"]),
        ("{\"key\":\"hex:0\",\"value\":\"1\"}\n", &["hex:0"]),
        ("nonsense\n", &["expected"]),
        ("{\"key\":[1],\"value\":\"1\"}\n", &["text or a number"]),
    ] {
        let file = place.file("items.jsonl", (good.clone() + wrong + &line(1000)).as_bytes());
        let refused = place.kelix(&["table", "import", "items", path(&file)]);
        refused.failed(2, &[&["line 1001", "1000 items put"], words].concat());
        let file = place.file("items.jsonl", (good.clone() + &line(1000)).as_bytes());
        let imported = place.kelix(&["table", "import", "items", path(&file), "--json"]).json();
        assert_eq!((&imported["went_on_from"], &imported["items"]), (&json!(1000), &json!(1001)));
        assert_eq!(place.kelix(&["scan", "items", "--count"]).ok(), "1001\n");
    }
    // What was put before must still be what stands there.
    let file = place.file("items.jsonl", (good.clone() + "nonsense\n").as_bytes());
    place.kelix(&["table", "import", "items", path(&file)]).failed(2, &["line 1001"]);
    let file = place.file("items.jsonl", (line(7) + &good).as_bytes());
    place.kelix(&["table", "import", "items", path(&file)]).failed(2, &["changed", "--restart"]);
    place.kelix(&["table", "import", "items", path(&file), "--restart"]).ok();
}

/// How far an import was is of use only where that server still is.
#[test]
fn an_import_into_another_server_begins_at_the_first_line() {
    let (place, server) = Place::served();
    let line = |number: usize| format!("{{\"key\":\"k{number}\",\"value\":\"{number}\"}}\n");
    let good: String = (0..1000).map(line).collect();
    let file = place.file("items.jsonl", (good.clone() + "nonsense\n").as_bytes());
    place.kelix(&["table", "import", "items", path(&file)]).failed(2, &["line 1001"]);
    drop(server);
    let (place, _server) = Place::served();
    let note = |place: &Place| place.path().join("items.jsonl.import.note");
    let noted = std::fs::read(file.with_extension("jsonl.import.note"));
    let mended = place.file("items.jsonl", good.as_bytes());
    std::fs::write(note(&place), noted.expect("a note")).unwrap();
    let imported = place.kelix(&["table", "import", "items", path(&mended), "--json"]).json();
    assert_eq!((&imported["went_on_from"], &imported["items"]), (&json!(0), &json!(1000)));
    assert_eq!(place.kelix(&["scan", "items", "--count"]).ok(), "1000\n");
    // Where there is no place for a note, all is put all the same, and what is wrong is told.
    place.file("items.jsonl", (good + "nonsense\n").as_bytes());
    std::fs::create_dir(place.path().join("items.jsonl.import.note.new")).unwrap();
    let refused = place.kelix(&["table", "import", "others", path(&mended)]);
    refused.failed(2, &["line 1001", "1000 items put"]);
    // A script of the shell is no file of items.
    let script = place.kelix_reading(&["shell"]).give(b"table import items\n");
    script.failed(2, &["the shell's commands"]);
}

/// Of two items of one key the later one stays, also if they are put together.
#[test]
fn later_lines_win() {
    let (place, _server) = Place::served();
    let lines: String = (0..900).map(|n| format!("{{\"key\":\"{}\",\"value\":\"{n}\"}}\n", n % 3)).collect();
    place.kelix_reading(&["table", "import", "items"]).give(lines.as_bytes()).ok();
    let of = |key: &str| place.kelix(&["get", "items", key]).ok().to_string();
    assert_eq!(["0", "1", "2"].map(of), ["897\n", "898\n", "899\n"]);
}

/// Runs a command until it has noted how far it is, and kills it.
fn kill_when_noted(place: &Place, args: &[&str], note: &Path) {
    let mut child: Child = Command::new(env!("CARGO_BIN_EXE_kelix"))
        .args(args)
        .env("KELIX_DIR", place.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program");
    wait_until("it has noted how far it is", || {
        let ended = child.try_wait().expect("a child").is_some();
        assert!(!ended || note.exists(), "it ended before it noted anything");
        note.exists().then_some(())
    });
    child.kill().expect("a child");
    child.wait().expect("a child");
}

#[test]
fn what_was_killed_goes_on() {
    let (place, _server) = Place::served();
    // More than is done between two notes.
    let count = 900_000;
    let lines: String =
        (0..count).map(|n| format!("{{\"key\":\"user{n}\",\"value\":\"{:020}\"}}\n", n)).collect();
    let file = place.file("items.jsonl", lines.as_bytes());
    let import = ["table", "import", "items", path(&file)];
    kill_when_noted(&place, &import, &place.path().join("items.jsonl.import.note"));
    let imported = place.kelix(&[&import[..], &["--json"]].concat()).json();
    assert!(imported["went_on_from"].as_u64() > Some(0), "{imported}");
    assert_eq!(imported["items"], count);
    let back = place.path().join("back.jsonl");
    let export = ["table", "export", "items", path(&back)];
    kill_when_noted(&place, &export, &place.path().join("back.jsonl.part.note"));
    assert!(!back.exists(), "it is not whole");
    // What was written after the note is written again.
    let part = place.path().join("back.jsonl.part");
    let mut text = std::fs::read(&part).expect("begun");
    text.extend_from_slice(b"{\"key\":\"half");
    std::fs::write(&part, text).expect("written");
    let exported = place.kelix(&[&export[..], &["--json"]].concat()).json();
    assert!(exported["went_on_from"].as_u64() > Some(0), "{exported}");
    assert_eq!(exported["items"], count);
    let text = std::fs::read_to_string(&back).expect("exported");
    assert_eq!(text.lines().count(), count, "each once");
    assert!(text.lines().collect::<BTreeSet<_>>() == lines.lines().collect::<BTreeSet<_>>());
    for left in ["items.jsonl.import.note", "back.jsonl.part", "back.jsonl.part.note"] {
        assert!(!place.path().join(left).exists(), "{left} stays");
    }
}

#[test]
fn tables_are_described_and_dropped() {
    let (place, _server) = Place::served();
    fill(&place, "people");
    let said = place.kelix(&["table", "describe", "people"]);
    let wanted = "people\n  kind:       hash\n  keys:       bytes\n  values:     any\n  items:      8\n  \
                  attributes: name, key, attr:odd, to\n";
    assert_eq!(said.ok(), wanted);
    let json = place.kelix(&["table", "describe", "people", "--json"]).json();
    assert_eq!((&json["items"], &json["table"]), (&json!(8), &json!("people")));
    assert_eq!(place.kelix(&["scan", "people", "--estimate"]).ok(), "8\n");
    place.kelix(&["scan", "people", "--from", "a"]).failed(2, &["no order"]);
    assert_eq!(place.kelix(&["scan", "people", "--limit", "3", "--keys-only"]).ok().lines().count(), 3);
    place.kelix(&["table", "drop", "people"]).ok();
    place.kelix(&["table", "drop", "people"]).failed(1, &["people"]);
    place.kelix(&["get", "people", "plain"]).failed(1, &["no table \"people\""]);
    place.kelix(&["table", "describe", "people"]).failed(1, &["no table \"people\""]);
    assert_eq!(place.kelix(&["table", "list"]).ok(), "others\n");
    place.kelix(&["put", "people", "plain", "another"]).ok();
    assert_eq!(place.kelix(&["scan", "people"]).ok(), "plain: another\n");
}

/// An export put an ordinary file in the place of whatever had the name: of a device, a pipe, a link, whose
/// target stayed old.
#[test]
fn an_export_goes_into_what_is_named_and_replaces_only_files() {
    use std::os::unix::fs::FileTypeExt;
    let (place, _server) = Place::served();
    place.kelix(&["put", "t", "k", "v"]).ok();
    let line = "{\"key\":\"k\",\"value\":\"v\"}\n";
    // A pipe stays one, and brings what is written, with and without --overwrite.
    let pipe = place.pipe("pipe");
    for more in [&[][..], &["--overwrite"][..]] {
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read_to_string(pipe).expect("read")
        });
        assert_eq!(place.kelix(&[&["table", "export", "t", path(&pipe)], more].concat()).code, 0);
        assert_eq!(reader.join().expect("a reader"), line);
        assert!(pipe.symlink_metadata().expect("there").file_type().is_fifo());
    }
    // A link leads on, and its target is new.
    let target = place.file("target", b"old");
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&target, &link).expect("linked");
    place.kelix(&["table", "export", "t", path(&link)]).failed(2, &["--overwrite"]);
    assert_eq!(place.kelix(&["table", "export", "t", path(&link), "--overwrite"]).code, 0);
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&target).expect("read"), line);
    // A directory is refused before anything is read, and nothing stands beside it afterwards.
    let directory = place.path().join("adir");
    std::fs::create_dir(&directory).expect("made");
    place.kelix(&["table", "export", "t", path(&directory), "--overwrite"]).failed(2, &["adir", "directory"]);
    assert!(!place.path().join("adir.part").exists());
}
