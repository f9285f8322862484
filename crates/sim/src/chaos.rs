//! Harm: nodes stop and go on, connections break and are held up, clients are killed, servers are superseded,
//! or are killed and begin again with their log.

use std::rc::Rc;

use kelix_types::mark;

use crate::client::Stage;
use crate::cluster::Cluster;
use crate::disk::Disk;
use crate::plan::Faults;
use crate::random::Random;
use crate::run::{Working, hire_worker};
use crate::scheduler::{self, Shared, TaskId};
use crate::server::ServerPlan;

/// The one who does harm.
pub struct Chaos {
    /// How often which harm is done.
    pub faults: Faults,
    /// What the clients share.
    pub stage: Rc<Stage>,
    /// How servers are made.
    pub servers: ServerPlan,
    /// The nodes, where servers are such.
    pub cluster: Option<Cluster>,
    /// The clients that work.
    pub working: Working,
    /// What was done, and when.
    pub harm: Shared<Vec<(u64, String)>>,
    /// The number of the next client.
    pub next_client: u32,
    /// Its own choices.
    pub random: Random,
}

impl Chaos {
    /// Does harm as long as there are clients.
    pub fn run(mut self) {
        loop {
            scheduler::sleep(1 + self.random.below(2 * self.faults.pause_ns));
            let working = self.working.borrow().clone();
            if working.is_empty() {
                break;
            }
            let victim = working[self.random.below(working.len() as u64) as usize];
            let Faults { stopped_clients, stopped_shards, cuts, delays, kills, take_overs, .. } = self.faults;
            let odds = [stopped_clients, stopped_shards, cuts, delays, kills, take_overs];
            let mut drawn = self.random.below(odds.iter().sum());
            let chosen = odds.iter().position(|share| {
                let here = drawn < *share;
                drawn = drawn.wrapping_sub(*share);
                here
            });
            let for_ns = self.random.below(self.faults.longest_ns);
            let done = match chosen.expect("drawn below the sum") {
                0 => {
                    mark!("client stopped");
                    scheduler::stop(victim, for_ns);
                    format!("{} stopped for {for_ns} ns", scheduler::name(victim))
                }
                1 => self.stop_shard(for_ns),
                2 => {
                    mark!("connection cut");
                    self.cut(victim);
                    format!("connection of {} cut", scheduler::name(victim))
                }
                3 => {
                    mark!("connection delayed");
                    if let Some(wire) = self.stage.wires.borrow().get(&victim) {
                        wire.hold_up(for_ns);
                    }
                    format!("connection of {} held up for {for_ns} ns", scheduler::name(victim))
                }
                4 => self.kill(victim),
                _ => self.supersede(),
            };
            self.harm.borrow_mut().push((scheduler::now_ns(), done));
        }
    }

    fn stop_shard(&mut self, for_ns: u64) -> String {
        if let Some(cluster) = &self.cluster {
            return cluster.stop(&mut self.random, self.faults.longest_ns);
        }
        mark!("shard stopped");
        let shards: Vec<TaskId> = self.stage.server.borrow().tasks().collect();
        let shard = shards[self.random.below(shards.len() as u64) as usize];
        scheduler::stop(shard, for_ns);
        format!("{} stopped for {for_ns} ns", scheduler::name(shard))
    }

    fn cut(&self, victim: TaskId) {
        if let Some(wire) = self.stage.wires.borrow().get(&victim) {
            wire.cut();
        }
    }

    fn kill(&mut self, victim: TaskId) -> String {
        mark!("client killed");
        self.cut(victim);
        scheduler::kill(victim);
        self.working.borrow_mut().retain(|task| *task != victim);
        let task = hire_worker(self.next_client, &self.stage, &mut self.random, &self.working);
        self.next_client += 1;
        self.working.borrow_mut().push(task);
        format!("{} killed, {} begins", scheduler::name(victim), scheduler::name(task))
    }

    fn supersede(&mut self) -> String {
        if let Some(cluster) = &self.cluster {
            return cluster.harm(&mut self.random);
        }
        mark!("server superseded");
        if let Some(disk) = self.servers.disk.clone() {
            return self.crash(&disk);
        }
        let successor = self.servers.start();
        let term = successor.term;
        self.stage.terms.borrow_mut().insert(term, scheduler::now_ns());
        *self.stage.server.borrow_mut() = successor;
        format!("server {term} begins")
    }

    /// The server is killed, wherever it is, and another one goes on with its log, some time later. Its log
    /// may have failed before.
    fn crash(&mut self, disk: &Disk) -> String {
        let fails = self.random.once_in(4);
        if fails {
            disk.fail();
            scheduler::sleep(1 + self.random.below(self.faults.longest_ns));
        }
        mark!("server killed");
        let old = self.stage.server.borrow().clone();
        old.tasks().chain(old.log()).for_each(scheduler::kill);
        let has_power = self.random.once_in(2);
        if !has_power {
            disk.lose_power();
        }
        scheduler::sleep(1 + self.random.below(self.faults.longest_ns));
        disk.storage.fail_no_more();
        let successor = self.servers.start();
        disk.end_failure();
        let text = if has_power { "killed" } else { "killed, and its disk without power" };
        let done = format!("server {} {text}, {} begins", old.term, successor.term);
        *self.stage.server.borrow_mut() = successor;
        done
    }
}
