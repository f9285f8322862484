//! What one server is enough for: the conformance suite, registers that were tampered with, who is let in.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Barrier;

use kelix_types::Effect;
use xxhash_rust::xxh3::xxh3_64;

use super::faults;
use super::hand::Hand;
use super::*;
use crate::DOCUMENT_BYTES_MAX;
use crate::conformance;

/// A case works on registers of its own.
type Case = fn(&ZooKeeper);

#[test]
fn one_server() {
    let zookeeper = ZooKeeper::start(1).expect("a server");
    let cases: [(&str, Case); 24] = [
        ("conforms", conforms),
        ("the largest view fits", largest_view),
        ("many writers race", many_writers_race),
        ("a register is opened by many at once", opened_by_many_at_once),
        ("a removed view ends the handle", removed_view),
        ("a view that was made anew ends the handle", view_made_anew),
        ("versions that went back end the handle", versions_gone_back),
        ("a removed register ends the handle", removed_register),
        ("a register that was made anew ends the handle", register_made_anew),
        ("a beat that was removed is made anew", removed_beat),
        ("an edited view is damaged", edited_view),
        ("documents that are none are refused", no_documents),
        ("a damaged view is superseded by no guess", no_guess),
        ("nodes of others are left alone", nodes_of_others),
        ("a directory made in advance is used", directory_made_in_advance),
        ("strangers are kept out", strangers),
        ("two handles of one name", two_handles_of_one_name),
        ("a session that ended is replaced", faults::ended_session),
        ("a late question answers no later one", faults::late_question),
        ("a late proposal has no effect once its outcome was looked at", faults::late_proposal),
        ("a late swap is done, or settled later", faults::late_swap),
        ("a swap whose answer is lost is settled", faults::lost_answer),
        ("a connection that is cut is replaced", faults::cut_connection),
        ("a server that hangs while a session begins", faults::hanging_server),
    ];
    for (name, case) in cases {
        println!("{name}");
        case(&zookeeper);
    }
}

fn conforms(zookeeper: &ZooKeeper) {
    conformance::run(|| {
        let place = Place::new(zookeeper);
        let mut handles = 0;
        move || {
            handles += 1;
            place.open(&format!("node {handles}"))
        }
    });
}

fn largest_view(zookeeper: &ZooKeeper) {
    let mut register = Place::new(zookeeper).open("1");
    let view = conformance::largest_view(1);
    assert_eq!(register.swap(0, &view).unwrap(), Swapped::Done);
    assert_eq!(register.read().unwrap(), Some(view));
}

