//! `kelix bench --project`, through the program.

mod harness;

use harness::Place;
use serde_json::Value;

/// A NIC of round numbers.
const NIC: &str = "name = \"mine\"\nports = 1\nlink = \"roce\"\n\
                   [port]\ngbit_s = 25\nmtu_bytes = 1024\nreads_in_m_s = 10\nwrites_in_m_s = 20\nreads_out_m_s = 10\n\
                   writes_out_m_s = 20\n\
                   [latency]\nread_us = 4\nwrite_us = 2\nbyte_ns = 1\n";

/// The operations that are projected, and READs and rounds of READs of each, where they are whole.
const OPERATIONS: [(&str, Option<(f64, f64)>); 19] = [
    ("get_pointer", Some((1.0, 1.0))),
    ("get_index", None),
    // The look whether the shard sleeps.
    ("get_message", Some((1.0, 0.0))),
    ("get_pointer_64", None),
    ("get_message_64", None),
    ("put", Some((1.0, 0.0))),
    ("put_64", None),
    ("follow", Some((1.0, 1.0))),
    ("chase_8", Some((8.0, 8.0))),
    ("put_1", Some((1.0, 0.0))),
    ("put_2", Some((1.0, 0.0))),
    ("gets_zipf", None),
    ("gets_uniform", None),
    ("ordered_get", Some((1.0, 1.0))),
    ("ordered_message", Some((1.0, 0.0))),
    ("ordered_inner", None),
    ("ordered_inner_upper", None),
    ("ordered_scan", None),
    ("ordered_item", None),
];

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("{name} of {of}"))
}

#[test]
fn what_is_counted_is_projected_to_the_nic_of_a_file() {
    let place = Place::new();
    let file = place.file("nic.toml", NIC.as_bytes());
    let file = file.to_str().expect("a plain path");
    let ran =
        place.bench(&["--project", file, "--records", "2000", "--threads", "2", "--clients", "50", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    let projection = &report["projection"];
    assert_eq!((&report["bench"], &projection["nic"]), (&"projection".into(), &"mine".into()));
    assert_eq!((&projection["cores"], &projection["measured_on_this_nic"]), (&2.into(), &false.into()));
    let operations = projection["operations"].as_array().expect("operations");
    let ids: Vec<&str> =
        operations.iter().map(|operation| operation["id"].as_str().expect("an id")).collect();
    assert!(OPERATIONS.iter().map(|wanted| wanted.0).eq(ids), "{projection}");
    for (operation, (id, wanted)) in operations.iter().zip(OPERATIONS) {
        if let Some((reads, rounds)) = wanted {
            // A directory or a model may be READ again.
            let (counted, waited) = (number(operation, "reads"), number(operation, "read_rounds"));
            assert!((counted - reads).abs() < 0.05 && (waited - rounds).abs() < 0.05, "{id}: {operation}");
        }
        let ceiling = number(operation, "ceiling_m_s");
        let limits = ["by_message_rate_m_s", "by_bandwidth_m_s"].map(|limit| number(operation, limit));
        let by_cpu = operation["by_server_cpu_m_s"].as_f64().unwrap_or(f64::INFINITY);
        assert_eq!(ceiling, limits[0].min(limits[1]).min(by_cpu), "{operation}");
        let (in_a_loop, batch) = (&operation["of_clients"], number(operation, "batch"));
        let at_once = number(in_a_loop, "m_s") * number(in_a_loop, "us");
        assert!((at_once - 50.0 * batch).abs() < 1e-6 * at_once, "{operation}");
    }
    // A READ of 4 us: 100 ns for its verb, the bytes, and the client.
    let pointer = &operations[0];
    let beside = 4.0 + 0.1 + number(pointer, "read_bytes") * 1e-3 + number(pointer, "client_ns") * 1e-3;
    assert!((number(pointer, "latency_us") - beside).abs() < 0.02, "{pointer}");
}

#[test]
fn the_table_says_that_it_is_arithmetic() {
    let place = Place::new();
    let ran = place.bench(&["projection", "--records", "2000"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let out = String::from_utf8_lossy(&ran.out);
    for said in [
        "not a measurement on this NIC",
        "ConnectX-4",
        "get by a cached pointer",
        "xstore_get_rate",
        "error ",
    ] {
        assert!(out.contains(said), "{said}: {ran:?}");
    }
}

#[test]
fn a_wrong_nic_is_told_with_its_line() {
    let place = Place::new();
    let file = place.file("nic.toml", NIC.replace("gbit_s", "gigabits").as_bytes());
    let file = file.to_str().expect("a plain path");
    place.bench(&["--project", file]).failed(2, &["nic.toml, line 5: ", "unknown field `gigabits`"]);
    place.bench(&["projection", "--project", "nowhere.toml"]).failed(5, &["nowhere.toml"]);
    place.bench(&["spine", "--project", file]).failed(2, &["projection does"]);
    place.bench(&["projection", "--keys", "zipf"]).failed(2, &["peers and sweep do"]);
    place.bench(&[]).failed(2, &["<NAME>"]);
}
