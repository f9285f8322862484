//! Submitted operations: the descriptor to wait on, many at once, and a server that does not answer; reads
//! along links, writes with an expected version, pages of scans.
//!
//! The file is long because each operation is compared with its plain call, over each fabric, by the same few
//! helpers.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use kelix::{
    CompareAndSet, Completion, Effect, ErrorKind, FabricChoice, Frontier, Item, NewItem, Outcome, Path,
    Result, Scan, Session, SessionOptions, Table, TableKind, Ticket, Version,
};
use kelix_tests::process::{ServerProcess, ServerProgram, processor_time_ns};
use kelix_tests::{ANSWERED_WITHIN, RunDir, asked_sum, breaks, fabrics, session_over, until, watchdog};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn server(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

fn open(server: &ServerProcess, fabric: FabricChoice) -> (Session, Table) {
    let mut session = session_over(fabric, &server.client(), SessionOptions::default());
    let table = session.create_table("t").unwrap();
    (session, table)
}

fn is_readable_within(session: &Session, time: Duration) -> bool {
    // SAFETY: the session, whose descriptor it is, is borrowed until after the last use.
    let fd = unsafe { BorrowedFd::borrow_raw(session.fd()) };
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&time)).unwrap() > 0
}

/// Polls as the documentation says, sleeping on the descriptor, until all is complete.
fn complete(session: &mut Session, patience: Duration) -> Vec<Completion> {
    let mut completions = Vec::new();
    while session.outstanding() > 0 {
        if session.poll(&mut completions).unwrap() == 0 {
            assert!(is_readable_within(session, patience), "no wake-up came");
        }
    }
    completions
}

/// Once as many requests were under way as there can be, each further one waited for the whole time-out and
/// then failed: the answers that had arrived were only looked at when all was sent.
#[test]
fn more_operations_than_requests_can_be_under_way_all_end() {
    let _watchdog = watchdog("many submitted");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        let count = 10_000u64;
        for key in 0..count {
            session.submit_put(table, &key.to_le_bytes(), &[7; 100]).unwrap();
        }
        let began = Instant::now();
        let completions = complete(&mut session, Duration::from_secs(10));
        assert_eq!(completions.len() as u64, count);
        for completion in completions {
            assert!(matches!(completion.outcome, Ok(Outcome::Written(_))), "{completion:?}");
        }
        eprintln!("{count} puts in {:?}", began.elapsed());
        for key in 0..count {
            session.submit_get(table, &key.to_le_bytes()).unwrap();
        }
        for completion in complete(&mut session, Duration::from_secs(10)) {
            assert!(matches!(completion.outcome, Ok(Outcome::Item(Some(_)))), "{completion:?}");
        }
    }
}

/// A wake-up was never taken back, so that after the first one the descriptor was readable for ever.
#[test]
fn the_descriptor_is_quiet_while_there_is_nothing() {
    let _watchdog = watchdog("quiet descriptor");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        // Some that were woken for, so that a wake-up that is never taken back would show.
        for round in 0..20u64 {
            session.submit_put(table, &round.to_le_bytes(), b"v").unwrap();
            complete(&mut session, Duration::from_secs(10));
        }
        server.process.stop_still();
        session.submit_put(table, b"k", b"v").unwrap();
        let mut completions = Vec::new();
        for _ in 0..3 {
            assert_eq!(session.poll(&mut completions).unwrap(), 0);
        }
        assert!(!is_readable_within(&session, Duration::from_millis(100)), "readable although nothing came");
        server.process.go_on();
        let completions = complete(&mut session, Duration::from_secs(10));
        assert!(matches!(completions[..], [Completion { outcome: Ok(Outcome::Written(_)), .. }]));
    }
}

