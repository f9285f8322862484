//! Sessions that end, connections that are cut, and messages that come late or never: what was asked or
//! proposed before counts for nothing later.

use std::net::TcpListener;

use kelix_types::Effect;

use super::super::link::{Missed, Request};
use super::hand::Hand;
use super::valve::Valve;
use super::*;
use crate::document;

/// A handle whose server is behind a valve, or whose first one is, and one view.
fn behind_valve(zookeeper: &ZooKeeper, is_only: bool) -> (Valve, Place, ZooKeeperRegister) {
    let valve = Valve::before(zookeeper.address(0));
    let mut servers = vec![valve.address.clone()];
    if !is_only {
        servers.push(zookeeper.address(0));
    }
    let place = Place::at(&servers).with_limit(SHORT);
    let node = place.beginning_at(0);
    loop {
        let mut register = answered(|| ZooKeeperRegister::open(&place.options(&node)));
        assert_eq!(answered(|| register.swap(0, &view(1, 1))), Swapped::Done);
        // On a machine that has other things to do it may have gone to the other one.
        if register.server().as_ref() == Some(&valve.address) {
            return (valve, place, register);
        }
    }
}

/// The register of a place by a way of its own.
fn straight(zookeeper: &ZooKeeper, place: &Place) -> ZooKeeperRegister {
    Place { servers: zookeeper.address(0), limit: LONG, ..place.clone() }.open("straight")
}

/// The error of a call to which no answer comes.
#[track_caller]
fn unanswered<T: std::fmt::Debug>(call: impl FnOnce() -> kelix_types::Result<T>) -> Error {
    let error = in_time(SHORT, call).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable), "{error}");
    error
}

pub fn ended_session(zookeeper: &ZooKeeper) {
    let place = Place::new(zookeeper);
    let mut register = place.with_views(1);
    let session = register.link.session().unwrap();
    let id = session.id();
    Hand::end_session(&place.servers, session);
    assert!(register.is_current(1).unwrap());
    assert_eq!(register.swap(1, &view(2, 2)).unwrap(), Swapped::Done);
    assert_ne!(register.link.session().unwrap().id(), id);
}

pub fn cut_connection(zookeeper: &ZooKeeper) {
    let (valve, place, _) = behind_valve(zookeeper, true);
    // In time for the same call, whose question is sent through the next connection.
    let mut register = place.with_limit(LONG).open("2");
    valve.cut();
    assert!(register.is_current(1).unwrap());
    valve.cut();
    assert_eq!(register.swap(1, &view(2, 2)).unwrap(), Swapped::Done);
    valve.cut();
    assert_eq!(register.read().unwrap(), Some(view(2, 2)));
}

pub fn late_question(zookeeper: &ZooKeeper) {
    let (valve, place, mut register) = behind_valve(zookeeper, true);
    valve.close();
    unanswered(|| register.is_current(1));
    let mut other = straight(zookeeper, &place);
    assert_eq!(other.swap(1, &view(2, 2)).unwrap(), Swapped::Done);
    valve.open();
    assert!(!answered(|| register.is_current(1)));
    assert!(answered(|| register.is_current(2)));
}

/// A proposal whose answer did not come was looked for through another server, and not found. The caller
/// decided by that; so the proposal must not come into force when it arrives at last.
pub fn late_proposal(zookeeper: &ZooKeeper) {
    let (valve, place, mut register) = behind_valve(zookeeper, false);
    valve.close();
    let document = document::encode(&view(2, 22)).unwrap().into();
    let deadline = Instant::now() + PATIENCE;
    let missed = register.link.ask(Request::Put { version: Some(0), document }, deadline).unwrap_err();
    assert!(matches!(missed, Missed { is_sent: true, is_worth_asking_again: true, .. }), "{missed:?}");
    assert!(valve.is_waiting());
    assert_eq!(answered(|| register.read()), Some(view(1, 1)));
    let said = valve.said();
    valve.open();
    until("the late proposal is answered", || valve.said() > said);
    let mut other = straight(zookeeper, &place);
    assert_eq!(other.read().unwrap(), Some(view(1, 1)), "the late proposal is in force");
    assert_eq!(answered(|| register.swap(1, &view(2, 23))), Swapped::Done);
    assert_eq!(other.read().unwrap(), Some(view(2, 23)));
}

/// A proposal that is held up on its way: the swap is done through the other server, or leaves its outcome
/// open where there is none, and the same swap settles it.
pub fn late_swap(zookeeper: &ZooKeeper) {
    let (valve, place, mut register) = behind_valve(zookeeper, false);
    valve.close();
    assert_eq!(answered(|| register.swap(1, &view(2, 22))), Swapped::Done);
    valve.open();
    assert_eq!(straight(zookeeper, &place).read().unwrap(), Some(view(2, 22)));

    let (valve, place, mut register) = behind_valve(zookeeper, true);
    valve.close();
    let error = unanswered(|| register.swap(1, &view(2, 22)));
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    valve.open();
    let settled = answered(|| register.read());
    assert_eq!(straight(zookeeper, &place).read().unwrap(), settled);
    assert_eq!(answered(|| register.swap(1, &view(2, 22))), Swapped::Done);
    assert_eq!(answered(|| register.read()), Some(view(2, 22)));
}

/// A swap that takes effect, and whose answer is lost.
pub fn lost_answer(zookeeper: &ZooKeeper) {
    // Another server tells that it took effect. It is not done twice: nobody has another number.
    let (valve, place, mut register) = behind_valve(zookeeper, false);
    valve.mute();
    assert_eq!(answered(|| register.swap(1, &view(2, 22))), Swapped::Done);
    assert_eq!(straight(zookeeper, &place).read().unwrap(), Some(view(2, 22)));

    // Nobody tells, until there is a way again.
    let (valve, place, mut register) = behind_valve(zookeeper, true);
    valve.mute();
    let error = unanswered(|| register.swap(1, &view(2, 22)));
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    let mut other = straight(zookeeper, &place);
    until("the swap takes effect", || other.read().unwrap() == Some(view(2, 22)));
    valve.cut();
    valve.open();
    assert_eq!(answered(|| register.swap(1, &view(2, 22))), Swapped::Done);
    assert_eq!(answered(|| register.swap(1, &view(2, 23))), Swapped::Lost);
    assert_eq!(answered(|| register.read()), Some(view(2, 22)));

    // Meanwhile somebody has put another view behind it.
    valve.mute();
    let error = unanswered(|| register.swap(2, &view(3, 33)));
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    until("the swap takes effect", || other.is_current(3).unwrap());
    assert_eq!(other.swap(3, &view(4, 44)).unwrap(), Swapped::Done);
    valve.cut();
    valve.open();
    assert_eq!(answered(|| register.swap(2, &view(3, 33))), Swapped::Lost);
    assert_eq!(answered(|| register.read()), Some(view(4, 44)));
}

/// A handle ends also where no server answers, and another server is found beside one that hangs.
pub fn hanging_server(zookeeper: &ZooKeeper) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = [silent.local_addr().unwrap().to_string(), zookeeper.address(0)];
    let place = Place::at(&servers).with_limit(Duration::from_secs(4));
    let register = place.open(&place.beginning_at(0));
    assert_eq!(register.server().as_ref(), Some(&servers[1]));

    let (valve, _, register) = behind_valve(zookeeper, true);
    valve.close();
    in_time(Duration::ZERO, || drop(register));
}
