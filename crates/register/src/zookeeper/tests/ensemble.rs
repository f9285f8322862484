//! Servers of an ensemble that are killed and stopped, under nodes that go on proposing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use kelix_types::Effect;

use super::*;

/// How many nodes propose.
const NODES: u64 = 4;
/// The time limit of their calls.
const PROPOSED_WITHIN: Duration = Duration::from_secs(1);

/// What a node knows to have won: by the number, the proposal.
type Won = Vec<(u64, u64)>;

/// Proposes views until it is told to end. A swap whose outcome is unknown is settled by reading.
fn propose(place: &Place, node: u64, is_over: &AtomicBool, progress: &AtomicU64) -> Won {
    let mut register = answered(|| ZooKeeperRegister::open(&place.options(&node.to_string())));
    let (mut won, mut newest) = (Won::new(), 0);
    for round in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let limit = register.options.time_limit;
        let Ok(read) = in_time(limit, || register.read()) else { continue };
        let number = read.as_ref().map_or(0, |view| view.number);
        assert!(number >= newest, "view {number} came behind view {newest}");
        newest = number;
        let next = proposal(number + 1, node, round);
        match in_time(limit, || register.swap(number, &next)) {
            Ok(Swapped::Done) => {
                won.push((next.number, next.proposal));
                progress.fetch_max(next.number, Ordering::SeqCst);
            }
            Ok(Swapped::Lost) => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
            }
        }
    }
    won
}

/// Waits until some views more were put.
fn wait_for_views(progress: &AtomicU64) {
    let before = progress.load(Ordering::SeqCst);
    until("five views more are put", || progress.load(Ordering::SeqCst) >= before + 5);
}

#[test]
fn three_servers() {
    let mut zookeeper = ZooKeeper::start(3).expect("servers");
    let place = Place::new(&zookeeper).with_limit(PROPOSED_WITHIN);
    let (is_over, progress) = (AtomicBool::new(false), AtomicU64::new(0));
    let won: Vec<Won> = std::thread::scope(|scope| {
        let nodes: Vec<_> = (1..=NODES)
            .map(|node| {
                scope.spawn({
                    let (place, is_over, progress) = (&place, &is_over, &progress);
                    move || propose(place, node, is_over, progress)
                })
            })
            .collect();
        // Those who propose end also if a fault is not survived.
        let over = Over(&is_over);
        wait_for_views(&progress);
        leader_killed(&mut zookeeper, &progress);
        server_stopped(&zookeeper);
        wait_for_views(&progress);
        leader_stopped(&zookeeper, &progress);
        all_killed(&mut zookeeper, &progress);
        drop(over);
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    let mut by_number = BTreeMap::new();
    for (number, proposal) in won.into_iter().flatten() {
        assert!(by_number.insert(number, proposal).is_none(), "view {number} was won twice");
    }
    let newest = Place { limit: LONG, ..place }.open("judge").read().unwrap().unwrap();
    let last = by_number.last_key_value().map(|(number, _)| *number).unwrap();
    assert!(newest.number >= last, "view {last} was taken back");
    assert!(newest.number > last || by_number[&last] == newest.proposal);
}

/// Tells those who propose that it is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn leader(zookeeper: &ZooKeeper) -> usize {
    until("a server leads", || zookeeper.leader().is_some());
    zookeeper.leader().unwrap()
}

fn leader_killed(zookeeper: &mut ZooKeeper, progress: &AtomicU64) {
    println!("the leader is killed");
    let killed = leader(zookeeper);
    zookeeper.kill(killed);
    wait_for_views(progress);
    zookeeper.restart(killed).unwrap();
    zookeeper.wait(killed).unwrap();
}

/// A server stands still: the handle goes to another one in the same call.
fn server_stopped(zookeeper: &ZooKeeper) {
    println!("a server is stopped");
    let leader = leader(zookeeper);
    let place = Place::new(zookeeper).with_limit(Duration::from_secs(4));
    let follower = (0..zookeeper.count()).find(|number| *number != leader).unwrap();
    let address = zookeeper.address(follower);
    let mut register = place.open(&place.beginning_at(follower));
    assert_eq!(register.server().as_ref(), Some(&address));
    zookeeper.stop(follower);
    let is_current = in_time(place.limit, || register.is_current(0));
    assert!(is_current.unwrap(), "nobody has put a view");
    assert_eq!(register.swap(0, &view(1, 1)).unwrap(), Swapped::Done);
    assert_ne!(register.server().unwrap(), address);
    zookeeper.resume(follower);
    assert_eq!(place.open("other").read().unwrap(), Some(view(1, 1)));
}

/// The leader stands still, another one is elected, and the old one goes on and finds that out.
fn leader_stopped(zookeeper: &ZooKeeper, progress: &AtomicU64) {
    println!("the leader is stopped");
    let stopped = leader(zookeeper);
    zookeeper.stop(stopped);
    wait_for_views(progress);
    zookeeper.resume(stopped);
    wait_for_views(progress);
}

/// First two servers, without which nothing is answered, and then the third. What they have on their disks
/// is the register.
fn all_killed(zookeeper: &mut ZooKeeper, progress: &AtomicU64) {
    println!("all servers are killed");
    let place = Place::new(zookeeper);
    place.with_views(1);
    let place = place.with_limit(SHORT);
    let mut register = answered(|| ZooKeeperRegister::open(&place.options("2")));
    let leader = leader(zookeeper);
    let mut killed: Vec<usize> = (0..zookeeper.count()).map(|n| (leader + n) % zookeeper.count()).collect();
    let last = killed.pop().unwrap();
    for number in &killed {
        zookeeper.kill(*number);
    }
    // What was sent before the servers died may be answered; nothing is behind that.
    until("calls fail", || in_time(SHORT, || register.is_current(1)).is_err());
    let before = progress.load(Ordering::SeqCst);
    let error = in_time(SHORT, || register.is_current(1)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
    let error = in_time(SHORT, || register.swap(1, &view(2, 2))).unwrap_err();
    assert!(error.retry(), "{error}");
    assert!(progress.load(Ordering::SeqCst) <= before + NODES, "views are put without a majority");
    zookeeper.kill(last);
    for number in 0..zookeeper.count() {
        zookeeper.restart(number).unwrap();
    }
    let read = answered(|| register.read());
    assert!(read == Some(view(1, 1)) || (error.effect() == Effect::Unknown && read == Some(view(2, 2))));
    assert_eq!(answered(|| register.swap(1, &view(2, 2))), Swapped::Done);
    wait_for_views(progress);
}