/// The descriptor told of the server's end, but the session did not look, and its operations stayed
/// outstanding.
#[test]
fn submitted_operations_end_when_the_server_is_killed() {
    let _watchdog = watchdog("killed under submitted operations");
    let run = RunDir::new();
    let mut server = server(&run);
    let (mut session, table) = open(&server, FabricChoice::Shm);
    session.put(table, b"there", b"v").unwrap();
    // It stands still first, so that it cannot answer before it dies.
    server.process.stop_still();
    let put = session.submit_put(table, b"k", b"v").unwrap();
    let absent = session.submit_get(table, b"absent").unwrap();
    let there = session.submit_get(table, b"there").unwrap();
    let mut completions = Vec::new();
    session.poll(&mut completions).unwrap();
    assert_eq!(completions.len(), 1, "what is read one-sidedly needs no server");
    assert_eq!(completions[0].ticket, there);
    assert_eq!(session.poll(&mut completions).unwrap(), 0);
    server.process.kill();
    let completions = complete(&mut session, ANSWERED_WITHIN);
    assert_eq!(completions.len(), 2);
    for completion in completions {
        let error = completion.outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let effect = if completion.ticket == put { Effect::Unknown } else { Effect::No };
        assert!(completion.ticket == put || completion.ticket == absent);
        assert_eq!(error.effect(), effect);
    }
}

/// Only the plain calls had a time-out; a submitted operation at a server that stood still never ended.
#[test]
fn submitted_operations_time_out_when_the_server_stands_still() {
    let _watchdog = watchdog("stopped under submitted operations");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        server.process.stop_still();
        let put = session.submit_put(table, b"k", b"v").unwrap();
        let get = session.submit_get(table, b"absent").unwrap();
        let began = Instant::now();
        let mut completions = Vec::new();
        while session.outstanding() > 0 {
            assert!(began.elapsed() < ANSWERED_WITHIN, "the time-out is 900 ms");
            if session.poll(&mut completions).unwrap() == 0 {
                is_readable_within(&session, Duration::from_millis(20));
            }
        }
        assert!(began.elapsed() > Duration::from_millis(850));
        for completion in completions {
            let error = completion.outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let effect = if completion.ticket == put { Effect::Unknown } else { Effect::No };
            assert!(completion.ticket == put || completion.ticket == get);
            assert_eq!(error.effect(), effect);
        }
        server.process.go_on();
        // The late answers disturb nobody.
        for round in 0..100u64 {
            session.put(table, &round.to_le_bytes(), b"v").unwrap();
        }
    }
}

/// Each put of the batch waited for a time-out of its own, a minute in all; and where the ring was full, the
/// whole batch failed with an error that said nothing had been done, although some puts were under way.
#[test]
fn a_batch_of_puts_at_a_server_that_stands_still_ends_in_time_and_says_what_is_unknown() {
    let _watchdog = watchdog("a batch at a stopped server");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        for bytes in [10, 30_000] {
            let (mut session, table) = open(&server, fabric);
            let value = vec![1; bytes];
            let keys: Vec<[u8; 8]> = (0..200u64).map(u64::to_le_bytes).collect();
            let items: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &value[..])).collect();
            server.process.stop_still();
            let began = Instant::now();
            let results = session.multi_put(table, &items).expect("what is wrong is said of each item");
            // One time limit for all of them, and not one after another, which would be minutes.
            assert!(began.elapsed() < 5 * ANSWERED_WITHIN, "it took {:?}", began.elapsed());
            assert_eq!(results.len(), items.len());
            for result in &results {
                let error = result.as_ref().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
            }
            server.process.go_on();
            // What is said not to have been done must not be there.
            let mut fresh = server.client().session().unwrap();
            let table = fresh.table("t").unwrap();
            fresh.put(table, b"a sign of life", b"").unwrap();
            for (key, result) in keys.iter().zip(&results) {
                if fresh.delete(table, key).unwrap() {
                    assert_eq!(result.as_ref().unwrap_err().effect(), Effect::Unknown, "{bytes} bytes");
                }
            }
        }
    }
}

#[test]
fn waiting_on_the_descriptor_takes_no_processor_time() {
    let _watchdog = watchdog("waiting costs nothing");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        for round in 0..20u64 {
            session.submit_put(table, &round.to_le_bytes(), b"v").unwrap();
            complete(&mut session, Duration::from_secs(10));
        }
        // With the server standing still, an operation takes its 900 ms; a loop as documented sleeps through
        // them.
        server.process.stop_still();
        session.submit_put(table, b"k", b"v").unwrap();
        let before = processor_time_ns(std::process::id());
        let began = Instant::now();
        let mut rounds = 0;
        let mut completions = Vec::new();
        while session.outstanding() > 0 && began.elapsed() < Duration::from_millis(500) {
            session.poll(&mut completions).unwrap();
            is_readable_within(&session, Duration::from_millis(100));
            rounds += 1;
        }
        let spent = processor_time_ns(std::process::id()) - before;
        assert!(rounds < 50, "woken {rounds} times for nothing ({spent} ns of processor time)");
        server.process.go_on();
    }
}

