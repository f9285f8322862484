//! Ordered tables as people and scripts use them: their kinds, their keys and values in both directions,
//! scans, links, statistics.

mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;

use harness::{Done, Place, Server, wait_until};
use kelix::{Client, TableKind};
use serde_json::{Value, json};

/// A server with a table of each kind: hash, strings, numbers, inline.
fn served() -> (Place, Server) {
    let (place, server) = Place::served();
    for args in [
        &["hash"][..],
        &["strings", "--ordered"],
        &["numbers", "--ordered", "--keys", "u64"],
        &["inline", "--ordered", "--keys", "u64", "--values", "inline8"],
    ] {
        assert_eq!(place.kelix(&[&["table", "create"], args].concat()).ok(), "");
    }
    (place, server)
}

#[test]
fn tables_are_of_a_kind() {
    let (place, _server) = served();
    // The same once more is nothing new, however it is said.
    place.kelix(&["table", "create", "strings", "--ordered", "--keys", "bytes", "--values", "any"]).ok();
    place.kelix(&["table", "create", "numbers", "--ordered", "--keys", "u64", "--values", "any"]).ok();
    place.kelix(&["table", "create", "more", "--ordered"]).ok();
    let lines = "hash\n\
                 inline\tordered, u64 keys, inline8 values\n\
                 numbers\tordered, u64 keys\n\
                 strings\tordered, bytes keys\n\
                 more\tordered, bytes keys\n";
    assert_eq!(place.kelix(&["table", "list"]).ok(), lines);
    let tables = place.kelix(&["table", "list", "--json"]).json();
    assert_eq!(tables["tables"], json!(["hash", "inline", "numbers", "strings", "more"]));
    let kinds = tables["kinds"].as_array().expect("a list");
    let said = |kind: &Value| ["name", "kind", "keys", "values"].map(|what| kind[what].clone());
    let wanted = [
        ["hash", "hash", "bytes", "any"],
        ["inline", "ordered", "u64", "inline8"],
        ["numbers", "ordered", "u64", "any"],
        ["strings", "ordered", "bytes", "any"],
        ["more", "ordered", "bytes", "any"],
    ];
    assert_eq!(kinds.iter().map(said).collect::<Vec<_>>(), wanted.map(|words| words.map(Value::from)));
    let again = place.kelix(&["table", "create", "numbers", "--ordered", "--keys", "u64", "--json"]).json();
    let known =
        json!({"table": "numbers", "id": kinds[2]["id"], "kind": "ordered", "keys": "u64", "values": "any"});
    assert_eq!(again, known);
}

#[test]
fn tables_of_another_kind_are_errors() {
    let (place, _server) = served();
    for (args, kind) in [
        (&["hash", "--ordered"][..], "hash"),
        (&["strings"], "ordered, bytes keys"),
        (&["strings", "--ordered", "--keys", "u64"], "ordered, bytes keys"),
        (&["numbers", "--ordered"], "ordered, u64 keys"),
        (&["numbers", "--ordered", "--keys", "u64", "--values", "inline8"], "ordered, u64 keys"),
        (&["inline", "--ordered", "--keys", "u64"], "ordered, u64 keys, inline8 values"),
    ] {
        let refused = place.kelix(&[&["table", "create"], args].concat());
        refused.failed(2, &["of another kind", kind, args[0]]);
    }
    let create = |args: &[&str]| place.kelix(&[&["table", "create", "t"], args].concat());
    create(&["--keys", "u64"]).failed(2, &["--ordered"]);
    create(&["--values", "any"]).failed(2, &["--ordered"]);
    create(&["--ordered", "--keys", "i64"]).failed(2, &["i64", "u64", "bytes"]);
    for args in
        [&["--ordered", "--values", "inline8"][..], &["--ordered", "--values", "inline8", "--keys", "bytes"]]
    {
        create(args).failed(2, &["--values inline8 needs --keys u64", "proven by its item"]);
    }
    place.kelix(&["table", "create", "a/b", "--ordered"]).failed(2, &["cannot contain /"]);
    assert_eq!(place.kelix(&["table", "list"]).ok().lines().count(), 4);
}

