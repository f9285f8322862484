//! What `kelix serve --metrics` answers, its page in a browser, and the screen of `kelix stat --watch`. With
//! KELIX_PAGE_SCREENSHOTS=DIRECTORY it keeps pictures of the page.

mod harness;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Place, Server, wait_until};
use kelix::{Address, Client, Session, SessionOptions, TableKind};
use kelix_browser::Browser;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

/// A port that nobody has now, and that a server can have again after it has gone.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Sends a request: the answer's head and body.
fn ask(port: u16, request: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_string(), body.to_string())
}

fn get_json(port: u16, path: &str) -> Value {
    let (head, body) = ask(port, &format!("GET {path}"), "localhost");
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    // Long answers come in pieces.
    let body = if head.contains("chunked") { unchunked(&body) } else { body };
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        whole += &more[..length];
        rest = &more[length + 2..];
        if length == 0 {
            break;
        }
    }
    whole
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort();
    keys
}

#[test]
fn only_reading_is_answered_and_only_to_those_who_ask_for_this_host() {
    let (place, port) = (Place::new(), free_port());
    let server = place.serve(&["--metrics", &port.to_string()]);
    assert!(server.ready.contains(&format!("metrics at http://127.0.0.1:{port}/metrics")));
    let (head, page) = ask(port, "GET /", "localhost");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/html"), "{head}");
    let policy =
        head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).expect("a policy");
    assert!(policy.starts_with("default-src 'none'; ") && policy.contains("connect-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    let (_, number) = policy.split_once("script-src 'nonce-").expect("a number");
    let number = &number[..32];
    assert!(page.contains(&format!("<script nonce=\"{number}\">")), "the script bears it");
    let (again, _) = ask(port, "GET /", "localhost");
    assert!(!again.contains(number), "each answer has its own");

    let (head, body) = ask(port, "HEAD /stat.json", "127.0.0.1");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head} {body}");
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        for path in ["/", "/stat.json", "/metrics"] {
            let (head, _) = ask(port, &format!("{method} {path}"), "localhost");
            assert!(
                head.starts_with("HTTP/1.1 405") && head.contains("Allow: GET, HEAD"),
                "{method}: {head}"
            );
        }
    }
    // A name that somebody else has stand for this host.
    for (path, status) in [("/", "403"), ("/stat.json", "403"), ("/metrics", "200")] {
        let (head, _) = ask(port, &format!("GET {path}"), "elsewhere.example:9117");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {head}");
    }
    assert!(ask(port, "GET /stat.json?namespace=none", "localhost").0.starts_with("HTTP/1.1 404"));
    assert!(ask(port, "GET /page.js", "localhost").0.starts_with("HTTP/1.1 404"));

    // The same as in the terminal, and the names of namespaces.
    let (mut page, told) = (get_json(port, "/stat.json"), place.kelix(&["stat", "--json"]).json());
    assert_eq!(page.as_object_mut().unwrap().remove("namespaces"), Some(json!(["default"])));
    assert_eq!(keys(&page), keys(&told));
    assert_eq!(keys(&page["shards"][0]), keys(&told["shards"][0]));
    assert_eq!((&page["pid"], &page["term"]), (&told["pid"], &told["term"]));
}