#[test]
fn short_time_outs_are_kept() {
    let _watchdog = watchdog("short time-outs");
    let run = RunDir::new();
    let server = server(&run);
    let options = SessionOptions::default().timeout(Duration::from_millis(50));
    let mut session = server.client().session_with(options).unwrap();
    let table = session.create_table("t").unwrap();
    server.process.stop_still();
    for _ in 0..3 {
        let error = session.put(table, b"k", b"v").unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::Unknown));
    }
    server.process.go_on();
}

/// Waits for one submitted operation, the only one under way.
#[track_caller]
fn outcome(session: &mut Session, ticket: Result<Ticket>) -> Result<Outcome> {
    let ticket = ticket.unwrap();
    let mut completions = complete(session, Duration::from_secs(10));
    assert_eq!(completions.len(), 1, "{completions:?}");
    let completion = completions.remove(0);
    assert_eq!(completion.ticket, ticket);
    completion.outcome
}

#[track_caller]
fn item(outcome: Result<Outcome>) -> Option<Item> {
    match outcome.unwrap() {
        Outcome::Item(item) => item,
        other => panic!("a read brought {other:?}"),
    }
}

/// The key of an item, or none.
fn key_of(item: &Option<Item>) -> Option<&[u8]> {
    item.as_ref().map(Item::key)
}

/// An item with links "next" to some keys.
fn node(table: Table, targets: &[&str]) -> NewItem {
    targets.iter().fold(NewItem::new().bytes("name", b"n"), |item, key| item.link("next", table, key))
}

#[test]
fn a_submitted_follow_finds_what_follow_finds() {
    let _watchdog = watchdog("submitted follows");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        for (key, targets) in [("target", &[][..]), ("source", &["target"]), ("early", &["late"])] {
            session.put_item(table, key, &node(table, targets)).unwrap();
        }
        let get = |session: &mut Session, key: &str| session.get(table, key).unwrap().expect("just put");
        let follow = |session: &mut Session, source: &Item| {
            let before = session.cost();
            let ticket = session.submit_follow(source, "next");
            (item(outcome(session, ticket)), session.cost().since(before))
        };
        // The first follow may have to repair the link, which its shard knew no place for.
        let source = get(&mut session, "source");
        assert_eq!(follow(&mut session, &source).0.expect("it is there").key(), b"target");
        let mut cost = None;
        until("the link is one READ", || {
            let source = get(&mut session, "source");
            let (found, of_this) = follow(&mut session, &source);
            assert_eq!(found.expect("it is there").bytes("name"), Some(&b"n"[..]));
            cost = Some((of_this.reads, of_this.messages));
            breaks() || cost == Some((1, 0))
        });
        // Moved: put again, it stands elsewhere.
        let repaired = || asked_sum(&server.client(), "links_repaired");
        let (source, before) = (get(&mut session, "source"), repaired());
        session.put_item(table, "target", &node(table, &[])).unwrap();
        let (found, cost) = follow(&mut session, &source);
        assert_eq!(found.expect("it is there").key(), b"target");
        assert!(breaks() || cost.messages >= 1, "its shard is told where the target stands: {cost:?}");
        until("the link is repaired", || {
            let _ = breaks() && follow(&mut session, &source).0.is_some();
            repaired() > before
        });
        // Absent, and then there after all.
        let early = get(&mut session, "early");
        assert!(follow(&mut session, &early).0.is_none());
        session.put(table, "late", b"v").unwrap();
        assert_eq!(follow(&mut session, &early).0.expect("it is there").value(), b"v");
        // Deleted.
        let source = get(&mut session, "source");
        session.delete(table, "target").unwrap();
        assert!(follow(&mut session, &source).0.is_none());
        assert!(session.follow(&source, "next").unwrap().is_none());
        // An item without such a link is refused as by `follow`.
        let refused = session.submit_follow(&source, "previous").unwrap_err();
        let plain = session.follow(&source, "previous").unwrap_err();
        assert_eq!((refused.kind(), refused.context()), (plain.kind(), plain.context()));
        assert_eq!(session.outstanding(), 0);
    }
}

