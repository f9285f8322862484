//! Slips of somebody who is new to the program: each is told with its cause and what to do, by the code that
//! the manual names.

mod harness;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use harness::{Place, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::json;

/// What libraries say by themselves, which says nothing to who typed it.
const BARE: [&str; 6] = [
    "invalid digit",
    "cannot parse integer",
    "number too large",
    "invalid IP address syntax",
    "expected value at",
    "not found in string",
];

#[test]
fn wrong_values_of_options_are_told_with_what_is_taken() {
    let place = Place::new();
    for (args, wanted) in [
        (&["put", "t", "k", "v", "--if-version", "abc"][..], "get --json"),
        (&["put", "t", "k", "v", "--flags", "x"], "0x1f"),
        (&["put", "t", "k", "v", "--expires", "x"], "30s"),
        (&["del", "t", "k", "--if-version", "1.5"], "get --json"),
        (&["scan", "t", "--limit", "x"], "10M"),
        (&["walk", "t", "k", "l", "--limit", "0"], "from 1 on"),
        (&["walk", "t", "k", "l", "--depth", "x"], "0 to"),
        (&["stat", "--watch", "x"], "0.01"),
        (&["stat", "--watch", "1", "--count", "x"], "10M"),
        (&["serve", "--shards", "x"], "1 to 64"),
        (&["serve", "--memory", "x"], "64M"),
        (&["serve", "--snapshot-keep", "x", "--snapshots", "s"], "1 to"),
        (&["serve", "--snapshots", "s", "--snapshot-every", "0s"], "one snapshot and the next"),
        (&["serve", "--listen", "99999"], "HOST:PORT"),
        (&["serve", "--mirrors", "x"], "0 to 1000"),
        (&["serve", "--metrics", "x"], "HOST:PORT"),
        (&["serve", "--view-lease", "x"], "30s"),
        (&["serve", "--fresh"], "--snapshots"),
        (&["plan", "--items", "x", "--key", "8", "--value", "8"], "1e7"),
        (&["plan", "--items", "1", "--key", "x", "--value", "8"], "64M"),
        (&["plan", "--items", "1", "--key", "8", "--value", "8", "--shards", "x"], "1 to 64"),
        (&["bench", "spine", "--records", "0"], "from 1 on"),
        (&["bench", "peers", "--clients", "x"], "1 to 64"),
        (&["stat", "--timeout", "x"], "30s"),
        (&["stat", "--retry", "0s"], "--retry"),
        (&["stat", "--rdma-address", "x"], "192.0.2.7"),
    ] {
        let done = place.kelix(args);
        done.failed(2, &[wanted]);
        let told = done.err.clone();
        assert!(!BARE.iter().any(|bare| told.contains(bare)), "{args:?}: {told}");
    }
}

#[test]
fn options_that_a_command_does_not_heed_are_refused_behind_its_name() {
    let place = Place::new();
    let plan = ["plan", "--items", "1", "--key", "8", "--value", "8"];
    for (option, value) in
        [("--retry", "3s"), ("--server", "127.0.0.1:1"), ("--fabric", "tcp"), ("--dir", "x")]
    {
        place.kelix(&[&plan[..], &[option, value]].concat()).failed(2, &["kelix plan", option]);
        let before = [&["config", "check", "x"], &[option, value][..]].concat();
        place.kelix(&before).failed(2, &["kelix config check", option]);
    }
    for option in [["--retry", "3s"], ["--token-file", "x"], ["--namespace", "n"]] {
        place.kelix(&[&["serve"], &option[..]].concat()).failed(2, &["kelix serve", option[0]]);
    }
    let kelix = |args: &[&str]| {
        let mut kelix = Command::new(env!("CARGO_BIN_EXE_kelix"));
        kelix.env_remove("KELIX_DIR").env("KELIX_CONFIG", "/dev/null").args(args).output().expect("it runs")
    };
    let of_node = kelix(&["serve", "--node", "a", "--dir", "x"]);
    let why = String::from_utf8_lossy(&of_node.stderr);
    assert!(of_node.status.code() == Some(2) && why.contains("leave --dir out"), "{why}");
    // What stands before the name, as in an alias, or what the environment sets, is for other commands, and
    // no slip.
    assert!(kelix(&[&["--retry", "3s", "--dir", "plan"], &plan[..]].concat()).status.success());
    place.kelix_knowing(&[("KELIX_SERVER", "127.0.0.1:1"), ("KELIX_RETRY", "3s")], &plan).ok();
}

/// Nothing was read, and an empty value written.
#[test]
fn standard_input_that_is_closed_is_no_empty_value() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "t", "k", "v"]).ok();
    let kelix = |input: &str, args: &[&str]| {
        let mut shell = Command::new("sh");
        shell.env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null").env("KELIX_DIR", place.path());
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {input}"), env!("CARGO_BIN_EXE_kelix")]);
        shell.args(args).output().expect("it runs")
    };
    for args in [&["put", "t", "k", "-"][..], &["put", "t", "k", "--file", "-"], &["table", "import", "t"]] {
        let done = kelix("<&-", args);
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && why.contains("standard input is closed"), "{args:?}: {why}");
    }
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "v\n");
    assert!(kelix("</dev/null", &["put", "t", "k", "-"]).status.success());
    assert_eq!(place.kelix(&["get", "t", "k", "--raw"]).ok(), "");
}