#[test]
fn numbers_are_keys_in_every_form() {
    let (place, _server) = served();
    let forms = ["42", "u64:42", "hex:000000000000002a", "042"];
    for table in ["numbers", "inline"] {
        for (form, value) in forms.iter().zip(["1", "2", "3", "4"]) {
            place.kelix(&["put", table, form, value]).ok();
            for other in forms {
                assert_eq!(place.kelix(&["get", table, other]).ok(), format!("{value}\n"));
            }
        }
        place.kelix(&["put", table, "18446744073709551615", "5"]).ok();
        place.kelix(&["put", table, "0", "6"]).ok();
        let several =
            place.kelix(&["get", table, "u64:18446744073709551615", "0", "43", "hex:000000000000002a"]);
        assert_eq!(several.text(), "18446744073709551615: 5\n0: 6\n42: 4\n");
        several.failed(1, &[&format!("{table}/43: not there")]);
        let item = place.kelix(&["get", table, "hex:000000000000002a", "--json"]).json();
        assert_eq!(
            (&item["table"], &item["key"], &item["value"]),
            (&table.into(), &"42".into(), &"4".into())
        );
        let several = place.kelix(&["get", table, "42", "u64:43", "--json"]).json();
        assert_eq!(several["items"][1], json!({"table": table, "key": "43", "missing": true}));
        place.kelix(&["get", table, "42", "--explain"]).failed(0, &[&format!("{table}/42: version ")]);

        let words = [&format!("\"{table}\""), "keys are numbers up to 18446744073709551615", "u64:42"];
        for wrong in ["abc", "", "-1", "+1", "1.5", "18446744073709551616", "hex:2a", "text:12345678"] {
            for command in [&["put", table, wrong, "1"][..], &["get", table, wrong], &["del", table, wrong]] {
                place.kelix(command).failed(2, &words);
            }
            place.kelix(&["get", table, "42", wrong]).failed(2, &words);
            place.kelix(&["chase", table, wrong, "x"]).failed(2, &words);
            place.kelix(&["put", "hash", "k", "--link", &format!("to={table}/{wrong}")]).failed(2, &words);
            place.kelix(&["scan", table, &format!("--from={wrong}")]).failed(2, &words);
        }
        place.kelix(&["get", table, "hex:0"]).failed(2, &["hexadecimal"]);
        let error = place.kelix(&["get", table, "abc", "--json"]).error(2);
        assert_eq!((&error["kind"], &error["operation"]), (&"invalid argument".into(), &"get".into()));

        place.kelix(&["del", table, "hex:000000000000002a"]).ok();
        place.kelix(&["del", table, "42"]).failed(1, &[&format!("{table}/42: not there")]);
    }
    // The bytes stand in the store highest first, where programs look for them.
    let mut session = Client::connect(place.path()).expect("a server").session().expect("a session");
    let numbers = session.table("numbers").expect("a table");
    assert!(session.get(numbers, &u64::MAX.to_be_bytes()).expect("an answer").is_some());
    place.kelix(&["put", "numbers", "258", "v"]).ok();
    assert!(session.get(numbers, &[0, 0, 0, 0, 0, 0, 1, 2]).expect("an answer").is_some());
    // Elsewhere a number is text, as ever.
    for table in ["hash", "strings"] {
        place.kelix(&["put", table, "42", "text"]).ok();
        place.kelix(&["put", table, "u64:42", "bytes"]).ok();
        assert_eq!(
            place.kelix(&["get", table, "42", "hex:2a00000000000000"]).ok(),
            "42: text\nhex:2a00000000000000: bytes\n"
        );
    }
}