/// What was submitted before an error that comes at once is not lost.
#[test]
fn a_submitted_visit_brings_each_target_by_its_ticket() {
    let _watchdog = watchdog("submitted visits");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        let keys: Vec<String> = (0..2000).map(|number| format!("n{number}")).collect();
        for key in keys.iter().step_by(3) {
            session.submit_put(table, key, key.as_bytes()).unwrap();
        }
        complete(&mut session, Duration::from_secs(10));
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        session.put_item(table, "all", &node(table, &all)).unwrap();
        let source = session.get(table, "all").unwrap().expect("just put");
        for path in [Path::Auto, Path::Index, Path::Message] {
            session.set_path(path);
            let mut frontier = Frontier::new();
            assert_eq!(frontier.add_links(&source, "next", |_| true), keys.len());
            frontier.add(table, "n3");
            let tickets = session.submit_visit(&frontier, 0..frontier.len()).unwrap();
            assert_eq!(tickets.len(), keys.len() + 1);
            let mut ended = complete(&mut session, Duration::from_secs(10));
            ended.sort_by_key(|completion| completion.ticket);
            assert_eq!(ended.len(), tickets.len());
            for (index, completion) in ended.into_iter().enumerate() {
                assert_eq!(completion.ticket, tickets[index]);
                let wanted = if index < keys.len() { &keys[index] } else { "n3" };
                let wanted = (index % 3 == 0 || index == keys.len()).then_some(wanted.as_bytes());
                assert_eq!(key_of(&item(completion.outcome)), wanted, "by {path:?}");
            }
        }
    }
}

#[test]
fn what_is_at_hand_is_shown_up_to_what_is_not() {
    let _watchdog = watchdog("visits of what is at hand");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        let keys: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        for key in &keys {
            session.put(table, key, key.as_bytes()).unwrap();
        }
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        session.put_item(table, "all", &node(table, &all)).unwrap();
        let mut frontier = Frontier::new();
        until("all links say where their targets stand", || {
            let source = session.get(table, "all").unwrap().expect("just put");
            frontier.clear();
            frontier.add_links(&source, "next", |_| true);
            let before = session.cost();
            session.visit(&frontier, |_, _| ControlFlow::Continue(())).unwrap();
            breaks() || session.cost().since(before).messages == 0
        });
        let mut shown = Vec::new();
        let mut visit = |session: &mut Session, most: usize| {
            shown.clear();
            let count = session.visit_at_hand(&frontier, |index, item| {
                assert_eq!((index, item.map(Item::key)), (shown.len(), Some(keys[index].as_bytes())));
                shown.push(index);
                if shown.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (count.unwrap(), shown.len())
        };
        let near = fabric == FabricChoice::Shm;
        assert_eq!(visit(&mut session, 100), if near { (20, 20) } else { (0, 0) });
        assert_eq!(visit(&mut session, 3), if near { (20, 3) } else { (0, 0) });
        // One has moved since the source was read.
        session.put(table, "n7", b"n7").unwrap();
        let (first, _) = visit(&mut session, 100);
        assert_eq!(first, if near { 7 } else { 0 });
        session.submit_visit(&frontier, first..frontier.len()).unwrap();
        let mut rest = complete(&mut session, Duration::from_secs(10));
        rest.sort_by_key(|completion| completion.ticket);
        assert_eq!(rest.len(), keys.len() - first);
        for (completion, key) in rest.into_iter().zip(&keys[first..]) {
            assert_eq!(key_of(&item(completion.outcome)), Some(key.as_bytes()));
        }
        let beyond = session.submit_visit(&frontier, 19..21).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::InvalidArgument);
    }
}

/// The ways of one conditional write: the plain call, and the submitted one.
type Write<'w> = &'w dyn Fn(&mut Session, &str) -> Result<CompareAndSet>;

