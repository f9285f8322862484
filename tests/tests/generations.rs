//! Generations of datasets through the public interface: built beside the one that is read, put in force at
//! once, read by views for as long as these are held, and dropped afterwards.

use std::time::{Duration, SystemTime};

use kelix::{
    Build, Client, ErrorKind, FabricChoice, Item, NewItem, NewTable, Result, Scan, Session, TableKind, View,
};
use kelix_server::{Server, ServerConfig};
use kelix_tests::process::patient;
use kelix_tests::{RunDir, breaks, fabrics, rdma, session_over, statistics, until, watchdog};

/// Where connections break, an operation may take a second.
fn lease() -> Duration {
    Duration::from_secs(if breaks() { 4 } else { 1 })
}

const PEOPLE: u64 = 2000;
const DEPARTMENTS: u64 = 20;
/// Items of a generation.
const LOADED: u64 = 2 * PEOPLE + DEPARTMENTS;

fn serve(run: &RunDir, shards: usize) -> (Server, Client) {
    let config = ServerConfig {
        directory: run.path().into(),
        shards,
        memory_bytes: 256 << 20,
        view_lease: lease(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        rdma: rdma(),
        ..ServerConfig::default()
    };
    let server = kelix_tests::start(&config);
    (server, kelix_tests::client_at(run.path()))
}

fn session(client: &Client, fabric: FabricChoice) -> Session {
    session_over(fabric, client, patient())
}

fn person(number: u64) -> Vec<u8> {
    format!("person:{number}").into_bytes()
}

fn tables(overlay: bool) -> [NewTable<'static>; 3] {
    [
        NewTable::new("people", TableKind::Hash).overlay(overlay),
        NewTable::new("departments", TableKind::Strings).overlay(overlay),
        NewTable::new("salaries", TableKind::Inline).overlay(overlay),
    ]
}

/// Fills a generation in which everything says which one it is.
fn fill(build: &mut Build<'_>, mark: u64) -> Result<()> {
    let (people, departments) = (build.table(0), build.table(1));
    for number in 0..PEOPLE {
        // Links lead to what comes later, and in circles.
        let department = format!("dept:{}", number % DEPARTMENTS).into_bytes();
        let mut item = NewItem::new();
        item = item.bytes("mark", &mark.to_le_bytes());
        item = item.link("department", departments, &department).link(
            "next",
            people,
            &person((number + 1) % PEOPLE),
        );
        build.put_item(0, &person(number), &item)?;
        build.put(2, &number.to_be_bytes(), &mark.to_le_bytes())?;
    }
    for number in 0..DEPARTMENTS {
        let mut item = NewItem::new();
        item = item.bytes("mark", &mark.to_le_bytes()).link("head", people, &person(number));
        build.put_item(1, format!("dept:{number}").as_bytes(), &item)?;
    }
    Ok(())
}

fn load(session: &mut Session, mark: u64) -> u64 {
    let mut build = session.build("company", &tables(false)).unwrap();
    fill(&mut build, mark).unwrap();
    let built = build.finish().unwrap();
    assert_eq!((built.items, built.links, built.dangling), (LOADED, LOADED, 0));
    built.generation
}

fn mark_of(item: &Item) -> u64 {
    u64::from_le_bytes(item.bytes("mark").expect("a mark").try_into().expect("8 bytes"))
}

/// Reads in every way, and wants everything to be of one generation.
fn read(session: &mut Session, view: &View, mark: u64) -> Result<()> {
    let [people, departments, salaries] =
        ["people", "departments", "salaries"].map(|name| view.table(name).unwrap());
    let keys: Vec<Vec<u8>> = (0..50).map(|number| person(number * 37)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for (index, item) in (0..).zip(session.multi_get(people, &keys)?) {
        let item = item.expect("it was loaded");
        assert_eq!(mark_of(&item), mark);
        let department = session.follow(&item, "department")?.expect("it was loaded");
        assert_eq!(mark_of(&department), mark);
        let head = session.follow(&department, "head")?.expect("it was loaded");
        assert_eq!((mark_of(&head), head.key()), (mark, &person(index * 37 % DEPARTMENTS)[..]));
        assert_eq!(mark_of(&session.follow_all(&item, "next")?[0].clone().expect("it was loaded")), mark);
    }
    assert!(session.get(people, b"person:none")?.is_none());
    let all = session.scan(departments, &Scan::all())?.collect::<Result<Vec<Item>>>()?;
    assert_eq!(all.len() as u64, DEPARTMENTS);
    assert!(all.iter().all(|item| mark_of(item) == mark));
    assert_eq!(session.count(salaries, &Scan::all())?, PEOPLE);
    let mut buffer = [0; 8];
    session.get_into(salaries, &7u64.to_be_bytes(), &mut buffer)?.expect("it was loaded");
    assert_eq!(u64::from_le_bytes(buffer), mark);
    Ok(())
}

fn items(client: &Client) -> u64 {
    kelix_tests::shard_sum(&statistics(client), "items")
}

#[test]
fn a_view_stays_with_its_generation_and_names_lead_to_the_one_in_force() {
    let _watchdog = watchdog("generations");
    for shards in [1, 2] {
        let run = RunDir::new();
        let (server, client) = serve(&run, shards);
        let mut loader = client.session_with(patient()).unwrap();
        let first = load(&mut loader, 1);
        let mut readers: Vec<(Session, View)> = Vec::new();
        for fabric in fabrics() {
            let mut session = session(&client, fabric);
            let view = session.view("company").unwrap();
            assert_eq!(view.generation(), first);
            read(&mut session, &view, 1).unwrap();
            readers.push((session, view));
        }
        // While another is built nothing of it is seen.
        let mut build = loader.build("company", &tables(false)).unwrap();
        fill(&mut build, 2).unwrap();
        for (session, view) in &mut readers {
            read(session, view, 1).unwrap();
            assert_eq!(session.view("company").unwrap().generation(), first);
        }
        let second = build.finish().unwrap().generation;
        assert!(second > first);
        // For more than two leases.
        for _ in 0..12 {
            for (session, view) in &mut readers {
                read(session, view, 1).unwrap();
                let new = session.view("company").unwrap();
                assert_eq!(new.generation(), second);
                read(session, &new, 2).unwrap();
                let people = session.table("people").unwrap();
                assert_eq!(mark_of(&session.get(people, b"person:1").unwrap().unwrap()), 2);
            }
            std::thread::sleep(lease() / 5);
        }
        assert_eq!(items(&client), 2 * LOADED, "the first is still there");
        // Handles by name follow the next switch; views do not, and when they are gone so is the first
        // generation.
        let mut by_name = Vec::new();
        for (mut session, view) in readers {
            let people = session.table("people").unwrap();
            by_name.push((session, people));
            drop(view);
        }
        let third = load(&mut loader, 3);
        assert!(third > second);
        until("the others are dropped", || {
            for (session, people) in &mut by_name {
                let person = session.get(*people, b"person:5").unwrap().expect("one in force has it");
                assert!(mark_of(&person) >= 2);
            }
            items(&client) == LOADED
        });
        for (session, people) in &mut by_name {
            assert_eq!(mark_of(&session.get(*people, b"person:5").unwrap().unwrap()), 3);
        }
        server.stop();
    }
}

#[test]
fn a_view_that_is_not_used_for_a_lease_has_expired() {
    let _watchdog = watchdog("expired views");
    let run = RunDir::new();
    let (server, client) = serve(&run, 1);
    let mut loader = client.session_with(patient()).unwrap();
    load(&mut loader, 1);
    let mut idle: Vec<(Session, View)> = fabrics()
        .into_iter()
        .map(|fabric| {
            let mut session = session(&client, fabric);
            let view = session.view("company").unwrap();
            read(&mut session, &view, 1).unwrap();
            (session, view)
        })
        .collect();
    // The tables' ids are used again and again.
    for mark in 2..6 {
        load(&mut loader, mark);
        std::thread::sleep(lease() * 3);
    }
    for (session, view) in &mut idle {
        let error = read(session, view, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ViewExpired, "{error}");
        let view = session.view("company").unwrap();
        read(session, &view, 5).unwrap();
    }
    server.stop();
}

#[test]
fn a_build_that_ends_early_changes_nothing_and_leaves_nothing() {
    let _watchdog = watchdog("builds that fail");
    let run = RunDir::new();
    let (server, client) = serve(&run, 2);
    let mut reader = client.session_with(patient()).unwrap();
    let error = reader.view("company").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchTable);
    let mut loader = client.session_with(patient()).unwrap();
    let first = load(&mut loader, 1);
    for abandoned in [true, false] {
        let mut other = client.session_with(patient()).unwrap();
        let mut build = other.build("company", &tables(false)).unwrap();
        fill(&mut build, 2).unwrap();
        let error = loader.build("company", &tables(false)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        if abandoned {
            drop(build);
        } else {
            // As if its process were killed.
            std::mem::forget(build);
            drop(other);
        }
        until("what was built is gone", || items(&client) == LOADED);
        let view = reader.view("company").unwrap();
        assert_eq!(view.generation(), first);
        read(&mut reader, &view, 1).unwrap();
    }
    server.stop();
}

#[test]
fn loaded_tables_take_no_writes_and_names_are_one_thing_only() {
    let _watchdog = watchdog("writes to loaded tables");
    let run = RunDir::new();
    let (server, client) = serve(&run, 2);
    let mut session = client.session_with(patient()).unwrap();
    session.create_table("people").unwrap();
    let error = session.build("company", &tables(false)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let long = "n".repeat(256);
    let table = |name| NewTable::new(name, TableKind::Hash);
    for (dataset, tables) in
        [("d", vec![table(&long)]), (&long, vec![table("t")]), ("d", vec![table("t"); 257])]
    {
        let error = session.build(dataset, &tables).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("256"), "{error}");
    }
    let names = [NewTable::new("cities", TableKind::Hash)];
    let mut build = session.build("world", &names).unwrap();
    for number in 0..100u64 {
        build.put(0, &number.to_le_bytes(), b"city").unwrap();
    }
    build.finish().unwrap();
    let cities = session.table("cities").unwrap();
    for number in 0..100u64 {
        let error = session.put(cities, &number.to_le_bytes(), b"other").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert_eq!(session.delete(cities, &number.to_le_bytes()).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(session.get(cities, &number.to_le_bytes()).unwrap().unwrap().value(), b"city");
    }
    assert!(session.create_table("cities").is_err());
    server.stop();
}

#[test]
fn items_are_written_as_they_come() {
    let _watchdog = watchdog("items that are written");
    let run = RunDir::new();
    let (server, client) = serve(&run, 2);
    let mut session = client.session_with(patient()).unwrap();
    let elsewhere = session.create_table("elsewhere").unwrap();
    let mut build = session.build("company", &tables(false)).unwrap();
    let people = build.table(0);
    let mut ada = build.item(0, b"ada");
    let ends = SystemTime::now() + Duration::from_secs(3600);
    ada = ada.bytes("name", b"Ada").link("next", people, b"bob").expires_at(ends).flags(7);
    ada.end().unwrap();
    // The same names in another order, and one of them twice.
    let mut bob = build.item(0, b"bob");
    bob = bob.link("next", people, b"eve").bytes("", b"plain").bytes("name", b"Bob");
    bob = bob.link_with("next", elsewhere, b"rome", b"by train");
    bob.end().unwrap();
    drop(build.item(0, b"eve").bytes("", b"nothing else"));
    let mut wrong = build.item(0, b"eve");
    wrong = wrong.bytes("name", b"Eve").link("next", people, &[0; 70_000]).bytes("late", b"x");
    assert_eq!(wrong.end().unwrap_err().kind(), ErrorKind::InvalidArgument);
    // Longer than what is sent with others.
    let mut long = build.item(0, b"long");
    long = long.bytes("name", &[7; 100_000]).link("next", people, b"ada").flags(8);
    long.end().unwrap();
    // Set aside, a build holds no borrow of its session.
    let paused = build.pause();
    assert!(session.get(elsewhere, b"rome").unwrap().is_none());
    let built = paused.resume(&mut session).unwrap().finish().unwrap();
    assert_eq!((built.items, built.links), (3, 4));
    let people = session.table("people").unwrap();
    let ada = session.get(people, b"ada").unwrap().expect("it was put");
    assert_eq!((ada.expires(), ada.flags()), (Some(ends), 7));
    let bob = session.follow(&ada, "next").unwrap().expect("it was put");
    assert_eq!((bob.bytes("name"), bob.value(), bob.expires()), (Some(&b"Bob"[..]), &b"plain"[..], None));
    let links: Vec<_> = bob.links("next").map(|link| (link.key, link.bytes)).collect();
    assert_eq!(links, [(&b"eve"[..], &b""[..]), (b"rome", b"by train")]);
    assert!(session.get(people, b"eve").unwrap().is_none());
    let long = session.get(people, b"long").unwrap().expect("it was put");
    assert_eq!((long.bytes("name").map(<[u8]>::len), long.flags()), (Some(100_000), 8));
    server.stop();
}

#[test]
fn links_are_found_too_after_items_were_put_again() {
    let _watchdog = watchdog("items that are put again");
    let run = RunDir::new();
    let (server, client) = serve(&run, 1);
    let mut session = client.session_with(patient()).unwrap();
    for again in [0, 1, PEOPLE / 2] {
        let mut build = session.build("company", &tables(false)).unwrap();
        fill(&mut build, 1).unwrap();
        for number in 0..again {
            let (people, mut item) = (build.table(0), NewItem::new());
            item = item.bytes("mark", &2u64.to_le_bytes()).link("next", people, b"person:none");
            build.put_item(0, &person(number), &item).unwrap();
        }
        let built = build.finish().unwrap();
        // Each of these has one link instead of two.
        assert_eq!((built.links, built.dangling), (LOADED - again, again));
        let view = session.view("company").unwrap();
        let people = view.table("people").unwrap();
        for number in 0..PEOPLE {
            let item = session.get(people, &person(number)).unwrap().expect("it was put");
            assert_eq!(mark_of(&item), if number < again { 2 } else { 1 });
            let before = session.cost().messages;
            assert_eq!(session.follow(&item, "next").unwrap().is_some(), number >= again);
            assert!(
                breaks() || number < again || session.cost().messages == before,
                "a link that was not resolved"
            );
        }
    }
    server.stop();
}