#[test]
fn prometheus_is_told_what_it_was_told() {
    let (place, port) = (Place::new(), free_port());
    let _server = place.serve(&["--metrics", &port.to_string()]);
    let (head, body) = ask(port, "GET /metrics", "localhost");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    let body = if head.contains("chunked") { unchunked(&body) } else { body };
    let kinds = body.lines().filter_map(|line| line.strip_prefix("# TYPE kelix_"));
    let kinds: Vec<String> = kinds.map(|kind| kind.replace(" counter", "").replace(" gauge", "*")).collect();
    let wanted = "items* requests_total gets_total scans_total puts_total deletes_total expired_total \
        evicted_total hints_total links_repaired_total writes_waited_total writes_refused_total writes_repeated_total \
        items_evacuated_total index_splits_total index_merges_total epochs_total cpu_seconds_total \
        segments_retired_total memory_bytes* ordered_keys* ordered_leaves* ordered_splits_total \
        ordered_merges_total ordered_laid_out_total ordered_models* ordered_model_error* ordered_model_bytes* ordered_table_bytes* \
        ordered_models_trained_total table_numbers* clients* client_reads_total client_read_bytes_total \
        client_messages_total client_retries_total client_fallbacks_total mirrors* mirror_copied_bytes* mirror_of_bytes* \
        mirror_sent_bytes_total mirror_lag_records* mirror_lag_ms* mirror_bytes* mirror_reads_total mirror_seconds* snapshot_age_seconds* snapshot_bytes* \
        snapshot_seconds* snapshots_taken_total snapshots_failed_total wal_takes_writes* wal_batches_total wal_bytes_total \
        wal_syncs_total wal_sync_seconds_total wal_file_bytes* huge_pages_reserved_bytes* huge_pages_granted_bytes* uptime_seconds* term* info*";
    assert_eq!(kinds.join(" "), wanted);
}

/// A table's name that a page must not take for HTML.
const HOSTILE: &str = "<b id=taken>prices";

/// Machines that run tests are busy.
fn patient() -> SessionOptions {
    SessionOptions::default().timeout(Duration::from_secs(20))
}

/// What is asked and written: over shared memory and TCP, with gets that are answered by message, deletes and
/// an ordered table.
fn traffic(directory: &Path, tcp: &str) -> [Session; 2] {
    let mut near = Client::connect(directory).unwrap().session_with(patient()).unwrap();
    let table = near.create_table("people").unwrap();
    let ordered = near.create_table_of(TableKind::Numbers, HOSTILE).unwrap();
    for number in 0..3000u64 {
        near.put(table, &number.to_be_bytes(), &[7; 100]).unwrap();
        near.put(ordered, &number.to_be_bytes(), b"12").unwrap();
    }
    for number in 0..500u64 {
        assert!(near.delete(table, &number.to_be_bytes()).unwrap());
    }
    let address = Address::Tcp(tcp.to_string());
    let mut far = Client::connect(address).unwrap().session_with(patient()).unwrap();
    for number in 0..5000u64 {
        let key = (number % 4000).to_be_bytes();
        let there = (500..3000).contains(&(number % 4000));
        assert_eq!(near.get(table, &key).unwrap().is_some(), there);
        if number < 1500 {
            assert_eq!(far.get(table, &key).unwrap().is_some(), there);
        }
    }
    [near, far]
}

/// Where a server listens over TCP.
fn tcp_of(server: &Server) -> String {
    let (_, rest) = server.ready.split_once("tcp at ").expect("where it listens");
    rest.split([',', '\n']).next().unwrap().to_string()
}

/// A number as the page writes it, from where a script finds it.
fn number(page: &Browser, script: &str) -> Option<f64> {
    let text = page.value(&format!("{script}?.textContent ?? ''"));
    text.as_str()?.replace(',', "").parse().ok()
}

fn sum(statistics: &Value, part: &str, pointer: &str) -> f64 {
    let of = |value: &Value| value.pointer(pointer).and_then(Value::as_f64).expect("a number");
    match &statistics[part] {
        Value::Array(parts) => parts.iter().map(of).sum(),
        parts => parts.as_object().expect("parts").values().map(of).sum(),
    }
}

/// Reads that a `kelix stat` takes for itself, at most.
const OWN_READS: f64 = 50.0;

