//! Bytes that anybody sends to the port for metrics, in any pieces and as slowly as he likes, over a pipe in
//! place of a socket. Time is the runtime's own, which goes on at once where nothing else is to be done.

#![no_main]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use http::{Answers, converse};
use kelix::{Client, NewTable, TableKind};
use kelix_fuzz::{Input, exposition, heap};
use kelix_server::{NamespaceConfig, Rights, Server, ServerConfig};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

// The program is no library.
#[path = "../../crates/cli/src/http.rs"]
#[allow(dead_code)]
mod http;
#[path = "../../crates/cli/src/kept.rs"]
#[allow(dead_code)]
mod kept;
#[path = "../../crates/cli/src/metrics.rs"]
mod metrics;
#[path = "../../crates/cli/src/names.rs"]
mod names;

pub(crate) use kelix_program::Failure;

/// What is promised: of a request's head, its bytes and its time; how long whoever reads nothing is waited
/// for.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// Timers have this grain.
const GRAIN: Duration = Duration::from_millis(10);

/// More than the longest answer has here, which is the page.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Memory of a connection, with the answer in the making and as it was received.
const CONNECTION_BYTES_MAX: usize = 1 << 20;
/// What threads of the server may take meanwhile.
const LEFT_BYTES_MAX: usize = 64 << 10;
/// The pipe holds so much, as a socket's buffer does.
const PIPE_BYTES: usize = 2 << 10;

/// What requests are made of.
const WORDS: [&str; 32] = [
    "GET / HTTP/1.1\r\n",
    "GET /metrics HTTP/1.1\r\n",
    "GET /stat.json HTTP/1.1\r\n",
    "GET /stat.json?namespace=other HTTP/1.1\r\n",
    "HEAD /metrics HTTP/1.0\r\n",
    "POST / HTTP/1.1\r\n",
    "GET ",
    "HEAD ",
    "http://localhost",
    "/stat.json?namespace=",
    "?a=b&namespace=nobodys",
    "%00%zz",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    " HTTP/2.0\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "Host: localhost\r\n",
    "Host: example.org\r\n",
    "Host: [::1]:9117\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 2000\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: keep-alive\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "\r\n\r\n",
    "\r\n",
    "\n",
    "a: b\r\n",
    "\t folded\r\n",
];

enum Piece {
    Bytes(Vec<u8>),
    Wait(Duration),
}

struct World {
    runtime: Runtime,
    answers: Rc<RefCell<Answers>>,
    /// Nobody stops it.
    _server: Server,
}

thread_local! {
    static WORLD: World = World::new();
}

impl World {
    fn new() -> World {
        let directory = std::env::temp_dir().join(format!("kelix-fuzz-http-{}", std::process::id()));
        let namespace = NamespaceConfig {
            name: "other".into(),
            shards: 1,
            memory_bytes: 16 << 20,
            cache: false,
            rights: Rights::default(),
        };
        let config = ServerConfig {
            directory: directory.clone(),
            shards: 1,
            memory_bytes: 16 << 20,
            pin: false,
            namespaces: vec![namespace],
            ..ServerConfig::default()
        };
        let server = Server::start(&config).expect("a server");
        let mut session = Client::connect(&directory).and_then(|client| client.session()).expect("a session");
        let new = NewTable::new("numbers", TableKind::Numbers);
        let mut build = session.build("loaded", &[new]).expect("a generation");
        build.put(0, &7u64.to_be_bytes(), b"value").expect("room");
        build.finish().expect("a generation in force");
        // The shard tells of it when it has nothing else to do.
        while server.statistics().json()[0]["shards"][0]["ordered"][0].is_null() {
            std::thread::yield_now();
        }
        let bound = (std::net::Ipv4Addr::LOCALHOST, 9117).into();
        let answers = Rc::new(RefCell::new(Answers::new(server.statistics(), directory.clone(), bound)));
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let world = World { runtime: runtime.expect("a runtime"), answers, _server: server };
        // The names of tables are read as long as the directory is there, and then known.
        world.ask_honestly(2);
        std::fs::remove_dir_all(directory).expect("its directory");
        world
    }

    /// One connection. What was answered, and how long the connection lasted.
    fn converse(&self, pieces: Vec<Piece>, reads: bool) -> (Vec<u8>, Duration) {
        LocalSet::new().block_on(&self.runtime, async {
            let (own, theirs) = duplex(PIPE_BYTES);
            let (answers, began) = (self.answers.clone(), Instant::now());
            let server = spawn_local(async move {
                converse(theirs, answers).await;
                began.elapsed()
            });
            let (mut reader, mut writer) = tokio::io::split(own);
            let client = spawn_local(async move {
                for piece in pieces {
                    match piece {
                        Piece::Wait(time) => sleep(time).await,
                        // The connection may have ended.
                        Piece::Bytes(bytes) => drop(writer.write_all(&bytes).await),
                    }
                }
                // Says nothing more, and does not go.
                writer
            });
            let mut received = Vec::new();
            if reads {
                let _ = reader.read_to_end(&mut received).await;
            }
            let lasted = server.await.expect("no panic");
            client.abort();
            let _ = client.await;
            drop::<tokio::io::ReadHalf<DuplexStream>>(reader);
            (received, lasted)
        })
    }

