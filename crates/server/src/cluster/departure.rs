//! Ending in good order: a primary hands over, and a replica is taken out of the view, before the node ends.
//!
//! ```text
//! asked to end:  a replica   out of the view, and of the members ------------------------------> ends
//!                the primary names a member in sync as its successor -> deposed by that one ---> ends
//!                            nobody else is in sync: what it has is gone with it --------------> ends
//! ```
//!
//! 1. A successor goes on as one does whose primary has died: nothing is different but that nobody has to
//!    suspect anything. So a handover loses nothing, wherever either of both ends meanwhile.
//! 2. A successor that does not go on within some time is named no more ([`Handover`]).
//! 3. A node that was told by a signal ends at the latest after some time. One that was told by the view ends
//!    when another one has what it has, and not before.

use std::time::{Duration, Instant};

use kelix_fabric::host_clock_ns;
use kelix_register::View;
use kelix_shard::replicas::{HandedOver, Handover};
use kelix_types::Result;
use tracing::{info, warn};

use super::Node;

/// How long a successor may take to go on, and a node to end in good order after a signal.
const WITHIN: Duration = Duration::from_secs(5);

/// How far a node is with ending, or handing over.
#[derive(Default)]
pub(super) struct Departure {
    /// Since when it has been known that it is to end by a signal.
    told: Option<Instant>,
    /// The view has said that it is to end. It says so no more once the node has left, and the answer to that
    /// may be lost.
    asked: bool,
    handover: Handover,
    /// That it cannot end yet was said.
    said: bool,
}

/// What a node is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Stays,
    Ends,
}

impl Departure {
    /// Does what the view, or a signal, asks of a primary.
    pub fn of_primary(&mut self, node: &Node, view: &View) -> Result<Next> {
        let own = node.membership().boot;
        let is_told = self.note_told(node);
        let leaves = is_told || view.leaving.contains(&own);
        // A node that cannot keep what is written has another one go on, where there is one, and is read
        // meanwhile.
        let hands_over = leaves || !node.takes_writes();
        if self.is_late() {
            return Ok(Next::Ends);
        }
        let of = (&**node.membership(), view);
        let times_ns = (host_clock_ns(false), WITHIN.as_nanos() as u64);
        let lives = |boot| node.config.lives(view, boot);
        match self.handover.look(of, times_ns, hands_over, lives)? {
            HandedOver::Well => {}
            HandedOver::Late => {
                warn!(node = node.config.node, "whoever was to go on in this node's place does not");
            }
            HandedOver::Nobody => {
                if is_told && !view.in_sync.iter().any(|boot| *boot != own && lives(*boot)) {
                    return Ok(Next::Ends);
                }
                if leaves && !std::mem::replace(&mut self.said, true) {
                    warn!(
                        node = node.config.node,
                        "this node is to end, and no other one is in sync: it stays until one is"
                    );
                }
            }
        }
        Ok(Next::Stays)
    }

    /// The same of a replica. Its primary takes it out of those in sync: where that one has died this one
    /// goes on in its place, and hands over before it ends.
    pub fn of_replica(&mut self, node: &Node, view: &View) -> Result<Next> {
        let own = node.membership().boot;
        self.asked |= view.leaving.contains(&own);
        if !self.note_told(node) && !self.asked {
            return Ok(Next::Stays);
        }
        if view.is_in_sync(own) && !self.is_late() {
            if !view.leaving.contains(&own) {
                node.membership().ask_to_leave()?;
            }
            return Ok(Next::Stays);
        }
        // The node may have been put among those in sync since, and be the last one that lives.
        if !node.membership().leave()? && !self.is_late() {
            return Ok(Next::Stays);
        }
        info!(node = node.config.node, "this node leaves the cluster");
        Ok(Next::Ends)
    }

    /// Whether it is to end at once, whatever the register says.
    pub fn is_late(&self) -> bool {
        self.told.is_some_and(|told| told.elapsed() > WITHIN)
    }

    /// Whether a signal has told it to end.
    pub fn note_told(&mut self, node: &Node) -> bool {
        let is_told = node.leaves.load(std::sync::atomic::Ordering::Acquire);
        is_told && {
            self.told.get_or_insert_with(Instant::now);
            true
        }
    }
}