/// Numbers of the page and where `kelix stat --json` has them.
fn agree(page: &Browser, told: &Value) -> Result<(), String> {
    let find = |selector: &str| format!("document.querySelector('{selector}')");
    let total = |name: &str| find(&format!("[data-total=\"{name}\"]"));
    let bytes = |name: &str| {
        format!("({{textContent: {}?.dataset.bytes}})", find(&format!("[data-memory=\"{name}\"]")))
    };
    let last = |column: &str| find(&format!("#shards tr:last-child [data-column=\"{column}\"]"));
    let fact = |name: &str| find(&format!("[data-fact=\"{name}\"]"));
    for (script, part, pointer) in [
        (total("reads"), "fabrics", "/reads"),
        (total("fallbacks"), "fabrics", "/fallbacks"),
        (total("retries"), "fabrics", "/retries"),
        (total("gets"), "shards", "/gets"),
        (last("puts in all"), "shards", "/puts"),
        (last("deletes in all"), "shards", "/deletes"),
        (last("waiting"), "shards", "/writes_waiting"),
        (bytes("live"), "shards", "/memory/live_bytes"),
        (bytes("quarantined"), "shards", "/memory/quarantined_bytes"),
        (bytes("segments"), "shards", "/memory/segment_bytes"),
        (bytes("limit"), "shards", "/memory/limit_bytes"),
        (fact("items"), "shards", "/items"),
        (fact("clients"), "fabrics", "/connected"),
    ] {
        let (shown, wanted) = (number(page, &script), sum(told, part, pointer));
        // `kelix stat` looks names of tables up, and what that took is counted when it has ended, just behind
        // what it told.
        let own = if pointer == "/reads" { OWN_READS } else { 0.0 };
        if shown.is_none_or(|shown| !(wanted..=wanted + own).contains(&shown)) {
            return Err(format!("{script} shows {shown:?}, and {part}{pointer} is {wanted}"));
        }
    }
    for name in ["live_bytes", "used_bytes"] {
        let by_kind = sum(told, "memory_by_kind", &format!("/{name}"));
        assert_eq!(by_kind, sum(told, "shards", &format!("/memory/{name}")), "{told}");
    }
    Ok(())
}

fn keep(page: &Browser, name: &str) {
    if let Some(directory) = std::env::var_os("KELIX_PAGE_SCREENSHOTS") {
        page.screenshot(Path::new(&directory).join(name));
    }
}