    /// Whoever asks for something that is there is answered at once.
    fn ask_honestly(&self, which: u8) {
        let path = ["/", "/metrics", "/stat.json", "/stat.json?namespace=other"][usize::from(which & 3)];
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (received, lasted) = self.converse(vec![Piece::Bytes(request.into_bytes())], true);
        assert!(lasted < GRAIN, "{path} took {lasted:?}");
        let (status, body) = parse(&received).expect("an answer");
        assert_eq!(status, 200, "{path}");
        match which & 3 {
            0 => assert!(body.starts_with("<!DOCTYPE html>") && body.trim_end().ends_with("</html>")),
            1 => exposition::check(body),
            _ => {
                let told: serde_json::Value = serde_json::from_str(body).expect("JSON");
                assert_eq!(told["namespaces"], serde_json::json!(["default", "other"]));
                let name = &told["shards"][0]["ordered"][0]["name"];
                assert!(which & 3 == 3 || name == "numbers", "{name}");
            }
        }
    }
}

/// The status and the body of the one answer that this is. `None`: the connection ended without a word.
fn parse(received: &[u8]) -> Option<(u16, &str)> {
    let text = std::str::from_utf8(received).expect("text");
    if text.is_empty() {
        return None;
    }
    let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
    let mut lines = head.split("\r\n");
    let first = lines.next().expect("a line");
    let status = first.strip_prefix("HTTP/1.1 ").or(first.strip_prefix("HTTP/1.0 ")).expect("a status");
    let status: u16 = status[..3].parse().expect("a number");
    let headers: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").expect("a header")).collect();
    let value = |name: &str| {
        let mut values = headers.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| *value);
        assert!(values.next().is_none(), "{name} is there twice");
        value
    };
    let length: usize = value("content-length").expect("a length").parse().expect("a number");
    // Whoever asks for the head has no body.
    assert!(body.len() == length || body.is_empty(), "{} bytes of {length}", body.len());
    // What the library refuses by itself has no content.
    if length > 0 {
        assert_eq!(value("cache-control"), Some("no-store"));
        assert_eq!(value("x-content-type-options"), Some("nosniff"));
    }
    assert!([200, 400, 403, 404, 405, 413, 414, 431].contains(&status), "{first}");
    Some((status, body))
}

/// How long the first request's head is, if all of that was sent.
fn head_bytes(sent: &[u8]) -> Option<usize> {
    let first = sent.iter().position(|byte| !b"\r\n".contains(byte))?;
    let ends = sent[first..]
        .windows(3)
        .position(|bytes| bytes[0] == b'\n' && matches!(bytes[1..], [b'\n', _] | [b'\r', b'\n']));
    let ends = ends.or(sent[first..].ends_with(b"\n\n").then(|| sent.len() - first - 2))?;
    Some(first + ends)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.u8();
    let reads = how & 4 == 0;
    let (mut pieces, mut sent) = (Vec::new(), Vec::new());
    while !input.is_empty() {
        let what = input.u8();
        let bytes = match what >> 5 {
            0 => input.bytes(usize::from(what & 31)).to_vec(),
            1 => {
                let length = usize::from(input.u8());
                input.bytes(length).to_vec()
            }
            2 => WORDS[usize::from(what & 31)].repeat(usize::from(input.u16() & 0xfff)).into_bytes(),
            3 => {
                pieces.push(Piece::Wait(Duration::from_millis(u64::from(what & 31) * 200)));
                continue;
            }
            _ => WORDS[usize::from(what & 31)].into(),
        };
        sent.extend_from_slice(&bytes);
        pieces.push(Piece::Bytes(bytes));
    }
    WORLD.with(|world| {
        let meter = heap::Meter::begin();
        let (received, lasted) = world.converse(pieces, reads);
        assert!(meter.peak() < CONNECTION_BYTES_MAX, "{} bytes for a connection", meter.peak());
        assert!(received.len() < ANSWER_BYTES_MAX, "an answer of {} bytes", received.len());
        let most = if reads { HEAD_TIME_MAX } else { CONNECTION_TIME_MAX };
        assert!(lasted < most + GRAIN, "the connection lasted {lasted:?}");
        let answered = parse(&received).map(|(status, _)| status);
        if answered.is_some_and(|status| ![400, 414, 431].contains(&status)) {
            let head = head_bytes(&sent).expect("a request that was whole");
            assert!(head <= HEAD_BYTES_MAX, "a head of {head} bytes was taken");
        }
        drop(received);
        assert!(meter.left() < LEFT_BYTES_MAX, "{} bytes are left", meter.left());
        world.ask_honestly(how);
    });
});
