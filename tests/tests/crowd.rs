//! 500 clients, half of them over the fabric that is not shared memory, that put and get and are killed at
//! random, 25 at a time: nothing that was answered is lost, nobody else notices, and nothing is left of the
//! dead.
//!
//! `KELIX_CROWD_SECONDS=n` goes on for so long.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use kelix::{Path, Session, Table};
use kelix_tests::bystander::Bystander;
use kelix_tests::process::{Process, ServerProgram};
use kelix_tests::{Random, RunDir, Watchdog, asked_sum, fewer, until, value};

const CLIENTS: u64 = 25;

struct Member {
    process: Process,
    first: u64,
    /// Of which rounds its keys may be: the ones that its predecessor may have left and the one that it
    /// begins with, until all of its clients have been answered in a round.
    rounds: RangeInclusive<u64>,
}

impl Member {
    /// Starts clients of the keys from `first`, which are of `rounds` now, with the round after these.
    fn start(run: &RunDir, first: u64, rounds: RangeInclusive<u64>) -> Member {
        let round = rounds.end() + 1;
        let mut arguments = vec!["crowd".to_string(), run.path().display().to_string(), "t".into()];
        arguments.extend([first, CLIENTS, round].map(|number| number.to_string()));
        let process = Process::start(env!("CARGO_BIN_EXE_kelix-test-client"), &arguments);
        Member { process, first, rounds: *rounds.start()..=round }
    }

    /// In `round` all of its clients have been answered, and no more than the next one has begun.
    fn answered(&mut self, round: &str) {
        let round: u64 = round.parse().unwrap_or_else(|_| panic!("a client tells of round {round}"));
        self.rounds = round..=round + 1;
    }

    /// Waits for a round more.
    #[track_caller]
    fn goes_on(&mut self) {
        let round = self.process.expect("round ");
        self.answered(&round);
    }

    /// Kills it, and checks that what it was told is done is done.
    fn kill(&mut self, session: &mut Session, table: Table) {
        self.process.kill();
        while let Some(line) = self.process.line() {
            self.answered(line.strip_prefix("round ").unwrap_or_else(|| panic!("a client says {line}")));
        }
        for key in self.first..self.first + CLIENTS {
            let item = session.get(table, &key.to_le_bytes()).unwrap();
            let item = item.unwrap_or_else(|| panic!("key {key} is lost"));
            let round =
                value::check(key, item.value()).unwrap_or_else(|what| panic!("a wrong value: {what}"));
            assert!(
                self.rounds.contains(&round),
                "key {key} is of round {round}, and may be of {:?}",
                self.rounds
            );
        }
    }
}

#[test]
fn clients_that_are_killed_at_random_lose_nothing_and_leave_nothing() {
    let seconds =
        std::env::var("KELIX_CROWD_SECONDS").map_or(8, |seconds| seconds.parse().expect("a number"));
    let _watchdog = Watchdog::new("a crowd of clients", Duration::from_secs(240 + seconds));
    let run = RunDir::new();
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    let memory_bytes = 512 << 20;
    let server =
        ServerProgram { program, directory: run.path(), shards: 1, memory_bytes, take_over: false }.serve();
    let mut session = server.session_by(Path::Index);
    let table = session.create_table("t").unwrap();
    let bystander = Bystander::start(&server);
    // What the first one of its kind has the server open stays open.
    let far = server.far_session_by(Path::Index);
    let before = server.held_at_rest();
    let client = server.client();
    let mut items = 0;
    until("the shard has reported what there is", || {
        let now = asked_sum(&client, "items");
        std::mem::replace(&mut items, now) == now && now >= 12
    });
    let processes = fewer(20).max(2);
    let mut members: Vec<Member> =
        (0..processes).map(|process| Member::start(&run, process * CLIENTS, 0..=0)).collect();
    members.iter_mut().for_each(Member::goes_on);
    let mut random = Random(seconds);
    let (began, mut killed) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) || killed < 4 * CLIENTS {
        let victim = &mut members[random.below(processes) as usize];
        std::thread::sleep(Duration::from_millis(random.below(200)));
        victim.kill(&mut session, table);
        killed += CLIENTS;
        *victim = Member::start(&run, victim.first, victim.rounds.clone());
        // Some are killed while they connect, and some are at work.
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(20)));
            victim.kill(&mut session, table);
            killed += CLIENTS;
            *victim = Member::start(&run, victim.first, victim.rounds.clone());
        }
        victim.goes_on();
    }
    for member in &mut members {
        member.kill(&mut session, table);
    }
    eprintln!("{killed} clients were killed");
    bystander.goes_on();
    server.until_given_back(before);
    drop(far);
    // Each client's key and nothing more.
    until("the shard has reported", || asked_sum(&client, "items") == items + processes * CLIENTS);
    until("what was replaced has had its quarantine", || {
        asked_sum(&client, "memory/quarantined_bytes") < 1 << 20
    });
    bystander.end();
}