/// Reads and writes until told to end, so that there are rates.
fn busy(mut session: Session, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let table = session.create_table("people").unwrap();
        let mut number = 500u64;
        while !stop.load(Ordering::Relaxed) {
            number = 500 + (number + 7) % 2500;
            assert!(session.get(table, &number.to_be_bytes()).unwrap().is_some());
            if number % 50 == 0 {
                session.put(table, &number.to_be_bytes(), &[8; 300]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

#[test]
fn the_page_agrees_with_stat_and_goes_on_when_the_server_is_back() {
    let (place, port) = (Place::new(), free_port());
    let arguments = ["--metrics", &port.to_string(), "--listen", "0", "--shards", "2"];
    let server = place.serve(&arguments);
    let page = Browser::start(1280, 1400).unwrap();
    page.go(&format!("http://127.0.0.1:{port}/"));
    page.wait_for("shown.looks > 1 && shown.term === 1");
    assert_eq!(page.text("#state"), "live");
    assert_eq!(page.value("document.querySelector('#choice').hidden"), true);
    assert!(page.text("#clients .table").contains("no clients"));

    let [near, far] = traffic(place.path(), &tcp_of(&server));
    let mut last = String::new();
    wait_until("the page to agree with kelix stat", || {
        let told = place.kelix(&["stat", "--json"]).json();
        let agreed = sum(&told, "shards", "/deletes") == 500.0 && {
            page.wait_for(&format!("before.uptime_s > {}", told["uptime_s"]));
            agree(&page, &told).map_err(|what| last.clone_from(&what)).is_ok()
        };
        agreed.then_some(())
    });
    for (fabric, rows) in [("shm", "process"), ("tcp", "127.0.0.1:")] {
        let text = page.text("#clients .table");
        let row = text.lines().find(|line| line.starts_with(fabric)).expect("a client");
        assert!(row.contains(rows) && row.contains("default"), "{text}");
    }
    page.wait_for(&format!(
        "document.querySelector('#ordered .table').textContent.includes({})",
        json!(HOSTILE)
    ));
    assert_eq!(page.value("document.getElementById('taken')"), Value::Null);
    assert!(page.text("#kinds .table").contains("items"));
    // What a word means is said where it stands.
    assert_eq!(
        page.value(
            "[...document.querySelectorAll('th')].every((cell) => cell.querySelector('[title]') !== null)"
        ),
        true
    );

    let stop = Arc::new(AtomicBool::new(false));
    let threads = [near, far].map(|session| busy(session, stop.clone()));
    for name in ["reads shm", "reads tcp", "puts", "messages", "cpu"] {
        page.wait_for(&format!("past.at(-1)?.['{name}'] > 0"));
    }
    page.wait_for("past.length > 12");
    assert!(!page.text("[data-rate=\"reads shm\"]").ends_with('-'));
    assert_eq!(page.value("charts.every((chart) => chart.canvas.getContext('2d').getImageData(0, 0, chart.canvas.width, chart.canvas.height).data.some((part) => part > 0))"), true);
    let ground = "getComputedStyle(document.body).backgroundColor";
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        grounds.push(page.value(ground));
        page.resize(1280, 1750);
        page.wait_for(&format!("shown.looks > {} + 1", page.value("shown.looks")));
        keep(&page, &format!("{scheme}.png"));
        page.resize(390, 3400);
        page.wait_for(&format!("shown.looks > {} + 1", page.value("shown.looks")));
        assert_eq!(
            page.value("document.documentElement.scrollWidth <= innerWidth"),
            true,
            "nothing sticks out"
        );
        keep(&page, &format!("{scheme}-narrow.png"));
    }
    assert_ne!(grounds[0], grounds[1]);
    page.resize(1280, 900);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    drop(server);
    page.wait_for("document.body.classList.contains('away') && !document.querySelector('#gone').hidden");
    assert_eq!(page.text("#state"), "server gone");
    assert!(page.text("#gone").starts_with("The server is gone: no answer since "));
    keep(&page, "gone.png");
    let _server = place.serve(&arguments);
    page.wait_for("shown.term === 2 && !document.body.classList.contains('away')");
    assert_eq!(
        (page.text("#state"), page.value("document.querySelector('#gone').hidden")),
        ("live".into(), json!(true))
    );
    place.kelix(&["put", "people", "k", "v"]).ok();
    page.wait_for(
        "Number(document.querySelector('#shards tr:last-child [data-column=\"puts in all\"]').textContent) >= 1",
    );
    page.wait_for("past.at(-1).requests >= 0 && past.includes(null)");
}

#[test]
fn a_page_of_several_namespaces_has_a_choice() {
    let (place, port) = (Place::new(), free_port());
    let file = place.file("namespaces", b"[people]\nmemory = \"64M\"\nshards = 2\n");
    let kept = place.path().join("kept");
    let _server = place.serve(&[
        "--metrics",
        &port.to_string(),
        "--namespaces",
        file.to_str().unwrap(),
        "--snapshots",
        kept.to_str().unwrap(),
    ]);
    place.kelix(&["--namespace", "people", "put", "t", "k", "v"]).ok();
    let told = get_json(port, "/stat.json?namespace=people");
    assert_eq!((&told["namespace"], &told["namespaces"]), (&json!("people"), &json!(["default", "people"])));
    assert_eq!(get_json(port, "/stat.json")["namespace"], "default");
    let page = Browser::start(1000, 800).unwrap();
    page.go(&format!("http://127.0.0.1:{port}/"));
    page.wait_for("!document.querySelector('#choice').hidden && document.title === 'Kelix: default'");
    page.execute(
        "const select = document.querySelector('#namespace'); select.value = 'people'; select.dispatchEvent(new Event('change'))",
        &[],
    );
    page.wait_for("document.title === 'Kelix: people' && before.namespace === 'people'");
    assert_eq!(
        page.value("document.querySelectorAll('#shards tbody tr').length"),
        3,
        "two shards and their sum"
    );
    page.wait_for("Number(document.querySelector('[data-fact=\"items\"]').textContent) >= 1");
    let looks = page.value("shown.looks");
    page.wait_for(&format!("shown.looks > {looks} + 1 && document.title === 'Kelix: people'"));
    // Snapshots are of all of them.
    let snapshot = "document.querySelector('[data-fact=\"snapshot\"]').textContent";
    assert_eq!(page.value(snapshot), "none yet");
    place.kelix(&["snapshot", "take"]).ok();
    page.wait_for(&format!("{snapshot}.endsWith(' s old')"));
    std::fs::remove_dir_all(&kept).unwrap();
    place.kelix(&["snapshot", "take"]).failed(5, &["cannot list"]);
    page.wait_for(&format!("{snapshot}.endsWith(' s old, 1 failed')"));
}

#[test]
fn a_page_shows_who_follows_and_whose_mirror_it_is() {
    let [place, near] = [Place::new(), Place::new()];
    let [port, near_port] = [free_port(), free_port()];
    let server = place.serve(&["--metrics", &port.to_string(), "--listen", "0", "--shards", "2"]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    let primary = tcp_of(&server);
    let page = Browser::start(1280, 1400).unwrap();
    page.go(&format!("http://127.0.0.1:{port}/"));
    page.wait_for("shown.looks > 1");
    let hidden = |id: &str| page.value(&format!("document.querySelector('#{id}').hidden"));
    assert_eq!((hidden("mirrors"), hidden("mirror")), (json!(true), json!(true)));
    let mirror = near.serve_planned(&["--mirror-of", &primary, "--metrics", &near_port.to_string()]);
    let cell = |column: &str| {
        format!("document.querySelector('#mirrors td[data-column=\"{column}\"]')?.textContent")
    };
    page.wait_for(&format!("{} === 'following' && {}?.endsWith(' ms')", cell("state"), cell("lag")));
    let named = page.value(&cell("mirror"));
    assert!(named.as_str().is_some_and(|name| !name.is_empty() && name != "-"), "{named}");
    assert_eq!(hidden("mirror"), true);
    assert_eq!(page.value(&format!("/^127.0.0.1:/.test({})", cell("address"))), true);
    let [copied, sent] = ["memory", "sent"].map(|column| page.value(&cell(column)));
    assert!(copied.as_str().is_some_and(|text| text.ends_with("iB")) && sent != "-", "{copied} {sent}");
    // Reads of its clients are seen here, when they have told of them and the mirror has.
    let client = Client::connect(near.path()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let (mut session, stop) = (client.session_with(patient()).unwrap(), stop.clone());
        std::thread::spawn(move || {
            let table = session.table("t").unwrap();
            while !stop.load(Ordering::Relaxed) {
                assert!(session.get(table, "k").unwrap().is_some());
            }
        })
    };
    page.wait_for(&format!("parseFloat({}) > 0", cell("reads")));
    keep(&page, "mirrors.png");

    page.go(&format!("http://127.0.0.1:{near_port}/"));
    let cell =
        |column: &str| format!("document.querySelector('#mirror td[data-column=\"{column}\"]')?.textContent");
    page.wait_for(&format!("{} === 'following' && {}?.endsWith(' ms')", cell("state"), cell("lag")));
    assert_eq!((page.value(&cell("primary")), hidden("mirrors")), (json!(primary), json!(true)));
    let record = |page: &Browser| page.value(&format!("Number({}.replaceAll(',', ''))", cell("record")));
    let before = record(&page);
    for number in 0..20 {
        place.kelix(&["put", "t", &number.to_string(), "v"]).ok();
    }
    page.wait_for(&format!("Number({}.replaceAll(',', '')) >= {before} + 20", cell("record")));
    assert_ne!(page.value(&cell("bytes")), "-");
    keep(&page, "mirror.png");
    page.resize(390, 3400);
    page.wait_for(&format!("shown.looks > {} + 1", page.value("shown.looks")));
    assert_eq!(
        page.value("document.documentElement.scrollWidth <= innerWidth"),
        true,
        "no page wider than a phone"
    );
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    drop(server);
    page.wait_for("!document.querySelector('#mirror .lost').hidden");
    page.wait_for(&format!("{} === 'lost'", cell("state")));
    assert!(page.text("#mirror .lost").starts_with("Its primary is lost, and it shows what there was: "));
    drop(mirror);
}

#[test]
fn a_node_shows_its_cluster() {
    let (place, port) = (Place::new(), free_port());
    let _primary = place.serve_node("1", &["--min-in-sync", "2", "--metrics", &port.to_string()]);
    let page = Browser::start(1280, 1400).unwrap();
    page.go(&format!("http://127.0.0.1:{port}/"));
    page.wait_for("!document.querySelector('#cluster .lost').hidden");
    assert_eq!(page.text("#cluster .lost"), "No writes are taken: 1 in sync, and 2 have to be.");
    let metric = |name: &str| {
        let (_, text) = ask(port, "GET /metrics", "localhost");
        let text = if text.starts_with('#') { text } else { unchunked(&text) };
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok())
    };
    assert_eq!(["kelix_in_sync", "kelix_accepts_writes"].map(metric), [Some(1.0), Some(0.0)]);
    let mut replica = place.serve_node("2", &[]);
    page.wait_for("document.querySelector('#cluster .lost').hidden");
    let row = |node: &str, column: &str| {
        format!(
            "[...document.querySelectorAll('#cluster tr')].find((row) => \
             row.querySelector('[data-column=node]')?.textContent === '{node}')\
             ?.querySelector('[data-column=\"{column}\"]')?.textContent"
        )
    };
    page.wait_for(&format!("{} === 'yes' && {}?.endsWith(' ms')", row("2", "in sync"), row("2", "lag")));
    assert_eq!(page.value(&row("1", "role")), "primary, this one");
    assert_eq!(page.value(&row("2", "role")), "replica");
    assert_eq!(["kelix_in_sync", "kelix_accepts_writes"].map(metric), [Some(2.0), Some(1.0)]);
    assert_eq!(metric("kelix_role{node=\"1\",role=\"primary\"}"), Some(1.0));
    keep(&page, "cluster.png");
    let said = place.kelix_below("kelix/c/run", &["stat"]);
    let line = "cluster: node 1, primary; view 3, 2 in sync of at least 2\n";
    assert!(said.ok().contains(line), "{}", said.text());
    // The replica tells the same from its own side.
    let said = place.kelix_below("kelix/c/node-2/run", &["stat"]);
    assert!(said.ok().contains("cluster: node 2, replica of node 1; view 3, 2 in sync"), "{}", said.text());
    replica.signal(Signal::KILL);
    replica.end();
    page.wait_for("!document.querySelector('#cluster .lost').hidden");
    page.resize(390, 3400);
    page.wait_for(&format!("shown.looks > {} + 1", page.value("shown.looks")));
    let fits = page.value("document.documentElement.scrollWidth <= innerWidth");
    assert_eq!(fits, true, "no page wider than a phone");
}

/// A terminal: what a program writes to it, and what is read of that.
fn terminal() -> (std::fs::File, Arc<Mutex<String>>) {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&own).expect("ours");
    unlockpt(&own).expect("ours");
    let path = ptsname(&own, Vec::new()).expect("its name").into_string().expect("text");
    let theirs = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("its other end");
    rustix::termios::tcsetwinsize(
        &theirs,
        rustix::termios::Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 },
    )
    .expect("a size");
    let written = Arc::new(Mutex::new(String::new()));
    let (sees, mut own) = (written.clone(), std::fs::File::from(own));
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = own.read(&mut bytes) {
            sees.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    (theirs, written)
}

#[test]
fn a_terminal_is_drawn_anew_waits_for_the_server_and_ends_well() {
    let place = Place::new();
    let server = place.serve(&["--shards", "2"]);
    place.kelix(&["table", "create", "prices", "--ordered"]).ok();
    place.kelix(&["put", "prices", "k", "v"]).ok();
    let (theirs, written) = terminal();
    let mut watching = place.kelix_to(theirs, &["stat", "--watch", "0.1"]);
    // What stands on the screen is what was written since it was drawn last but one: the last may be under
    // way.
    let screen = || {
        let written = written.lock().unwrap();
        let mut drawn = written.rsplit("\x1b[H");
        drawn.nth(1).unwrap_or_default().to_string()
    };
    let shows = |words: &str| wait_until(words, || screen().contains(words).then_some(()));
    for words in ["reads/s", "shards", "CPU %", "memory, MiB", "clients, the busiest", "prices"] {
        // Clients are those who look now.
        let _session = Client::connect(place.path()).unwrap().session().unwrap();
        shows(words);
    }
    let lines = screen().matches("\r\n").count();
    assert!((10..=40).contains(&lines), "{lines} lines: {}", screen());
    let drawn = written.lock().unwrap().matches("\x1b[H").count();
    wait_until("it is drawn again", || {
        (written.lock().unwrap().matches("\x1b[H").count() > drawn + 2).then_some(())
    });
    drop(server);
    shows("THE SERVER IS GONE");
    let _server = place.serve(&[]);
    wait_until("it goes on", || (screen().contains("term 2") && !screen().contains("GONE")).then_some(()));
    watching.signal(Signal::INT);
    assert_eq!(watching.end(), Some(0));
    wait_until("the cursor below", || written.lock().unwrap().ends_with("\x1b[J\r\n").then_some(()));
}

/// Sends bytes and returns what comes back until the other side ends the connection.
fn say(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A client that is refused may find the connection ended in the middle of its request.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The library that was used made memory of as many bytes as a request announced: one request ended the
/// server. Others held its only thread for as long as they liked.
#[test]
fn nothing_that_is_sent_ends_or_holds_the_server() {
    let (place, port) = (Place::new(), free_port());
    let server = place.serve(&["--metrics", &port.to_string()]);
    place.kelix(&["put", "t", "k", "v"]).ok();
    let held: Vec<TcpStream> = (0..8)
        .map(|number| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
            // A body that does not come, half a head, many requests whose answers nobody reads, and nothing
            // at all.
            let begun = match number % 4 {
                0 => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n".to_vec(),
                1 => b"GET /metrics HTTP/1.1\r\nHost: loc".to_vec(),
                2 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50),
                _ => Vec::new(),
            };
            let _ = stream.write_all(&begun);
            stream
        })
        .collect();
    for length in ["1", "2000", "1000000000000000", "18446744073709551615", "99999999999999999999", "-1", "x"]
    {
        for method in ["GET", "POST"] {
            let answer = say(
                port,
                format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
                    .as_bytes(),
            );
            assert!(answer.starts_with("HTTP/1.1 4"), "{method} {length}: {answer}");
        }
    }
    let chunked =
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n";
    assert!(say(port, chunked).starts_with("HTTP/1.1 4"));
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(1 << 20));
    assert!(!say(port, long.as_bytes()).contains(" 200 "));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5000));
    assert!(!say(port, many.as_bytes()).contains(" 200 "));
    assert!(say(port, &[0xff; 4096]).len() < 4096);
    assert!(ask(port, "GET /metrics", "localhost").0.starts_with("HTTP/1.1 200"));
    assert_eq!(place.kelix(&["get", "t", "k"]).ok(), "v\n");
    assert_eq!(place.kelix(&["stat", "--json"]).json()["pid"], server.pid());
    drop(held);
}

