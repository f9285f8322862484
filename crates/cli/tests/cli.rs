//! The program as people and scripts use it: every command, every exit code, in real processes.

mod harness;

use std::io::Write;
use std::process::{Command, Stdio};

use harness::{Place, open_pipe, wait_until};
use rustix::process::Signal;
use serde_json::json;

/// The university of the KELI paper (section 3.1).
fn university(place: &Place) {
    for args in [
        &["put", "departments", "depcs", "--attr", "website=www.cs.ac.co"][..],
        &["put", "people", "prof001", "--attr", "name=UVT", "--link", "department=departments/depcs"],
        &["put", "people", "stu001", "--attr", "name=XYZ", "--link", "supervisor=people/prof001"],
        &["put", "people", "stu002", "--attr", "name=DEF", "--link", "supervisor=people/prof001"],
        &[
            "put",
            "courses",
            "db",
            "--link",
            "students=people/stu001",
            "--link",
            "students=people/stu002=since 2024",
        ],
    ] {
        let version = place.kelix(args).ok().trim().parse::<u64>();
        assert!(version.is_ok_and(|version| version > 0));
    }
}

#[test]
fn the_whole_tour() {
    let (place, mut server) = Place::served();
    let ready = &server.ready;
    for word in [place.path().to_str().unwrap(), "term 1", "1 shard,", "64 MiB", "shm in pages of"] {
        assert!(ready.contains(word), "\"{word}\" is not in \"{ready}\"");
    }
    assert_eq!(place.kelix(&["table", "list"]).ok(), "");
    place.kelix(&["table", "create", "colours"]).ok();
    place.kelix(&["put", "colours", "red", "#ff0000"]).ok();
    assert_eq!(place.kelix(&["get", "colours", "red"]).ok(), "#ff0000\n");
    assert_eq!(place.kelix(&["get", "colours", "red", "--raw"]).ok(), "#ff0000");
    place.kelix(&["put", "colours", "green", "#00ff00"]).ok();
    assert_eq!(place.kelix(&["get", "colours", "green", "red"]).ok(), "green: #00ff00\nred: #ff0000\n");
    assert_eq!(place.kelix(&["get", "colours", "green", "red", "--raw"]).ok(), "#00ff00#ff0000");

    university(&place);
    assert_eq!(place.kelix(&["table", "list"]).ok(), "colours\ndepartments\npeople\ncourses\n");
    let tables = place.kelix(&["table", "list", "--json"]).json();
    assert_eq!(tables["tables"], json!(["colours", "departments", "people", "courses"]));
    let department = place.kelix(&["chase", "people", "stu001", "supervisor.department"]);
    assert!(department.ok().contains("website: www.cs.ac.co"), "{department:?}");

    place.kelix(&["del", "colours", "red"]).ok();
    place.kelix(&["get", "colours", "red"]).failed(1, &["colours/red: not there"]);
    place.kelix(&["del", "colours", "red"]).failed(1, &["colours/red: not there"]);

    server.signal(Signal::TERM);
    assert_eq!(server.end(), (Some(0), String::new()));
    place.kelix(&["get", "colours", "green"]).failed(3, &["no server", "kelix serve"]);
}

#[test]
fn paths_and_shards_give_the_same_answers() {
    let place = Place::new();
    let _server = place.serve(&["--shards", "3"]);
    let keys: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    for key in &keys {
        place.kelix(&["put", "t", key, &format!("value of {key}")]).ok();
    }
    for path in ["auto", "pointer", "index", "message"] {
        let mut args = vec!["get", "t", "--path", path];
        args.extend(keys.iter().map(String::as_str));
        let lines: Vec<String> = keys.iter().map(|key| format!("{key}: value of {key}\n")).collect();
        assert_eq!(place.kelix(&args).ok(), lines.concat(), "{path}");
    }
    let cost =
        |path: &str| place.kelix(&["get", "t", "key1", "--path", path, "--json"]).json()["cost"].clone();
    assert_eq!((&cost("index")["messages"], &cost("index")["reads"]), (&json!(0), &json!(2)));
    assert_eq!((&cost("pointer")["messages"], &cost("pointer")["reads"]), (&json!(0), &json!(1)));
    assert_eq!(cost("message")["messages"], 1);
    let explained = place.kelix(&["get", "t", "key1", "--explain"]);
    assert_eq!(explained.text(), "value of key1\n");
    explained.failed(0, &["t/key1: version", "remote read", "0 messages"]);
}

#[test]
fn binary_keys_and_values_go_round() {
    let (place, _server) = Place::served();
    for key in ["hex:00ff10", "u64:1234", "text:hex:beer", "Gr\u{fc}\u{df}e", "a/b=c", "", "-5", "hex:0a"] {
        for value in ["hex:fffe", "u64:18446744073709551615", "text:-", "text:text:", "two words", "-7", ""] {
            place.kelix(&["put", "t", key, value]).ok();
            let item = place.kelix(&["get", "t", key, "--json"]).json();
            let (shown_key, shown_value) = (item["key"].as_str().unwrap(), item["value"].as_str().unwrap());
            // What was printed can be pasted back: into another item, and to find this one.
            place.kelix(&["put", "copies", shown_key, shown_value]).ok();
            let copy = place.kelix(&["get", "copies", key, "--raw"]);
            assert_eq!(copy.out, place.kelix(&["get", "t", shown_key, "--raw"]).out, "{key} {value}");
            let pair = place.kelix(&["get", "t", key, key]);
            assert_eq!(pair.ok(), format!("{shown_key}: {shown_value}\n").repeat(2));
        }
    }
    assert_eq!(place.kelix(&["get", "t", "u64:1234"]).out, b"\n");
    place.kelix(&["put", "t", "k", "u64:258"]).ok();
    assert_eq!(place.kelix(&["get", "t", "k", "--raw"]).out, [2, 1, 0, 0, 0, 0, 0, 0]);
    place.kelix(&["put", "t", "hex:xx", "v"]).failed(2, &["hexadecimal", "text:hex:xx"]);
    place.kelix(&["put", "t", "k", "u64:-1"]).failed(2, &["u64:", "text:u64:-1"]);
}

