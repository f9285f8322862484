//! Builds that are under way when a primary fails, and views that are held then.

use std::time::{Duration, Instant};

use kelix::{Build, Effect, Error, ErrorKind, NewItem, NewTable, Result, Session, Table, TableKind, View};
use kelix_tests::until;

use super::{FAILURES, Failure, Turns, fail_over, over_each_way};

const ITEMS: u64 = 300;
const LEASE: Duration = Duration::from_secs(1);
const OPTIONS: [&str; 4] = ["--shards", "3", "--view-lease", "1s"];

/// Tables of a dataset have names of their own.
fn begin<'s>(session: &'s mut Session, dataset: &str) -> Result<Build<'s>> {
    let names = [format!("items of {dataset}"), format!("numbers of {dataset}")];
    let tables = [NewTable::new(&names[0], TableKind::Hash), NewTable::new(&names[1], TableKind::Inline)];
    session.build(dataset, &tables)
}

/// Puts all items, each of which says of which generation it is.
fn fill(build: &mut Build<'_>, mark: u64) -> Result<()> {
    let items = build.table(0);
    for number in 0..ITEMS {
        let item = NewItem::new().bytes("mark", &mark.to_le_bytes());
        build.put_item(0, number, &item.link("next", items, (number + 1) % ITEMS))?;
        build.put(1, number, &mark.to_le_bytes())?;
    }
    Ok(())
}

