//! The program as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kelix-graph-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_kelix-graph");
    Command::new(program).args(arguments).current_dir(folder).output().expect("the program starts")
}

/// What it prints when all goes well.
fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

const SMALL: [&str; 4] = ["--vertices", "3000", "--edges", "60000"];

#[test]
fn it_searches_in_every_way_and_draws_what_it_found() {
    let folder = Folder::new("all");
    let said = said(&folder.0, &SMALL);
    for words in [
        "a graph generated with 3000 vertices and 60000 edges",
        "the same distances as a search on arrays",
        "the first 1000 users as on arrays",
        "friends of friends",
        " -> ",
        "64 keys at once",
        "drew kelix-graph/neighbourhood.svg",
    ] {
        assert!(said.contains(words), "{words} is missing in:\n{said}");
    }
    for (file, words) in [("distances", "links away from user"), ("neighbourhood", "<circle")] {
        let svg = std::fs::read_to_string(folder.0.join(format!("kelix-graph/{file}.svg"))).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.contains(words) && svg.ends_with("</svg>\n"), "{svg}");
    }
}

/// A square with a tail: 1 -> 2 -> 4 -> 5, 1 -> 3 -> 4; and 9 -> 1, which nobody follows.
const SQUARE: &str = "# who whom\n1 2\n1 3\n2 4\n3 4\n4 5\n9 1\n";

#[test]
fn answers_about_a_graph_that_is_known() {
    let folder = Folder::new("known");
    std::fs::write(folder.0.join("square"), SQUARE).expect("written");
    let ask = |arguments: &[&str]| said(&folder.0, &[&["--data", "square"], arguments].concat());
    let bfs = ask(&["bfs", "--from", "1"]);
    assert!(
        bfs.contains("5 users from 1 on") && bfs.contains(" 2 links away: 1\n   3 links away: 1\n"),
        "{bfs}"
    );
    assert!(ask(&["bfs", "--from", "1", "--depth", "1"]).contains("3 users from 1 on"));
    assert!(ask(&["bfs", "--from", "9", "--limit", "2"]).contains("2 users from 9 on"));
    let users =
        |said: String| said.lines().map(|line| line.split(' ').next().unwrap_or("").to_string()).collect();
    let deep: Vec<String> = users(ask(&["dfs", "--from", "1"]));
    assert_eq!(deep, ["1", "2", "4", "5", "3"]);
    let path = ask(&["path", "--from", "9", "--to", "5"]);
    let way: Vec<&str> = path.lines().next().expect("a line").split(" -> ").collect();
    assert_eq!(way.len(), 5, "{path}");
    assert!(way[0].starts_with("9 ") && way[4].starts_with("5 "), "{path}");
    let none = |arguments: &[&str], words: &str| {
        let output = run(&folder.0, &[&["--data", "square"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(words) && output.stderr.is_empty(), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    };
    none(&["path", "--from", "5", "--to", "1"], "no way leads from 5 to 1");
    // Whoever 4 is called is found from 1 at a distance of 2, or somebody nearer of the same name.
    let name = path.lines().next().and_then(|line| line.split(" -> ").nth(3)).expect("four");
    let name = name.split(' ').nth(1).expect("a name");
    assert!(ask(&["find", name, "--from", "1"]).contains(&format!("{name} is user ")));
    none(&["find", "Nobody", "--from", "1"], "nobody in the graph is called Nobody");
    // Edges may have commas; and users of a file are drawn by their numbers.
    std::fs::write(folder.0.join("commas"), SQUARE.replace(' ', ", ")).expect("written");
    assert_eq!(said(&folder.0, &["--data", "commas", "dfs", "--from", "1"]), ask(&["dfs", "--from", "1"]));
    ask(&["draw", "--from", "1", "--out", "."]);
    let svg = std::fs::read_to_string(folder.0.join("neighbourhood.svg")).expect("drawn");
    assert!(svg.contains(">1</text>") && !svg.contains(name), "{svg}");
}

#[test]
fn what_is_wrong_is_said() {
    let folder = Folder::new("wrong");
    std::fs::write(folder.0.join("square"), SQUARE).expect("written");
    std::fs::write(folder.0.join("cut"), "1 2\n2 3\n4").expect("written");
    std::fs::write(folder.0.join("weights"), "1 2\n2 3 0.5\n").expect("written");
    std::fs::write(folder.0.join("names"), "from,to\n1,2\n").expect("written");
    std::fs::write(folder.0.join("packed.gz"), [0x1f, 0x8b, 8, 0]).expect("written");
    for (code, arguments, words) in [
        (5, &["--data", "cut"][..], "cut: line 3: expected two numbers up to 100000000, as in \"12 7\""),
        (5, &["--data", "weights"], "weights: line 2: expected two numbers"),
        (5, &["--data", "names"], "names: line 1: expected two numbers"),
        (5, &["--data", "packed.gz"], "packed.gz: it is packed with gzip"),
        (5, &["--data", "missing"], "missing: No such file"),
        (1, &["--data", "square", "bfs", "--from", "7"], "there is no user 7"),
        (1, &["--data", "square", "path", "--from", "1", "--to", "7"], "there is no user 7"),
        (2, &["--vertices", "100", "--edges", "9000"], "9000 edges are too many for 100 vertices"),
        (2, &["load"], "load needs --store"),
        (3, &["--store", "/nonexistent/kelix", "bfs", "--from", "1"], "/nonexistent/kelix"),
    ] {
        let output = run(&folder.0, arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

/// A small run of the benchmark, in which all ways must find the same users.
#[test]
fn the_benchmark_compares_all_ways() {
    let folder = Folder::new("bench");
    let said = said(&folder.0, &[&SMALL[..], &["bench", "--json"]].concat());
    for row in ["bfs_memcached_10_mean", "bfs_multiget_100_p95", "bfs_index_100_p5", "bfs_array"] {
        assert!(said.contains(&format!("\"{row}\"")), "{row} is missing in {said}");
    }
}