#[test]
fn plans_of_what_cannot_be_are_refused() {
    let place = Place::new();
    let plan = |items: &str, key: &str, value: &str, more: &[&str]| {
        place.kelix(&[&["plan", "--items", items, "--key", key, "--value", value][..], more].concat())
    };
    for (items, key, value, more, wanted) in [
        ("18446744073709551615", "8", "8", &[][..], "a server has no more"),
        ("100", "100K", "8", &[], "64 KiB"),
        ("100", "8", "100T", &[], "8.0 TiB"),
        ("100M", "8", "8T", &[], "several servers"),
        ("40G", "8", "8", &["--shards", "1"], "--shards"),
        ("100", "8", "4T", &["--shards", "1"], "16.0 TiB"),
        ("40G", "8", "1K", &["--ordered"], "several tables"),
        ("1", "8", "8", &["--puts-per-second", "18446744073709551615"], "in a second"),
        ("1", "8", "8", &["--attributes", "18446744073709551615"], "names of attributes"),
    ] {
        plan(items, key, value, more).failed(2, &[wanted]);
    }
    let same = |items: &str| plan(items, "16", "32", &["--json"]).json();
    assert_eq!(same("10M"), same("10000000"));
    assert_eq!(same("1e7"), same("10000000"));
}

#[test]
fn a_slip_in_a_variable_is_told_and_one_of_the_environment_is_blamed_only_where_it_counts() {
    let (place, _server) = Place::served();
    let done = place.kelix_knowing(&[("KELIX_MEMROY", "1G")], &["put", "t", "k", "v"]);
    done.failed(0, &["KELIX_MEMROY", "KELIX_MEMORY"]);
    let done = place.kelix_knowing(&[("KELIX_TIMEOUT", "2s")], &["get", "--bogus"]);
    done.failed(2, &["--bogus"]);
    assert!(!done.err.contains("environment"), "{done:?}");
}

#[test]
fn links_that_nobody_has_and_long_lists_of_what_is_not_there() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "t", "k", "--link", "to=t/l"]).ok();
    place.kelix(&["put", "t", "l", "v"]).ok();
    place.kelix(&["walk", "t", "k", "to"]).ok();
    for args in [&["walk", "t", "k", "two"][..], &["walk", "t", "k", "to", "two", "--json"]] {
        place.kelix(args).failed(1, &["none of the items visited has a link", "two"]);
    }
    let mut args = vec!["put".to_string(), "t".into(), "many".into()];
    args.extend((0..2000).flat_map(|number| ["--link".to_string(), format!("to=t/absent{number}")]));
    place.kelix(&args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    let chased = place.kelix(&["chase", "t", "many", "to[]"]);
    chased.failed(1, &["absent0", "and 1990 more"]);
    assert!(chased.err.len() < 2000, "{} bytes", chased.err.len());
}

