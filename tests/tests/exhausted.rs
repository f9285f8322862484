//! Servers and clients for whom the system has no more threads or memory: those who are served go on, others
//! are told, and nothing is left once there is some again. Descriptors are in `tcp.rs`.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use kelix::{Effect, ErrorKind, Path, Session, Table};
use kelix_tests::bystander::Bystander;
use kelix_tests::process::{Process, ServerProcess, ServerProgram, patient};
use kelix_tests::{RunDir, asked_sum, until, value, watchdog};
use rustix::process::Resource;

const MIB: u64 = 1 << 20;
const SERVER: &str = env!("CARGO_BIN_EXE_kelix-test-server");

/// A place where a server may run as somebody for whom limits on threads hold: they do not for root. `None`
/// for this user.
struct Somebody {
    run: RunDir,
    program: PathBuf,
    user: Option<u32>,
}

impl Somebody {
    fn new(user: u32) -> Somebody {
        let run = RunDir::new();
        let user = rustix::process::geteuid().is_root().then_some(user);
        let mut program = PathBuf::from(SERVER);
        if let Some(user) = user {
            // The program may stand where only root can reach it.
            program = run.path().join("server");
            std::fs::copy(SERVER, &program).expect("room for a copy");
            chown(run.path(), Some(user), Some(user)).expect("root may");
        }
        Somebody { run, program, user }
    }

    fn program(&self) -> ServerProgram<'_> {
        let program = self.program.to_str().expect("a path in UTF-8");
        ServerProgram {
            program,
            directory: self.run.path(),
            shards: 2,
            memory_bytes: 64 * MIB,
            take_over: false,
        }
    }

    /// Starts the server, by another program if one is given with its arguments.
    fn launch(&self, by: &[&str]) -> Process {
        let mut words = by.iter().map(|word| word.to_string()).collect::<Vec<String>>();
        words.push(self.program().program.to_string());
        words.extend(self.program().arguments());
        Process::run(self.command(&words[0]).args(&words[1..]))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Limits the threads of its user, as far as this server is concerned. Whoever is not that user may not,
    /// root of a container included.
    fn limit_threads(&self, server: &ServerProcess, limit: &str) {
        let arguments = [format!("--nproc={limit}"), format!("--pid={}", server.process.pid())];
        let status = self.command("prlimit").args(arguments).status().expect("util-linux");
        assert!(status.success(), "no limit of {limit}");
    }
}

/// A client for whom there was no thread was hung up on without a word.
#[test]
fn a_server_without_threads_refuses_who_comes_and_serves_who_is_there() {
    let _watchdog = watchdog("no threads left");
    let somebody = Somebody::new(65_533);
    let server = somebody.program().serving(somebody.launch(&[]));
    let bystander = Bystander::start(&server);
    let client = server.client();
    let before = server.held_at_rest();
    somebody.limit_threads(&server, "1:");
    let refused = match client.session_with(patient()) {
        Err(error) => error,
        Ok(_) => return eprintln!("ignored: limits on threads do not hold here"),
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("no thread for another client"), "{refused}");
    for _ in 0..20 {
        assert!(client.session_with(patient()).is_err());
    }
    bystander.goes_on();
    // A client over TCP needs none.
    let mut session = server.tcp_session_by(Path::Index);
    let table = session.create_table("t").unwrap();
    session.put(table, b"key", b"value").unwrap();
    assert_eq!(session.get(table, b"key").unwrap().unwrap().value(), b"value");
    drop(session);
    let usual = rustix::process::getrlimit(Resource::Nproc).current;
    somebody.limit_threads(&server, &usual.map_or("unlimited:".into(), |most| format!("{most}:")));
    client.session_with(patient()).expect("there are threads again");
    server.until_given_back(before);
    bystander.end();
}

/// What had been started before a thread could not be had went on without anybody to serve.
#[test]
fn a_server_that_gets_too_few_threads_says_so_and_ends() {
    let _watchdog = watchdog("too few threads to start");
    let somebody = Somebody::new(65_532);
    // Shards, the socket, faults, the agent, the line that says stop: one more is had each time.
    for threads in 1..=12 {
        let mut process = somebody.launch(&["prlimit", &format!("--nproc={threads}")]);
        let said = process.line().expect("a word");
        if said.starts_with("serving ") {
            eprintln!("it serves with {threads} threads of its user");
            assert!(threads > 1 || somebody.user.is_none(), "limits on threads do not hold here: {said}");
            return;
        }
        let told = said.contains("thread") || said.contains("temporarily");
        assert!(said.starts_with("refused ") && told, "{said}");
        assert_eq!(process.end().code(), Some(1), "{said}");
    }
    assert!(somebody.user.is_none(), "it has all that it needs");
}

fn serve(run: &RunDir, memory_bytes: u64) -> ServerProcess {
    ServerProgram { program: SERVER, directory: run.path(), shards: 1, memory_bytes, take_over: false }
        .serve()
}

const BYTES: usize = 4000;