#[test]
fn submitted_conditional_writes_end_as_the_plain_calls_do() {
    let _watchdog = watchdog("submitted conditional writes");
    let compared = |session: &mut Session, ticket: Result<Ticket>| match outcome(session, Ok(ticket?))? {
        Outcome::Compared(compared) => Ok(compared),
        other => panic!("a conditional write brought {other:?}"),
    };
    let large = vec![7; 100_000];
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, t) = open(&server, fabric);
        let new = node(t, &["a"]);
        let stale = Some(Version(1));
        // What `now` says is the version of the key.
        let now = |session: &mut Session, key: &str| session.get(t, key).unwrap().map(|item| item.version());
        let pairs: [(Write<'_>, Write<'_>); 9] = [
            (&|s, k| s.compare_and_set(t, k, stale, b"v"), &|s, k| {
                let ticket = s.submit_compare_and_set(t, k, stale, b"v");
                compared(s, ticket)
            }),
            (&|s, k| s.compare_and_set(t, k, None, b"v"), &|s, k| {
                let ticket = s.submit_compare_and_set(t, k, None, b"v");
                compared(s, ticket)
            }),
            (&|s, k| s.compare_and_set(t, k, None, b"w"), &|s, k| {
                let ticket = s.submit_compare_and_set(t, k, None, b"w");
                compared(s, ticket)
            }),
            (&|s, k| s.compare_and_set_item(t, k, stale, &new), &|s, k| {
                let ticket = s.submit_compare_and_set_item(t, k, stale, &new);
                compared(s, ticket)
            }),
            (
                &|s, k| {
                    let version = now(s, k);
                    s.compare_and_set_item(t, k, version, &new)
                },
                &|s, k| {
                    let version = now(s, k);
                    let ticket = s.submit_compare_and_set_item(t, k, version, &new);
                    compared(s, ticket)
                },
            ),
            (&|s, k| s.compare_and_set(t, k, stale, &large), &|s, k| {
                let ticket = s.submit_compare_and_set(t, k, stale, &large);
                compared(s, ticket)
            }),
            (
                &|s, k| {
                    let version = now(s, k);
                    s.compare_and_set(t, k, version, &large)
                },
                &|s, k| {
                    let version = now(s, k);
                    let ticket = s.submit_compare_and_set(t, k, version, &large);
                    compared(s, ticket)
                },
            ),
            (&|s, k| s.compare_and_delete(t, k, Version(1)), &|s, k| {
                let ticket = s.submit_compare_and_delete(t, k, Version(1));
                compared(s, ticket)
            }),
            (
                &|s, k| {
                    let version = now(s, k).expect("put before");
                    s.compare_and_delete(t, k, version)
                },
                &|s, k| {
                    let version = now(s, k).expect("put before");
                    let ticket = s.submit_compare_and_delete(t, k, version);
                    compared(s, ticket)
                },
            ),
        ];
        for (step, (plain, submitted)) in pairs.iter().enumerate() {
            let before = [now(&mut session, "plain"), now(&mut session, "submitted")];
            let ended =
                [plain(&mut session, "plain").unwrap(), submitted(&mut session, "submitted").unwrap()];
            let after = [now(&mut session, "plain"), now(&mut session, "submitted")];
            let is_done = [1, 4, 6, 8].contains(&step);
            for side in 0..2 {
                // Each tells the version that the key has now, which is another only if it was done.
                let wanted = match is_done {
                    true => CompareAndSet::Done(after[side]),
                    false => CompareAndSet::Mismatch(before[side]),
                };
                assert_eq!(ended[side], wanted, "step {step}, side {side}");
                assert_eq!(before[side] == after[side], !is_done, "step {step}, side {side}");
            }
        }
        // What no table takes is refused where it is submitted.
        let numbers = session.create_table_of(TableKind::Inline, "numbers").unwrap();
        for expected in [None, Some(Version(1))] {
            let plain = session.compare_and_set(numbers, 7, expected, b"short").unwrap_err();
            let submitted = session.submit_compare_and_set(numbers, 7, expected, b"short").unwrap_err();
            assert_eq!((submitted.kind(), submitted.context()), (plain.kind(), plain.context()));
        }
    }
}

