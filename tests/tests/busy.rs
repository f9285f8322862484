//! Clients and servers beside others: who compute on the same cores, and who are many and silent.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix::{FabricChoice, Path};
use kelix_fabric::tcp::Greeting;
use kelix_tests::process::{ServerProcess, ServerProgram, patient};
use kelix_tests::raw::hello;
use kelix_tests::{RunDir, session_over, until, watchdog};
use kelix_wire::SPOKEN;
use kelix_wire::control::{Frame, Purpose};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

fn serve(run: &RunDir, shards: usize) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards, memory_bytes: 512 << 20, take_over: false }
        .serve()
}

/// Client, agent, shard and somebody who computes, all on one core: each step of an exchange that gave the
/// core away came back with the next tick of the system's clock, so that an exchange took several ticks of 4
/// ms.
#[test]
fn an_exchange_beside_one_who_computes_takes_no_ticks() {
    let _watchdog = watchdog("a busy core");
    let mut core = CpuSet::new();
    core.set(sched_getcpu());
    // What is started from here stays there.
    sched_setaffinity(None, &core).expect("a core that this thread runs on");
    let run = RunDir::new();
    let server = serve(&run, 1);
    let over = AtomicBool::new(false);
    let middles = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let middles = [FabricChoice::Tcp, FabricChoice::Shm].map(|fabric| {
            let client = if fabric == FabricChoice::Tcp { server.tcp_client() } else { server.client() };
            let options = patient().path(Path::Message);
            let mut session = session_over(fabric, &client, options);
            let table = session.create_table("t").expect("a table");
            session.put(table, b"key", b"value").expect("a put");
            let get = || {
                let began = Instant::now();
                assert!(session.get(table, b"key").expect("a get").is_some());
                began.elapsed()
            };
            let mut times: Vec<Duration> = std::iter::repeat_with(get).take(400).collect();
            times.sort();
            times[times.len() / 2]
        });
        over.store(true, Ordering::Relaxed);
        middles
    });
    assert!(middles.iter().all(|middle| *middle < Duration::from_millis(2)), "{middles:?}");
}

/// What a server is told by a client that never says anything again.
fn greet(address: &str) -> Greeting {
    let socket = TcpStream::connect(address).expect("a server that listens");
    let mut greeting = Greeting::new(socket, None, 1 << 10, Duration::from_secs(60)).expect("a socket");
    let (kind, bytes) = hello(SPOKEN, Purpose::Session).encode();
    let (kind, bytes) = greeting.ask(kind, &bytes).expect("an answer");
    assert!(matches!(Frame::decode(kind, &bytes), Some(Frame::Welcome { .. })));
    greeting
}

/// A mailbox and a queue for each client and shard were cleared by hand, so that each was resident before
/// anything was put there: 575 KB, which a server kept when its clients had left. Small pieces stayed too,
/// and each crowd left more.
#[test]
fn silent_clients_over_tcp_take_little_memory_and_give_it_back() {
    let _watchdog = watchdog("silent clients");
    const MIB: u64 = 1 << 20;
    let run = RunDir::new();
    let server = serve(&run, 8);
    let address = server.tcp_address();
    let resident = || server.process.size("VmRSS");
    let before = resident();
    // The later crowds are given what the first one gave back.
    for crowd in 0..8 {
        let greetings: Vec<Greeting> = (0..400).map(|_| greet(&address)).collect();
        until("no connection is new any more", || server.held().descriptors > greetings.len());
        let during = resident();
        assert!(during < before + 64 * MIB, "crowd {crowd}: {} MiB", (during - before) / MIB);
        drop(greetings);
        until("the memory is given back", || resident() < before + 8 * MIB);
    }
}
