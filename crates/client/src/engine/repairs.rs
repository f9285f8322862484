//! Links that were stale: the shard that has one is told where its target stands now (KELI, section 3.2).

use std::ops::ControlFlow;

use kelix_types::{Result, mark};
use kelix_wire::{Op, RequestHead};

use super::{Engine, Wanted};
use crate::links::Origin;
use crate::pointers::Pointer;
use crate::read::Landing;

impl Engine {
    /// If what was fetched last was not where a link said, tells the shard that has the link where it stands
    /// now. Nobody waits for the answer.
    pub fn repair(
        &mut self,
        origin: Option<Origin<'_>>,
        said: Option<Pointer>,
        found: Option<Pointer>,
    ) -> Result<()> {
        let Some(Pointer { location, incarnation }) = found.filter(|_| found != said) else {
            return Ok(());
        };
        let Some(Origin { table, key, version, position }) = origin else { return Ok(()) };
        if self.connection.detached || !self.transport.may_write() {
            return Ok(());
        }
        let (_, shard) = self.transport.route(table, key);
        let head = RequestHead {
            expect: Some(Some(version)),
            argument: Some(position),
            ..RequestHead::new(Op::RepairLink, 0, table)
        };
        let mut claim = [0; 16];
        claim[..8].copy_from_slice(&location.word().to_le_bytes());
        claim[8..].copy_from_slice(&incarnation.0.to_le_bytes());
        mark!("link repaired by a reader");
        // If the ring is full the next reader will try again; it stays so as long as nobody takes the
        // answers.
        self.post_unawaited(shard, head, key, &claim);
        self.transport.poll_replies().map(drop)
    }

    /// Brings an item into `landing` in straight code: whether it exists; `None`: it has to be looked for
    /// elsewhere. A link that did not say where is repaired.
    #[inline(always)]
    pub fn land_at_hand(
        &mut self,
        wanted: Wanted<'_>,
        origin: Option<Origin<'_>>,
        landing: &mut Landing,
    ) -> Result<Option<bool>> {
        if self.lands(wanted, landing)? {
            return Ok(Some(true));
        }
        let Wanted { table, key, pointer } = wanted;
        if pointer.is_some() || !self.transport.reads_directly() {
            return Ok(None);
        }
        self.begin(table, key)?;
        let hash = self.transport.hash(table, key);
        let ControlFlow::Break(found) = self.look_at_hand(wanted, hash, landing) else { return Ok(None) };
        if found.is_some() {
            self.repair(origin, pointer, landing.pointer)?;
        }
        Ok(Some(found.is_some()))
    }

    /// Brings an item into `landing`, and repairs the link that led there if it was stale.
    pub fn land(
        &mut self,
        wanted: Wanted<'_>,
        origin: Option<Origin<'_>>,
        landing: &mut Landing,
    ) -> Result<bool> {
        let found = self.fetch(wanted, landing)?.is_some();
        if found {
            self.repair(origin, wanted.pointer, landing.pointer)?;
        }
        Ok(found)
    }
}