#[test]
fn inline_values_are_numbers() {
    let (place, _server) = served();
    for (form, number) in [
        ("42", 42),
        ("u64:43", 43),
        ("hex:2c00000000000000", 44),
        ("text:12345678", u64::from_le_bytes(*b"12345678")),
        ("12345678", 12_345_678),
        ("0", 0),
        ("18446744073709551615", u64::MAX),
    ] {
        // The value is its own version.
        assert_eq!(place.kelix(&["put", "inline", "7", form]).ok(), format!("{number}\n"));
        assert_eq!(place.kelix(&["get", "inline", "7"]).ok(), format!("{number}\n"));
        assert_eq!(place.kelix(&["get", "inline", "7", "7"]).ok(), format!("7: {number}\n").repeat(2));
        assert_eq!(place.kelix(&["get", "inline", "7", "--raw"]).out, u64::to_le_bytes(number));
        let item = place.kelix(&["get", "inline", "7", "--json"]).json();
        assert_eq!(item["value"], number.to_string());
        // What was printed can be pasted back.
        place.kelix(&["put", "inline", "8", item["value"].as_str().expect("a string")]).ok();
        assert_eq!(place.kelix(&["get", "inline", "8", "--raw"]).out, u64::to_le_bytes(number));
    }
    let words = ["\"inline\"", "values are numbers up to 18446744073709551615", "8 bytes"];
    for wrong in ["abc", "", "-1", "+1", "eight by", "18446744073709551616", "hex:2a", "text:abc"] {
        place.kelix(&["put", "inline", "7", wrong]).failed(2, &words);
    }
    place.kelix(&["put", "inline", "7", "u64:x"]).failed(2, &["u64:"]);
    place.kelix(&["put", "unmade", "7", "u64:x"]).failed(2, &["u64:"]);
    place.kelix(&["get", "unmade", "7"]).failed(1, &["no table \"unmade\""]);
    place.kelix(&["put", "inline", "7", "1", "--attr", "a=b"]).failed(2, &["neither attributes nor links"]);
    place.kelix(&["put", "inline", "7", "--link", "a=hash/b"]).failed(2, &["neither attributes nor links"]);
    place.kelix(&["put", "inline", "7", "1", "--expires", "1h"]).failed(2, &["cannot expire"]);
    place.kelix(&["put", "inline", "7", "1", "--flags", "1"]).failed(2, &["have no flags"]);
    // Files and standard input are taken byte by byte.
    let put = ["put", "inline", "9", "-"];
    assert_eq!(place.kelix_reading(&put).give(&258u64.to_le_bytes()).ok(), "258\n");
    place.kelix_reading(&put).give(b"258\n").failed(2, &["a value of 4 bytes", "have 8"]);
    assert_eq!(place.kelix(&["get", "inline", "9"]).ok(), "258\n");

    // Compared is the value.
    let put =
        |value: &str, condition: &[&str]| place.kelix(&[&["put", "inline", "1", value], condition].concat());
    put("5", &["--if-absent"]).ok();
    put("6", &["--if-absent"]).failed(1, &["inline/1: there already, with version 5"]);
    put("6", &["--if-version", "4"]).failed(1, &["inline/1: has version 5, not 4"]);
    put("6", &["--if-version", "5"]).ok();
    place.kelix(&["del", "inline", "1", "--if-version", "5"]).failed(1, &["inline/1: has version 6, not 5"]);
    place.kelix(&["del", "inline", "1", "--if-version", "6"]).ok();
    place.kelix(&["get", "inline", "1"]).failed(1, &["inline/1: not there"]);
    // The values of other tables are bytes, whatever their keys are.
    place.kelix(&["put", "numbers", "1", "text"]).ok();
    place.kelix(&["put", "numbers", "2", "u64:258"]).ok();
    assert_eq!(place.kelix(&["get", "numbers", "1", "2"]).ok(), "1: text\n2: hex:0201000000000000\n");
}

/// The lines of a scan.
fn lines(done: &Done) -> Vec<String> {
    done.ok().lines().map(String::from).collect()
}

