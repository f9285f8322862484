//! Operations that were submitted: each ends as a plain one does, whichever node is primary by then.

use std::collections::BTreeMap;

use kelix::{CompareAndSet, Completion, NewItem, Outcome, Scan, Session, Table, TableKind};
use kelix_tests::value;

use super::{FAILURES, Turns, fail_over, over_each_way};

const KEYS: u64 = 40;
const PEOPLE: u64 = 3000;

/// Waits until all that was submitted has ended, in the order of its submission.
fn ended(session: &mut Session) -> Vec<Completion> {
    let mut completions = Vec::new();
    while session.outstanding() > 0 {
        if session.poll(&mut completions).unwrap() == 0 {
            std::thread::yield_now();
        }
    }
    completions.sort_by_key(|completion| completion.ticket);
    completions
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

/// Writes of all sorts, many under way, each of which is done once; and gets of what they wrote.
fn write(turns: &Turns, session: &mut Session, table: Table) {
    // Of each key the counter of its value.
    let mut known: BTreeMap<u64, u64> = BTreeMap::new();
    for turn in 1u64.. {
        let mut wanted = Vec::new();
        for key in 0..KEYS {
            let before = known.get(&key).copied();
            let value = value::make(key, turn, 40);
            match (turn + key) % 4 {
                0 => {
                    session.submit_delete(table, key).unwrap();
                    wanted.push(before.is_some());
                    known.remove(&key);
                    continue;
                }
                1 => session.submit_compare_and_set(table, key, None, &value).unwrap(),
                2 => session.submit_put(table, key, &value).unwrap(),
                _ => {
                    let item = NewItem::new().bytes("", &value).bytes("note", b"submitted");
                    session.submit_item(table, key, &item).unwrap()
                }
            };
            // Put if it is absent, or whatever there is.
            let is_done = (turn + key) % 4 != 1 || before.is_none();
            wanted.push(is_done);
            if is_done {
                known.insert(key, turn);
            }
        }
        for (completion, wanted) in ended(session).into_iter().zip(wanted) {
            let is_done = match completion.outcome.unwrap() {
                Outcome::Written(_) => true,
                Outcome::Deleted(was_there) => was_there,
                Outcome::Compared(compared) => matches!(compared, CompareAndSet::Done(_)),
                other => panic!("{other:?} of a write"),
            };
            assert_eq!(is_done, wanted, "turn {turn}");
        }
        for key in 0..KEYS {
            session.submit_get(table, key).unwrap();
        }
        for (key, completion) in (0..KEYS).zip(ended(session)) {
            let Outcome::Item(item) = completion.outcome.unwrap() else { panic!("of a get") };
            let found = item.map(|item| value::check(key, item.value()).unwrap());
            assert_eq!(found, known.get(&key).copied(), "key {key} in turn {turn}");
        }
        if !turns.next() {
            return;
        }
    }
}

/// Values that go in pieces.
fn write_large(turns: &Turns, session: &mut Session, table: Table) {
    for turn in 1u64.. {
        for key in 0..3 {
            session
                .submit_put(table, key, &value::make(key, turn, (200 << 10) + (key << 18) as usize))
                .unwrap();
        }
        ended(session).into_iter().for_each(|completion| drop(completion.outcome.unwrap()));
        for key in 0..3 {
            session.submit_get(table, key).unwrap();
        }
        for (key, completion) in (0..3).zip(ended(session)) {
            let Outcome::Item(Some(item)) = completion.outcome.unwrap() else { panic!("just put") };
            assert_eq!(value::check(key, item.value()), Ok(turn));
        }
        if !turns.next() {
            return;
        }
    }
}

/// Scans of which pages are submitted, several at a time, beside reads along links.
fn scan(turns: &Turns, session: &mut Session, people: Table) {
    loop {
        for scan in [Scan::all(), Scan::all().backwards()] {
            session.submit_scan(people, &scan).unwrap();
        }
        let mut found: Vec<Vec<u64>> = vec![Vec::new(); 2];
        let mut of_ticket: Vec<usize> = vec![0, 1];
        while !of_ticket.is_empty() {
            let mut next = Vec::new();
            for (scan, completion) in of_ticket.into_iter().zip(ended(session)) {
                let Outcome::Page(page) = completion.outcome.unwrap() else { panic!("of a scan") };
                let (items, rest) = page.into_parts();
                for item in &items {
                    found[scan].push(number(item.bytes("number").unwrap()));
                }
                if let Some(rest) = rest {
                    session.submit_page(rest).unwrap();
                    next.push(scan);
                }
            }
            of_ticket = next;
        }
        found[1].reverse();
        for found in found {
            assert!(found.into_iter().eq(0..PEOPLE), "a scan has each item once");
        }
        if !turns.next() {
            return;
        }
    }
}

/// Reads along links, all of which are there.
fn follow(turns: &Turns, session: &mut Session, people: Table) {
    let mut at = 0;
    loop {
        let items: Vec<_> =
            (0..20).map(|step| session.get(people, &person(at + step)).unwrap().unwrap()).collect();
        for item in &items {
            session.submit_follow(item, "next").unwrap();
        }
        for (step, completion) in (1..).zip(ended(session)) {
            let Outcome::Item(Some(item)) = completion.outcome.unwrap() else { panic!("of a link") };
            assert_eq!(number(item.bytes("number").unwrap()), (at + step) % PEOPLE);
        }
        at += 20;
        if !turns.next() {
            return;
        }
    }
}

fn person(number: u64) -> String {
    format!("person {:05}", number % PEOPLE)
}

#[test]
fn what_was_submitted_ends_as_if_nobody_had_died() {
    fail_over("submitted", &["--shards", "2"], |cluster, clients, _| {
        let mut session = cluster.session();
        let people = session.create_table_of(TableKind::Strings, "people").unwrap();
        for number in 0..PEOPLE {
            let item = NewItem::new().bytes("number", &number.to_le_bytes());
            session
                .put_item(people, &person(number), &item.link("next", people, &person(number + 1)))
                .unwrap();
        }
        let by_message = cluster.session_by_message();
        for (name, mut session) in [("scans", cluster.session()), ("scans by message", by_message)] {
            clients.start(name, move |turns| scan(turns, &mut session, people));
        }
        let by_message = cluster.session_by_message();
        for (name, mut session) in [("links", cluster.session()), ("links by message", by_message)] {
            clients.start(name, move |turns| follow(turns, &mut session, people));
        }
        for (name, mut session) in
            [("writes", cluster.session()), ("by message", cluster.session_by_message())]
        {
            let table = session.create_table(name).unwrap();
            clients.start(name, move |turns| write(turns, &mut session, table));
        }
        let mut session = cluster.session();
        let table = session.create_table("large").unwrap();
        clients.start("large values", move |turns| write_large(turns, &mut session, table));
    });
}

/// What a primary has answered before it failed is an answer, though it is looked for only when that primary
/// is deposed, and nobody can be asked yet. Pages of scans failed then, with `superseded`.
#[test]
fn what_was_answered_before_the_primary_failed_is_answered() {
    over_each_way("answered", &["--shards", "2"], |trial, _| {
        let mut other = trial.cluster.session_by_message();
        let table = other.create_table_of(TableKind::Numbers, "numbers").unwrap();
        let counter = other.create_table("counter").unwrap();
        for number in 0..KEYS {
            other.put(table, number, &number.to_le_bytes()).unwrap();
        }
        for (turn, failure) in (1u64..).zip(FAILURES) {
            let mut session = trial.cluster.session_by_message();
            let before = session.get(counter, b"sum").unwrap().map(|item| item.version());
            session.submit_scan(table, &Scan::all()).unwrap();
            session.submit_scan(table, &Scan::all().backwards()).unwrap();
            for number in 0..KEYS {
                session.submit_get(table, number).unwrap();
            }
            session.submit_compare_and_set(counter, b"sum", before, &turn.to_le_bytes()).unwrap();
            let mut completions = Vec::new();
            session.poll(&mut completions).unwrap();
            // All of it is answered by now, or would be a moment later: what was not is asked again.
            for number in 0..10 * KEYS {
                assert!(other.get(table, number % KEYS).unwrap().is_some());
            }
            let mut witness = trial.cluster.brief_session();
            trial.fail_by(failure, 2, |cluster, failed| {
                // The other node stands still from the moment on at which it has deposed this one.
                while witness.get(table, 1u64).is_ok() && witness.past_connections() == 0 {
                    std::hint::spin_loop();
                }
                cluster.node(1 - failed).stop_still();
                session.poll(&mut completions).unwrap();
                cluster.node(1 - failed).go_on();
                completions.extend(ended(&mut session));
            });
            completions.sort_by_key(|completion| completion.ticket);
            let mut completions = completions.into_iter().map(|completion| completion.outcome.unwrap());
            for is_backwards in [false, true] {
                let Some(Outcome::Page(page)) = completions.next() else { panic!("of a scan") };
                let mut found: Vec<u64> = page.items().iter().map(|item| number(item.value())).collect();
                if is_backwards {
                    found.reverse();
                }
                assert!(found.into_iter().eq(0..KEYS));
            }
            for wanted in 0..KEYS {
                let Some(Outcome::Item(Some(item))) = completions.next() else { panic!("of a get") };
                assert_eq!(number(item.value()), wanted);
            }
            let Some(Outcome::Compared(CompareAndSet::Done(_))) = completions.next() else {
                panic!("of a write that is done once")
            };
            let sum = session.get(counter, b"sum").unwrap().expect("just put");
            assert_eq!(number(sum.value()), turn);
        }
    });
}