fn load(session: &mut Session, dataset: &str, mark: u64) {
    let mut build = begin(session, dataset).unwrap();
    fill(&mut build, mark).unwrap();
    assert_eq!(build.finish().unwrap().items, 2 * ITEMS);
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

fn items_of(view: &View) -> Table {
    view.table(&format!("items of {}", view.dataset())).unwrap()
}

/// Which generation a view shows, all of which is there.
fn mark_of(session: &mut Session, view: &View) -> u64 {
    let items = items_of(view);
    let numbers = view.table(&format!("numbers of {}", view.dataset())).unwrap();
    let mut item = session.get(items, 0u64).unwrap().expect("it was loaded");
    let mark = number(item.bytes("mark").expect("a mark"));
    for key in 1..=ITEMS {
        assert!(session.follow_into(&mut item, "next").unwrap());
        assert_eq!(item.bytes("mark").map(number), Some(mark), "item {key}");
        let inline = session.get(numbers, key % ITEMS).unwrap().expect("it was loaded");
        assert_eq!(number(inline.value()), mark, "number {key}");
    }
    mark
}

/// What a build comes to that is given up: it has changed nothing, and can be begun anew.
#[track_caller]
fn assert_given_up(error: &Error) {
    let said = (error.kind(), error.effect(), error.retry());
    assert_eq!(said, (ErrorKind::ViewExpired, Effect::No, true), "{error}");
    assert!(error.to_string().contains("another server takes over: begin the build anew"), "{error}");
}

/// A generation goes with the connection over which it was begun. What that came to was "the table was
/// dropped", which a build is not, and there was no word of what to do.
#[test]
fn a_build_that_is_under_way_is_given_up_and_can_be_begun_anew() {
    over_each_way("builds", &OPTIONS, |trial, _| {
        let datasets = ["half", "all", "large", "aside"];
        let mut sessions = datasets.map(|_| trial.cluster.session());
        for (session, dataset) in sessions.iter_mut().zip(datasets) {
            load(session, dataset, 1);
        }
        for (mark, failure) in (2u64..).zip(FAILURES) {
            let [half, all, large, aside] = &mut sessions;
            let mut half = begin(half, "half").unwrap();
            (0..10u64).for_each(|key| half.put(0, key, &mark.to_le_bytes()).unwrap());
            let mut all = begin(all, "all").unwrap();
            fill(&mut all, mark).unwrap();
            let mut large = begin(large, "large").unwrap();
            let mut paused = begin(aside, "aside").unwrap();
            fill(&mut paused, mark).unwrap();
            let paused = paused.pause();
            trial.fail(failure, 2, |_| {
                let many = (0..100_000u64).try_for_each(|key| half.put(0, key, &[0; 100]));
                assert_given_up(&many.unwrap_err());
                assert_given_up(&half.finish().unwrap_err());
                assert_given_up(&all.finish().unwrap_err());
                // Pieces of it are refused, and then the whole of it.
                assert_given_up(&large.put(0, 1u64, &[1; 300 << 10]).unwrap_err());
                drop(large);
                let resumed = paused.resume(aside).unwrap();
                assert_given_up(&resumed.finish().unwrap_err());
            });
            for (session, dataset) in sessions.iter_mut().zip(datasets) {
                let view = session.view(dataset).unwrap();
                assert_eq!(mark_of(session, &view), mark - 1, "{dataset}");
                load(session, dataset, mark);
                let view = session.view(dataset).unwrap();
                assert_eq!(mark_of(session, &view), mark, "{dataset}");
            }
        }
    });
}

/// Begins builds, and gives them up.
fn begin_builds(turns: &Turns, session: &mut Session, dataset: &str) {
    loop {
        let mut build = begin(session, dataset).unwrap_or_else(|error| panic!("{error}"));
        // It may be given up by now.
        if let Err(error) = build.put(0, 1u64, b"one").and_then(|()| fill(&mut build, 1)) {
            assert_given_up(&error);
        }
        drop(build);
        if !turns.next() {
            return;
        }
    }
}

/// A primary that failed after it had made a generation, and before all of its shards knew that: whoever
/// began the build waited in vain for the shards of the next one to hear of it.
#[test]
fn a_build_begins_whichever_server_is_there() {
    fail_over("builds that begin", &["--shards", "8"], |cluster, clients, _| {
        for dataset in ["one", "two"] {
            let mut session = cluster.session();
            clients.start(dataset, move |turns| begin_builds(turns, &mut session, dataset));
        }
    });
}

/// How many generations are loaded at either primary.
const LOADS: u64 = 5;

/// A session knows by a word of a shard's memory, which counts, whether what it has looked up of generations
/// is still so. At the next primary that counts anew: when it came to the number that a session had seen at
/// the one before, names led to what was in force then, and views did not end.
#[test]
fn names_lead_to_what_is_in_force_at_the_next_primary() {
    over_each_way("names", &OPTIONS, |trial, _| {
        let mut loader = trial.cluster.session();
        let plain = loader.create_table("plain").unwrap();
        // Of each number that can have been seen a session for each that there may be later.
        let mut readers: Vec<Vec<Session>> = Vec::new();
        load(&mut loader, "names", 1);
        let items = loader.table("items of names").unwrap();
        let mark = |session: &mut Session| {
            let item = session.get(items, 1u64).unwrap().expect("it was loaded");
            item.bytes("mark").map(number)
        };
        for before in 1..=LOADS {
            if before > 1 {
                load(&mut loader, "names", before);
            }
            let mut all: Vec<Session> = (0..LOADS).map(|_| trial.cluster.session()).collect();
            all.iter_mut().for_each(|session| assert_eq!(mark(session), Some(before)));
            readers.push(all);
        }
        trial.fail(Failure::Killed, 2, |_| {
            for session in readers.iter_mut().flatten() {
                assert!(session.get(plain, 1u64).unwrap().is_none());
            }
            for after in LOADS + 1..=2 * LOADS {
                load(&mut loader, "names", after);
                for (before, all) in (1..).zip(&mut readers) {
                    let mut session = all.pop().expect("one for each load");
                    assert_eq!(mark(&mut session), Some(after), "where {before} was seen before");
                }
            }
        });
    });
}

/// Views that are held are read on at the next primary, for as long as they are used; those that are not used
/// for longer than a lease end, as they do with one server.
#[test]
fn a_view_is_read_on_at_the_next_primary_and_ends_when_it_is_dropped() {
    over_each_way("views", &OPTIONS, |trial, _| {
        let [mut loader, mut reader, mut idle] = [(); 3].map(|()| trial.cluster.session());
        load(&mut loader, "company", 1);
        for (mark, failure) in (1u64..).zip(FAILURES) {
            let held = reader.view("company").unwrap();
            let unused = idle.view("company").unwrap();
            // It is read by this view only.
            load(&mut loader, "company", mark + 1);
            assert_eq!(mark_of(&mut reader, &held), mark);
            trial.fail(failure, 2, |_| {
                let since = Instant::now();
                while since.elapsed() < LEASE + LEASE / 4 {
                    assert_eq!(mark_of(&mut reader, &held), mark);
                    std::thread::sleep(LEASE / 20);
                }
            });
            assert_eq!(mark_of(&mut reader, &held), mark);
            let newest = reader.view("company").unwrap();
            assert_eq!(mark_of(&mut reader, &newest), mark + 1);
            let items = items_of(&held);
            drop(held);
            until("a view ends that nobody has any more", || {
                // With this the session lets go of what it has no view of.
                assert_eq!(mark_of(&mut reader, &newest), mark + 1);
                match reader.get(items, 1u64) {
                    Ok(item) => {
                        let item = item.expect("it was loaded");
                        assert_eq!(item.bytes("mark").map(number), Some(mark));
                        false
                    }
                    Err(error) => error.kind() == ErrorKind::ViewExpired,
                }
            });
            let ended = idle.get(items_of(&unused), 1u64).unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::ViewExpired, "{ended}");
            let newest = idle.view("company").unwrap();
            assert_eq!(mark_of(&mut idle, &newest), mark + 1);
        }
    });
}