#[test]
fn scans_of_byte_strings() {
    let (place, _server) = served();
    assert_eq!(place.kelix(&["scan", "strings"]).ok(), "");
    let keys = ["", "a", "ab", "b", "ba", "hex:62ff", "c", "d"];
    for key in keys.iter().rev() {
        place.kelix(&["put", "strings", key, "v"]).ok();
    }
    place.kelix(&["put", "strings", "c", "plain", "--attr", "x=1", "--link", "to=numbers/7=u64:3"]).ok();
    place.kelix(&["put", "strings", "d", "hex:00"]).ok();
    let all = ": v\na: v\nab: v\nb: v\nba: v\nhex:62ff: v\n\
               c\n  : plain\n  x: 1\n  to -> numbers/7=hex:0300000000000000\n\
               d: hex:00\n";
    assert_eq!(place.kelix(&["scan", "strings"]).ok(), all);

    let scan = |args: &[&str]| lines(&place.kelix(&[&["scan", "strings", "--keys-only"], args].concat()));
    assert_eq!(scan(&[]), keys);
    let ranges: [(&[&str], &[&str]); 15] = [
        (&["--from", "b"], &keys[3..]),
        (&["--after", "b"], &keys[4..]),
        (&["--until", "b"], &keys[..3]),
        (&["--to", "b"], &keys[..4]),
        (&["--from", "ab", "--to", "ba"], &keys[2..5]),
        (&["--after", "ab", "--until", "ba"], &keys[3..4]),
        (&["--after", ""], &keys[1..]),
        (&["--to", ""], &keys[..1]),
        (&["--prefix", "b"], &keys[3..6]),
        (&["--prefix", "hex:62ff"], &keys[5..6]),
        (&["--prefix", "b", "--after", "b"], &keys[4..6]),
        (&["--prefix", ""], &keys[..]),
        (&["--prefix", "x"], &[]),
        (&["--from", "c", "--until", "b"], &[]),
        (&["--limit", "2"], &keys[..2]),
    ];
    for (args, wanted) in ranges {
        assert_eq!(scan(args), wanted, "{args:?}");
        let count = place.kelix(&[&["scan", "strings", "--count"], args].concat());
        assert_eq!(count.ok(), format!("{}\n", wanted.len()), "{args:?}");
        // From the other end come the same, unless the limit is met first.
        let mut backwards = scan(&[args, &["--backwards"]].concat());
        backwards.reverse();
        match args {
            ["--limit", _] => assert_eq!(backwards, keys[6..]),
            _ => assert_eq!(backwards, wanted, "{args:?}"),
        }
    }
    assert_eq!(scan(&["--backwards", "--limit", "3", "--until", "c"]), ["hex:62ff", "ba", "b"]);
    assert_eq!(scan(&["--limit", "0"]), [""; 0]);
    // More bytes than any key has.
    assert_eq!(scan(&["--prefix", &"x".repeat(100_000)]), [""; 0]);
}

#[test]
fn scans_of_numbers() {
    let (place, _server) = served();
    for number in ["1000", "7", "18446744073709551615", "0", "256", "42"] {
        place.kelix(&["put", "inline", number, number]).ok();
        place.kelix(&["put", "numbers", number, "v"]).ok();
    }
    let ascending = ["0", "7", "42", "256", "1000", "18446744073709551615"];
    let pairs = ascending.map(|number| format!("{number}: {number}"));
    assert_eq!(lines(&place.kelix(&["scan", "inline"])), pairs);
    let scan = |args: &[&str]| {
        let both = ["inline", "numbers"]
            .map(|table| lines(&place.kelix(&[&["scan", table, "--keys-only"], args].concat())));
        assert_eq!(both[0], both[1]);
        both[0].clone()
    };
    assert_eq!(scan(&[]), ascending);
    assert_eq!(scan(&["--from", "u64:42", "--until", "1000"]), &ascending[2..4]);
    assert_eq!(scan(&["--after", "hex:000000000000002a", "--to", "1000"]), &ascending[3..5]);
    assert_eq!(scan(&["--after", "18446744073709551615"]), [""; 0]);
    assert_eq!(scan(&["--backwards", "--limit", "2"]), ["18446744073709551615", "1000"]);
    assert_eq!(place.kelix(&["scan", "numbers", "--from", "7", "--to", "1000", "--count"]).ok(), "4\n");
    for table in ["inline", "numbers"] {
        place.kelix(&["scan", table, "--prefix", "4"]).failed(2, &["no prefix", "--from"]);
    }
}

