//! `kelix bench`: each benchmark in a small run, whose rows are those of docs/measurements.md, and the report
//! of all of them. No figure is looked at.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use harness::Place;
use serde_json::json;

/// docs/measurements.md.
fn measurements() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/measurements.md")).expect("a file")
}

/// The parts between markers by name, and all that is outside them, markers included.
fn parts(text: &str) -> (BTreeMap<String, String>, String) {
    let (mut parts, mut outside, mut inside) = (BTreeMap::<String, String>::new(), String::new(), None);
    for line in text.split_inclusive('\n') {
        let marker = line.trim_end().strip_prefix("<!-- kelix ").and_then(|line| line.strip_suffix(" -->"));
        if marker.is_some_and(|marker| marker.ends_with(": end")) {
            inside = None;
        }
        match &inside {
            Some(part) => *parts.entry(String::clone(part)).or_default() += line,
            None => outside += line,
        }
        if let Some(part) = marker.and_then(|marker| marker.strip_suffix(": begin")) {
            inside = Some(part.to_string());
        }
    }
    (parts, outside)
}

/// Asserts that this is XML: tags in pairs, attributes in quotes, and nothing in texts that would have to be
/// escaped.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    for tag in xml.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap_or_else(|| panic!("<{tag} has no end"));
        assert!(!text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").contains('&'), "{text}");
        assert_eq!(tag.matches('"').count(), 2 * tag.matches('=').count(), "{tag}");
        let name = tag.split_whitespace().next().expect("a name");
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{xml}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(xml.starts_with("<svg ") && open.is_empty(), "{open:?} in {xml}");
}

fn rows_of_peers() -> Vec<String> {
    let mut wanted: Vec<String> =
        "memory get_latency get_latency_near get_latency_dep put_latency multiget_rate put_rate"
            .split(' ')
            .map(String::from)
            .collect();
    for keys in ["uniform", "zipf"] {
        for mix in ["c", "b", "a"] {
            wanted.extend([format!("mix_{mix}_{keys}"), format!("sync_{mix}_{keys}")]);
        }
        wanted.push(format!("get_ratio_{keys}"));
    }
    wanted.extend(["get_latency_placed", "put_latency_placed"].map(String::from));
    for keys in ["uniform", "zipf"] {
        wanted.extend(["c", "b", "a"].map(|mix| format!("sync_{mix}_{keys}_placed")));
    }
    wanted.extend(
        ["size_4k", "size_4k_copy", "size_4m", "size_4m_copy", "tcp_get", "tcp_rate"].map(String::from),
    );
    wanted
}

fn rows_of_sweep() -> Vec<String> {
    let sizes = ["value_32", "value_128", "value_512", "value_1k", "value_2k", "value_4k", "value_4m"];
    let numbers = ["records_2000_memcached", "records_2000_redis"];
    let ids = sizes.into_iter().chain(numbers);
    ids.flat_map(|id| ["get", "put", "one"].map(|what| format!("{id}_{what}"))).collect()
}

fn rows_of_tails() -> Vec<String> {
    let mut wanted = Vec::new();
    for beside in ["", "_busy"] {
        for load in ["95_2k", "95_10k", "95_50k", "50_10k"] {
            wanted.extend(["shm", "tcp"].map(|fabric| format!("open_{fabric}_{load}{beside}")));
        }
    }
    let others = ["cpu_shm_get", "cpu_shm_put", "cpu_tcp_get", "cpu_tcp_put", "tcp_cpu", "tcp_get_placed"];
    wanted.extend(others.map(String::from));
    for fabric in ["shm", "tcp"] {
        wanted.extend(["p50", "p99", "p999"].map(|quantile| format!("evict_{fabric}_{quantile}")));
    }
    wanted
}