#[test]
fn statistics_count_what_users_have_put_and_tell_a_cache() {
    let place = Place::new();
    let server = place.serve(&["--cache"]);
    place.kelix(&["put", "t", "k", "--attr", "a=1", "--link", "to=u/l"]).ok();
    place.kelix(&["put", "t", "l", "v"]).ok();
    let items = wait_until("the items to be counted", || {
        let statistics = place.kelix(&["stat", "--json"]).json();
        let items = statistics["shards"][0]["items"].as_u64()?;
        (statistics["shards"][0]["puts"].as_u64()? > 1 && items > 0).then_some(items)
    });
    assert!((1..=2).contains(&items), "{items}");
    wait_until("both to be counted", || {
        let statistics = place.kelix(&["stat", "--json"]).json();
        (statistics["shards"][0]["items"] == 2 && statistics["cache"] == true).then_some(())
    });
    assert!(place.kelix(&["stat"]).ok().contains("a cache"));
    drop(server);
}

#[test]
fn objects_of_any_form_are_imported_by_the_name_of_their_key() {
    let (place, _server) = Place::served();
    let lines = "{\"id\":7,\"name\":\"Ada\",\"likes\":null,\"old\":true,\"text\":\"hex:beer\",\"empty\":\"\"}\n\
                 {\"id\":\"->x\",\"name\":\"two\\nlines\",\"share\":0.5}\n";
    let file = place.file("people.jsonl", lines.as_bytes());
    let file = file.to_str().expect("text");
    place.kelix(&["table", "import", "people", file]).failed(2, &["line 1", "--key NAME"]);
    place.kelix(&["table", "import", "people", file, "--key", "id"]).ok();
    let ada = place.kelix(&["get", "people", "7", "--json"]).json();
    let named = |name: &str, value: &str| json!({"name": name, "value": value});
    let all =
        [named("empty", ""), named("name", "Ada"), named("old", "true"), named("text", "text:hex:beer")];
    let mut found = ada["attributes"].as_array().expect("attributes").clone();
    found.sort_by_key(|attribute| attribute["name"].to_string());
    assert_eq!(found, all);
    assert!(place.kelix(&["get", "people", "text:->x"]).ok().contains("share: 0.5"));
    for (line, wanted) in [
        ("{\"name\":1}", "there are: name"),
        ("{\"id\":1,\"of\":[1]}", "kelix load"),
        ("{\"id\":1,\"of\":12345678901234567890123}", "more digits"),
        ("[1]", "an object"),
        ("{\"id\":1", "an object is wanted"),
    ] {
        let file = place.file("wrong.jsonl", line.as_bytes());
        let args = ["table", "import", "people", file.to_str().expect("text"), "--key", "id"];
        place.kelix(&args).failed(2, &["line 1", wanted]);
    }
}

