//! Options from the command line, the environment and files: which is preferred, and what is said of slips.

mod harness;

use std::process::{Command, Stdio};

use harness::{Done, Place};
use serde_json::{Value, json};

/// Runs the program with these variables and no others.
fn kelix(variables: &[(&str, &str)], args: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelix"));
    let command = command.env_clear().env("KELIX_CONFIG", "/dev/null").envs(variables.iter().copied());
    let done = command.args(args).stdin(Stdio::null()).output().expect("the program starts");
    Done {
        code: done.status.code().expect("an exit code"),
        out: done.stdout,
        err: String::from_utf8_lossy(&done.stderr).into_owned(),
    }
}

/// What is in force of an option, and where it comes from.
fn in_force(variables: &[(&str, &str)], args: &[&str], section: &str, option: &str) -> (Value, Value) {
    let object = kelix(variables, &[args, &["config", "--json"]].concat()).json();
    let option = &object[section][option];
    (option["value"].clone(), option["from"].clone())
}

#[test]
fn flags_go_before_variables_before_the_file_before_defaults() {
    let place = Place::new();
    let file = place
        .file("kelix.toml", b"[client]\nnamespace = \"of the file\"\n[serve]\nshards = 2\nno-pin = true\n");
    let file = ("KELIX_CONFIG", file.to_str().expect("text"));
    let set = ("KELIX_NAMESPACE", "of the variable");
    let namespace =
        |variables: &[(&str, &str)], args: &[&str]| in_force(variables, args, "client", "namespace");
    let default = json!("the one that every server has");
    assert_eq!(namespace(&[], &[]), (default, json!("default")));
    assert_eq!(namespace(&[file], &[]), (json!("of the file"), json!("file")));
    assert_eq!(namespace(&[file, set], &[]), (json!("of the variable"), json!("environment")));
    let flag = ["--namespace", "of the flag"];
    assert_eq!(namespace(&[file, set], &flag), (json!("of the flag"), json!("command line")));
    // An empty variable is none.
    assert_eq!(namespace(&[file, ("KELIX_NAMESPACE", "")], &[]), (json!("of the file"), json!("file")));

    let shards = |variables: &[(&str, &str)]| in_force(variables, &[], "serve", "shards");
    assert_eq!(shards(&[]), (json!("1"), json!("default")));
    assert_eq!(shards(&[file]), (json!("2"), json!("file")));
    assert_eq!(shards(&[file, ("KELIX_SHARDS", "3")]), (json!("3"), json!("environment")));
    let pins = |variables: &[(&str, &str)]| in_force(variables, &[], "serve", "no-pin");
    assert_eq!(pins(&[file]), (json!("true"), json!("file")));
    assert_eq!(pins(&[file, ("KELIX_NO_PIN", "false")]), (json!("false"), json!("environment")));
    let object = kelix(&[file], &["config", "--json"]).json();
    assert_eq!((&object["file"], &object["serve"]["shards"]["line"]), (&json!(file.1), &json!(4)));
    let text = kelix(&[file], &["config"]);
    assert!(text.ok().contains(&format!("{}, line 4", file.1)), "{text:?}");
}

#[test]
fn a_server_and_its_clients_take_what_is_set() {
    let place = Place::new();
    let text = "[serve]\nshards = 2\nmemory = \"64M\"\nno-pin = true\nview-lease = \"1s\"\nlisten = 0\n";
    let file = place.file("kelix.toml", text.as_bytes());
    let file = file.to_str().expect("text");
    let ready = |args: &[&str]| {
        let server =
            place.serve_with(&[("KELIX_SHARDS", "3")], &[&["--json", "--config", file], args].concat());
        serde_json::from_str::<Value>(&server.ready).expect("JSON")
    };
    let told = ready(&[]);
    assert_eq!((&told["shards"], &told["memory_bytes"]), (&json!(3), &json!(64 << 20)));
    assert!(told["tcp"].is_string(), "{told}");
    assert_eq!(ready(&["--shards", "4"])["shards"], 4);

    let server = place.serve_with(&[], &["--json", "--config", file]);
    let told: Value = serde_json::from_str(&server.ready).expect("JSON");
    assert_eq!(told["shards"], 2);
    let address = told["tcp"].as_str().expect("an address");
    let client = place.file("client.toml", format!("[client]\nserver = \"{address}\"\n").as_bytes());
    let client = ("KELIX_CONFIG", client.to_str().expect("text"));
    kelix(&[client], &["put", "t", "k", "v"]).ok();
    assert_eq!(kelix(&[client], &["stat", "--json"]).json()["pid"], server.pid());
    // What is said is preferred to what excludes it.
    let nowhere = place.path().join("nowhere");
    kelix(&[client], &["--dir", nowhere.to_str().expect("text"), "get", "t", "k"])
        .failed(3, &["no server in"]);
    kelix(&[("KELIX_DIR", nowhere.to_str().expect("text"))], &["--server", address, "get", "t", "k"]).ok();
    let both = [("KELIX_DIR", nowhere.to_str().expect("text")), ("KELIX_SERVER", address)];
    assert_eq!(kelix(&both, &["get", "t", "k"]).ok(), "v\n");
    // A benchmark, or help, needs none of it.
    kelix(&[("KELIX_CONFIG", "/nonexistent")], &["help", "get"]).ok();
}