/// The library that was used took no connections any more once there had been no descriptor for one.
#[test]
fn metrics_are_answered_again_when_there_are_descriptors() {
    let (place, port) = (Place::new(), free_port());
    let log = place.path().join("log");
    let server = place.serve(&["--metrics", &port.to_string(), "--log-file", log.to_str().unwrap()]);
    let pid = rustix::process::Pid::from_raw(server.pid() as i32);
    let resource = rustix::process::Resource::Nofile;
    let limit = rustix::process::prlimit(
        pid,
        resource,
        rustix::process::Rlimit { current: Some(40), maximum: Some(40) },
    );
    limit.expect("a limit of our own process");
    let idle: Vec<TcpStream> = (0..60)
        .map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a place in the queue"))
        .collect();
    wait_until("the server to run out of descriptors", || {
        std::fs::read_to_string(&log)
            .is_ok_and(|said| said.contains("no connection for metrics"))
            .then_some(())
    });
    drop(idle);
    wait_until("an answer", || {
        ask(port, "GET /metrics", "localhost").0.starts_with("HTTP/1.1 200").then_some(())
    });
}

/// Whoever connected and said nothing had one of 32 places for 5 s, and those behind waited: 320 such
/// connections kept everybody else out for most of a minute.
#[test]
fn silent_connections_keep_nobody_from_being_answered() {
    let (place, port) = (Place::new(), free_port());
    let _server = place.serve(&["--metrics", &port.to_string()]);
    let mut silent = Vec::new();
    for _ in 0..320 {
        silent.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens"));
    }
    let answer = say(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "no answer while {} say nothing: {answer}", silent.len());
}

