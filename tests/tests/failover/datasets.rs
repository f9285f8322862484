//! Generations of datasets: one is in force as a whole or not at all, what clients wrote on it goes on to the
//! next one, and who holds one reads it on.

use std::sync::atomic::{AtomicU64, Ordering};

use kelix::{Build, Error, NewItem, NewTable, Result, Scan, Session, TableKind, View};

use super::{Turns, fail_over};

const PEOPLE: u64 = 3000;
const PLACES: u64 = 40;

fn tables(overlay: bool) -> [NewTable<'static>; 3] {
    [
        NewTable::new("people", TableKind::Hash).overlay(overlay),
        NewTable::new("places", TableKind::Strings).overlay(overlay),
        NewTable::new("salaries", TableKind::Inline),
    ]
}

fn place(number: u64) -> String {
    format!("place {:03}", number % PLACES)
}

/// Fills a generation in which everything says which one it is.
fn fill(build: &mut Build<'_>, mark: u64) -> Result<()> {
    let (people, places) = (build.table(0), build.table(1));
    let mark = mark.to_le_bytes();
    for number in 0..PEOPLE {
        let item = NewItem::new().bytes("mark", &mark).link("place", places, &place(number));
        build.put_item(0, number, &item.link("next", people, (number + 1) % PEOPLE))?;
        build.put(2, number, &mark)?;
    }
    for number in 0..PLACES {
        let item = NewItem::new().bytes("mark", &mark).link("mayor", people, number);
        build.put_item(1, &place(number), &item)?;
    }
    Ok(())
}

fn load(session: &mut Session, mark: u64) -> Result<u64> {
    let mut build = session.build("company", &tables(true))?;
    fill(&mut build, mark)?;
    Ok(build.finish()?.generation)
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

/// The mark of a generation, all of which has it.
fn mark_of(session: &mut Session, view: &View) -> u64 {
    let [people, places, salaries] = ["people", "places", "salaries"].map(|name| view.table(name).unwrap());
    let marks: Vec<u64> = {
        let scan = session.scan(salaries, &Scan::all()).unwrap();
        scan.map(|item| number(item.unwrap().value())).collect()
    };
    assert_eq!(marks.len() as u64, PEOPLE, "salaries of generation {}", view.generation());
    let mark = marks[0];
    assert!(marks.iter().all(|other| *other == mark));
    let is_of = |item: &kelix::Item| item.bytes("mark").map(number) == Some(mark);
    for person in 0..PEOPLE {
        let item = session.get(people, person).unwrap().expect("a person of the generation");
        assert!(is_of(&item), "person {person} of generation {}", view.generation());
        if person % 16 == 0 {
            for link in ["place", "next"] {
                let target = session.follow(&item, link).unwrap().expect("a link that leads to something");
                assert!(is_of(&target), "{link} of person {person}");
            }
        }
    }
    let scan = session.scan(places, &Scan::all()).unwrap();
    assert_eq!(scan.map(|item| assert!(is_of(&item.unwrap()))).count() as u64, PLACES);
    mark
}

/// A build that was under way is given up, and that is said.
fn assert_given_up(error: &Error) {
    let said = error.to_string();
    assert!(error.retry() && said.contains("begin the build anew"), "{error:?}");
}

/// Loads one generation after the other. Each is in force if that was answered, and else the one before is.
fn load_all(turns: &Turns, session: &mut Session, given_up: &AtomicU64) {
    let mut in_force = 1;
    for mark in 2.. {
        match load(session, mark) {
            Ok(_) => in_force = mark,
            Err(error) => {
                assert_given_up(&error);
                given_up.fetch_add(1, Ordering::SeqCst);
            }
        }
        let view = session.view("company").unwrap();
        assert_eq!(mark_of(session, &view), in_force);
        if !turns.next() {
            return;
        }
    }
}

fn read(turns: &Turns, session: &mut Session) {
    let mut last = 0;
    loop {
        let view = session.view("company").unwrap();
        let mark = mark_of(session, &view);
        assert!(mark >= last, "{mark} behind {last}");
        // It is held: what comes into force meanwhile changes nothing.
        assert_eq!(mark_of(session, &view), mark);
        last = mark;
        if !turns.next() {
            return;
        }
    }
}

/// Writes by a table's name, beside loads that do not have these keys.
fn write_over(turns: &Turns, session: &mut Session, name: &str) {
    let table = session.table(name).unwrap();
    for turn in 1u64.. {
        for key in 0..20u64 {
            let key = format!("overlay {key}");
            session.put_item(table, &key, &NewItem::new().bytes("turn", &turn.to_le_bytes())).unwrap();
            let item = session.get(table, &key).unwrap().unwrap_or_else(|| panic!("{key} of {name} is lost"));
            assert_eq!(item.bytes("turn").map(number), Some(turn), "{key} of {name}");
        }
        for key in 0..20u64 {
            let key = format!("overlay {key}");
            let item = session.get(table, &key).unwrap().unwrap_or_else(|| panic!("{key} of {name} is lost"));
            assert_eq!(item.bytes("turn").map(number), Some(turn), "{key} of {name}");
        }
        let gone = format!("gone {turn}");
        session.put(table, &gone, b"").unwrap();
        assert!(session.delete(table, &gone).unwrap());
        assert!(session.get(table, &gone).unwrap().is_none());
        if !turns.next() {
            return;
        }
    }
}

#[test]
fn a_generation_is_in_force_as_a_whole_or_not_at_all() {
    fail_over("generations", &["--shards", "3", "--view-lease", "1s"], |cluster, clients, _| {
        let mut session = cluster.session();
        load(&mut session, 1).unwrap();
        clients.start("loader", move |turns| load_all(turns, &mut session, &AtomicU64::new(0)));
        let mut session = cluster.session();
        clients.start("reader", move |turns| read(turns, &mut session));
    });
}

/// Loads of which each has what all others have.
fn load_small(turns: &Turns, session: &mut Session) {
    loop {
        let loaded = session.build("small", &[NewTable::new("carts", TableKind::Hash).overlay(true)]);
        let finished = loaded.and_then(|mut build| {
            for number in 0..200u64 {
                build.put(0, number, b"loaded")?;
            }
            build.finish()
        });
        if let Err(error) = finished {
            assert_given_up(&error);
        }
        if !turns.next() {
            return;
        }
    }
}

#[test]
fn what_clients_wrote_over_a_generation_is_never_lost() {
    fail_over("overlays", &["--shards", "2", "--view-lease", "1s"], |cluster, clients, _| {
        let mut session = cluster.session();
        let built = session.build("small", &[NewTable::new("carts", TableKind::Hash).overlay(true)]);
        built.unwrap().finish().unwrap();
        clients.start("loader", move |turns| load_small(turns, &mut session));
        let mut session = cluster.session();
        clients.start("writer", move |turns| write_over(turns, &mut session, "carts"));
    });
}
