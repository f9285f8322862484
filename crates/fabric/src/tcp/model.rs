//! Models of the agent's bell: who rings while the agent goes to sleep wakes it. A lost wake-up leaves the
//! agent asleep for ever, which loom reports as a deadlock.

use std::sync::Arc;

use kelix_image::Span;
use kelix_image::model::loom::sync::atomic::{AtomicBool, Ordering};
use kelix_image::model::{explore, share, spawn};

use super::link::AgentBell;
use crate::shm::Waker;

/// The agent's side, with what it sleeps on in place of its epoll set.
struct Agent {
    bell: Arc<AgentBell>,
    waker: Waker,
    connections: usize,
    sleeps: u32,
}

impl Agent {
    fn new(connections: usize) -> Agent {
        let (bell, end) = AgentBell::new(connections).expect("a bell");
        let mut waker = Waker::create().expect("a bell");
        waker.add(end).expect("the only one who waits for it");
        Agent { bell: Arc::new(bell), waker, connections, sleeps: 0 }
    }

    /// As `Agent::turn`: takes who has rung, then hears what is to wake it. The other way round a bell that
    /// was heard would not be looked at.
    fn turn(&mut self, each: impl FnMut(usize)) -> bool {
        let called = self.bell.take(self.connections, each);
        self.waker.wait(Some(0));
        called
    }

    /// As `Agent::wait`.
    fn wait(&mut self) {
        if self.bell.begin_sleep(self.connections) {
            self.waker.wait(None);
            self.sleeps += 1;
        }
        self.bell.end_sleep();
    }
}

/// The connections of different words of the bell, or of one.
fn rings(connections: [usize; 2], rounds: u64, rests: bool) -> u32 {
    let mut agent = Agent::new(128);
    let queues = connections.map(|_| Span::private(64));
    queues.iter().for_each(|queue| share(queue.words().part(0, 1)));
    let shards: Vec<_> = std::iter::zip(connections, queues.clone())
        .map(|(connection, queue)| {
            let bell = agent.bell.clone();
            // What is queued is stored plainly: it is the bell that hands it over.
            spawn(move || {
                (1..=rounds).for_each(|round| {
                    queue.words().store(0, round);
                    bell.ring(connection);
                });
            })
        })
        .collect();
    let agent = spawn(move || {
        let mut taken = [0; 2];
        while taken != [rounds; 2] {
            let mut rung = false;
            agent.turn(|slot| {
                let index = connections.iter().position(|connection| *connection == slot);
                let index = index.expect("a connection that has a queue");
                taken[index] = queues[index].words().load(0);
                rung = true;
            });
            // Beside its client it sleeps behind a turn that took something, too.
            if !rung || rests && taken != [rounds; 2] {
                agent.wait();
            }
        }
        agent.sleeps
    });
    shards.into_iter().for_each(|shard| shard.join().expect("no panic"));
    agent.join().expect("no panic")
}

#[test]
fn no_ring_is_lost_while_the_agent_goes_to_sleep() {
    let outcomes = explore("an agent and two shards", 3, || rings([1, 64], 1, false));
    assert!(outcomes.contains_key(&0) && outcomes.contains_key(&1), "awake and asleep: not met");
    let outcomes =
        explore("an agent and two shards that ring twice, in one word", 2, || rings([1, 2], 2, false));
    assert!(outcomes.contains_key(&2), "asleep twice: not met");
    let outcomes = explore("an agent that rests, and two shards", 3, || rings([1, 64], 1, true));
    assert!(outcomes.contains_key(&1) && outcomes.contains_key(&2), "asleep between two rings: not met");
}

/// A turn that heard the bell and found no connection that had rung was followed by sleep, although the bell
/// had been rung for the agent's caller, who is to look at an order, or at the word that says stop: a server
/// without clients then never ended.
#[test]
fn no_call_is_lost_while_the_agent_goes_to_sleep() {
    let outcomes = explore("an agent that is called", 4, || {
        let mut agent = Agent::new(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (bell, set) = (agent.bell.clone(), stop.clone());
        let caller = spawn(move || {
            set.store(true, Ordering::Relaxed);
            bell.wake();
        });
        let agent = spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if !agent.turn(|_| unreachable!("nobody rings")) {
                    agent.wait();
                }
            }
            agent.sleeps
        });
        caller.join().expect("no panic");
        agent.join().expect("no panic")
    });
    assert!(outcomes.contains_key(&0) && outcomes.contains_key(&1), "awake and asleep: not met");
}