/// Clients tell how much they read, each so often: a program that ends sooner told nothing, so that gets from
/// scripts were never seen.
#[test]
fn reads_of_programs_that_end_at_once_are_counted() {
    let (place, _server) = Place::served();
    place.kelix(&["put", "t", "k", "v"]).ok();
    let reads = || sum(&place.kelix(&["stat", "--json"]).json(), "fabrics", "/reads");
    let before = reads();
    let mut own = 0;
    for _ in 0..5 {
        let got = place.kelix(&["get", "t", "k", "--json"]).json();
        assert_eq!((&got["value"], &got["cost"]["messages"]), (&json!("v"), &json!(0)));
        own += got["cost"]["reads"].as_u64().expect("a number");
    }
    assert!(own >= 5, "they read by themselves");
    wait_until("the reads to be counted", || (reads() >= before + own as f64).then_some(()));
}

/// Sessions in shared memory and over TCP ask for one key in half of their operations, one by one and in batches:
/// it is named, with its share, and no other one is. The server sees none of the reads.
#[test]
fn keys_that_are_asked_for_most_are_named() {
    let place = Place::new();
    let server = place.serve(&["--shards", "2", "--listen", "127.0.0.1:0"]);
    assert!(place.kelix(&["stat", "--hot"]).ok().contains("no session has done"));
    let address = place.kelix(&["stat", "--json"]).json()["tcp"].as_str().unwrap().to_string();
    let clients = [Client::connect(place.path()).unwrap(), Client::connect(Address::Tcp(address)).unwrap()];
    let key = |number: u64| format!("key {number}");
    let mut sessions = clients.map(|client| client.session_with(patient()).unwrap());
    let mut seed = 1u64;
    for session in &mut sessions {
        let table = session.create_table("people").unwrap();
        for number in 0..1000 {
            session.put(table, &key(number), b"value").unwrap();
        }
        for step in 0..40_000 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let number = if seed >> 63 == 0 { 17 } else { seed >> 33 & 511 };
            assert!(session.get(table, &key(number)).unwrap().is_some(), "{step}");
        }
    }
    let told = place.kelix(&["stat", "--hot", "--json"]).json();
    let keys = told["keys"].as_array().unwrap();
    assert_eq!((keys.len(), &told["sessions"]), (1, &json!(2)), "{told}");
    assert_eq!((&keys[0]["table"], &keys[0]["key"]), (&json!("people"), &json!("key 17")));
    let share = keys[0]["share"].as_f64().unwrap();
    assert!((0.2..0.8).contains(&share) && keys[0]["sessions"] == 2, "{told}");
    let text = place.kelix(&["stat", "--hot"]);
    assert!(text.ok().contains("key 17") && text.ok().contains(" %"), "{}", text.ok());
    // A key that has gone is named while its memory is nothing else, and nothing fails.
    let table = sessions[0].table("people").unwrap();
    assert!(sessions[0].delete(table, &key(17)).unwrap());
    place.kelix(&["stat", "--hot"]).ok();
    place.kelix(&["stat", "--hot", "--watch"]).failed(2, &["--watch"]);
    drop((sessions, server));
}