/// Each key is counted up by many compare-and-sets that are under way together: of those with one expected
/// version exactly one is done.
#[test]
fn of_many_conditional_writes_under_way_one_is_done() {
    let _watchdog = watchdog("many conditional writes");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        let mut versions: Vec<Option<Version>> = vec![None; 100];
        for round in 0..5u64 {
            let mut tickets = Vec::new();
            for rival in 0..10u64 {
                for (key, version) in (0u64..).zip(&versions) {
                    let value = (round * 100 + rival).to_le_bytes();
                    let ticket = session.submit_compare_and_set(table, &key.to_le_bytes(), *version, &value);
                    tickets.push((ticket.unwrap(), key as usize));
                }
            }
            let mut done = vec![Vec::new(); versions.len()];
            for completion in complete(&mut session, Duration::from_secs(10)) {
                let (_, key) = tickets[tickets.partition_point(|(ticket, _)| *ticket < completion.ticket)];
                match completion.outcome.unwrap() {
                    Outcome::Compared(CompareAndSet::Done(version)) => done[key].push(version),
                    Outcome::Compared(CompareAndSet::Mismatch(found)) => assert!(found.is_some()),
                    other => panic!("{other:?}"),
                }
            }
            for (key, (version, done)) in (0u64..).zip(versions.iter_mut().zip(done)) {
                let item = session.get(table, &key.to_le_bytes()).unwrap().expect("just put");
                assert_eq!(done, [Some(item.version())]);
                *version = Some(item.version());
            }
        }
    }
}

#[test]
fn a_conditional_put_at_a_killed_server_says_what_is_unknown() {
    let _watchdog = watchdog("killed under conditional puts");
    for fabric in fabrics() {
        if breaks() {
            continue;
        }
        let run = RunDir::new();
        let mut server = server(&run);
        let (mut session, table) = open(&server, fabric);
        session.put(table, "there", b"v").unwrap();
        session.put_item(table, "source", &node(table, &["absent"])).unwrap();
        let source = session.get(table, "source").unwrap().expect("just put");
        let there = session.get(table, "there").unwrap().expect("just put");
        server.process.stop_still();
        let put = session.submit_compare_and_set(table, "k", None, b"v").unwrap();
        let item = session.submit_compare_and_set_item(table, "i", None, &NewItem::new()).unwrap();
        let delete = session.submit_compare_and_delete(table, "there", there.version()).unwrap();
        let follow = session.submit_follow(&source, "next").unwrap();
        let mut completions = Vec::new();
        assert_eq!(session.poll(&mut completions).unwrap(), 0);
        server.process.kill();
        let completions = complete(&mut session, ANSWERED_WITHIN);
        assert_eq!(completions.len(), 4);
        for Completion { ticket, outcome, .. } in completions {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let is_write = [put, item, delete].contains(&ticket);
            assert!(is_write || ticket == follow);
            let effect = if is_write { Effect::Unknown } else { Effect::No };
            assert_eq!(error.effect(), effect, "{ticket:?}: {error}");
        }
        // What is submitted after the end was never sent.
        let late = session.submit_compare_and_set(table, "k", None, b"v");
        let submitted = late.and_then(|ticket| outcome(&mut session, Ok(ticket))).unwrap_err();
        let plain = session.compare_and_set(table, "k", None, b"v").unwrap_err();
        assert_eq!((submitted.kind(), submitted.effect()), (plain.kind(), plain.effect()));
        assert_eq!(submitted.effect(), Effect::No);
    }
}

