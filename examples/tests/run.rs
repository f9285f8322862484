//! Each example does what it says, in shared memory and over TCP.

use std::process::Command;

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

#[test]
fn each_example_does_what_it_says() {
    let directory = std::env::temp_dir().join(format!("kelix-examples-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let config = ServerConfig {
        directory: directory.clone(),
        memory_bytes: 64 << 20,
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        pin: false,
        ..ServerConfig::default()
    };
    let server = Server::start(&config).expect("a server");
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