#[test]
fn values_from_files_and_standard_input() {
    let (place, _server) = Place::served();
    // Larger than a slot, so that it is sent and read in pieces.
    let large: Vec<u8> = (0..3_000_000u32).flat_map(|number| number.to_le_bytes()).collect();
    let file = place.file("value", &large);
    place.kelix(&["put", "t", "file", "--file", file.to_str().unwrap()]).ok();
    assert!(place.kelix(&["get", "t", "file", "--raw"]).out == large);
    for args in [&["put", "t", "in", "-"][..], &["put", "t", "in", "--file", "-"]] {
        place.kelix_reading(args).give(b"hex:00 is text here\0\xff").ok();
        assert_eq!(place.kelix(&["get", "t", "in", "--raw"]).out, b"hex:00 is text here\0\xff");
    }
    place.kelix(&["put", "t", "k", "--file", "/nonexistent/file"]).failed(5, &["/nonexistent/file"]);
    place.kelix(&["put", "t", "k", "v", "--file", "-"]).failed(2, &["--file"]);
    place.kelix(&["put", "t", "k"]).failed(2, &["nothing to put", "--file"]);
}

#[test]
fn attributes_and_links() {
    let (place, _server) = Place::served();
    university(&place);
    let student = place.kelix(&["get", "people", "stu001"]);
    assert_eq!(student.ok(), "name: XYZ\nsupervisor -> people/prof001\n");
    let args = ["put", "t", "k", "plain", "--attr", "a=1", "--attr", "b=hex:00", "--attr", "a=x=y"];
    let links = ["--link", "to=t/a/b=hex:00", "--link", "to=people/hex:613d62"];
    place.kelix(&[&args[..], &links[..]].concat()).ok();
    let lines = ": plain\na: 1\nb: hex:00\na: x=y\nto -> t/a/b=hex:00\nto -> people/hex:613d62\n";
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), lines);
    assert_eq!(place.kelix(&["get", "t", "k", "--raw"]).ok(), "plain");
    let item = place.kelix(&["get", "t", "k", "--json"]).json();
    assert_eq!(item["value"], "plain");
    let attributes = json!([
        {"name": "a", "value": "1"}, {"name": "b", "value": "hex:00"}, {"name": "a", "value": "x=y"}
    ]);
    assert_eq!(item["attributes"], attributes);
    let links = json!([
        {"name": "to", "table": "t", "key": "a/b", "bytes": "hex:00"},
        {"name": "to", "table": "people", "key": "a=b"}
    ]);
    assert_eq!(item["links"], links);
    let several = place.kelix(&["get", "people", "stu001", "nobody", "prof001"]);
    several.failed(1, &["people/nobody: not there"]);
    assert!(several.text().starts_with("stu001\n  name: XYZ\n"), "{several:?}");
    let several = place.kelix(&["get", "people", "stu001", "nobody", "--json"]);
    assert_eq!(several.error(1)["kind"], "not there");
    assert_eq!(several.json()["items"][1], json!({"table": "people", "key": "nobody", "missing": true}));
    place.kelix(&["get", "people", "stu001", "--raw"]).failed(2, &["--raw", "--json"]);
    place.kelix(&["put", "t", "k", "--attr", "novalue"]).failed(2, &["NAME=VALUE"]);
    place.kelix(&["put", "t", "k", "--link", "to=nokey"]).failed(2, &["NAME=TABLE/KEY"]);
    place.kelix(&["put", "a/b", "k", "v"]).failed(2, &["cannot contain /"]);
}