#[test]
fn scans_as_json_have_an_object_a_line() {
    let (place, _server) = served();
    place.kelix(&["put", "inline", "7", "42"]).ok();
    place.kelix(&["put", "numbers", "8", "v", "--expires", "1h"]).ok();
    place
        .kelix(&["put", "numbers", "9", "--attr", "a=b", "--link", "to=inline/7", "--link", "up=numbers/8=x"])
        .ok();
    let scan = |args: &[&str]| -> Vec<Value> {
        let done = place.kelix(&[&["scan", "--json"], args].concat());
        let objects = done.ok().lines().map(serde_json::from_str);
        objects.collect::<Result<_, _>>().expect("an object a line")
    };
    assert_eq!(scan(&["inline"]), [json!({"table": "inline", "key": "7", "value": "42", "version": "42"})]);
    let items = scan(&["numbers"]);
    // They are the items that `get` shows.
    for (item, key) in items.iter().zip(["8", "9"]) {
        let mut got = place.kelix(&["get", "numbers", key, "--json"]).json();
        let cost =
            ["cost", "first_cost"].map(|cost| got.as_object_mut().expect("an object").remove(cost).is_some());
        assert_eq!(cost, [true, true]);
        assert_eq!(*item, got);
    }
    let links = json!([
        {"name": "to", "table": "inline", "key": "7"},
        {"name": "up", "table": "numbers", "key": "8", "bytes": "x"}
    ]);
    assert_eq!((items.len(), &items[1]["links"]), (2, &links));
    let key = |number: &str| json!({"table": "numbers", "key": number});
    assert_eq!(scan(&["numbers", "--keys-only", "--backwards"]), [key("9"), key("8")]);
    // Of so few keys it is exact.
    let estimated = place.kelix(&["scan", "numbers", "--estimate", "--json"]).json();
    let counted = place.kelix(&["scan", "numbers", "--count", "--json"]).json();
    assert_eq!(estimated["estimate"], counted["count"]);
    assert!(counted["count"] == 2 && counted["cost"].is_object(), "{counted}");
    assert_eq!(scan(&["strings"]), [""; 0]);
}

#[test]
fn scans_that_make_no_sense() {
    let (place, _server) = served();
    for args in [&["hash", "--backwards"][..], &["hash", "--prefix", "a"], &["hash", "--to", "a", "--count"]]
    {
        place.kelix(&[&["scan"], args].concat()).failed(2, &["hash table", "--ordered"]);
    }
    place.kelix(&["scan", "nowhere"]).failed(1, &["no table \"nowhere\""]);
    for (one, other) in [("--from", "--after"), ("--until", "--to")] {
        place.kelix(&["scan", "strings", one, "a", other, "b"]).failed(2, &[one, other]);
    }
    place.kelix(&["scan", "strings", "--keys-only", "--count"]).failed(2, &["--keys-only", "--count"]);
    place.kelix(&["scan", "strings", "--limit", "-1"]).failed(2, &["-1"]);
    place.kelix(&["scan", "strings", "--from", "hex:0"]).failed(2, &["hexadecimal"]);
    let long = "x".repeat(100_000);
    place.kelix(&["scan", "strings", "--from", &long]).failed(2, &["100000 bytes", "65536"]);
}

/// More than a pipe holds, in more pages than one.
const LINES: u64 = 2000;

fn loaded() -> (Place, Server) {
    let (place, server) = served();
    let mut session = Client::connect(place.path()).expect("a server").session().expect("a session");
    let table = session.create_table_of(TableKind::Numbers, "numbers").expect("a table");
    for number in 0..LINES {
        session.put(table, &number.to_be_bytes(), &[b'x'; 1000]).expect("put");
    }
    (place, server)
}