/// Redis and Valkey are left out where there are none. The same operations are due for every system.
#[test]
fn tails_are_measured_of_the_systems_that_are_there() {
    let place = Place::new();
    let programs = place.path().join("programs");
    std::fs::create_dir(&programs).expect("a folder");
    for program in ["memcached", "sh"] {
        let all = std::env::var_os("PATH").expect("a path");
        let found = std::env::split_paths(&all).map(|folder| folder.join(program)).find(|path| path.exists());
        symlink(found.expect("it is installed"), programs.join(program)).expect("a link");
    }
    let mut bench = place.command(&["tails", "--records", "1000", "--json"]);
    let ran = bench.env("PATH", &programs).output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    for left_out in ["redis is left out: redis-server", "valkey is left out: valkey-server"] {
        assert!(said.contains(left_out), "{said}");
    }
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("a report");
    assert_eq!(ids(&report), rows_of_tails());
    let loops = report["open_loops"].as_array().expect("open loops");
    for of_load in loops.chunks(4) {
        let systems: Vec<&str> = of_load.iter().map(|of| of["system"].as_str().expect("a name")).collect();
        assert_eq!(systems, ["kelix shm", "kelix tcp", "memcached unix", "memcached tcp"]);
        let first = &of_load[0];
        assert!(of_load.iter().all(|of| of["load"] == first["load"]), "{of_load:?}");
        assert!(of_load.iter().all(|of| of["operations"] == first["operations"]), "{of_load:?}");
        assert!(
            of_load.iter().all(|of| of["p50_us"].is_number() && of["p99.99_us"].is_null()),
            "{of_load:?}"
        );
    }
    assert_eq!(loops.len(), 8 * 4);
    for row in report["rows"].as_array().expect("rows") {
        if row["id"].as_str().is_some_and(|id| id.starts_with("evict_")) {
            let note = row["note"].as_str().expect("a note");
            assert_eq!(note.matches(" % found, beside ").count(), 2, "{note}");
        }
    }
}

fn rows_of_counts() -> Vec<String> {
    ["get", "put", "chase", "scan", "multi_get", "multi_put", "multi_get_put"]
        .map(|id| format!("instructions_{id}"))
        .into()
}

fn rows_of_projection() -> Vec<String> {
    let mut wanted = vec!["hydradb_get_zipf", "hydradb_get_uniform", "xstore_get_rate", "xstore_get_latency"];
    wanted.extend(["xstore_message_latency", "xstore_over_inner", "xstore_over_inner_equal"]);
    wanted.extend(["xstore_over_message", "repl_nic_put_1", "repl_nic_put_2"]);
    wanted.into_iter().map(String::from).collect()
}

fn rows_of_daily() -> Vec<String> {
    let latencies = ["snapshot_get", "snapshot_put", "restart", "restart_warm", "restart_take_over", "churn"];
    latencies.into_iter().chain(["hit_ratio", "hit_ratio_memcached"]).map(String::from).collect()
}