#[test]
fn a_chase_costs_one_read_a_link() {
    let (place, _server) = Place::served();
    university(&place);
    let chase = |path: &str| place.kelix(&["chase", "people", "stu001", path, "--json"]);
    let steps = chase("supervisor.department").json();
    let steps = steps.as_array().unwrap();
    let key_and_via: Vec<_> = steps.iter().map(|step| (step["key"].clone(), step["via"].clone())).collect();
    let wanted = [(json!("stu001"), json!(null)), (json!("prof001"), json!("supervisor"))];
    assert_eq!(key_and_via, [&wanted[..], &[(json!("depcs"), json!("department"))]].concat());
    for step in &steps[1..] {
        assert_eq!((&step["cost"]["reads"], &step["cost"]["messages"]), (&json!(1), &json!(0)), "{step}");
    }
    let words = place.kelix(&["chase", "people", "stu001", "supervisor"]);
    assert!(words.ok().contains("supervisor -> (1 remote read of "), "{words:?}");

    let list = place.kelix(&["chase", "courses", "db", "students[]", "--json"]).json();
    let keys: Vec<_> = list[1]["items"].as_array().unwrap().iter().map(|item| item["key"].clone()).collect();
    assert_eq!(keys, ["stu001", "stu002"]);
    assert_eq!((&list[1]["cost"]["reads"], &list[1]["cost"]["messages"]), (&json!(2), &json!(0)));

    let wrong = place.kelix(&["chase", "people", "stu001", "mentor"]);
    wrong.failed(1, &["people/stu001 has no link \"mentor\"", "supervisor"]);
    assert_eq!(chase("mentor").error(1)["kind"], "no such attribute");
    for path in ["supervisor[].department", "a..b", ""] {
        chase(path).error(2);
    }
    place.kelix(&["chase", "people", "nobody", "x"]).failed(1, &["people/nobody: not there"]);

    place.kelix(&["del", "people", "prof001"]).ok();
    let gone = chase("supervisor.department");
    assert!(gone.error(1)["context"].as_str().unwrap().contains("people/prof001"), "{gone:?}");
    assert_eq!(gone.json()[1]["missing"], true, "the way so far is shown");
    place.kelix(&["del", "people", "stu002"]).ok();
    let list = place.kelix(&["chase", "courses", "db", "students[]"]);
    list.failed(1, &["people/stu002", "not there"]);
    assert!(list.text().contains("name: XYZ"), "{list:?}");
}

#[test]
fn items_end_when_told() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "t", "soon", "v", "--expires", "1s"]).ok();
    place.kelix(&["put", "t", "late", "v", "--expires", "2h"]).ok();
    assert!(place.kelix(&["get", "t", "late", "--json"]).json()["expires_unix_ms"].as_u64().unwrap() > 0);
    for path in ["index", "message"] {
        wait_until("the item's end", || {
            (place.kelix(&["get", "t", "soon", "--path", path]).code == 1).then_some(())
        });
    }
    assert_eq!(place.kelix(&["get", "t", "late"]).ok(), "v\n");
    for time in ["5", "0s", "1y", "-1s", "99999999d"] {
        place.kelix(&["put", "t", "k", "v", &format!("--expires={time}")]).failed(2, &[time]);
    }
}

#[test]
fn items_have_flags_of_their_clients() {
    let (place, _server) = Place::served();
    let flags = |key: &str| place.kelix(&["get", "t", key, "--json"]).json()["client_flags"].clone();
    for (key, given, wanted) in
        [("a", "7", 7u64), ("b", "0x80000001", 0x8000_0001), ("c", "4294967295", 0xffff_ffff)]
    {
        place.kelix(&["put", "t", key, "v", "--flags", given]).ok();
        assert_eq!(flags(key), json!(wanted));
    }
    place.kelix(&["put", "t", "a", "v"]).ok();
    assert_eq!(flags("a"), json!(null), "each put says anew");
    for wrong in ["4294967296", "-1", "0x", "flags"] {
        place.kelix(&["put", "t", "a", "v", &format!("--flags={wrong}")]).failed(2, &[wrong, "32 bits"]);
    }
}

#[test]
fn writes_that_compare() {
    let (place, _server) = Place::served();
    let put = |value: &str, condition: &[&str]| place.kelix(&[&["put", "t", "k", value], condition].concat());
    put("x", &["--if-version", "7"]).failed(1, &["t/k: not there"]);
    let first = put("one", &["--if-absent"]).ok().trim().to_string();
    put("two", &["--if-absent"]).failed(1, &["t/k: there already", &first]);
    let item = place.kelix(&["get", "t", "k", "--json"]).json();
    assert_eq!((&item["version"], &item["value"]), (&json!(first), &json!("one")));
    let second = put("two", &["--if-version", &first]).ok().trim().to_string();
    put("three", &["--if-version", &first]).failed(1, &[&second, &first]);
    let error = put("three", &["--if-version", &first, "--json"]).error(1);
    assert_eq!((&error["kind"], &error["effect"]), (&json!("compare failed"), &json!("no")));
    put("four", &["--if-version", &second, "--attr", "a=b", "--json"]).json();
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), ": four\na: b\n");
    place.kelix(&["del", "t", "k", "--if-version", &first]).failed(1, &["t/k: has version"]);
    let third = place.kelix(&["get", "t", "k", "--json"]).json()["version"].as_str().unwrap().to_string();
    place.kelix(&["del", "t", "k", "--if-version", &third]).ok();
    place.kelix(&["del", "t", "k", "--if-version", &third]).failed(1, &["t/k: not there"]);
}

