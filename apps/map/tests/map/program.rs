//! The program: its commands, its errors, and what it answers over HTTP.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::running::{Folder, Serving, crossing, points, program, run};

fn told(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_place_is_told_with_its_street() {
    let folder = Folder::new("match");
    let data = folder.file("crossing.json", crossing());
    let said = told(&["match", "10.0001", "100.0035", "--data", &data]);
    assert!(said.starts_with("Long Street (primary, 60 km/h)\n"), "{said}");
    assert!(said.contains("along segment 3 of") && said.contains("m from there, to its left"), "{said}");
    assert!(said.contains("remote reads, 0 messages"), "{said}");
    let none = run(&["match", "10.1", "100", "--data", &data]);
    assert!(none.stdout.starts_with(b"no street within 50 m\n") && none.stderr.is_empty(), "{none:?}");
    assert_eq!(none.status.code(), Some(1));
}

/// In Fiji; and an editor's slip has put a node of another street at 0,0.
#[test]
fn a_street_that_crosses_180_degrees_is_no_harm_and_neither_is_a_node_nowhere() {
    let folder = Folder::new("dateline");
    let node =
        |id: u32, lat: f64, lon: f64| format!(r#"{{"type":"node","id":{id},"lat":{lat},"lon":{lon}}}"#);
    let way = |id: u32, nodes: &str, name: &str| {
        let tags = format!(r#"{{"highway":"residential","name":"{name}"}}"#);
        format!(r#"{{"type":"way","id":{id},"nodes":[{nodes}],"tags":{tags}}}"#)
    };
    let elements = [
        node(1, -16.8, 178.0),
        node(2, -16.801, 178.0),
        node(3, -16.8, 179.999),
        node(4, -16.801, -179.999),
        node(5, 0.0, 0.0),
        way(10, "1,2", "A"),
        way(11, "3,4", "Dateline"),
        way(12, "2,5", "Slip"),
    ];
    let data = folder.file("fiji.json", format!(r#"{{"elements":[{}]}}"#, elements.join(",")));
    let output = run(&["match", "--data", &data, "--", "-16.8", "178.0"]);
    assert!(output.stdout.starts_with(b"A (residential"), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("kelix-map: a piece is left out of streets"), "{said}");
    for lon in ["179.9995", "-179.9995", "180", "-180"] {
        let output = run(&["match", "--data", &data, "--", "-16.8005", lon]);
        assert!(output.stdout.starts_with(b"Dateline (residential"), "{lon}: {output:?}");
    }
    let output = run(&["route", "--data", &data, "-16.8,179.9991", "-16.801,-179.9991"]);
    assert!(output.stdout.starts_with(b"Dateline\n0.2"), "{output:?}");
}

#[test]
fn a_route_is_told_by_streets() {
    let folder = Folder::new("route");
    let data = folder.file("crossing.json", crossing());
    let said = told(&["route", "10.0,100.0005", "10.0015,100.005", "--data", &data]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["Long Street", "Short Street"], "{said}");
    assert!(lines[2].starts_with("0.66 km"), "{said}");
    let back = run(&["route", "10.0015,100.005", "10.0,100.0005", "--data", &data]);
    assert_eq!(back.status.code(), Some(1), "Short Street goes one way");
    assert!(String::from_utf8_lossy(&back.stderr).contains("there is no route"));
}

#[test]
fn traces_of_a_file_are_matched() {
    let folder = Folder::new("file");
    let (data, file) = (folder.file("crossing.json", crossing()), folder.file("points.csv", points()));
    let said = told(&["match-file", &file, "--data", &data]);
    let mut lines = said.lines();
    assert!(lines.next().unwrap().starts_with("vehicle,milliseconds,latitude,longitude,part,segment"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 20);
    assert!(lines.iter().all(|line| line.ends_with(",Long Street")), "{said}");
    assert!(lines[0].starts_with("car,1781856000000,10.00003,100.0001,0,0,"), "{said}");
    let entry = r#"[{"id":"car","time":"2026-06-19 08:00:00","point":"POINT(100.0001 10.00003)"}]"#;
    let file = folder.file("points.json", entry);
    assert_eq!(told(&["match-file", &file, "--data", &data]).lines().nth(1), Some(lines[0]));
}

#[test]
fn who_has_read_enough_is_no_failure() {
    let folder = Folder::new("enough");
    let (data, file) = (folder.file("crossing.json", crossing()), folder.file("points.csv", points()));
    for arguments in [&["match-file", &file][..], &["match", "10.0001", "100.0035"]] {
        let mut command = program();
        command.args(arguments).args(["--data", &data]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let folder = Folder::new("wrong");
    let streets = folder.file("crossing.json", crossing());
    let broken = folder.file("broken.osm.pbf", [0u8, 0, 0, 9, 1, 2, 3]);
    let cut = folder.file("cut.json", &crossing()[..200]);
    let other = folder.file("other.json", "{}");
    let nothing = folder.file("nothing.json", r#"{"elements":[]}"#);
    let text = folder.file("map.txt", "");
    let points = folder.file("points.csv", "vehicle,timestamp,longitude,latitude\na,noon,1,2\n");
    let empty = folder.file("empty.csv", "vehicle,timestamp,longitude,latitude\n");
    let remark = r#""remark":"runtime error: Query timed out in \"query\" at line 3 after 26 seconds."}"#;
    let partial =
        folder.file("partial.json", crossing().strip_suffix('}').unwrap().to_owned() + "," + remark);
    let fails = |code: i32, arguments: &[&str], words: &[&str]| {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        words.iter().for_each(|word| assert!(said.contains(word), "{said}"));
    };
    let wrong = |arguments: &[&str], words: &[&str]| fails(5, arguments, words);
    let on = |data: &str, words: &[&str]| wrong(&["match", "1", "2", "--data", data], words);
    on("/nowhere/map.osm.pbf", &["cannot read /nowhere/map.osm.pbf"]);
    on("/nowhere", &["cannot read /nowhere: No such file"]);
    on(&folder.0.display().to_string(), &["it is a directory"]);
    on(&partial, &["partial.json: it is a part of what was asked for", "Query timed out"]);
    on(&broken, &["broken.osm.pbf", "is it whole?"]);
    on(&cut, &["cut.json", "line 1", "Overpass"]);
    on(&other, &["other.json", "elements"]);
    on(&nothing, &["nothing", "no street in it that cars may use"]);
    on(&text, &["map.txt: neither a .osm.pbf nor a .json"]);
    wrong(&["match-file", &points, "--data", &streets], &["points.csv: line 2", "\"noon\" is no time"]);
    wrong(&["match-file", &empty, "--data", &streets], &["empty.csv", "no points"]);
    fails(2, &["route", "here", "10,100", "--data", &streets], &["LAT,LON", "here"]);
    fails(2, &["match", "99", "0", "--data", &streets], &["99 0", "no place"]);
    fails(3, &["match", "1", "2", "--data", &streets, "--store", "/nowhere"], &["/nowhere"]);
    fails(1, &["route", "10.5,100", "10,100", "--data", &streets], &["no street within 50 m of 10.5"]);
}

#[test]
fn the_page_is_answered() {
    let folder = Folder::new("serve");
    let (data, file) = (folder.file("crossing.json", crossing()), folder.file("points.csv", points()));
    let serving = Serving::start(&["--data", &data, "--points", &file, "--speed", "10000"]);
    for (path, word) in [
        ("/", "<title>Kelix"),
        ("/page.js", "EventSource"),
        ("/page.css", "#map"),
        ("/leaflet.js", "Leaflet"),
    ] {
        let (status, body) = serving.get(path);
        assert!(status == 200 && body.contains(word), "{path}");
    }
    let about = serving.json("/about");
    assert_eq!((&about["nodes"], &about["segments"], &about["streets"]), (&13.into(), &12.into(), &2.into()));
    assert!(about["title"].as_str().unwrap().contains("OpenStreetMap contributors, ODbL"));
    let streets = serving.json("/streets?low=9.99,99.99&high=10.01,100.02");
    assert_eq!(streets["primary"].as_array().unwrap().len(), 10);
    assert_eq!(streets["residential"].as_array().unwrap().len(), 2);
    let matched = serving.json("/match?at=10.0001,100.0035");
    assert_eq!((&matched[0]["street"], &matched[0]["side"]), (&"Long Street".into(), &"left".into()));
    assert_eq!(matched[1]["messages"], 0);
    assert!(serving.json("/match?at=11,100")[0].is_null());
    let route = serving.json("/route?from=10.0,100.0005&to=10.0015,100.005&by=length");
    assert_eq!(route[0]["segments"].as_array().unwrap().len(), 6);
    assert!(serving.json("/route?from=10.0015,100.005&to=10.0,100.0005")[0].is_null());
    // All points are there soon; who waits longer than this waits for nothing.
    let minute = 29_697_600;
    let all = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        serving.json(&format!("/minute?of={}", minute + 1))["points"].as_array().unwrap().len() == 8
    });
    assert!(all, "{}", serving.json(&format!("/minute?of={}", minute + 1)));
    assert_eq!(serving.json("/minutes"), serde_json::json!([minute, minute + 1]));
    let known = serving.json(&format!("/minute?of={minute}"));
    assert_eq!(known["points"].as_array().unwrap().len(), 12);
    let speeds = known["speeds"].as_array().unwrap();
    assert!(!speeds.is_empty());
    speeds.iter().for_each(|speed| assert!((speed["speed"].as_f64().unwrap() - 36.0).abs() < 0.5, "{speed}"));
    for (path, status) in [
        ("/match?at=here", 400),
        ("/match", 400),
        ("/streets?low=-80,-170&high=80,170", 400),
        ("/route?from=1,2&to=3,4&by=luck", 400),
        ("/minute?of=x", 400),
        ("/nothing", 404),
    ] {
        assert_eq!(serving.get(path).0, status, "{path}");
    }
    assert!(serving.end());
}

/// A store that does not answer for a while has lost some points. The others come, and it is told once.
#[test]
fn points_go_on_behind_a_pause_of_the_store() {
    let folder = Folder::new("pause");
    let (data, file) = (folder.file("crossing.json", crossing()), folder.file("points.csv", points()));
    let store = Serving::start(&["--data", &data, "--points", &file, "--speed", "10000"]);
    let directory = std::env::temp_dir().join(format!("kelix-map-{}", store.process()));
    let arguments = ["--speed", "60", "--vehicles", "300", "--store", directory.to_str().unwrap()];
    let (serving, told) = Serving::start_told(&arguments);
    let minute = |serving: &Serving| serving.json("/minutes")[1].as_u64();
    let wait_for = |what: &str, is_there: &mut dyn FnMut() -> bool| {
        let waits = (0..1200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            is_there()
        });
        assert!(waits, "{what}");
    };
    wait_for("points come", &mut || minute(&serving).is_some());
    store.signal("-STOP");
    let mut lines = BufReader::new(told).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains(" come"));
    store.signal("-CONT");
    let line = line.unwrap();
    assert!(line.starts_with("kelix-map: a point is lost, and the others come: "), "{line}");
    let before = minute(&serving).unwrap();
    wait_for("points go on", &mut || minute(&serving).unwrap() > before + 1);
    assert!(serving.end() && store.end());
}

#[test]
fn a_small_benchmark_says_what_it_measured() {
    let said = told(&["bench", "--json", "--items", "12000", "--tasks", "10"]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["bench"], "map");
    let ids: Vec<&str> =
        report["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    for id in
        ["map_memcached_mean", "map_memcached_p95", "map_multiget_mean", "map_message_p5", "map_index_mean"]
    {
        assert!(ids.contains(&id), "{ids:?}");
    }
    for id in ["dijkstra_array", "astar_array", "tiled_dijkstra_array", "nearest_20m", "trace_5m"] {
        assert!(ids.contains(&id), "{ids:?}");
    }
}