/// What a time-out says not to have been done must not be there when the server goes on.
#[test]
fn conditional_puts_that_time_out_say_what_is_unknown() {
    let _watchdog = watchdog("conditional puts at a stopped server");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        let value = vec![1; 30_000];
        server.process.stop_still();
        let keys: Vec<[u8; 8]> = (0..200u64).map(u64::to_le_bytes).collect();
        let tickets: Vec<Ticket> = keys
            .iter()
            .map(|key| session.submit_compare_and_set(table, key, None, &value).unwrap())
            .collect();
        let mut completions = Vec::new();
        while session.outstanding() > 0 {
            if session.poll(&mut completions).unwrap() == 0 {
                is_readable_within(&session, Duration::from_millis(20));
            }
        }
        server.process.go_on();
        let mut fresh = server.client().session().unwrap();
        let table = fresh.table("t").unwrap();
        fresh.put(table, "a sign of life", b"").unwrap();
        let mut effects = [0; 2];
        for Completion { ticket, outcome, .. } in completions {
            let error = outcome.unwrap_err();
            // A connection that breaks meanwhile cannot be made again before the server goes on.
            let is_cut = breaks() && error.kind() == ErrorKind::Unavailable;
            assert!(is_cut || error.kind() == ErrorKind::TimedOut, "{error}");
            let key = tickets.iter().position(|other| *other == ticket).unwrap();
            effects[usize::from(error.effect() == Effect::Unknown)] += 1;
            if error.effect() == Effect::No {
                assert!(fresh.get(table, &keys[key]).unwrap().is_none(), "{error}");
            }
        }
        assert!(
            breaks() || effects[0] > 0 && effects[1] > 0,
            "some were sent, and there was no room for all: {effects:?}"
        );
    }
}

/// Tables of each kind with some keys, a few of whose values are too large for a page.
fn tables_with_keys(session: &mut Session) -> Vec<(Table, u64)> {
    let kinds = [TableKind::Inline, TableKind::Numbers, TableKind::Strings, TableKind::Hash];
    let mut tables = Vec::new();
    for kind in kinds {
        let name = format!("of {kind}");
        let table = match kind {
            TableKind::Hash => session.create_table(&name).unwrap(),
            _ => session.create_table_of(kind, &name).unwrap(),
        };
        let count = 1500u64;
        for number in 0..count {
            let value = match number % 400 {
                7 if kind.has_items() => vec![number as u8; 1_200_000],
                _ => number.to_le_bytes().to_vec(),
            };
            session.submit_put(table, number * 10, &value).unwrap();
        }
        for completion in complete(session, Duration::from_secs(10)) {
            completion.outcome.unwrap();
        }
        tables.push((table, count));
    }
    tables
}

/// All that a scan brings by submitted pages, which are no larger than they may be.
fn by_pages(session: &mut Session, table: Table, scan: &Scan) -> Vec<Item> {
    let mut items = Vec::new();
    let mut ticket = session.submit_scan(table, scan);
    loop {
        let page = match outcome(session, ticket) {
            Ok(Outcome::Page(page)) => page,
            other => panic!("a scan brought {other:?}"),
        };
        let (of_page, rest) = page.into_parts();
        assert!(!of_page.is_empty() || rest.is_none(), "an empty page leads nowhere");
        items.extend(of_page);
        match rest {
            Some(rest) => ticket = session.submit_page(rest),
            None => return items,
        }
    }
}

#[test]
fn submitted_pages_bring_what_a_scan_brings() {
    let _watchdog = watchdog("submitted pages");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, _) = open(&server, fabric);
        for (table, count) in tables_with_keys(&mut session) {
            let kind = table.kind();
            let mut scans =
                vec![Scan::all(), Scan::all().limit(300), Scan::all().limit(1), Scan::all().limit(0)];
            if kind != TableKind::Hash {
                let (low, high) = (1000u64.to_be_bytes(), 9000u64.to_be_bytes());
                scans.push(Scan::all().range(&low..&high));
                scans.push(Scan::all().backwards());
                scans.push(Scan::all().range(&low..&high).backwards().limit(500));
            }
            for scan in scans {
                let what = format!("{kind} over {}, {scan:?}", session.fabric());
                let wanted: Vec<Item> = session.scan(table, &scan).unwrap().map(Result::unwrap).collect();
                let before = session.cost();
                let found = by_pages(&mut session, table, &scan);
                let cost = session.cost().since(before);
                assert_eq!(found.len(), wanted.len(), "{what}");
                for (found, wanted) in found.iter().zip(&wanted) {
                    assert_eq!((found.key(), found.version()), (wanted.key(), wanted.version()), "{what}");
                    assert!(found.value() == wanted.value(), "{what}");
                }
                let is_read =
                    kind.has_numbers() || kind == TableKind::Strings && !what.contains("backwards: true");
                if fabric == FabricChoice::Shm && is_read {
                    // Large values are read where they stand.
                    assert!(cost.messages <= cost.fallbacks, "{what}: {cost:?}");
                }
            }
            assert_eq!(session.count(table, &Scan::all()).unwrap(), count);
        }
    }
}