/// Puts values under new keys, from `first` on, until there is no room or there are so many. Returns the key
/// after the last.
fn fill(session: &mut Session, table: Table, first: u64, most: u64) -> u64 {
    for begin in (first..first + most).step_by(64) {
        let values: Vec<([u8; 8], Vec<u8>)> =
            (begin..begin + 64).map(|key| (key.to_le_bytes(), value::make(key, 0, BYTES))).collect();
        let items: Vec<(&[u8], &[u8])> = values.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let results = session.multi_put(table, &items).expect("answers");
        let failed = results.iter().position(Result::is_err);
        if let Some(stored) = failed {
            for error in results.iter().filter_map(|result| result.as_ref().err()) {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::OutOfMemory, Effect::No), "{error}");
            }
            // The rest of the batch may have found room that an older one waited for.
            (begin + stored as u64..begin + 64)
                .for_each(|key| drop(session.delete(table, &key.to_le_bytes())));
            return begin + stored as u64;
        }
    }
    first + most
}

fn check(session: &mut Session, table: Table, keys: impl Iterator<Item = u64>) {
    for key in keys {
        let item = session.get(table, &key.to_le_bytes()).unwrap();
        let item = item.unwrap_or_else(|| panic!("key {key} is lost"));
        assert_eq!(value::check(key, item.value()), Ok(0), "key {key}");
    }
}

#[test]
fn a_server_to_which_the_system_gives_no_memory_refuses_puts_and_goes_on() {
    let _watchdog = watchdog("no memory left");
    let run = RunDir::new();
    let server = serve(&run, 512 * MIB);
    let mut session = server.session_by(Path::Index);
    let mut over_tcp = server.tcp_session_by(Path::Pointer);
    let table = session.create_table("t").unwrap();
    let segments = || asked_sum(&server.client(), "memory/segment_bytes");
    let before = segments();
    // Enough for another segment, and not for two.
    let limit = server.process.size("VmSize") + 100 * MIB;
    let usual = server.process.limit(Resource::As, Some(limit));
    let end = fill(&mut session, table, 0, 1 << 20);
    assert!(segments() > before && segments() < 256 * MIB, "{} bytes of segments", segments());
    check(&mut session, table, (0..end).step_by(7));
    check(&mut over_tcp, table, (0..end).step_by(101));
    let error = over_tcp.put(table, b"another", &[7; 500_000]).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::OutOfMemory, Effect::No), "{error}");
    // Deletes make room.
    (0..end).step_by(2).for_each(|key| assert!(session.delete(table, &key.to_le_bytes()).unwrap()));
    let again = fill(&mut session, table, 1 << 32, end / 4) - (1 << 32);
    assert_eq!(again, end / 4, "after half was deleted");
    // Who comes when there is nothing left at all is served, or told.
    server.process.limit(Resource::As, Some(server.process.size("VmSize") + MIB / 4));
    let (mut refused, mut served) = (0, Vec::new());
    for number in 0..60 {
        let client = if number % 2 == 0 { server.tcp_client() } else { server.client() };
        match client.session_with(patient()) {
            Ok(session) => served.push(session),
            Err(error) => {
                refused += 1;
                let why = [ErrorKind::Unavailable, ErrorKind::System, ErrorKind::OutOfMemory];
                assert!(why.contains(&error.kind()), "{error}");
                let told = error.to_string();
                assert!(["memory", "thread"].iter().any(|what| told.contains(what)), "{told}");
            }
        }
    }
    eprintln!("{} clients were served, {refused} refused", served.len());
    assert!(refused > 0);
    check(&mut session, table, (1..end).step_by(14));
    drop(served);
    // And when there is some again, the store grows.
    server.process.limit(Resource::As, usual);
    let full = segments();
    fill(&mut session, table, 2 << 32, 25_000);
    until("the store has grown", || segments() > full);
    check(&mut session, table, (1..end).step_by(14).chain((2 << 32..(2 << 32) + 25_000).step_by(99)));
    server.client().session_with(patient()).expect("room for a client");
    server.tcp_client().session_with(patient()).expect("room for a client");
}

/// A client that could not map what had come took the answer to its next question for that to the one before,
/// and waited for another in vain.
#[test]
fn a_client_that_can_map_no_more_says_so_and_goes_on_once_it_can() {
    // Whole batches of `fill`.
    const KEYS: u64 = 469 * 64;
    let _watchdog = watchdog("a client without memory");
    let run = RunDir::new();
    let server = serve(&run, 512 * MIB);
    let mut session = server.session_by(Path::Index);
    let table = session.create_table("t").unwrap();
    // The last one is large, and where the client has mapped it.
    session.put(table, &KEYS.to_le_bytes(), &value::make(KEYS, 0, 40 << 20)).unwrap();
    let arguments = ["cramped".into(), run.path().display().to_string(), "t".into(), (KEYS + 1).to_string()];
    let mut client = Process::start(env!("CARGO_BIN_EXE_kelix-test-client"), &arguments);
    client.expect("ready");
    let usual = client.limit(Resource::As, Some(client.size("VmSize") + 8 * MIB));
    assert_eq!(fill(&mut session, table, 0, KEYS), KEYS);
    for _ in 0..2 {
        client.say("go on");
        let said = client.expect("got ");
        let last = client.expect("last ");
        assert!(said.contains("cannot map") || said.contains("memory"), "{said}");
        assert!(!said.contains("failed 0 "), "{said}");
        let told = last.contains("larger than the memory") || last.contains("cannot map");
        assert!(last.starts_with("system error") && told, "{last}");
    }
    client.limit(Resource::As, usual);
    client.say("go on");
    let said = client.expect("got ");
    assert_eq!(said, format!("{} failed 0 session ok", KEYS + 1), "{}", client.expect("last"));
    client.close();
    assert!(client.end().success());
}
