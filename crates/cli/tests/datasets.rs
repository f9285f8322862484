//! Datasets as a user has them: loaded, loaded anew with other tables, and dropped.

mod harness;

use harness::{Place, wait_until};

fn map(dataset: &str, table: &str) -> String {
    format!(
        "dataset = \"{dataset}\"\n[[table]]\nname = \"{table}\"\nfile = \"people.csv\"\nkey = \"{{id}}\"\nattributes = [\"name\"]\n"
    )
}

/// The name of a table that was loaded once was taken for ever, and no command took a dataset away.
#[test]
fn names_come_free_and_datasets_go() {
    let (place, _server) = Place::served();
    let files = tempfile::tempdir().expect("a directory");
    let from = files.path().to_str().expect("a path of plain letters");
    std::fs::write(files.path().join("people.csv"), "id,name\n1,Ada\n2,Zoë\n").expect("written");
    let load = |dataset: &str, table: &str| {
        let map = place.file("map.toml", map(dataset, table).as_bytes());
        place.kelix(&["load", "--from", from, "--map", map.to_str().unwrap()])
    };
    assert_eq!(load("x", "people").code, 0);
    place.kelix(&["put", "people", "1", "v"]).failed(5, &["goes with its dataset"]);
    // The next generation has another table; the name of the first is free at once.
    assert_eq!(load("x", "staff").code, 0);
    assert_eq!(place.kelix(&["table", "list"]).ok(), "staff\n");
    place.kelix(&["put", "people", "7", "of a client"]).ok();
    assert_eq!(place.kelix(&["get", "people", "7"]).ok(), "of a client\n");
    // Now it is a client's, and a load says which name is taken.
    load("y", "people").failed(2, &["people", "taken"]);
    // A check says so, too, and takes no name for one of another that is its own.
    let check = |dataset: &str, table: &str| {
        let map = place.file("map.toml", map(dataset, table).as_bytes());
        place.kelix(&["load", "--from", from, "--map", map.to_str().unwrap(), "--check"])
    };
    check("y", "people").failed(2, &["the name of table \"people\" of \"y\" is taken by another table"]);
    check("y", "staff").failed(2, &["the name of table \"staff\" of \"y\" is taken by another table"]);
    assert_eq!((check("x", "staff").code, check("y", "others").code), (0, 0));
    assert_eq!(place.kelix(&["table", "list"]).ok().lines().count(), 2);

    place.kelix(&["table", "drop", "--dataset", "none"]).failed(1, &["no dataset \"none\""]);
    place.kelix(&["table", "drop", "--dataset", "x"]).ok();
    assert_eq!(place.kelix(&["table", "list"]).ok(), "people\n");
    place.kelix(&["get", "staff", "1"]).failed(1, &["staff"]);
    wait_until("what was in it has gone", || {
        let told = place.kelix(&["stat", "--json"]).json();
        told["generations"].as_array().expect("a list").is_empty().then_some(())
    });
    assert_eq!(load("x", "staff").code, 0);
    assert!(place.kelix(&["get", "staff", "2"]).ok().contains("Zoë"));
}

/// A download that failed leaves a file without a row, which took the place of what was in force, without a
/// word.
#[test]
fn an_empty_file_takes_the_place_of_nothing() {
    let (place, _server) = Place::served();
    let files = tempfile::tempdir().expect("a directory");
    let file = files.path().join("people.csv");
    let from = files.path().to_str().expect("a path of plain letters");
    let map = place.file("map.toml", map("x", "people").as_bytes());
    let load = |more: &[&str]| {
        place.kelix(&[&["load", "--from", from, "--map", map.to_str().unwrap()], more].concat())
    };
    // The first load of all may have none.
    std::fs::write(&file, "id,name\n").expect("written");
    assert_eq!(load(&[]).code, 0);
    std::fs::write(&file, "id,name\n1,Ada\n").expect("written");
    assert_eq!(load(&[]).code, 0);
    std::fs::write(&file, "id,name\n").expect("written");
    load(&[]).failed(5, &["people", "--allow-empty"]);
    std::fs::write(&file, "").expect("written");
    assert_ne!(load(&[]).code, 0);
    assert!(place.kelix(&["get", "people", "1"]).ok().contains("Ada"));
    std::fs::write(&file, "id,name\n").expect("written");
    assert_eq!(load(&["--allow-empty"]).code, 0);
    place.kelix(&["get", "people", "1"]).failed(1, &[]);
}

/// An import believed a quote that never ends, and what stands behind one that does.
#[test]
fn an_import_reads_csv_as_strictly_as_a_load() {
    let (place, _server) = Place::served();
    let import = |text: &[u8], name: &str| {
        let file = place.file(name, text);
        place.kelix(&["table", "import", "t", file.to_str().unwrap()])
    };
    import(b"key,value\n1,\"one\n2,two\n3,three\n", "unended.csv")
        .failed(2, &["unended.csv", "line 2", "never ends"]);
    import(b"key,value\n1,\"one\"x\n", "behind.csv").failed(2, &["behind.csv", "line 2", "closing quote"]);
    import(b"key,value\n1,one,more\n", "wide.csv").failed(2, &["wide.csv", "line 2", "3 fields"]);
    import(b"[\n{\"key\":\"1\",\"value\":\"one\"}\n]\n", "array.jsonl").failed(2, &["array.jsonl", "jq"]);
    import("\u{feff}{\"key\":\"a\",\"value\":-5}\n{\"key\":\"b\",\"value\":1.5}\n".as_bytes(), "mark.jsonl")
        .text();
    assert_eq!(place.kelix(&["get", "t", "a"]).ok(), "-5\n");
    assert_eq!(place.kelix(&["get", "t", "b"]).ok(), "1.5\n");
    import(b"\xef\xbb\xbfkey,value\n\"c,\"\"d\",\"two\nlines\"\n\ne,\n", "right.csv").text();
    assert_eq!(place.kelix(&["get", "t", "c,\"d"]).ok(), "two\nlines\n");
}

#[test]
fn text_of_several_lines_is_text_in_json() {
    let (place, _server) = Place::served();
    let text = "two\nlines,\ta tab";
    place.file("notes.jsonl", br#"{"id": 1, "note": "two\nlines,\ta tab", "bell": "\u0007"}"#);
    let map = place.file(
        "notes.toml",
        b"dataset = \"n\"\n[[table]]\nname = \"notes\"\nkey = \"{id}\"\nvalue = \"note\"\nattributes = [\"note\", \"bell\"]\n",
    );
    let from = place.path().to_str().expect("a name").to_string();
    place.kelix(&["load", "--from", &from, "--map", map.to_str().unwrap()]).ok();
    let item = place.kelix(&["get", "notes", "1", "--json"]).json();
    assert_eq!((&item["value"], &item["attributes"][0]["value"]), (&text.into(), &text.into()), "{item}");
    assert_eq!(item["attributes"][1]["value"], "hex:07");
    // What is printed as lines keeps to its line.
    assert!(place.kelix(&["get", "notes", "1"]).ok().contains("note: hex:"));
    // It comes back as it went.
    let exported = place.path().join("exported.jsonl");
    place.kelix(&["table", "export", "notes", exported.to_str().unwrap()]).ok();
    place.kelix(&["table", "import", "again", exported.to_str().unwrap()]).ok();
    let again = place.kelix(&["get", "again", "1", "--json"]).json();
    assert_eq!((&again["value"], &again["attributes"]), (&item["value"], &item["attributes"]));
}