#[test]
fn files_that_cannot_be_read_are_told_by_one_code() {
    let place = Place::new();
    for args in [["--tokens", "/nowhere"], ["--tls-cert", "/nowhere"], ["--tls-key", "/nowhere"]] {
        let rest = ["--listen", "0", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"];
        let args = if args[0] == "--tokens" { [&rest[..2], &args].concat() } else { rest.to_vec() };
        place.kelix(&[&["serve"][..], &args].concat()).failed(5, &["/nowhere", "No such file"]);
    }
    let text = place.file("text", b"no snapshot, and shorter than one");
    place.kelix(&["snapshot", "verify", text.to_str().expect("text")]).failed(5, &["is no snapshot"]);
}

#[test]
fn snapshots_that_cannot_be_read_fail_their_list() {
    let place = Place::new();
    let kept = place.path().join("kept");
    let list = || place.kelix(&["snapshot", "list", kept.to_str().expect("text"), "--json"]);
    let mut server = place.serve(&["--snapshots", kept.to_str().expect("text")]);
    place.kelix(&["snapshot", "take"]).ok();
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    list().ok();
    std::fs::write(kept.join("1.kelix-snapshot"), "none").expect("written");
    let listed = list();
    let error = listed.error(5);
    assert!(error["context"].as_str().is_some_and(|text| text.contains("1 of ")), "{error}");
    let all = listed.json()["snapshots"].as_array().expect("a list").clone();
    assert!(all.iter().any(|one| one["error"].is_string()) && all.iter().any(|one| one["error"].is_null()));
}

#[test]
fn a_file_of_any_kind_that_makes_no_sense_is_told_with_its_line() {
    let place = Place::new();
    let text = |path: &std::path::Path| path.to_str().expect("text").to_string();
    for (wrong, wanted) in [
        ("[people]\nmemory = 5\n", "namespaces.toml, line 2: "),
        ("[people\n", "namespaces.toml, line 1: "),
        ("\npeople = 3\n", "namespaces.toml, line 2: "),
        ("[people]\n", "namespaces.toml, [people]: "),
    ] {
        let file = text(&place.file("namespaces.toml", wrong.as_bytes()));
        let done = place.kelix(&["serve", "--namespaces", &file]);
        done.failed(2, &[wanted]);
        assert!(done.err.lines().count() == 1 && !done.err.contains("struct"), "{done:?}");
    }
    // The first line that is wrong is told, whatever sections are called.
    let file = text(&place.file("kelix.toml", b"\n[serve]\nshards = \"x\"\n[client]\nretry = 5.0\n"));
    place.kelix(&["config", "check", &file]).failed(2, &["kelix.toml, line 3: "]);
}

#[test]
fn a_name_of_a_table_that_is_not_there_is_told_with_those_that_are() {
    let (place, _server) = Place::served();
    place.kelix(&["get", "people", "k"]).failed(1, &["no table \"people\"", "kelix table create"]);
    place.kelix(&["put", "people", "k", "v"]).ok();
    for command in [
        &["get", "poeple", "k"][..],
        &["del", "poeple", "k"],
        &["scan", "poeple"],
        &["table", "drop", "poeple"],
    ] {
        place.kelix(command).failed(1, &["no table \"poeple\"", "perhaps \"people\" is meant"]);
    }
    // A terminal is told nothing that it would do.
    let tricked = place.kelix(&["get", "no\u{1b}[31mtable", "k"]);
    tricked.failed(1, &["no table \"no\u{fffd}[31mtable\""]);
    let walked = place.kelix(&["walk", "streets", "k", "l", "--json"]).error(1);
    assert_eq!(walked["kind"], "no such table");
    assert!(walked["context"].as_str().is_some_and(|text| text.ends_with("there are people")), "{walked}");
}

#[test]
fn who_is_not_let_in_is_told_so_by_one_code() {
    let place = Place::new();
    let words = place.file("words", b"reader right\n");
    let server = place.serve(&["--listen", "0", "--tokens", words.to_str().expect("text")]);
    let (_, address) = server.ready.split_once("tcp at ").expect("an address");
    let address = address.split([',', '\n']).next().expect("an address");
    let get = |more: &[&str], token: &str| {
        let mut kelix = Command::new(env!("CARGO_BIN_EXE_kelix"));
        kelix.env_clear().env("KELIX_CONFIG", "/dev/null").env("KELIX_TOKEN", token);
        let done =
            kelix.args(["--server", address]).args(more).args(["table", "list"]).output().expect("it runs");
        (done.status.code(), String::from_utf8(done.stderr).expect("text"))
    };
    assert_eq!(get(&[], "right"), (Some(0), String::new()));
    // A retry would be refused again.
    for (more, token) in
        [(&["--retry", "60s"][..], "wrong"), (&["--retry", "60s"], ""), (&["--namespace", "none"], "right")]
    {
        let (code, told) = get(more, token);
        assert!(code == Some(5) && told.contains("this client may not "), "{code:?}: {told}");
    }
}

#[test]
fn a_process_that_may_have_little_memory_says_so() {
    let (place, server) = (Place::new(), Place::new());
    let server = (server.serve(&["--listen", "0"]), server);
    let (_, address) = server.0.ready.split_once("tcp at ").expect("an address");
    let address = address.split([',', '\n']).next().expect("an address");
    let limited = |kibibytes: u64, args: &[&str]| {
        let mut kelix = Command::new("sh");
        kelix.args(["-c", &format!("ulimit -v {kibibytes}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_kelix")]);
        kelix.env_remove("KELIX_DIR").env("KELIX_CONFIG", "/dev/null").current_dir(place.path()).args(args);
        let done = kelix.stdin(Stdio::null()).output().expect("it runs");
        (done.status, String::from_utf8(done.stderr).expect("text"))
    };
    for args in [
        &["--dir", "own", "serve"][..],
        &["--server", address, "get", "t", "k"],
        &["plan", "--items", "1", "--key", "8", "--value", "8"],
    ] {
        let (status, told) = limited(60_000, args);
        assert_eq!(status.code(), Some(5), "{args:?}: {status} {told}");
        assert!(told.contains("58.6 MiB") && told.contains("64 MiB") && told.contains("ulimit -v"), "{told}");
    }
    // Wherever the limit is met, nothing panics, hangs or is aborted.
    for kibibytes in (66_000..150_000).step_by(12_000) {
        for args in [
            &["--server", address, "get", "t", "k"][..],
            &["--dir", server.1.path().to_str().expect("text"), "get", "t", "k"],
        ] {
            let (status, told) = limited(kibibytes, args);
            let fits = told.contains("no table") && status.code() == Some(1);
            let refused = told.contains("ulimit -v") && matches!(status.code(), Some(3 | 5));
            assert!((fits || refused) && !told.contains("panicked"), "{kibibytes} {args:?}: {status} {told}");
        }
    }
}

/// What was printed to an output that was closed was lost, and the command said that all was well.
#[test]
fn an_output_that_cannot_be_written_is_told_by_every_command() {
    let (place, _server) = Place::served();
    let table = ["table", "create", "--ordered", "--keys", "u64", "--values", "inline8", "numbers"];
    place.kelix(&table).ok();
    place.kelix(&["put", "numbers", "1", "2"]).ok();
    place.kelix(&["put", "t", "k", "v", "--link", "l=t/k"]).ok();
    let rows = place.file("rows.jsonl", b"{\"key\":\"i\",\"value\":\"v\"}\n");
    let rows = rows.to_str().expect("plain letters");
    let terminal = || {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        unlockpt(&master).expect("its other end may be opened");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("plain letters");
        let other = OpenOptions::new().write(true).open(name).expect("its other end");
        drop(master);
        // Writes to it fail once nobody has the first end. What another test starts at this moment has it
        // until that is another program.
        wait_until("the terminal is gone", || {
            let mut ends = [PollFd::new(&other, PollFlags::OUT)];
            poll(&mut ends, Some(&Timespec::default())).expect("a look at it");
            ends[0].revents().contains(PollFlags::HUP).then_some(())
        });
        Stdio::from(other)
    };
    for (args, wrote) in [
        (&["--help"][..], false),
        (&["get", "--help"], false),
        (&["help", "syntax"], false),
        (&["--version"], false),
        (&["namespaces"], false),
        (&["completions", "bash"], false),
        (&["config"], false),
        (&["config", "example"], false),
        (&["plan", "--items", "1000", "--key", "8", "--value", "8"], false),
        (&["fabric"], false),
        (&["get", "t", "k"], false),
        (&["get", "t", "k", "--raw"], false),
        (&["get", "t", "k", "--json"], false),
        (&["chase", "t", "k", "l"], false),
        (&["walk", "t", "k", "l"], false),
        (&["scan", "numbers"], false),
        (&["scan", "numbers", "--count"], false),
        (&["stat"], false),
        (&["stat", "--json"], false),
        (&["stat", "--watch", "0.01", "--count", "2"], false),
        (&["table", "list"], false),
        (&["table", "describe", "t"], false),
        (&["table", "export", "t"], false),
        (&["table", "import", "t", rows], false),
        (&["shell", "-c", "get t k"], false),
        (&["put", "t", "k", "v"], true),
        (&["put", "t", "k", "v", "--json"], true),
        (&["del", "t", "i", "--json"], true),
    ] {
        for how in ["is closed", "is read-only", "is full", "is a terminal that has gone"] {
            if args[0] == "del" {
                place.kelix(&["put", "t", "i", "v"]).ok();
            }
            let redirection = match how {
                "is closed" => ">&-",
                "is read-only" => "1</dev/null",
                "is full" => ">/dev/full",
                _ => "",
            };
            let mut command = Command::new("sh");
            command.args([
                "-c",
                &format!("exec \"$@\" {redirection}"),
                "sh",
                env!("CARGO_BIN_EXE_kelix"),
                "--dir",
            ]);
            command.arg(place.path()).args(args).env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
            command.stdin(Stdio::null()).stdout(terminal()).stderr(Stdio::piped());
            let done = command.output().expect("it runs");
            let told = String::from_utf8(done.stderr).expect("text");
            let what = format!("{args:?}, whose output {how}: {told}");
            assert_eq!(done.status.code(), Some(5), "{what}");
            assert!(told.contains("cannot write the output"), "{what}");
            assert_eq!(told.contains("took effect") || told.contains("\"effect\":\"yes\""), wrote, "{what}");
        }
    }
    // A write without a word has nothing to fail at.
    let quiet = format!("exec {} --dir {} del t k >&-", env!("CARGO_BIN_EXE_kelix"), place.path().display());
    assert!(Command::new("sh").args(["-c", &quiet]).status().expect("it runs").success());
}

/// A server has a listener, sockets, memory and a runtime for metrics, of which each takes descriptors.
#[test]
fn a_server_with_too_few_descriptors_serves_or_tells() {
    let place = Place::new();
    let mut served = 0;
    // With four the program can be loaded.
    for descriptors in 4.. {
        assert!(descriptors < 200, "no server serves with so many");
        let mut server = Command::new("sh");
        server.args([
            "-c",
            &format!("ulimit -n {descriptors} && exec \"$@\""),
            "sh",
            env!("CARGO_BIN_EXE_kelix"),
        ]);
        server.arg("--dir").arg(place.path()).args(["serve", "--memory", "64M", "--no-pin", "--shards", "1"]);
        server.args(["--listen", "0", "--metrics", "0", "--snapshots"]).arg(place.path().join("snapshots"));
        server.env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
        let mut server = server
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        if !line.is_empty() {
            server.kill().expect("a process of our own");
            served += 1;
        }
        let done = server.wait_with_output().expect("it ends");
        let told = String::from_utf8(done.stderr).expect("text");
        assert!(!told.contains("panicked"), "{descriptors} descriptors: {told}");
        if line.is_empty() {
            assert_eq!(done.status.code(), Some(5), "{descriptors} descriptors: {told}");
            assert!(told.contains("ulimit -n"), "{descriptors} descriptors: {told}");
        }
        if served == 3 {
            break;
        }
    }
}

#[test]
fn other_hosts_that_may_read_the_page_are_told_of() {
    let place = Place::new();
    let mut server = place.serve(&["--metrics", "0.0.0.0:0"]);
    server.signal(rustix::process::Signal::TERM);
    let (code, said) = server.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("--metrics 0.0.0.0:0 lets other hosts read"), "{said}");
}

/// Another service's port, as that of memcached or a web server: some answer with less than a frame.
#[test]
fn a_port_of_another_service_is_told_from_a_server() {
    let place = Place::new();
    for (answer, shown) in [("HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 400"), ("ERROR\r\n", "ERROR")] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().unwrap().to_string();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client");
            std::io::Write::write_all(&mut stream, answer.as_bytes()).expect("it listens");
            // Open until the client has gone.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        place.kelix_at(&address, &["stat"]).failed(3, &["no server of Kelix", shown]);
        served.join().unwrap();
    }
}

/// Nothing was removed, said a command that had been given a wrong directory; and a file was there behind it.
#[test]
fn a_directory_without_a_log_is_none_to_truncate() {
    let place = Place::new();
    let wrong = place.path().join("wrong");
    std::fs::create_dir(&wrong).unwrap();
    place.kelix(&["wal", "truncate", wrong.to_str().unwrap()]).failed(1, &["there is no log in"]);
    assert_eq!(std::fs::read_dir(&wrong).unwrap().count(), 0);
}
