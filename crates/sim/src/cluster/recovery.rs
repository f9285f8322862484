//! A node that finds no primary, and goes on with what its disk has.

use std::rc::Rc;

use kelix_fabric::shm::AUTHORITY_TERM;
use kelix_register::Offer;
use kelix_shard::replicas::{Absence, Offered, choose_copy, offer, outwait, void};
use kelix_types::{Result, mark};

use super::disk::{Copy, Kept, Restored};
use super::member;
use super::node::Node;
use super::primary::{Past, PrimaryServer};
use crate::scheduler;

/// What a process knows of that, from its beginning on.
pub struct Recovery {
    since_ns: u64,
    offered: Option<(Offer, Option<Rc<Copy>>)>,
}

impl Recovery {
    pub fn begin() -> Recovery {
        Recovery { since_ns: scheduler::now_ns(), offered: None }
    }

    /// Goes on in the place of all who were in sync, if this node is to.
    pub fn look(&mut self, node: &Node) -> Result<Option<Rc<PrimaryServer>>> {
        let (cluster, membership) = (&node.cluster, &node.membership);
        let (Some(disk), Ok(Some(view))) = (cluster.disk(node.number), membership.look()) else {
            return Ok(None);
        };
        let lives = |boot| cluster.seems_to_live(boot);
        let Ok(have_ended) = membership.all_have_ended(&view, lives) else { return Ok(None) };
        let time_ns = scheduler::now_ns() - self.since_ns;
        if !have_ended && time_ns < cluster.suspect_ns() {
            return Ok(None);
        }
        let survey = || {
            let found = choose_copy(&view, scheduler::unnoticed(|| disk.survey()), |of| of.boot);
            let offer = found.as_ref().map(|of| Offer { of: of.boot, records: of.records });
            (offer.unwrap_or(Offer { of: 0, records: 0 }), found.map(|of| of.copy))
        };
        let (offered, copy) = self.offered.get_or_insert_with(survey);
        let own = member(node.number, membership.boot);
        let patience_ns = cluster.suspect_ns() + cluster.plan().lease_ns();
        let absence = Absence { have_ended, time_ns, patience_ns };
        let view = match offer(membership, &own, *offered, absence) {
            Ok(Some(Offered::GoesOn(view))) => view,
            _ => return Ok(None),
        };
        let Some(copy) = copy.clone() else { return Ok(None) };
        let restored = scheduler::unnoticed(|| copy.restore(cluster.servers().shards))?;
        let Restored { shadows, position } = restored;
        let word = cluster.page(node.number).word(AUTHORITY_TERM);
        let before = word.words().load_acquire(0);
        let Some(chosen) = membership.recover(&view, 0)? else { return Ok(None) };
        cluster.tell(format!("node {} goes on with its disk, term {}", node.number, chosen.term));
        mark!("node went on with its disk");
        let voided = match cluster.plan().hosts {
            None => void(membership, &word, before, scheduler::give_way)?,
            Some(hosts) => {
                let pause = |left_ns: u64| {
                    let longest_ns = left_ns.min(cluster.plan().round_ns());
                    scheduler::sleep(1 + scheduler::random_below(longest_ns));
                    Ok(())
                };
                let earlier = (view.primary, hosts.lease_ns);
                outwait(membership, earlier, scheduler::host_now_ns, pause)?;
                word.words().load_acquire(0)
            }
        };
        let past = Past { shadows, ..Past::default() };
        node.serve(&chosen, (past, Some(Kept { copy, position }), voided + 1))
    }
}
