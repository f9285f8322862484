//! A server for the tests, which is told what to do by lines and can be killed.
//!
//! `kelix-test-server DIRECTORY SHARDS MEMORY_BYTES [take-over]` prints `serving TERM` or `refused WHY`. It
//! also listens over TCP, at any free port of the loopback interface, and over verbs where the tests are
//! about them. The line `stop`, and the end of its input, stop it in good order; it then prints `ended
//! stopped` or `ended superseded`.

use std::io::BufRead;

use kelix_server::{Ended, Server, ServerConfig};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, shards, memory, rest @ ..] = &arguments[..] else { panic!("see the source") };
    let config = ServerConfig {
        directory: directory.into(),
        shards: shards.parse().expect("a number of shards"),
        memory_bytes: memory.parse().expect("a number of bytes"),
        pin: false,
        take_over: rest.first().is_some_and(|word| word == "take-over"),
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        rdma: kelix_tests::rdma(),
        ..ServerConfig::default()
    };
    kelix_server::prepare_process();
    let server = match Server::start(&config) {
        Ok(server) => server,
        Err(error) => {
            println!("refused {error}");
            std::process::exit(1);
        }
    };
    let stopper = server.stopper();
    let told = move || {
        let _ = std::io::stdin().lock().lines().next();
        stopper.stop();
    };
    if let Err(error) = std::thread::Builder::new().spawn(told) {
        println!("refused {error}");
        server.stop();
        std::process::exit(1);
    }
    println!("serving {}", server.term());
    let ended = server.wait();
    server.stop();
    println!("ended {}", if ended == Ended::Stopped { "stopped" } else { "superseded" });
}
