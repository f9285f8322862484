//! Each example does what it says, in shared memory and over TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use kelix_server::{Server, ServerConfig};

/// Examples, and what each prints over shared memory.
const EXAMPLES: [(&str, &str, &[&str]); 7] = [
    (
        "hello",
        env!("CARGO_BIN_EXE_hello"),
        &["hello, world", "2 reads of the server's memory, 0 messages to it"],
    ),
    ("counter", env!("CARGO_BIN_EXE_counter"), &["visits: 1000, 0 writes"]),
    ("follow", env!("CARGO_BIN_EXE_follow"), &["HELSINKI", "(1 read, 0 messages)", "EARTH"]),
    (
        "people",
        env!("CARGO_BIN_EXE_people"),
        &[
            "Grace, born 1906: 2 friends",
            "Ada knows Grace",
            "Charles knows Grace",
            "Person.born needs a number",
        ],
    ),
    (
        "scan",
        env!("CARGO_BIN_EXE_scan"),
        &["cellar/2026-11-08: 13 C", "cellar/2026-11-14: 12 C", "60 keys in all"],
    ),
    ("batches", env!("CARGO_BIN_EXE_batches"), &["the sum of 1000 squares is 332833500"]),
    ("submit", env!("CARGO_BIN_EXE_submit"), &["100 puts have ended", "meanwhile: true"]),
];

fn run(program: &str, address: &str) -> String {
    let done = Command::new(program).arg(address).output().expect("it starts");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

fn serve(test: &str) -> (PathBuf, Server) {
    let directory = std::env::temp_dir().join(format!("kelix-examples-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let config = ServerConfig {
        directory: directory.clone(),
        memory_bytes: 64 << 20,
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        pin: false,
        ..ServerConfig::default()
    };
    let server = Server::start(&config).expect("a server");
    (directory, server)
}

#[test]
fn each_example_does_what_it_says() {
    let (directory, server) = serve("all");
    let here = directory.to_str().expect("a path");
    for (name, program, wanted) in EXAMPLES {
        let said = run(program, here);
        wanted.iter().for_each(|words| assert!(said.contains(words), "{name}: no \"{words}\" in {said}"));
    }
    // Several at once lose nothing.
    let (_, counter, _) = EXAMPLES[1];
    let children: Vec<_> =
        (0..3).map(|_| Command::new(counter).arg(here).spawn().expect("it starts")).collect();
    children
        .into_iter()
        .for_each(|child| assert!(child.wait_with_output().expect("it ends").status.success()));
    assert!(run(counter, here).contains("visits: 5000,"));
    let tcp = std::fs::read_to_string(directory.join("tcp")).expect("an address");
    for (name, program, _) in EXAMPLES {
        let said = run(program, tcp.trim());
        assert!(!said.is_empty(), "{name}");
    }
    server.stop();
    let _ = std::fs::remove_dir_all(&directory);
}

/// A program that serves HTTP, which ends with the test.
struct Handlers {
    child: Child,
    address: String,
}

impl Handlers {
    fn start(store: &str) -> Handlers {
        let mut command = Command::new(env!("CARGO_BIN_EXE_async_handler"));
        let mut child = command.arg(store).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        output.read_line(&mut said).expect("it says where it is");
        let address = said.trim_start_matches("http://").split('/').next().expect("an address");
        Handlers { address: address.to_string(), child }
    }

    /// The answer's status and body.
    fn ask(&self, method: &str, key: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "{method} /{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_string())
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn pages_come_while_other_requests_are_under_way() {
    let (directory, server) = serve("handlers");
    let tcp = std::fs::read_to_string(directory.join("tcp")).expect("an address");
    for store in [directory.to_str().expect("a path"), tcp.trim()] {
        let handlers = Handlers::start(store);
        assert_eq!(handlers.ask("PUT", "hello", "world").0, 200);
        std::thread::scope(|scope| {
            for task in 0..3 {
                let handlers = &handlers;
                scope.spawn(move || {
                    for number in 0..50 {
                        let key = format!("{task}-{number}");
                        assert_eq!(handlers.ask("PUT", &key, &key).0, 200);
                        assert_eq!(handlers.ask("GET", &key, ""), (200, key.clone()));
                        assert_eq!(handlers.ask("DELETE", &key, "").0, 204);
                        assert_eq!(handlers.ask("GET", &key, "").0, 404);
                    }
                });
            }
            for _ in 0..100 {
                assert_eq!(handlers.ask("GET", "hello", ""), (200, "world".to_string()));
            }
        });
    }
    server.stop();
    let _ = std::fs::remove_dir_all(&directory);
}