fn many_writers_race(zookeeper: &ZooKeeper) {
    const THREADS: u64 = 16;
    const VIEWS: u64 = 40;
    let place = Place::new(zookeeper);
    let barrier = Barrier::new(THREADS as usize);
    let race = |thread: u64| {
        let mut register = place.open(&thread.to_string());
        let mut won = Vec::new();
        barrier.wait();
        loop {
            let number = register.read().unwrap().map_or(0, |view| view.number);
            if number == VIEWS {
                return won;
            }
            match register.swap(number, &proposal(number + 1, thread, 0)).unwrap() {
                Swapped::Done => won.push(number + 1),
                Swapped::Lost => assert!(!register.is_current(number).unwrap()),
            }
        }
    };
    let mut won: Vec<u64> = std::thread::scope(|scope| {
        let race = &race;
        let threads: Vec<_> = (1..=THREADS).map(|thread| scope.spawn(move || race(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    won.sort_unstable();
    assert!(won.into_iter().eq(1..=VIEWS));
}

fn opened_by_many_at_once(zookeeper: &ZooKeeper) {
    const THREADS: u64 = 8;
    let place = Place::new(zookeeper);
    let barrier = Barrier::new(THREADS as usize);
    let begin = |thread: u64| {
        barrier.wait();
        place.open(&thread.to_string()).swap(0, &view(1, thread)).unwrap()
    };
    let ended: Vec<Swapped> = std::thread::scope(|scope| {
        let begin = &begin;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || begin(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ended.iter().filter(|ended| **ended == Swapped::Done).count(), 1);
}

fn removed_view(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    // Also for a handle that has done nothing since it put the view there.
    let mut put = place.with_views(1);
    let mut read = place.open("2");
    Hand::at(&place.servers).remove(&place.path("/view"));
    assert_lost(&mut put, 1, "has no view any more");
    assert_lost(&mut read, 1, "has no view any more");
    // Whoever comes later begins anew, and the old handles have no part in that.
    let mut later = place.open("3");
    assert_eq!(later.read().unwrap(), None);
    assert_eq!(later.swap(0, &view(1, 1)).unwrap(), Swapped::Done);
    assert_lost(&mut put, 1, "has no view any more");
}

fn view_made_anew(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let (mut looks, mut reads, mut swaps) = (place.with_views(2), place.open("2"), place.open("3"));
    let hand = Hand::at(&place.servers);
    let contents = hand.get(&place.path("/view"));
    hand.remove(&place.path("/view"));
    hand.make(&place.path("/view"), &contents);
    hand.set(&place.path("/view"), &contents);
    // The same document with the same version.
    assert_eq!(place.open("4").read().unwrap(), Some(view(2, 2)));
    let why = "was removed and made anew";
    assert_lost(&mut looks, 2, why);
    assert!(reads.read().unwrap_err().context().contains(why));
    let error = swaps.swap(1, &view(2, 9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
}

/// As if the servers had been given an old copy of their files.
fn versions_gone_back(zookeeper: &ZooKeeper) {
    let mut register = Place::new(zookeeper).with_views(3);
    register.known.as_mut().unwrap().version += 1;
    assert_lost(&mut register, 3, "was put back from an old copy (view 4, then 3)");
}

fn removed_register(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let (mut used, mut unused) = (place.with_views(2), Place::new(zookeeper).open("1"));
    let hand = Hand::at(&place.servers);
    hand.remove_register(&place.path(""));
    hand.remove_register(&unused.options.paths.cluster);
    assert_lost(&mut used, 2, "has no view any more");
    assert_lost(&mut unused, 0, "was removed");
}

fn register_made_anew(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let mut unused = place.open("1");
    Hand::at(&place.servers).remove_register(&place.path(""));
    let mut other = place.open("2");
    assert_eq!(other.swap(0, &view(1, 1)).unwrap(), Swapped::Done);
    assert_lost(&mut unused, 0, "was removed and made anew");
    assert_eq!(other.read().unwrap(), Some(view(1, 1)));
}

fn removed_beat(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let mut register = place.with_views(1);
    let hand = Hand::at(&place.servers);
    hand.remove(&place.path("/beats/1"));
    assert!(register.is_current(1).unwrap());
    hand.remove(&place.path("/beats/1"));
    hand.remove(&place.path("/beats"));
    assert_eq!(register.swap(1, &view(2, 2)).unwrap(), Swapped::Done);
}

fn edited_view(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let mut register = place.with_views(1);
    let hand = Hand::at(&place.servers);
    let text = String::from_utf8(hand.get(&place.path("/view"))).unwrap();
    hand.set(&place.path("/view"), text.replacen("\"primary\": 101", "\"primary\": 102", 1).as_bytes());
    assert!(!register.is_current(1).unwrap());
    let error = register.read().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.context().contains(&place.path("/view")), "{error}");
    assert!(error.context().contains("cut short or was edited"), "{error}");
    // As it was, but with the number of another view.
    hand.set(&place.path("/view"), text.as_bytes());
    assert!(register.read().unwrap_err().context().contains("it has view 1"));
}

fn no_documents(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let mut register = place.with_views(1);
    let hand = Hand::at(&place.servers);
    let mut read = |contents: &[u8]| {
        hand.set(&place.path("/view"), contents);
        register.read().unwrap_err()
    };
    assert!(read(&[]).context().contains("it is empty"));
    let error = read(&vec![b'x'; DOCUMENT_BYTES_MAX + 1]);
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.context().contains(&DOCUMENT_BYTES_MAX.to_string()), "{error}");
    let text = "{ \"format\": 2 }\n";
    let error = read(format!("{text}{:016x}\n", xxh3_64(text.as_bytes())).as_bytes());
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

fn no_guess(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let mut register = place.with_views(1);
    Hand::at(&place.servers).set(&place.path("/view"), b"x");
    let error = register.swap(1, &view(2, 2)).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Damaged, Effect::Unknown), "{error}");
}

fn nodes_of_others(zookeeper: &ZooKeeper) {
    let refusal = |make: &dyn Fn(&Hand, &Place)| {
        let place = Place::new(zookeeper);
        let hand = Hand::at(&place.servers);
        hand.make_directories(&place.path(""));
        make(&hand, &place);
        ZooKeeperRegister::open(&place.options("1")).unwrap_err()
    };
    let error = refusal(&|hand, place| hand.make(&place.path("/brokers"), b""));
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.context().contains("brokers"), "{error}");
    let error = refusal(&|hand, place| hand.make(&place.path("/view"), b""));
    assert!(error.context().contains("is no register of Kelix"), "{error}");
    for contents in ["", "1", "kelix register", "kelix register 0", "kelix register x", "kelix register 1 2"]
    {
        let error = refusal(&|hand, place| hand.make(&place.path("/format"), contents.as_bytes()));
        assert_eq!(error.kind(), ErrorKind::Damaged, "{contents}");
        assert!(error.context().contains("does not say that this is a register"), "{error}");
    }
    let error = refusal(&|hand, place| hand.make(&place.path("/format"), b"kelix register 2\n"));
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.context().contains("later release"), "{error}");
}

fn directory_made_in_advance(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let hand = Hand::at(&place.servers);
    hand.make_directories(&place.path(""));
    let mut register = place.with_views(1);
    assert!(register.is_current(1).unwrap());
    assert_eq!(hand.get(&place.path("/format")), b"kelix register 1\n");
}

fn strangers(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let as_user = |user: &str, password: &str| place.options("1").digest(user, password).unwrap();
    let mut known = ZooKeeperRegister::open(&as_user("ada", "secret-1")).unwrap();
    assert_eq!(known.swap(0, &view(1, 1)).unwrap(), Swapped::Done);
    for stranger in [place.options("1"), as_user("ada", "secret-2"), as_user("bob", "secret-1")] {
        let error = ZooKeeperRegister::open(&stranger).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert!(!format!("{known:?}").contains("secret"));
    let mut other = ZooKeeperRegister::open(&as_user("ada", "secret-1")).unwrap();
    assert_eq!(other.read().unwrap(), Some(view(1, 1)));
    assert!(known.is_current(1).unwrap());
}

/// Two handles under one name raise the fence of each other, and go on.
fn two_handles_of_one_name(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let (mut one, mut other) = (place.open("1"), place.open("1"));
    for number in 1..=10 {
        assert!(other.is_current(number - 1).unwrap());
        assert_eq!(one.swap(number - 1, &view(number, number)).unwrap(), Swapped::Done);
        (one, other) = (other, one);
    }
}

#[test]
fn who_is_no_zookeeper_is_told() {
    let open = |servers: &[String]| {
        let limit = Duration::from_secs(2);
        let options = Place::at(servers).with_limit(limit).options("1");
        in_time(limit, || ZooKeeperRegister::open(&options)).unwrap_err()
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().to_string();
    drop(free);
    let error = open(std::slice::from_ref(&nobody));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.context().contains(&nobody) && error.context().contains("refused"), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = open(&[silent.local_addr().unwrap().to_string()]);
    assert_eq!(error.kind(), ErrorKind::Unavailable);

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut client in other.incoming().map_while(Result::ok) {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = open(&[address]);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.context().contains("is no ZooKeeper server"), "{error}");
    assert!(open(&["no-such-host.invalid:2181".into()]).context().contains("no-such-host.invalid"));
}