#[test]
fn the_file_is_looked_for_in_two_places() {
    let place = Place::new();
    place.file("kelix.toml", b"[serve]\nshards = 5\n");
    let directory = place.path().to_str().expect("text");
    let none = ("KELIX_CONFIG", "");
    assert_eq!(in_force(&[none, ("XDG_CONFIG_HOME", directory)], &[], "serve", "shards").0, json!("5"));
    std::fs::create_dir(place.path().join(".config")).expect("a folder");
    place.file(".config/kelix.toml", b"[serve]\nshards = 6\n");
    assert_eq!(in_force(&[none, ("HOME", directory)], &[], "serve", "shards").0, json!("6"));
    let named = place.file("other.toml", b"[serve]\nshards = 7\n");
    let named = ["--config", named.to_str().expect("text")];
    assert_eq!(in_force(&[("HOME", directory)], &named, "serve", "shards").0, json!("7"));
    kelix(&[("KELIX_CONFIG", "/nonexistent/file")], &["config"]).failed(5, &["/nonexistent/file"]);
}

#[test]
fn slips_are_told_with_file_line_and_key() {
    let place = Place::new();
    let wrong = |text: &str, words: &[&str]| {
        let file = place.file("wrong.toml", text.as_bytes());
        let file = file.to_str().expect("text");
        let check = kelix(&[], &["config", "check", file]);
        check.failed(2, words);
        assert!(check.err.contains(file), "{check:?}");
    };
    wrong("[serve]\n\nshard = 2\n", &["line 3", "\"shard\"", "perhaps shards is meant"]);
    wrong("[serve]\nshards = \"2\"\n", &["line 2", "shards is a text", "has to be a number"]);
    wrong("[serve]\nno-pin = \"yes\"\n", &["line 2", "no-pin", "true or false"]);
    wrong("[client]\nshards = 2\n", &["line 2", "shards belongs in [serve]"]);
    wrong("[clients]\ndir = \"x\"\n", &["line 1", "[clients]", "perhaps [client] is meant"]);
    wrong("dir = \"x\"\n", &["line 1", "dir belongs below"]);
    wrong("[serve]\nmemory = \"4X\"\n", &["line 2", "memory", "64M or 4G"]);
    wrong("[serve]\nlisten = 1\nlog = \"loud\"\n", &["line 3", "log", "loud", "debug"]);
    wrong("[client]\nretry = \"5\"\n", &["line 2", "retry", "\"5\" is no time"]);
    wrong("[client]\nserver = \"a:1\"\ndir = \"x\"\n", &["line ", "cannot be used with"]);
    wrong("[serve\n", &["line 1", "no TOML"]);
    // The same when a command reads it, and not only when it is checked.
    let file = place.file("wrong.toml", b"[client]\nfabric = \"wire\"\n");
    let file = ("KELIX_CONFIG", file.to_str().expect("text"));
    kelix(&[file], &["get", "t", "k"]).failed(2, &[file.1, "line 2: fabric", "wire"]);
    let error = kelix(&[file], &["get", "t", "k", "--json"]).error(2);
    assert_eq!(error["operation"], "read the configuration");
    kelix(&[("KELIX_RETRY", "5")], &["get", "t", "k"]).failed(2, &["$KELIX_RETRY: retry", "is no time"]);
    kelix(&[("KELIX_NO_PIN", "maybe")], &["serve"]).failed(2, &["$KELIX_NO_PIN", "maybe", "true or false"]);
    kelix(&[("KELIX_TOKENS", "words")], &["serve"]).failed(2, &["--listen", "see kelix config"]);
}

#[test]
fn the_example_has_every_option_and_nothing_wrong() {
    let place = Place::new();
    let example = kelix(&[], &["config", "example"]);
    let object = kelix(&[], &["config", "--json"]).json();
    let (mut section, mut known) = (String::new(), 0);
    let mut text = String::new();
    for line in example.ok().lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_string();
        }
        let Some((key, value)) = line.strip_prefix('#').and_then(|line| line.split_once(" = ")) else {
            text += &format!("{line}\n");
            continue;
        };
        if !object[&section][key].is_object() {
            continue;
        }
        known += 1;
        // Defaults can be set as they stand.
        let default = object[&section][key]["value"].as_str().unwrap_or_default();
        if value.trim_matches('"') == default {
            text += &format!("{key} = {value}\n");
        }
    }
    let all = ["serve", "client"].map(|section| object[section].as_object().expect("a section").len());
    assert_eq!(known, all.iter().sum::<usize>(), "{example:?}");
    assert!(text.contains("shards = 1") && text.contains("view-lease = \"5s\""), "{text}");
    let file = place.file("example.toml", text.as_bytes());
    let check = kelix(&[], &["config", "check", file.to_str().expect("text")]);
    assert!(check.ok().contains("nothing wrong"), "{check:?}");
    // Every option of the server is there.
    let help = kelix(&[], &["serve", "--help"]);
    let options = help.ok().lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let options = options.map(|line| line.split([' ', '[']).next().unwrap_or_default());
    // Options of all commands, and the one by which a server starts another process.
    let not_set = [
        "background",
        "server",
        "fabric",
        "cluster",
        "namespace",
        "token-file",
        "retry",
        "timeout",
        "rdma-address",
        "config",
        "json",
        "help",
        "version",
    ];
    for option in options.filter(|option| !not_set.contains(option)) {
        assert!(object["serve"][option].is_object(), "--{option} is not in [serve]");
    }
}