/// Streams out of files of all kinds, beside those that are made up.
#[test]
fn caches_are_measured_with_the_traces_of_a_folder() {
    let place = Place::new();
    let folder = place.path().join("traces");
    std::fs::create_dir_all(folder.join("cachelib")).expect("a folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("there is room");
    let blocks: String = (0..3000).map(|at| format!("1,{at},2a,{},{}\n", 512 + at % 9, at % 700)).collect();
    write("cloudPhysicsIO.csv", format!("version,time,op,size,lbn\n{blocks}").as_bytes());
    write(
        "cachelib/kvcache_reg.sizes.json",
        br#"{"valSizeRange": [31, 630], "valSizeRangeProbability": [3, 1]}"#,
    );
    let popularity = br#"{"oneHits": 0.1, "popularityBuckets": [1, 900], "popularityWeights": [500, 2700]}"#;
    write("cachelib/kvcache_reg.pop.json", popularity);
    let keys: Vec<u8> = (0..3000u64).flat_map(|at| (at * at % 911).to_be_bytes()).collect();
    write("scarab_scarab-recs.trace", &keys);
    let packed = Command::new("xz").arg(folder.join("scarab_scarab-recs.trace")).status();
    assert!(packed.expect("xz is installed").success());

    let bench = |folder: &std::path::Path| {
        let folder = folder.to_str().expect("a plain path");
        place.bench(&["daily", "--records", "1000", "--json", "--traces", folder])
    };
    let ran = bench(&folder);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    let hits = report["hit_ratio"].as_array().expect("hits");
    let streams: Vec<&str> = hits.iter().map(|of| of["stream"].as_str().expect("a name")).collect();
    let wanted = ["blocks", "recommended", "kvcache", "drift", "loop", "sizes"];
    assert_eq!(streams, wanted.map(|stream| [stream; 3]).concat());
    for of in hits {
        // memcached is no exact LRU, but with room for less it does not find more than there is to be found.
        let percent = |name: &str| of[name].as_f64().expect("a number");
        let is_percent = |name: &&str| (0.0..=100.0).contains(&percent(name));
        assert!(["lru", "memcached", "kelix"].iter().all(is_percent), "{of}");
        assert_eq!(of["kelix_refused"], 0, "{of}");
    }
    // With room for a third of 700 blocks that come in turn, none is found again.
    assert_eq!((&hits[2]["percent"], &hits[2]["lru"]), (&json!(30.0), &json!(0.0)));

    write("cloudPhysicsIO.csv", b"version,time,op,size,lbn\n1,5,2a,many,7\n");
    bench(&folder).failed(5, &["cloudPhysicsIO.csv is not what it is called"]);
    bench(place.path()).failed(5, &["has none of cloudPhysicsIO.csv"]);
    let ran = place.bench(&["spine", "--traces", "traces"]);
    assert!(ran.code != 0 && ran.err.contains("daily does"), "{ran:?}");
}

fn rows_of_links() -> Vec<String> {
    let mut wanted = Vec::new();
    for fabric in ["", "shm_"] {
        let sizes = [32, 64, 128, 256, 512, 1024, 2048, 4096];
        wanted.extend(sizes.map(|bytes| format!("chase_{fabric}{bytes}")));
    }
    wanted.extend([64, 256, 1024, 4096].map(|bytes| format!("chase_memcached_{bytes}")));
    let chases =
        ["chase_message", "chase_memcached", "chase_loop", "chase_batch", "chase_batch_tcp", "link_bytes"];
    wanted.extend(chases.map(String::from));
    wanted.extend(["load_pg", "load_build"].map(String::from));
    wanted.extend(["switch_total", "switch_reads", "switch_p999", "build_p999"].map(String::from));
    wanted
}

/// Several clients and server threads, and keys of a file.
#[test]
fn peers_are_measured_as_was_chosen() {
    let place = Place::new();
    let trace = place.path().join("trace");
    std::fs::write(&trace, "one\ntwo\none\n").expect("there is room");
    let bench = |more: &[&str]| {
        let all = [&["peers", "--records", "1000", "--json", "--keys", "trace"], more].concat();
        place.bench(&all)
    };
    let ran = bench(&[trace.to_str().expect("a plain path"), "--threads", "2", "--clients", "2"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let rows = ran.json()["rows"].as_array().expect("rows").len();
    assert_eq!(rows, 25, "the mixes are over one kind of keys");
    for wrong in [&[][..], &["nowhere"][..]] {
        let ran = bench(wrong);
        assert!(ran.code != 0 && ran.err.contains(wrong.first().unwrap_or(&"trace needs a file")), "{ran:?}");
    }
    let ran = place.bench(&["spine", "--clients", "2"]);
    assert!(ran.code != 0 && ran.err.contains("peers and sweep"), "{ran:?}");
}

fn rows_of_log() -> Vec<String> {
    let mut wanted =
        vec!["stream_put", "follower_apply", "stream_bytes", "log_lazy", "log_commit", "log_commit_1"];
    wanted.extend(["redis_aof_everysec", "redis_aof_always", "log_bytes", "log_get_dep", "log_get_indep"]);
    wanted.extend(["log_replay", "log_replay_warm"]);
    wanted.extend(["log_load_build", "log_restart_clean", "log_restart_kill"]);
    wanted.into_iter().map(String::from).collect()
}

fn rows_of_mirrors() -> Vec<String> {
    let reads = ["mirror_get", "mirror_chase", "mirror_scan"].map(String::from);
    let beside = reads.clone().map(|id| format!("{id}_stream"));
    let others = [
        "lag_10k_p50",
        "lag_10k_p99",
        "lag_100k_p50",
        "lag_100k_p99",
        "put_rate_1",
        "put_rate_4",
        "redis_replica",
        "attach_put",
        "attach_time",
        "catch_up",
        "stale_reads",
    ];
    reads.into_iter().chain(beside).chain(others.map(String::from)).collect()
}

fn rows_of_cluster() -> Vec<String> {
    let mut wanted = vec!["repl_put_1", "repl_put_2", "repl_rate_1", "cluster_get_dep", "cluster_get_indep"];
    wanted.extend([
        "repl_bytes",
        "repl_strict_1",
        "repl_tcp_put_1",
        "repl_tcp_rate_1",
        "redis_wait",
        "redis_wait_rate",
    ]);
    wanted.extend(["hot_get", "warm_after", "promote", "failover_kill", "failover_stop", "handover"]);
    wanted.extend(["leave", "handover_errors", "failover_kill_zk", "failover_stop_zk", "failover_cut"]);
    wanted.push("lost");
    wanted.into_iter().map(String::from).collect()
}

/// Nothing is lost when primaries die. Redis and ZooKeeper are left out where there are none.
#[test]
fn clusters_are_measured_and_lose_nothing() {
    let place = Place::new();
    let mut bench = place.command(&["cluster", "--records", "1000", "--json"]);
    let ran = bench.env("PATH", place.path()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    for left_out in ["redis_wait is", "failovers of Sentinel are"] {
        assert!(said.contains(&format!("{left_out} left out: redis-server is not installed")), "{said}");
    }
    assert!(said.contains("failover_stop_zk and failover_cut are left out: "), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("a report");
    let mut wanted = rows_of_cluster();
    wanted.retain(|id| !id.starts_with("redis") && !id.ends_with("_zk") && id != "failover_cut");
    assert_eq!(ids(&report), wanted);
    let last = report["rows"].as_array().and_then(|rows| rows.last()).expect("rows");
    assert_eq!((&last["ours"], &last["holds"]), (&json!(0.0), &json!(true)), "{last}");
}

/// A run of many failovers goes on where it was ended, and tells of all of them.
#[test]
fn many_failovers_are_gone_on_with() {
    let place = Place::new();
    let file = place.path().join("failovers.json");
    let bench = |failovers: &str| {
        let file = file.to_str().expect("a plain path");
        place.bench(&["cluster", "--lost", failovers, "--resume", file, "--json"])
    };
    for (failovers, told) in
        [("1", "1 primaries killed and 0 stopped"), ("3", "2 primaries killed and 1 stopped")]
    {
        let ran = bench(failovers);
        assert_eq!(ran.code, 0, "{ran:?}");
        let report = ran.json();
        let rows = report["rows"].as_array().expect("rows");
        let note = rows[0]["note"].as_str().expect("a note");
        assert_eq!((rows.len(), &rows[0]["id"], &rows[0]["ours"]), (1, &json!("lost"), &json!(0.0)));
        assert!(note.contains(told) && note.contains("; 0 errors"), "{note}");
    }
    // As many as that are done already.
    assert!(bench("2").json()["rows"][0]["note"].as_str().is_some_and(|note| note.contains("2 primaries")));
    std::fs::write(&file, "something else").expect("there is room");
    bench("4").failed(5, &["failovers.json does not tell of failovers"]);
    let ran = place.bench(&["spine", "--lost", "4"]);
    assert!(ran.code != 0 && ran.err.contains("cluster does"), "{ran:?}");
    place.bench(&["cluster", "--resume", "failovers.json"]).failed(2, &["--lost"]);
}

/// Nothing that is read in any row is older than before, or mixed. Redis is left out where there is none.
#[test]
fn mirrors_are_measured_and_show_nothing_stale() {
    let place = Place::new();
    let mut bench = place.command(&["mirrors", "--records", "1000", "--json"]);
    let ran = bench.env("PATH", place.path()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("redis_replica is left out: redis-server is not installed"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("a report");
    let wanted = rows_of_mirrors().into_iter().filter(|id| id != "redis_replica").collect::<Vec<_>>();
    assert_eq!(ids(&report), wanted);
    let last = report["rows"].as_array().and_then(|rows| rows.last()).expect("rows");
    assert_eq!((&last["ours"], &last["holds"]), (&json!(0.0), &json!(true)), "{last}");
}

fn rows_of_languages() -> Vec<String> {
    // `make build` leaves the C library beside the programs.
    let library = Path::new(env!("CARGO_BIN_EXE_kelix-bench")).with_file_name("libkelix_capi.so");
    let of_c: &[&str] = if library.exists() { &["c_get", "c_get_few"] } else { &[] };
    of_c.iter().chain(&["range_64k", "try_get"]).map(|id| id.to_string()).collect()
}

/// A folder on a disk, as rows about the log need it.
const ON_DISK: &str = env!("CARGO_TARGET_TMPDIR");

/// Files stand where they were asked for, on a disk, and are gone in the end. Redis is left out where there
/// is none.
#[test]
fn the_log_is_measured_in_a_folder_on_a_disk() {
    let place = Place::new();
    let folder = tempfile::tempdir_in(ON_DISK).expect("a folder");
    let on_disk = folder.path().to_str().expect("a plain path");
    let mut bench = place.command(&["log", "--records", "1000", "--json", "--directory", on_disk]);
    let ran = bench.env("PATH", place.path()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    for id in ["redis_aof_everysec", "redis_aof_always"] {
        assert!(said.contains(&format!("{id} is left out: redis-server is not installed")), "{said}");
    }
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("a report");
    let wanted = rows_of_log().into_iter().filter(|id| !id.starts_with("redis_")).collect::<Vec<_>>();
    assert_eq!(ids(&report), wanted);
    for row in report["rows"].as_array().expect("rows").iter().skip(3) {
        let told = row["note"].as_str().expect("a note");
        assert!(row["id"] == "log_bytes" || told.contains(" on "), "{row}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "left behind");

    let nowhere = place.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("a plain path");
    place.bench(&["log", "--records", "1000", "--directory", nowhere]).failed(5, &[nowhere]);
    let ran = place.bench(&["spine", "--directory", ON_DISK]);
    assert!(ran.code != 0 && ran.err.contains("log does"), "{ran:?}");
}

fn rows_of_ordered() -> Vec<String> {
    let mut wanted: Vec<String> = ["rpc_latency", "rpc_latency_dep"].map(String::from).into();
    wanted.extend(["rpc_rate", "rpc_rate_both", "rpc_inserts", "rpc_inserts_both"].map(String::from));
    let cached = ["inner_cache_shm", "cache_ladder_shm", "inner_cache_tcp", "cache_ladder_tcp"];
    wanted.extend(cached.map(String::from));
    wanted.extend(["lmdb_get", "lmdb_batch", "lmdb_scan", "layout_scan", "redis_zset"].map(String::from));
    let rows = |kinds: &[&str], sets: [&str; 4]| {
        let of_set = |set: &str| kinds.iter().map(|kind| format!("{kind}_{set}")).collect::<Vec<_>>();
        sets.into_iter().flat_map(of_set).collect::<Vec<_>>()
    };
    wanted.extend(rows(&["leaf_reads", "leaf_bytes"], ["linear", "noised", "clustered", "lognormal"]));
    wanted.extend(["any_reads", "cache_model", "cache_table", "cache_churned", "read_cpu"].map(String::from));
    let of_strings = ["string_reads", "string_learned", "string_cache"];
    wanted.extend(rows(&of_strings, ["users", "urls", "paths", "words"]));
    for mix in ["read_only", "uniform", "latest", "ycsb_a"] {
        wanted.extend([format!("fallbacks_{mix}"), format!("fallbacks_tcp_{mix}")]);
    }
    for mix in ["a", "b", "c", "d", "e", "f", "production"] {
        wanted.extend([format!("ycsb_{mix}_uniform"), format!("ycsb_{mix}_zipf")]);
    }
    wanted.extend(["growth", "training_usable", "training", "train_inserts"].map(String::from));
    wanted
}

/// Real keys are measured beside those that are made.
#[test]
fn ordered_tables_are_measured_with_the_keys_of_a_file() {
    let place = Place::new();
    let ranges: String = (0..1500).map(|line| format!("{},{},DE\n", line * line, line * line + 9)).collect();
    let file = place.file("ranges.csv", ranges.as_bytes());
    let bench = |file: &str| place.bench(&["ordered", "--records", "1000", "--json", "--keys-file", file]);
    let ran = bench(file.to_str().expect("a plain path"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    let others: Vec<&str> = ids(&report).into_iter().filter(|id| !id.ends_with("_file")).collect();
    assert_eq!((others.len(), ids(&report).len()), (rows_of_ordered().len(), rows_of_ordered().len() + 2));
    let ran = bench("nowhere.csv");
    assert!(ran.code != 0 && ran.err.contains("nowhere.csv"), "{ran:?}");
    let ran = place.bench(&["spine", "--keys-file", "nowhere.csv"]);
    assert!(ran.code != 0 && ran.err.contains("ordered does"), "{ran:?}");
}

fn rows_of_ablation() -> Vec<String> {
    let mut wanted = vec![
        "pointer_cache",
        "pointer_cache_zipf",
        "ring_messages",
        "ring_messages_batch",
        "ring_one_core",
        "ring_one_core_batch",
        "single_thread",
        "single_thread_batch",
        "index_reads",
        "shared_pointers",
        "shared_pointers_here",
    ];
    wanted.extend(["mix_50_uniform", "mix_90_uniform", "mix_100_uniform"]);
    wanted.extend(["mix_50_zipf", "mix_90_zipf", "mix_100_zipf"]);
    wanted.extend(["hits_100_uniform", "hits_100_zipf", "hits_90_uniform", "hits_90_zipf"]);
    wanted.extend(["hits_50_uniform", "hits_50_zipf"]);
    wanted.into_iter().map(String::from).collect()
}

/// All words that could be names of rows.
fn names(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect()
}

/// How rows of a link to so many bytes begin.
const CHASES: [&str; 8] =
    ["chase_1", "chase_2", "chase_3", "chase_4", "chase_5", "chase_6", "chase_shm_", "chase_memcached_"];

/// The papers' figures, and how the rows that stand in them begin.
const PAPERS: [(&str, &[&str], &[&str]); 4] = [
    ("peers", &["hydradb-9"], &["mix_", "sync_", "get_ratio_"]),
    ("ablation", &["hydradb-10"], &["pointer_cache", "ring_", "mix_", "single_thread"]),
    ("ablation", &["hydradb-11"], &["hits_"]),
    ("links", &["keli-3", "keli-8"], &CHASES),
];

/// Rows of a benchmark, by their names.
fn ids(report: &serde_json::Value) -> Vec<&str> {
    let rows = report["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["id"].as_str().expect("an id")).collect()
}

/// Asserts that a report into this place has told and drawn each row of a benchmark, and all that belong to
/// papers.
fn assert_written(place: &Place, parts: &BTreeMap<String, String>, report: &serde_json::Value) {
    let picture = |name: &str| std::fs::read_to_string(place.path().join(format!("figures/{name}.svg")));
    let (bench, ids) = (report["bench"].as_str().expect("a name"), ids(report));
    match bench {
        "peers" => assert_eq!(ids, rows_of_peers()),
        "ablation" => assert_eq!(ids, rows_of_ablation()),
        "sweep" => assert_eq!(ids, rows_of_sweep()),
        "tails" => assert_eq!(ids, rows_of_tails()),
        "counts" => assert_eq!(ids, rows_of_counts()),
        "scale" => assert_eq!(
            ids,
            [
                "scale_up_a_zipf",
                "scale_up_b_zipf",
                "scale_up_c_zipf",
                "scale_up_a_uniform",
                "scale_up_b_uniform",
                "scale_up_c_uniform",
                "peak_latency",
                "shared_pointers_tcp",
                "clients_10000"
            ]
        ),
        "links" => assert_eq!(ids, rows_of_links()),
        "languages" => assert_eq!(ids, rows_of_languages()),
        "log" => assert_eq!(ids, rows_of_log()),
        "mirrors" => assert_eq!(ids, rows_of_mirrors()),
        "cluster" => assert_eq!(ids, rows_of_cluster()),
        "ordered" => assert_eq!(ids, rows_of_ordered()),
        "daily" => assert_eq!(ids, rows_of_daily()),
        "projection" => assert_eq!(ids, rows_of_projection()),
        _ => assert!(ids.len() > 4, "{ids:?}"),
    }
    let part = &parts[&format!("bench {bench}")];
    // Instructions are compared with nothing, and what is projected has no picture beside its table.
    let has_bars = !["counts", "projection"].contains(&bench);
    let drawn = if has_bars { picture(bench).expect("drawn") } else { String::new() };
    let rows = || report["rows"].as_array().expect("rows").iter();
    let any_wanted = rows().any(|row| row["wanted"].is_number());
    for (id, row) in ids.iter().zip(rows()) {
        assert!(row["ours"].as_f64().is_some_and(|ours| ours >= 0.0), "{row}");
        assert!(part.contains(&format!("\n| {id} | ")), "{id}: {part}");
        let wanted = row["wanted"].as_f64().is_some_and(|wanted| wanted > 0.0);
        let is_bar = has_bars && (wanted || !any_wanted);
        assert_eq!(drawn.contains(&format!(">{id}<")), is_bar, "{id}: {drawn}");
    }
    assert!(part.contains("--records 2000`.\n"), "{part}");
    for (_, figures, begins) in PAPERS.iter().filter(|(of, ..)| *of == bench) {
        let shown: String = figures.iter().filter_map(|figure| picture(figure).ok()).collect();
        let told: String = figures.iter().map(|figure| &parts[&format!("figure {figure}")][..]).collect();
        let begins = |id: &&&str| begins.iter().any(|begin| id.starts_with(begin));
        for id in ids.iter().filter(begins).filter(|id| !id.ends_with("_placed")) {
            assert!(names(&shown).contains(id) && names(&told).contains(id), "{id} is not in {figures:?}");
        }
    }
}

/// Parts that the applications write.
const APPLICATIONS: [&str; 6] =
    ["bench graph", "bench map", "bench web", "figure keli-10", "figure keli-11", "figure keli-9"];

/// A report of all benchmarks with so few records that they measure nothing, into a copy of
/// docs/measurements.md that has nothing between its markers.
#[test]
#[ignore = "takes minutes: make test-report"]
fn a_report_fills_every_part_and_leaves_the_prose_alone() {
    let place = Place::new();
    let (written, prose) = parts(&measurements());
    let emptied = written.values().fold(measurements(), |text, part| text.replace(part, "NOTHING\n"));
    assert_eq!(parts(&emptied).1, prose);
    let file = place.file("measurements.md", emptied.as_bytes());
    let folder = place.path().to_str().expect("text");
    let all = ["report", "--into", folder, "--records", "2000", "--json", "--directory", ON_DISK];
    let ran = place.bench(&all);
    // Rows of other languages are left out where no variable names their command, and Valkey where there is
    // none.
    let left_out =
        |line: &&str| line.contains("names no command: rows of ") || line.starts_with("valkey is left out: ");
    let said: Vec<&str> = ran.err.lines().filter(|line| !left_out(line)).collect();
    assert_eq!((ran.code, &said[..]), (0, &[] as &[&str]), "{ran:?}");
    let (parts, around) = parts(&std::fs::read_to_string(file).expect("the file"));
    assert_eq!(around, prose);

    let result = ran.json();
    let reports = result["reports"].as_array().expect("reports");
    for report in reports {
        assert_written(&place, &parts, report);
    }
    for (name, part) in &parts {
        assert_eq!(part == "NOTHING\n", APPLICATIONS.contains(&&name[..]), "{name}");
    }
    for figure in result["figures"].as_array().expect("figures") {
        assert_well_formed(&std::fs::read_to_string(figure.as_str().expect("a path")).expect("a picture"));
    }
    let names = std::fs::read_dir(place.path()).expect("a folder").flatten().map(|entry| entry.file_name());
    assert!(
        !names.into_iter().any(|name| name.to_string_lossy().starts_with("measurements.md.")),
        "left behind"
    );
}

#[test]
fn a_report_that_cannot_be_written_leaves_the_file_alone() {
    let place = Place::new();
    let folder = place.path().to_str().expect("text");
    let report = || place.bench(&["report", "--into", folder, "--only", "spine", "--records", "2000"]);
    let begin = "<!-- kelix bench spine: begin -->\n";
    let end = "<!-- kelix bench spine: end -->\n";
    report().failed(5, &["cannot read", "measurements.md", "--into"]);
    for (text, said) in [
        ("# By hand\n".to_string(), "there is no line `<!-- kelix bench spine: begin -->`: add it"),
        (measurements().replace(end, ""), "has no end before line"),
        (format!("a\n{begin}b\n"), "line 2 has no end: add `<!-- kelix bench spine: end -->`"),
        (measurements().replace(begin, ""), "without a begin"),
        (format!("{}{begin}{end}", measurements()), "a second"),
    ] {
        let file = place.file("measurements.md", text.as_bytes());
        report().failed(5, &[said, "measurements.md"]);
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), text);
        assert!(!place.path().join("figures").exists(), "drawn");
    }
    place.bench(&["spine", "--only", "spine"]).failed(2, &["kelix bench report"]);
    place.bench(&["report", "--svg", folder]).failed(2, &["--into"]);
}

#[test]
fn a_peer_that_is_not_installed_is_named() {
    let place = Place::new();
    let mut bench = place.command(&["peers", "--records", "1000"]);
    let ran = bench.env("PATH", place.path()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("memcached is not installed"), "{said}");

    // Nothing is written of a report that it belongs to, and a file that has no place for the report is told
    // of first.
    let report = |text: &str, wanted: &str| {
        let file = place.file("measurements.md", text.as_bytes());
        let only = ["report", "--only", "spine", "--only", "peers", "--records", "1000", "--into"];
        let mut bench = place.command(&only);
        let ran = bench.arg(place.path()).env("PATH", place.path()).output().expect("the program runs");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && said.contains(wanted), "{said}");
        assert_eq!(std::fs::read_to_string(file).expect("the file"), text);
        assert!(!place.path().join("figures").exists(), "drawn");
    };
    report(&measurements(), "peers: memcached is not installed");
    report("# By hand\n", "there is no line");
}
