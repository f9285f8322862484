//! Records: structs that are put as items and read from them, against a server in this process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelix::{Client, CompareAndSet, ErrorKind, LinkTarget, NewItem, Outcome, Record, Schema, Session};
use kelix_server::{Server, ServerConfig};

struct Served {
    directory: PathBuf,
    server: Option<Server>,
}

fn start(directory: &Path) -> Server {
    let config = ServerConfig {
        directory: directory.to_path_buf(),
        memory_bytes: 64 << 20,
        pin: false,
        ..ServerConfig::default()
    };
    let began = Instant::now();
    loop {
        match Server::start(&config) {
            Ok(server) => return server,
            // The lock of the server before goes with the last of its threads.
            Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::yield_now();
    }
}

impl Served {
    fn new(test: &str) -> Served {
        let directory = std::env::temp_dir().join(format!("kelix-record-{test}-{}", std::process::id()));
        let server = Some(start(&directory));
        Served { directory, server }
    }

    fn session(&self) -> Session {
        Client::connect(&self.directory).expect("it answers").session().expect("it answers")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[derive(kelix_derive::Record, Clone, Debug, PartialEq)]
struct Everything {
    text: String,
    bytes: Vec<u8>,
    array: [u8; 4],
    small: u8,
    large: i128,
    real: f64,
    truth: bool,
    nothing: Option<u32>,
    something: Option<i64>,
    #[kelix(rename = "type")]
    kind: String,
    #[kelix(rename = "")]
    value: Vec<u8>,
    #[kelix(link)]
    one: LinkTarget,
    #[kelix(link = "perhaps")]
    at_most_one: Option<LinkTarget>,
    #[kelix(link)]
    many: Vec<LinkTarget>,
    #[kelix(skip)]
    kept: usize,
}

#[derive(kelix_derive::Record, Debug, PartialEq)]
struct Point {
    x: f32,
    y: f32,
}

#[derive(kelix_derive::Record, Debug, PartialEq)]
struct Plain {
    #[kelix(rename = "")]
    count: u64,
}

#[test]
fn fields_of_all_types_come_back() {
    let served = Served::new("all");
    let mut session = served.session();
    let table = session.create_table("things").expect("there is room");
    let edge = LinkTarget { bytes: b"since 2019".to_vec(), ..LinkTarget::new(table, "c") };
    let whole = Everything {
        text: "snow \u{2744}".into(),
        bytes: vec![0, 255],
        array: *b"four",
        small: 255,
        large: i128::MIN,
        real: 0.1 + 0.2,
        truth: true,
        nothing: None,
        something: Some(-1),
        kind: "thing".into(),
        value: b"value".to_vec(),
        one: LinkTarget::new(table, "a"),
        at_most_one: None,
        many: vec![LinkTarget::new(table, "b"), edge],
        kept: 0,
    };
    let mut things = Schema::<Everything>::new(table);
    things.put(&mut session, b"a", &whole).expect("there is room");
    assert_eq!(things.get(&mut session, b"a").expect("as it was put").as_ref(), Some(&whole));
    assert_eq!(things.get(&mut session, b"absent").expect("it is absent"), None);

    // As items they are what other readers expect, and other writers' items are records.
    let item = session.get(table, b"a").expect("it answers").expect("just put");
    assert_eq!((item.bytes("small"), item.bytes("truth")), (Some(&b"255"[..]), Some(&b"true"[..])));
    assert_eq!((item.bytes("nothing"), item.bytes("kind"), item.value()), (None, None, &b"value"[..]));
    assert_eq!(session.follow(&item, "one").expect("it answers").expect("it exists").key(), b"a");
    assert_eq!(Everything::from_item(&item).expect("as it was put"), whole);
    session.put_item(table, b"b", &Everything { kept: 7, ..whole.clone() }.to_item()).expect("there is room");
    assert_eq!(things.get(&mut session, b"b").expect("as it was put"), Some(whole));
}

#[test]
fn a_record_with_nothing_but_a_value_is_a_plain_item() {
    let served = Served::new("plain");
    let mut session = served.session();
    let table = session.create_table("counts").expect("there is room");
    let mut counts = Schema::<Plain>::new(table);
    counts.put(&mut session, b"k", &Plain { count: 41 }).expect("there is room");
    let mut value = [0; 8];
    let (length, version) = session.get_into(table, b"k", &mut value).expect("it fits").expect("just put");
    assert_eq!(&value[..length], b"41");
    session.put(table, b"l", b"7").expect("there is room");
    assert_eq!(counts.get(&mut session, b"l").expect("a number"), Some(Plain { count: 7 }));

    let done = counts.compare_and_set(&mut session, b"k", Some(version), &Plain { count: 42 });
    assert!(matches!(done, Ok(CompareAndSet::Done(_))), "{done:?}");
    let done = counts.compare_and_set(&mut session, b"k", Some(version), &Plain { count: 43 });
    assert!(matches!(done, Ok(CompareAndSet::Mismatch(_))), "{done:?}");
    assert_eq!(counts.get(&mut session, b"k").expect("a number"), Some(Plain { count: 42 }));
}

#[test]
fn errors_name_the_field_and_what_the_item_has() {
    let served = Served::new("errors");
    let mut session = served.session();
    let table = session.create_table("points").expect("there is room");
    let refused = |session: &mut Session, item: &NewItem| {
        session.put_item(table, b"p", item).expect("there is room");
        let error = Schema::<Point>::new(table).get(session, b"p").expect_err("not a point");
        assert_eq!(error.kind(), ErrorKind::NoSuchAttribute);
        error.context().to_string()
    };
    let item = NewItem::new().bytes("x", b"1");
    let said = refused(&mut session, &item);
    assert_eq!(said, "Point.y needs a number under \"y\"; item \"p\" has nothing there");
    let said = refused(&mut session, &item.bytes("y", b"north"));
    assert_eq!(said, "Point.y needs a number under \"y\"; item \"p\" has \"north\" there");
    let said = refused(&mut session, &NewItem::new().link("x", table, b"q").bytes("y", &[1; 65]));
    assert_eq!(said, "Point.x needs a number under \"x\"; item \"p\" has a link there");
    let said = refused(&mut session, &NewItem::new().bytes("x", b"1").bytes("y", &[1; 65]));
    assert_eq!(said, "Point.y needs a number under \"y\"; item \"p\" has 65 bytes there");

    #[derive(kelix_derive::Record, Debug)]
    struct Linked {
        #[kelix(link)]
        next: Option<LinkTarget>,
    }
    let twice = NewItem::new();
    session
        .put_item(table, b"q", &twice.link("next", table, b"p").link("next", table, b"q"))
        .expect("there is room");
    let error = Schema::<Linked>::new(table).get(&mut session, b"q").expect_err("two links");
    assert_eq!(
        error.context(),
        "Linked.next needs one link at most under \"next\"; item \"q\" has 2 links there"
    );
    let long = Linked { next: Some(LinkTarget::new(table, vec![0; 70_000])) };
    let error = Schema::new(table).put(&mut session, b"q", &long).expect_err("no key");
    assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidArgument, "put"));
}

/// The catalogue is asked for a name once, whatever order names come in.
#[test]
fn names_are_resolved_once_a_session() {
    let served = Served::new("names");
    let mut session = served.session();
    let table = session.create_table("points").expect("there is room");
    let mut points = Schema::<Point>::new(table);
    // Another record has made names in this table before, in another order.
    session.put_item(table, b"o", &NewItem::new().bytes("z", b"1").bytes("y", b"2")).expect("there is room");
    points.put(&mut session, b"first", &Point { x: 1.0, y: 2.0 }).expect("there is room");
    let before = session.cost();
    for number in 0..100_u8 {
        points.put(&mut session, &[number], &Point { x: number.into(), y: 0.5 }).expect("there is room");
    }
    let cost = session.cost().since(before);
    assert_eq!((cost.messages, cost.reads), (100, 0));
    assert_eq!(points.get(&mut session, &[7]).expect("a point"), Some(Point { x: 7.0, y: 0.5 }));
    // A name that the table gets later is found in the items that have it.
    #[derive(kelix_derive::Record, Debug, PartialEq)]
    struct Named {
        later: Option<String>,
    }
    let mut named = Schema::<Named>::new(table);
    assert_eq!(named.get(&mut session, b"o").expect("nothing is needed"), Some(Named { later: None }));
    let mut other = served.session();
    other.put_item(table, b"p", &NewItem::new().bytes("later", b"yes")).expect("there is room");
    let later = Some("yes".to_string());
    assert_eq!(named.get(&mut session, b"p").expect("text"), Some(Named { later }));
    assert_eq!(named.get(&mut session, b"o").expect("nothing is needed"), Some(Named { later: None }));
}

#[test]
fn a_schema_outlives_its_server_and_serves_other_sessions() {
    let mut served = Served::new("again");
    let mut session = served.session();
    let table = session.create_table("points").expect("there is room");
    let mut points = Schema::<Point>::new(table);
    points.put(&mut session, b"p", &Point { x: 1.0, y: 2.0 }).expect("there is room");
    served.server.take().expect("it runs").stop();
    served.server = Some(start(&served.directory));
    // The next server's table of that name has other numbers for these names.
    let mut other = served.session();
    let fresh = other.create_table("points").expect("there is room");
    other.put_item(fresh, b"o", &NewItem::new().bytes("y", b"7").bytes("w", b"")).expect("there is room");

    let began = Instant::now();
    while let Err(error) = points.put(&mut session, b"p", &Point { x: 3.0, y: 4.0 }) {
        assert!(error.retry() && began.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::yield_now();
    }
    let item = other.get(fresh, b"p").expect("it answers").expect("just put");
    assert_eq!((item.bytes("x"), item.bytes("y")), (Some(&b"3"[..]), Some(&b"4"[..])));
    assert_eq!(points.get(&mut session, b"p").expect("a point"), Some(Point { x: 3.0, y: 4.0 }));
    assert_eq!(points.read(&item).expect("a point"), Point { x: 3.0, y: 4.0 });
}

#[test]
fn records_are_submitted_as_items() {
    let served = Served::new("submit");
    let mut session = served.session();
    let table = session.create_table("points").expect("there is room");
    session.submit_item(table, b"p", &Point { x: 1.5, y: -2.0 }.to_item()).expect("it is short");
    session.submit_get(table, b"p").expect("it is short");
    let (mut completions, began) = (Vec::new(), Instant::now());
    while session.outstanding() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        session.poll(&mut completions).expect("it answers");
    }
    session.submit_get(table, b"p").expect("it is short");
    while session.outstanding() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        session.poll(&mut completions).expect("it answers");
    }
    let last = completions.pop().expect("three").outcome.expect("it answers");
    let Outcome::Item(Some(item)) = last else { panic!("{last:?}") };
    assert_eq!(Point::from_item(&item).expect("a point"), Point { x: 1.5, y: -2.0 });
}