/// The program waits for a reader after so many lines as a pipe holds; what is deleted then is not met any
/// more, because its page has not been asked for.
#[test]
fn a_scan_is_printed_as_it_comes() {
    let (place, _server) = loaded();
    let mut scan = place.kelix_writing(&["scan", "numbers"]);
    assert!(scan.line().starts_with("0: xxx"));
    place.kelix(&["del", "numbers", &(LINES - 1).to_string()]).ok();
    let rest = scan.rest();
    let keys: Vec<&str> = rest.ok().lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(keys, (1..LINES - 1).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(place.kelix(&["scan", "numbers", "--count"]).ok(), format!("{}\n", LINES - 1));
}

#[test]
fn whoever_has_seen_enough_of_a_scan_may_go() {
    let (place, _server) = loaded();
    for args in [&["scan", "numbers"][..], &["scan", "numbers", "--json"]] {
        let mut scan = place.kelix_writing(args);
        assert!(scan.line().contains("xxx"));
        scan.leave().ok();
    }
}

#[test]
fn links_lead_to_ordered_tables_and_away_from_them() {
    let (place, _server) = served();
    place.kelix(&["put", "inline", "7", "42"]).ok();
    place
        .kelix(&[
            "put",
            "numbers",
            "8",
            "--attr",
            "name=eight",
            "--link",
            "count=inline/7",
            "--link",
            "by=strings/x=y",
        ])
        .ok();
    place.kelix(&["put", "strings", "x", "--attr", "name=ex", "--link", "back=numbers/u64:8"]).ok();
    let links = [
        "--link",
        "order=numbers/hex:0000000000000008",
        "--link",
        "order=numbers/9",
        "--link",
        "to=inline/7=u64:1",
    ];
    place.kelix(&[&["put", "hash", "k"], &links[..]].concat()).ok();
    assert_eq!(
        place.kelix(&["get", "hash", "k"]).ok(),
        "order -> numbers/8\norder -> numbers/9\nto -> inline/7=hex:0100000000000000\n"
    );
    let item = place.kelix(&["get", "hash", "k", "--json"]).json();
    assert_eq!(item["links"][0], json!({"name": "order", "table": "numbers", "key": "8"}));

    let chase = |path: &str| place.kelix(&["chase", "hash", "k", path, "--json"]);
    let steps = chase("order.by.back.count").json();
    let steps: Vec<_> =
        steps.as_array().expect("steps").iter().map(|step| (&step["table"], &step["key"])).collect();
    let wanted = [("hash", "k"), ("numbers", "8"), ("strings", "x"), ("numbers", "8"), ("inline", "7")];
    let wanted = wanted.map(|(table, key)| (Value::from(table), Value::from(key)));
    assert_eq!(steps, wanted.iter().map(|(table, key)| (table, key)).collect::<Vec<_>>());
    assert_eq!(chase("order.count").json()[2]["value"], "42");
    let words = place.kelix(&["chase", "numbers", "8", "count"]);
    assert!(words.ok().contains("\n  inline/7\n    : 42\n"), "{words:?}");
    assert!(words.text().contains("    by -> strings/x=y\n"), "{words:?}");

    let list = chase("order[]");
    assert!(list.error(1)["context"].as_str().expect("text").contains("numbers/9"), "{list:?}");
    assert_eq!(list.json()[1]["items"][1], json!({"table": "numbers", "key": "9", "missing": true}));
    chase("order.mentor").failed(1, &["numbers/8 has no link", "count, by"]);
    chase("to.on").failed(1, &["inline/7 has no link", "none"]);
    place.kelix(&["chase", "numbers", "10", "by"]).failed(1, &["numbers/10: not there"]);
    place.kelix(&["del", "inline", "7"]).ok();
    chase("order.count").failed(1, &["inline/7, which link"]);

    // A scan shows links to tables of each kind too.
    let scanned = place.kelix(&["scan", "numbers"]);
    assert_eq!(scanned.ok(), "8\n  name: eight\n  count -> inline/7\n  by -> strings/x=y\n");
}

#[test]
fn the_same_over_tcp() {
    let place = Place::new();
    let server = place.serve(&["--listen", "0"]);
    let (_, address) = server.ready.trim().split_once("tcp at ").expect("where it listens");
    let over = |args: &[&str]| place.kelix_at(address, args);
    over(&["table", "create", "numbers", "--ordered", "--keys", "u64"]).ok();
    over(&["table", "create", "inline", "--ordered", "--keys", "u64", "--values", "inline8"]).ok();
    over(&["put", "inline", "7", "42"]).ok();
    over(&["put", "numbers", "300", "v"]).ok();
    over(&["put", "numbers", "20", "--link", "to=inline/7"]).ok();
    assert_eq!(over(&["get", "inline", "7"]).ok(), "42\n");
    assert_eq!(over(&["scan", "numbers"]).ok(), "20\n  to -> inline/7\n300: v\n");
    assert_eq!(over(&["scan", "numbers", "--count", "--after", "20"]).ok(), "1\n");
    assert!(over(&["chase", "numbers", "20", "to"]).ok().ends_with("  inline/7\n    : 42\n"));
    wait_until("the shard has reported", || over(&["stat"]).ok().contains("ordered tables").then_some(()));
}

/// What a server tells Prometheus.
fn metrics(server: &Server) -> String {
    let (_, url) = server.ready.trim().split_once("metrics at http://").expect("where the metrics are");
    let mut stream =
        TcpStream::connect(url.strip_suffix("/metrics").expect("their path")).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn statistics_show_ordered_tables() {
    let place = Place::new();
    let server = place.serve(&["--shards", "2", "--metrics", "0"]);
    place.kelix(&["put", "hash", "k", "v"]).ok();
    assert!(!place.kelix(&["stat"]).ok().contains("ordered tables"));
    let mut session = Client::connect(place.path()).expect("a server").session().expect("a session");
    let inline = session.create_table_of(TableKind::Inline, "counters").expect("a table");
    let strings = session.create_table_of(TableKind::Strings, "names").expect("a table");
    for number in 0..100u64 {
        session.put(inline, &number.to_be_bytes(), &[0; 8]).expect("put");
    }
    session.put(strings, b"k", b"v").expect("put");
    place.kelix(&["scan", "counters"]).ok();
    place.kelix(&["scan", "names", "--count"]).ok();

    let shards = |statistics: &Value| statistics["shards"].as_array().expect("shards").clone();
    let table = |statistics: &Value, name: &str| {
        let tables = shards(statistics).into_iter().flat_map(|shard| shard["ordered"].as_array().cloned());
        tables.flatten().find(|table| table["name"] == name)
    };
    let statistics = wait_until("the shards have reported", || {
        let statistics = place.kelix(&["stat", "--json"]).json();
        let scans: u64 = shards(&statistics).iter().filter_map(|shard| shard["scans"].as_u64()).sum();
        let keys = |name: &str| table(&statistics, name).and_then(|table| table["keys"].as_u64());
        (scans == 1 && keys("counters") == Some(100) && keys("names") == Some(1)).then_some(statistics)
    });
    let counters = table(&statistics, "counters").expect("a table");
    assert_eq!(counters["table"], inline.id().0);
    // A leaf has 16 slots, and splits made of one what there is.
    let number = |what: &str| counters[what].as_u64().expect("a number");
    assert!(number("leaves") >= 7 && number("splits") == number("leaves") - 1, "{counters}");
    assert_eq!(number("merges"), 0);
    assert!(shards(&statistics).iter().all(|shard| shard["ordered_not_listed"] == 0));

    let report = place.kelix(&["stat"]);
    let (_, ordered) = report.ok().split_once("ordered tables\n").expect("their part");
    let rows: Vec<Vec<&str>> =
        ordered.lines().take(4).map(|line| line.split_whitespace().collect()).collect();
    let titles = ["table", "shard", "keys", "leaves", "splits", "merges", "laid", "out", "models", "error"];
    assert_eq!(rows[0][..titles.len()], titles);
    assert!(number("sub_models") >= 1 && number("table_bytes") >= 8 * number("leaves"), "{counters}");
    let row =
        |name: &str| rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {report:?}"));
    assert_eq!((row("counters")[2], row("names")[2], row("all")[1]), ("100", "1", "101"));

    let metrics = metrics(&server);
    let sum = |name: &str, label: &str| -> u64 {
        let lines =
            metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        lines
            .map(|line| {
                line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a number")
            })
            .sum()
    };
    let counters = format!("table=\"{}\"", inline.id().0);
    assert_eq!((sum("kelix_scans_total", ""), sum("kelix_ordered_keys", &counters)), (1, 100), "{metrics}");
    assert_eq!(sum("kelix_ordered_splits_total", &counters), number("splits"), "{metrics}");
}
