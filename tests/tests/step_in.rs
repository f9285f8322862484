//! The agent has a shard do what a client over TCP asks for, in the place of the shard's thread, which
//! sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix::{Path, Session};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{RunDir, asked_sum, until, watchdog};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

fn serve(run: &RunDir, shards: usize, memory_bytes: u64) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards, memory_bytes, take_over: false }.serve()
}

/// Processor time of the threads of shards, in nanoseconds, and how often they had a core. Asking the server
/// itself wakes them.
fn shards_ran(server: &ServerProcess) -> (u64, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.pid())).expect("its threads");
    let times = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let times: Vec<u64> = times.split_whitespace().filter_map(|time| time.parse().ok()).collect();
        name.starts_with("kelix-shard").then(|| (times[0], times[2]))
    });
    times.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

/// Has this thread and the server's stay on one core: the agent is beside its client then, wherever the
/// system would put both.
fn stay_on_one_core(server: &ServerProcess) {
    let allowed = sched_getaffinity(None).expect("its cores");
    let core = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).expect("a core");
    let mut one = CpuSet::new();
    one.set(core);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.pid())).expect("its threads");
    let tasks = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    // One that has ended since needs no core.
    for task in tasks {
        let _ = sched_setaffinity(Pid::from_raw(task), &one);
    }
    sched_setaffinity(None, &one).expect("a core of its own");
}

/// Puts items of one's own one after the other, with nothing else under way, and gets each.
fn round(session: &mut Session, own: &str, count: u64) {
    let table = session.create_table("t").expect("a table");
    for number in 0..count {
        let (key, value) = (format!("{own} {}", number % 100), number.to_string());
        session.put(table, &key, value.as_bytes()).expect("put");
        assert_eq!(session.get(table, &key).expect("got").expect("an item").value(), value.as_bytes());
    }
}

/// Woken for each request, a thread takes 5 us and more for it, and one that looks on has a core.
#[test]
fn the_thread_of_a_shard_sleeps_while_one_client_asks_over_tcp() {
    let _watchdog = watchdog("stepping in");
    let run = RunDir::new();
    let server = serve(&run, 1, 256 << 20);
    let mut session = server.tcp_session_by(Path::Auto);
    stay_on_one_core(&server);
    let mut rounds = 0;
    until("a round that the thread has nothing to do with", || {
        let before = shards_ran(&server).0;
        round(&mut session, "key", 1000);
        rounds += 1;
        shards_ran(&server).0 - before < 2_000 * 1000
    });
    // Behind a time in which nobody asked it wakes for what the agent has left to do, and no more.
    for _ in 0..5 {
        let mut ran = shards_ran(&server);
        until("a thread that sleeps", || {
            std::thread::sleep(Duration::from_millis(300));
            let now = shards_ran(&server);
            std::mem::replace(&mut ran, now) == now
        });
        round(&mut session, "key", 1);
        until("a thread that has woken", || shards_ran(&server) != ran);
    }
    let client = server.client();
    until("all that was done is told", || asked_sum(&client, "puts") >= rounds * 1000 + 5);
}

/// Memory of what was put before is used again, though nobody wakes the thread for a request.
#[test]
fn memory_is_used_again_while_the_agent_steps_in() {
    let _watchdog = watchdog("stepping in, for a long time");
    let run = RunDir::new();
    let server = serve(&run, 1, 64 << 20);
    let mut session = server.tcp_session_by(Path::Auto);
    let table = session.create_table("t").expect("a table");
    let value = vec![7; 8 << 10];
    for number in 0..20_000u64 {
        session.put(table, &format!("key {}", number % 100), &value).expect("put");
    }
    // The last one's as well, once nobody puts any more.
    let client = server.client();
    until("memory that nobody reads", || asked_sum(&client, "memory/quarantined_bytes") == 0);
}

/// Nobody waits in vain for a thread that falls asleep, wakes or is stepped in for: any request that did
/// would end with a time-out.
#[test]
fn clients_over_tcp_and_in_shared_memory_are_served_beside_each_other() {
    let _watchdog = watchdog("stepping in beside others");
    let run = RunDir::new();
    let server = serve(&run, 2, 256 << 20);
    let over = AtomicBool::new(false);
    let (mut far, mut near) = (server.tcp_session_by(Path::Auto), server.session());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                round(&mut far, "far", 10);
            }
        });
        scope.spawn(|| {
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                round(&mut near, "near", 1);
                // Long enough for the thread to leave its shard to the agent, or not.
                std::thread::sleep(Duration::from_micros(number % 50 * 100));
            }
        });
        // Who comes and goes wakes the threads, too.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            round(&mut server.tcp_session_by(Path::Auto), "guest", 2);
            std::thread::sleep(Duration::from_millis(7));
        }
        over.store(true, Ordering::Relaxed);
    });
}
