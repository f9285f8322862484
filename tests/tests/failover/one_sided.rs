//! What a session knows is read one-sidedly at the next primary, as at the one before: by pointers that it
//! has, by links, by the index and by models. What that costs is counted.

use kelix::{NewItem, Path, Session, SessionOptions, Table, TableKind};
use kelix_tests::{check_one_sided, until, value};

use super::{FAILURES, over_each_way};

const KEYS: u64 = 400;
/// Bytes of a value that does not fit one message.
const LARGE_BYTES: usize = 200 << 10;

/// A session, and what it knows.
struct Known {
    what: &'static str,
    session: Session,
    people: Table,
    large: Table,
    in_order: [(Table, TableKind); 3],
    /// Where links begin. It is read before the first failure, and its pointers are of that time.
    first: kelix::Item,
}

fn key_of(kind: TableKind, number: u64) -> Vec<u8> {
    match kind {
        TableKind::Strings => format!("key {number:05}").into_bytes(),
        _ => number.to_be_bytes().to_vec(),
    }
}

/// Puts what is read later, and which never changes.
fn fill(session: &mut Session) {
    let people = session.create_table("people").unwrap();
    let large = session.create_table("large").unwrap();
    for number in 0..KEYS {
        let item = NewItem::new().bytes("", &value::make(number, 1, 64));
        session.put_item(people, number, &item.link("next", people, (number + 1) % KEYS)).unwrap();
    }
    for number in 0..4 {
        session.put(large, number, &value::make(number, 1, LARGE_BYTES)).unwrap();
    }
    for kind in [TableKind::Strings, TableKind::Numbers, TableKind::Inline] {
        let table = session.create_table_of(kind, &kind.to_string()).unwrap();
        for number in 0..KEYS {
            let value = match kind {
                TableKind::Inline => number.to_le_bytes().to_vec(),
                _ => value::make(number, 1, 64),
            };
            session.put(table, &key_of(kind, number), &value).unwrap();
        }
    }
}

impl Known {
    fn of(what: &'static str, mut session: Session) -> Known {
        let [people, large] = ["people", "large"].map(|name| session.table(name).unwrap());
        let kinds = [TableKind::Strings, TableKind::Numbers, TableKind::Inline];
        let in_order = kinds.map(|kind| (session.table(&kind.to_string()).unwrap(), kind));
        let first = session.get(people, 0u64).unwrap().expect("it was put");
        let mut known = Known { what, session, people, large, in_order, first };
        // Links to what came after them are repaired by whoever follows them first.
        until("links have pointers", || {
            known.first = known.session.get(people, 0u64).unwrap().expect("it was put");
            let before = known.session.cost();
            known.read();
            known.session.cost().since(before).messages == 0
        });
        known
    }

    /// Reads all by keys and along links.
    fn read(&mut self) {
        let Known { session, people, large, first, .. } = self;
        for number in 0..KEYS {
            let item = session.get(*people, number).unwrap().expect("it was put");
            assert_eq!(value::check(number, item.value()), Ok(1));
        }
        let mut item = first.clone();
        for number in 1..=KEYS {
            assert!(session.follow_into(&mut item, "next").unwrap());
            assert_eq!(value::check(number % KEYS, item.value()), Ok(1));
        }
        for number in 0..4u64 {
            let item = session.get(*large, number).unwrap().expect("it was put");
            assert_eq!(value::check(number, item.value()), Ok(1));
        }
    }

    /// Reads all of the tables that are kept in order.
    fn read_in_order(&mut self) {
        for (table, kind) in self.in_order {
            for number in 0..KEYS {
                let item = self.session.get(table, &key_of(kind, number)).unwrap().expect("it was put");
                match kind {
                    TableKind::Inline => assert_eq!(item.value(), number.to_le_bytes()),
                    _ => assert_eq!(value::check(number, item.value()), Ok(1)),
                }
            }
        }
    }

    /// Reads once, and nobody is asked for anything.
    #[track_caller]
    fn check(&mut self, when: &str) {
        let before = self.session.cost();
        self.read();
        let cost = self.session.cost().since(before);
        assert!(cost.reads >= 2 * KEYS, "{}, {when}: {cost:?}", self.what);
        check_one_sided(cost, &format!("{}, {when}", self.what));
    }

    /// The same of tables in order, once their models are there: until then the shard is asked.
    #[track_caller]
    fn check_in_order(&mut self, when: &str) {
        until(&format!("{}, {when}: tables in order are read one-sidedly", self.what), || {
            let before = self.session.cost();
            self.read_in_order();
            let cost = self.session.cost().since(before);
            cost.reads > 0 && cost.messages == 0
        });
    }
}

/// A successor's memory is the same at the same places, so nothing that a session knows is void with the
/// primary of which the session has it.
#[test]
fn what_is_known_is_read_one_sidedly_at_the_next_primary() {
    over_each_way("one-sided reads", &["--shards", "3"], |trial, _| {
        fill(&mut trial.cluster.session());
        let with_path = |path| trial.cluster.session_with(SessionOptions::default().path(path));
        let mut all = [
            Known::of("by pointers", with_path(Path::Pointer)),
            Known::of("by the index", with_path(Path::Index)),
        ];
        for known in &mut all {
            known.check("before");
            known.check_in_order("before");
        }
        for failure in FAILURES {
            trial.fail(failure, 2, |_| {
                for known in &mut all {
                    let connections = known.session.past_connections();
                    until("the session has gone over", || {
                        assert!(known.session.get(known.people, 1u64).unwrap().is_some());
                        known.session.past_connections() > connections
                    });
                    known.check("at the next primary");
                    known.check_in_order("at the next primary");
                }
            });
            all.iter_mut().for_each(|known| known.check("with a replica again"));
        }
        assert!(all.iter().all(|known| known.session.past_connections() >= FAILURES.len() as u32));
    });
}