#[test]
fn a_scan_goes_on_from_plain_to_submitted_and_back() {
    let _watchdog = watchdog("scans set aside");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, _) = open(&server, fabric);
        for (table, count) in tables_with_keys(&mut session) {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let mut scanner = session.scan(table, &Scan::all()).unwrap();
            // It is set aside with items at hand, which the page brings first.
            keys.extend((0..5).map(|_| scanner.next_item().unwrap().expect("there are more").key().to_vec()));
            let scan = scanner.pause();
            let ticket = session.submit_page(scan.clone());
            let Ok(Outcome::Page(page)) = outcome(&mut session, ticket) else { panic!("no page") };
            assert!(!page.items().is_empty());
            let (items, rest) = page.into_parts();
            keys.extend(items.iter().map(|item| item.key().to_vec()));
            let rest = rest.expect("a page does not have all").resume(&mut session).unwrap();
            keys.extend(rest.map(|item| item.unwrap().key().to_vec()));
            let wanted: Vec<Vec<u8>> =
                session.scan(table, &Scan::all()).unwrap().map(|item| item.unwrap().key().to_vec()).collect();
            assert_eq!(wanted.len() as u64, count);
            assert_eq!(keys, wanted, "{}", table.kind());
            // A scan of another server is refused, as it is by `resume`.
            let other_run = RunDir::new();
            let other = self::server(&other_run);
            let (mut elsewhere, _) = open(&other, fabric);
            let refused = elsewhere.submit_page(scan.clone()).unwrap_err();
            let plain = scan.resume(&mut elsewhere).err().expect("it is of another server");
            assert_eq!((refused.kind(), refused.context()), (plain.kind(), plain.context()));
        }
    }
}

/// A poll that waited for a page would wait here for as long as a request may take.
#[test]
fn a_poll_does_not_wait_for_a_page() {
    let _watchdog = watchdog("polls beside pages");
    for fabric in fabrics() {
        let run = RunDir::new();
        let mut server = server(&run);
        let (mut session, _) = open(&server, fabric);
        let tables = tables_with_keys(&mut session);
        server.process.stop_still();
        let tickets: Vec<Ticket> =
            tables.iter().map(|(table, _)| session.submit_scan(*table, &Scan::all()).unwrap()).collect();
        let (mut completions, began) = (Vec::new(), Instant::now());
        session.poll(&mut completions).unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_millis(500), "a poll took {took:?}");
        // In shared memory ordered tables are read without the server, but for large values among the items.
        assert!(fabric != FabricChoice::Shm || !completions.is_empty(), "{completions:?}");
        server.process.go_on();
        completions.extend(complete(&mut session, Duration::from_secs(10)));
        assert_eq!(completions.len(), tables.len());
        for Completion { ticket, outcome, .. } in completions {
            let (table, _) = tables[tickets.iter().position(|other| *other == ticket).unwrap()];
            let Ok(Outcome::Page(page)) = outcome else { panic!("{outcome:?}") };
            let first = session.scan(table, &Scan::all()).unwrap().next_item().unwrap().expect("there are");
            assert_eq!(page.items()[0].key(), first.key());
        }
        if breaks() {
            continue;
        }
        // A page that nobody gives ends with its server, and has had no effect.
        server.process.stop_still();
        let (hash, _) = tables[3];
        assert_eq!(hash.kind(), TableKind::Hash);
        let ticket = session.submit_scan(hash, &Scan::all());
        assert_eq!(session.poll(&mut Vec::new()).unwrap(), 0);
        server.process.kill();
        let error = outcome(&mut session, ticket).unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No));
        if fabric == FabricChoice::Shm {
            // What is within reach of loads is read on.
            let (table, count) = tables[0];
            assert_eq!(by_pages(&mut session, table, &Scan::all()).len() as u64, count);
        }
    }
}