/// Units and containers that start together: a command may begin before there is a server, with `--retry`
/// too.
#[test]
fn retry_waits_for_a_server_that_is_not_there_yet() {
    let place = Place::new();
    let began = std::time::Instant::now();
    place.kelix(&["--retry", "300ms", "put", "t", "k", "v"]).failed(3, &["no server in"]);
    assert!(began.elapsed() >= std::time::Duration::from_millis(300));
    std::thread::scope(|scope| {
        let put = scope.spawn(|| place.kelix(&["--retry", "60s", "put", "t", "k", "v"]));
        let stat = scope.spawn(|| place.kelix(&["--retry", "60s", "stat"]));
        while began.elapsed() < std::time::Duration::from_millis(600) {
            assert!(!put.is_finished() && !stat.is_finished(), "there was no server yet");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let server = place.serve(&[]);
        put.join().expect("no panic").ok();
        stat.join().expect("no panic").ok();
        // One that stands still is waited for, too.
        server.stand_still();
        let get = scope.spawn(|| place.kelix(&["--retry", "60s", "get", "t", "k"]));
        let began = std::time::Instant::now();
        place.kelix(&["get", "t", "k", "--timeout", "100ms"]).failed(3, &["stopped?"]);
        while began.elapsed() < std::time::Duration::from_millis(1200) {
            assert!(!get.is_finished(), "the server stood still");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        server.signal(rustix::process::Signal::CONT);
        get.join().expect("no panic").ok();
    });
}

#[test]
fn errors_say_what_to_do() {
    let place = Place::new();
    place.kelix(&["get", "t", "k"]).failed(3, &["no server in", "kelix serve", "--dir"]);
    let error = place.kelix(&["put", "t", "k", "v", "--json"]).error(3);
    assert_eq!((&error["kind"], &error["retry"]), (&json!("unavailable"), &json!(true)));
    place.kelix(&["stat"]).failed(3, &["no server"]);
    for (size, words) in [("4X", "64M or 4G"), ("1K", "at least 16 MiB"), ("", "size"), ("-4G", "-4")] {
        place.kelix(&["serve", "--memory", size]).failed(2, &[words]);
    }
    place.kelix(&["serve", "--shards", "0"]).failed(2, &["1 to 64"]);
    place.kelix(&["serve", "--shards", "65"]).failed(2, &["1 to 64"]);
    let error = place.kelix(&["get", "--json"]).error(2);
    assert_eq!(error["operation"], "parse the command line");

    let server = place.serve(&[]);
    let pid = server.pid().to_string();
    place.kelix(&["get", "nix", "k"]).failed(1, &["no table \"nix\"", "kelix table create nix"]);
    place.kelix(&["serve"]).failed(2, &[&pid, "--dir", "--take-over"]);
    let file = place.file("large", &vec![1; 80 << 20]);
    place.kelix(&["put", "t", "k", "--file", file.to_str().unwrap()]).failed(4, &["full", "--memory"]);
    let file = place.kelix(&["--dir", file.to_str().unwrap(), "serve"]);
    assert_eq!(file.code, 2, "--dir twice: {file:?}");
    drop(server);
    // A server that was killed leaves its socket and its lock; neither is in the way.
    place.kelix(&["get", "t", "k"]).failed(3, &["no server"]);
    assert!(place.serve(&[]).ready.contains("term 2"));
}

#[test]
fn a_server_that_stands_still() {
    let (place, server) = Place::served();
    place.kelix(&["put", "t", "k", "v"]).ok();
    let pipe = place.pipe("pipe");
    let writer = place.kelix_reading(&["put", "t", "k", "--file", pipe.to_str().unwrap(), "--json"]);
    let mut input = open_pipe(&pipe);
    server.stand_still();
    input.write_all(b"w").unwrap();
    drop(input);
    let error = writer.give(b"").error(3);
    assert_eq!((&error["kind"], &error["effect"]), (&json!("timed out"), &json!("unknown")));
    place.kelix(&["get", "t", "k"]).failed(3, &["no answer", "stopped?"]);
    place.kelix(&["serve"]).failed(2, &[&server.pid().to_string(), "stopped"]);
    server.signal(Signal::CONT);
    // Whether the server still meets the request, now that the writer has gone, is as unknown as it was said
    // to be.
    let value = wait_until("an answer", || Some(place.kelix(&["get", "t", "k"])).filter(|got| got.code == 0));
    assert!(["v\n", "w\n"].contains(&value.ok()), "{value:?}");
}

#[test]
fn a_successor_takes_over() {
    let (place, mut first) = Place::served();
    place.kelix(&["put", "t", "k", "v"]).ok();
    let pipe = place.pipe("pipe");
    let writer = place.kelix_reading(&["put", "t", "k", "--file", pipe.to_str().unwrap(), "--json"]);
    let mut input = open_pipe(&pipe);
    let second = place.serve(&["--take-over", "--json"]);
    let ready: serde_json::Value = serde_json::from_str(&second.ready).expect("JSON");
    assert_eq!(
        (&ready["term"], &ready["pid"], &ready["shards"]),
        (&json!(2), &json!(second.pid()), &json!(1))
    );
    assert_eq!((&ready["memory_bytes"], &ready["tcp"]), (&json!(64 << 20), &json!(null)));
    let (code, said) = first.end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("taken over") && said.contains(&second.pid().to_string()), "{said}");
    input.write_all(b"w").unwrap();
    drop(input);
    // Where to write was still to be asked, and the one that was connected to says nothing any more.
    let error = writer.give(b"").error(3);
    assert_eq!(
        (&error["kind"], &error["retry"], &error["effect"]),
        (&json!("superseded"), &json!(true), &json!("no"))
    );
    // What there was is there.
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "v\n");
    second.signal(Signal::INT);
    let mut second = second;
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn statistics() {
    let place = Place::new();
    let server = place.serve(&["--shards", "2"]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    let statistics = place.kelix(&["stat", "--json"]).json();
    assert_eq!(statistics["pid"], server.pid());
    assert_eq!(statistics["shards"].as_array().unwrap().len(), 2);
    // A shard reports when it has nothing better to do.
    for word in ["server: process", "requests", "memory, MiB", "64.0", "all", "no clients"] {
        let what = format!("\"{word}\" in the statistics");
        wait_until(&what, || place.kelix(&["stat"]).ok().contains(word).then_some(()));
    }
    let client = place.kelix_reading(&["put", "t", "k", "-"]);
    let pid = client.pid().to_string();
    wait_until("the client's row", || {
        let report = place.kelix(&["stat"]);
        let (_, clients) = report.ok().split_once("clients\n")?;
        clients.contains(&pid).then_some(())
    });
    client.give(b"w").ok();
}

#[test]
fn over_tcp() {
    let place = Place::new();
    place.kelix(&["serve", "--listen", "0.0.0.0:0"]).failed(2, &["0.0.0.0:0", "127.0.0.1"]);
    place.kelix(&["serve", "--listen", "nonsense"]).failed(2, &["nonsense"]);
    let deaf = place.serve(&[]);
    place.kelix(&["--fabric", "tcp", "get", "t", "k"]).failed(3, &["kelix serve --listen"]);
    drop(deaf);
    let mut server = place.serve(&["--listen", "0"]);
    let ready = server.ready.clone();
    let (_, address) = ready.trim().split_once("tcp at ").expect("where it listens");
    let elsewhere = Place::new();
    let over = |arguments: &[&str]| elsewhere.kelix_at(address, arguments);
    over(&["put", "people", "prof001", "--attr", "name=UVT"]).ok();
    over(&["put", "people", "stu001", "--link", "supervisor=people/prof001"]).ok();
    assert!(over(&["chase", "people", "stu001", "supervisor"]).ok().contains("name: UVT"));
    // The same store, whichever way.
    assert!(place.kelix(&["get", "people", "prof001"]).ok().contains("UVT"));
    let got = place.kelix(&["--fabric", "tcp", "get", "people", "prof001", "--json"]).json();
    assert_eq!((&got["cost"]["reads"], &got["cost"]["messages"]), (&json!(1), &json!(0)));
    assert_eq!(over(&["stat", "--json"]).json()["tcp"], address);
    assert!(over(&["stat"]).ok().contains(&format!("tcp at {address}")));
    over(&["--fabric", "shm", "get", "people", "prof001"]).failed(2, &[address, "run directory"]);
    over(&["--fabric", "pigeon", "get", "people", "prof001"]).failed(2, &["pigeon", "shm", "tcp"]);
    over(&["serve"]).failed(2, &["run directory"]);
    elsewhere.kelix_at("/nowhere", &["stat"]).failed(2, &["HOST:PORT"]);
    // What is said is preferred to what is set.
    elsewhere.kelix_at("127.0.0.1:1", &["--server", address, "stat"]).ok();
    elsewhere.kelix_at("127.0.0.1:1", &["stat"]).failed(3, &["no server at 127.0.0.1:1"]);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    over(&["get", "people", "prof001"]).failed(3, &["no server"]);
}

/// What holds on hosts with RDMA and without: the program says which fabrics there are, and a server that was
/// not told to use it does not.
#[test]
fn verbs_are_there_where_both_sides_have_them() {
    let place = Place::new();
    let told = place.kelix(&["fabric", "--json"]).json();
    let verbs = &told["verbs"];
    let usable = verbs["usable"].as_bool().expect("whether verbs are usable");
    assert_eq!((&told["shm"]["usable"], &told["tcp"]["usable"]), (&json!(true), &json!(true)));
    let text = place.kelix(&["fabric"]);
    if usable {
        assert!(text.ok().contains("verbs   usable"), "{text:?}");
    } else {
        let trouble = verbs["trouble"].as_str().expect("why not");
        assert!(!trouble.is_empty() && text.ok().contains(trouble), "{text:?}");
        assert!(text.ok().contains("verbs   not usable: "), "{text:?}");
        place.kelix(&["serve", "--listen", "0", "--rdma"]).failed(5, &["kelix fabric"]);
    }
    place.kelix(&["serve", "--rdma"]).failed(2, &["--listen"]);
    place.kelix(&["serve", "--listen", "0", "--rdma", "nonsense"]).failed(2, &["nonsense", "192.0.2.7"]);
    let server = place.serve(&["--listen", "0"]);
    let (_, address) = server.ready.trim().split_once("tcp at ").expect("where it listens");
    place.kelix(&["put", "t", "k", "v"]).ok();
    for insisted in [
        place.kelix(&["--fabric", "verbs", "get", "t", "k"]),
        place.kelix_at(address, &["--fabric", "verbs", "get", "t", "k"]),
    ] {
        insisted.failed(3, &["--rdma"]);
    }
    assert_eq!(place.kelix_at(address, &["get", "t", "k"]).ok(), "v\n");
}

#[test]
fn metrics_and_watching() {
    use std::io::Read;
    let place = Place::new();
    let server = place.serve(&["--metrics", "0"]);
    let ready = server.ready.clone();
    let (_, url) = ready.trim().split_once("metrics at http://").expect("where the metrics are");
    let address = url.strip_suffix("/metrics").expect("their path");
    place.kelix(&["put", "t", "k", "v"]).ok();
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    wait_until("the put is counted", || {
        let answer = ask("GET /metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let (_, puts) =
            answer.split_once("\nkelix_puts_total{namespace=\"default\",shard=\"0\"} ").expect("the metric");
        puts.lines().next().is_some_and(|puts| puts != "0").then_some(())
    });
    assert!(
        ask("GET /metrics").contains("\nkelix_client_reads_total{namespace=\"default\",fabric=\"tcp\"} 0\n")
    );
    assert!(ask("GET /nothing").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics").starts_with("HTTP/1.1 405"));
    Place::new().kelix(&["serve", "--metrics", address]).failed(5, &["metrics", address]);

    let watched = place.kelix(&["stat", "--watch", "0.05", "--count", "3"]);
    let lines: Vec<&str> = watched.ok().lines().collect();
    assert!(lines.len() == 4 && lines[0].contains("reads/s") && lines[0].contains("live MiB"), "{lines:?}");
    let watched = place.kelix(&["stat", "--watch", "0.05", "--count", "1", "--json"]).json();
    assert!(watched["items"].as_f64().is_some_and(|items| items >= 1.0), "{watched}");
    place.kelix(&["stat", "--watch", "no"]).failed(2, &["seconds"]);
    place.kelix(&["stat", "--count", "3"]).failed(2, &["--watch"]);
}

#[test]
fn logs() {
    let place = Place::new();
    let mut server = place.serve(&["--log", "debug", "--log-format", "json", "--listen", "0"]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    place.kelix(&["--fabric", "tcp", "get", "t", "k"]).ok();
    server.signal(Signal::TERM);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let logged = |level: &str, message: &str, field: &str, value: &serde_json::Value| {
        let is = |line: &&serde_json::Value| line["level"] == level && line["message"] == message;
        assert!(lines.iter().filter(is).any(|line| &line[field] == value), "{message}: {said}");
    };
    logged("INFO", "server started", "term", &json!(1));
    logged("DEBUG", "client connected", "fabric", &json!("shm"));
    logged("DEBUG", "client left", "fabric", &json!("tcp"));
    logged("INFO", "server stopped", "term", &json!(1));
    place.kelix(&["serve", "--log", "loud"]).failed(2, &["loud", "debug"]);
}

/// Certificates and keys in files: of an authority, of this host, of a client, and of a stranger who vouches
/// for himself.
fn certificates(place: &Place) -> impl Fn(&str) -> String {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (authority_key, stranger_key) = (key(), key());
    let authority = params.clone().self_signed(&authority_key).expect("a certificate");
    let stranger = params.self_signed(&stranger_key).expect("a certificate");
    place.file("ca.pem", authority.pem().as_bytes());
    place.file("stranger-ca.pem", stranger.pem().as_bytes());
    for (name, issuer, issuer_key) in [
        ("host", &authority, &authority_key),
        ("client", &authority, &authority_key),
        ("stranger", &stranger, &stranger_key),
    ] {
        let own = key();
        let params = CertificateParams::new(vec!["127.0.0.1".to_string()]).expect("parameters");
        let certificate = params.signed_by(&own, issuer, issuer_key).expect("a certificate");
        place.file(&format!("{name}.pem"), certificate.pem().as_bytes());
        place.file(&format!("{name}.key"), own.serialize_pem().as_bytes());
    }
    let path = place.path().to_str().expect("a name").to_string();
    move |name| format!("{path}/{name}")
}

#[test]
fn only_those_who_are_trusted_get_in_over_tls() {
    let place = Place::new();
    let file = certificates(&place);
    let words = place.file("words", b"# who knows one of these may come in\nopen sesame\nanother\n");
    let (word, wrong) = (place.file("word", b"another\n"), place.file("wrong", b"anothe\n"));
    let [words, word, wrong] = [&words, &word, &wrong].map(|path| path.to_str().unwrap());
    let own = ["--tls-cert", &file("host.pem"), "--tls-key", &file("host.key")];

    // What others can reach has to be guarded.
    place.kelix(&["serve", "--listen", "0.0.0.0:0", "--tokens", words]).failed(2, &["TLS"]);
    place
        .kelix(&[&["serve", "--listen", "0.0.0.0:0"], &own[..]].concat())
        .failed(2, &["token", "certificate"]);
    place.kelix(&["serve", "--listen", "0", "--tls-cert", &file("host.pem")]).failed(2, &["--tls-key"]);
    let mixed = ["--tls-cert", &file("host.pem"), "--tls-key", &file("client.key")];
    place.kelix(&[&["serve", "--listen", "0"], &mixed[..]].concat()).failed(2, &["does not go with"]);

    let arguments = [&["--listen", "0.0.0.0:0", "--tokens", words], &own[..]].concat();
    let server = place.serve(&arguments);
    let port = server.ready.trim().rsplit(':').next().expect("a port").to_string();
    let address = format!("127.0.0.1:{port}");
    let (ca, stranger) = (file("ca.pem"), file("stranger-ca.pem"));
    let over = |arguments: &[&str]| place.kelix_at(&address, arguments);
    let large: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    let value = place.file("large", &large);
    over(&["--tls-ca", &ca, "--token-file", word, "put", "t", "k", "v"]).ok();
    over(&["--tls-ca", &ca, "--token-file", word, "put", "t", "large", "--file", value.to_str().unwrap()])
        .ok();
    assert_eq!(over(&["--tls-ca", &ca, "--token-file", word, "get", "t", "k"]).ok(), "v\n");
    assert!(over(&["--tls-ca", &ca, "--token-file", word, "get", "t", "large", "--raw"]).out == large);
    over(&["--tls-ca", &ca, "--token-file", word, "stat"]).ok();
    over(&["--tls-ca", &ca, "--token-file", wrong, "get", "t", "k"]).failed(5, &["token"]);
    over(&["--tls-ca", &ca, "get", "t", "k"]).failed(5, &["token"]);
    over(&["--tls-ca", &stranger, "--token-file", word, "get", "t", "k"]).failed(3, &["TLS"]);
    over(&["--token-file", word, "get", "t", "k"]).failed(3, &["the server speaks TLS", "--tls-ca"]);
    // No time helps there.
    over(&["--retry", "60s", "get", "t", "k"]).failed(3, &["the server speaks TLS"]);
    // The Unix socket has an owner, and needs neither.
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "v\n");
    drop(server);

    let arguments = [&["--listen", "0", "--tls-ca", &ca], &own[..]].concat();
    let server = place.serve(&arguments);
    let (_, address) = server.ready.trim().split_once("tcp at ").expect("where it listens");
    let over = |name: &str| {
        let (pem, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        place.kelix_at(address, &["--tls-ca", &ca, "--tls-cert", &pem, "--tls-key", &key, "table", "list"])
    };
    over("client").ok();
    over("stranger").failed(3, &[]);
    place.kelix_at(address, &["--tls-ca", &ca, "table", "list"]).failed(3, &[]);
    drop(server);

    let server = place.serve(&["--listen", "0"]);
    let (_, address) = server.ready.trim().split_once("tcp at ").expect("where it listens");
    let words = ["the server does not speak TLS", "--tls-ca"];
    place.kelix_at(address, &["--tls-ca", &ca, "table", "list"]).failed(3, &words);
}

#[test]
fn namespaces_are_for_those_who_are_named() {
    let place = Place::new();
    let file = certificates(&place);
    let words = place.file("words", b"looker word-of-looker\nanybody-else\n");
    let [looker, other] = [("looker", "word-of-looker"), ("other", "anybody-else")]
        .map(|(name, word)| place.file(name, word.as_bytes()).to_str().unwrap().to_string());
    let slip = place.file("slip", b"[people]\nmemory = \"64M\"\nreaders = [\"token:loker\"]");
    place
        .kelix(&["serve", "--namespaces", slip.to_str().unwrap()])
        .failed(2, &["[people]", "no token is called \"loker\""]);
    let text = "[people]\nmemory = \"64M\"\nshards = 2\nreaders = [\"token:looker\"]\n\
                writers = [\"certificate:127.0.0.1\"]\n\
                [default]\nreaders = [\"anybody\"]";
    let namespaces = place.file("namespaces", text.as_bytes());
    let (namespaces, words) = (namespaces.to_str().unwrap(), words.to_str().unwrap());
    let (host, key, ca) = (file("host.pem"), file("host.key"), file("ca.pem"));
    let serve = ["--listen", "0", "--tls-cert", &host, "--tls-key", &key, "--namespaces", namespaces];
    let server = place.serve(&[&serve[..], &["--tokens", words]].concat());
    let (_, address) = server.ready.trim().split_once("tcp at ").expect("where it listens");
    let by = |token: &str, arguments: &[&str]| {
        let trust = ["--tls-ca", &ca, "--token-file", token, "--namespace", "people"];
        place.kelix_at(address, &[&trust[..], arguments].concat())
    };
    // The server's own user may do everything.
    place.kelix(&["--namespace", "people", "put", "t", "k", "v"]).ok();
    assert_eq!(by(&looker, &["get", "t", "k"]).ok(), "v\n");
    by(&looker, &["put", "t", "k", "w"]).failed(5, &["not write"]);
    by(&other, &["get", "t", "k"]).failed(5, &["may not read namespace \"people\""]);
    by(&other, &["stat"]).failed(5, &["may not read namespace \"people\""]);
    assert!(by(&looker, &["stat"]).ok().contains("namespace: people"));
    // The same table in the default namespace is another one.
    place.kelix(&["put", "t", "k", "default"]).ok();
    let plain = ["--tls-ca", &ca, "--token-file", &other, "get", "t", "k"];
    assert_eq!(place.kelix_at(address, &plain).ok(), "default\n");
    drop(server);

    // Those who show a certificate for the name may write.
    let server = place.serve(&[&serve[..], &["--tls-ca", &ca, "--tokens", words]].concat());
    let (_, address) = server.ready.trim().split_once("tcp at ").expect("where it listens");
    let (pem, own) = (file("client.pem"), file("client.key"));
    let trust = ["--tls-ca", &ca, "--tls-cert", &pem, "--tls-key", &own, "--token-file", &other];
    let certified = |arguments: &[&str]| place.kelix_at(address, &[&trust[..], arguments].concat());
    certified(&["--namespace", "people", "put", "t", "k", "certified"]).ok();
    assert_eq!(certified(&["--namespace", "people", "get", "t", "k"]).ok(), "certified\n");
    certified(&["put", "t", "k", "w"]).failed(5, &["not write"]);
}

/// The socket tells who connects; the file system lets everybody in here, and the namespaces do not.
#[test]
fn another_user_has_the_rights_of_that_user() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root runs commands as other users");
        return;
    }
    let (place, shared) = (Place::new(), Place::new());
    let text = "[people]\nmemory = \"64M\"\nreaders = [\"user:4242\"]\nwriters = [\"user:4343\"]";
    let namespaces = place.file("namespaces", text.as_bytes());
    let _server = place.serve(&["--namespaces", namespaces.to_str().unwrap()]);
    let open = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    // Where every user finds the program.
    let program = shared.path().join("kelix");
    std::fs::copy(env!("CARGO_BIN_EXE_kelix"), &program).expect("a copy");
    open(shared.path(), 0o755);
    open(&program, 0o755);
    open(place.path(), 0o755);
    for entry in std::fs::read_dir(place.path()).expect("a directory") {
        open(&entry.expect("an entry").path(), 0o666);
    }
    let by = |uid: u32, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(uid).gid(uid).current_dir("/").env_remove("KELIX_SERVER").env_remove("KELIX_DIR");
        command.arg("--dir").arg(place.path()).args(["--namespace", "people"]).args(arguments);
        let done = command.stdin(Stdio::null()).output().expect("the program starts");
        let text = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    assert_eq!(by(4343, &["put", "t", "k", "v"]).0, Some(0));
    assert_eq!(by(4242, &["--fabric", "shm", "get", "t", "k"]), (Some(0), "v\n".into()));
    let (code, text) = by(4242, &["put", "t", "k", "w"]);
    assert!(code == Some(5) && text.contains("not write"), "{text}");
    let (code, text) = by(4444, &["get", "t", "k"]);
    assert!(code == Some(5) && text.contains("may not read namespace"), "{text}");
}

/// A command in fresh namespaces, with a directory mounted at another place.
fn contained(directory: &str, mounted_at: &str, args: &[&str]) -> Command {
    let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command.args([
        "sh",
        "-c",
        script,
        directory,
        mounted_at,
        env!("CARGO_BIN_EXE_kelix"),
        "--dir",
        mounted_at,
    ]);
    command.args(args).env_remove("KELIX_SERVER").stdin(Stdio::null());
    command
}

/// What containers share is the run directory, under different names; shared memory needs no more.
#[test]
fn shared_memory_works_between_containers() {
    let place = Place::new();
    let directory = place.path().to_str().unwrap();
    let (here, there) = (Place::new(), Place::new());
    let (here, there) = (here.path().to_str().unwrap(), there.path().to_str().unwrap());
    let probe =
        Command::new("unshare").args(["--user", "--map-root-user", "--mount", "--net", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system makes no namespaces for this user");
        return;
    }
    let file = place.file("namespaces.toml", b"[own]\nmemory = \"64M\"\nwriters = [\"user:4242\"]\n");
    let serve = ["serve", "--memory", "64M", "--no-pin", "--namespaces", file.to_str().unwrap()];
    let mut server =
        contained(directory, here, &serve).stdout(Stdio::null()).spawn().expect("unshare starts");
    let run = |args: &[&str]| contained(directory, there, args).output().expect("unshare starts");
    wait_until("the server serves", || {
        let put = run(&["put", "t", "k", "v"]);
        put.status.success().then_some(())
    });
    let got = run(&["--fabric", "shm", "get", "t", "k", "--json"]);
    let said = String::from_utf8_lossy(&got.stdout);
    assert!(got.status.success(), "{said} {}", String::from_utf8_lossy(&got.stderr));
    let item: serde_json::Value = serde_json::from_slice(&got.stdout).expect("JSON");
    assert_eq!((&item["value"], &item["cost"]["messages"]), (&"v".into(), &0.into()), "{said}");
    assert_eq!(item["cost"]["reads"], 2, "{said}");
    // The server does not see the number of such a process, and knows its user, which is its own.
    let put = run(&["--namespace", "own", "put", "t", "k", "v"]);
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    server.kill().expect("it runs");
    let _ = server.wait();
}

#[test]
fn every_command_helps() {
    let place = Place::new();
    for command in [
        "serve",
        "demo",
        "put",
        "get",
        "del",
        "chase",
        "walk",
        "scan",
        "stat",
        "shell",
        "config",
        "plan",
        "bench",
        "completions",
    ] {
        let help = place.kelix(&["help", command]);
        assert!(help.ok().contains("Examples:"), "{help:?}");
    }
    for command in ["create", "list", "describe", "drop", "export", "import"] {
        assert!(place.kelix(&["table", command, "--help"]).ok().contains("Examples:"));
    }
    for command in ["take", "list", "verify"] {
        assert!(place.kelix(&["snapshot", command, "--help"]).ok().contains("Examples:"));
    }
    let syntax = place.kelix(&["help", "syntax"]);
    for word in ["hex:", "u64:", "text:", "TABLE/KEY=BYTES", "students[]", "Exit codes"] {
        assert!(syntax.ok().contains(word), "{syntax:?}");
    }
    assert_eq!(syntax.ok(), place.kelix(&["syntax"]).ok());
    assert!(place.kelix(&["help", "namespaces"]).ok().contains("certificate:HOST"));
    assert!(place.kelix(&["--help"]).ok().contains("Exit codes"));
    assert_eq!(place.kelix(&[]).code, 2);
}
