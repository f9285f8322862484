//! When no member lives that was in sync: a node offers what its disk has, and goes on with that, as
//! `kelix_shard::replicas` decides.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_fabric::shm::RunDirectory;
use kelix_log::LogControl;
use kelix_register::{Member, Offer, View};
use kelix_shard::replicas::{self, Absence, Offered, choose_copy, void};
use kelix_types::{Error, ErrorKind, Result};
use tracing::{info, warn};

use super::hosts;
use super::{BETWEEN_TRIES, NodeConfig, NodeStatus, keeping, primary};
use crate::authority::Authority;
use crate::listening::Reserved;
use crate::mirror::copies::{Copies, Kept, restore_one};
use crate::server::Server;
use crate::store::term_of_clock;

/// How long nobody answers before a node says what it has.
const OFFERS_AFTER: Duration = Duration::from_secs(1);

/// A node that has started where no primary can be followed.
pub(super) struct Recovery {
    copies: Option<Arc<Copies>>,
    since: Option<Instant>,
    offered: Option<OnDisk>,
    said: bool,
}

/// What it offers.
struct OnDisk {
    offer: Offer,
    path: Option<PathBuf>,
}

impl Recovery {
    pub fn new(copies: Option<Arc<Copies>>) -> Recovery {
        Recovery { copies, since: None, offered: None, said: false }
    }

    /// Goes on in the place of all who were in sync in a view, if this node is to. `have_ended`: these are
    /// known to have ended.
    pub fn look(
        &mut self,
        (config, token): (&NodeConfig, &str),
        (status, own): (&Arc<NodeStatus>, &Member),
        reserved: &Reserved,
        (view, have_ended): (&View, bool),
    ) -> Result<Option<Server>> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !have_ended && since.elapsed() < OFFERS_AFTER {
            return Ok(None);
        }
        if self.offered.is_none() {
            self.offered = Some(self.survey(view)?);
        }
        let offer = self.offered.as_ref().expect("just surveyed").offer;
        let patience = config.suspect + config.lease().unwrap_or_default();
        let (time_ns, patience_ns) = (since.elapsed().as_nanos() as u64, patience.as_nanos() as u64);
        let absence = Absence { have_ended, time_ns, patience_ns };
        let view = match replicas::offer(&status.membership, own, offer, absence)? {
            Some(Offered::GoesOn(view)) => view,
            Some(Offered::Waits(view)) => {
                self.say(config, &view, &offer);
                return Ok(None);
            }
            None => return Ok(None),
        };
        let restored = self.restore(config)?;
        let term = Authority::term_word(&RunDirectory(config.directory.run()));
        let before = term.as_ref().map_or(0, |term| term.words().load_acquire(0));
        let Some(chosen) = status.membership.recover(&view, term_of_clock())? else { return Ok(None) };
        let records = offer.records;
        info!(node = config.node, records, term = chosen.term, "this node goes on with what its disk has");
        match config.lease() {
            Some(length) => hosts::outwait(&status.membership, (view.primary, length), || false)?,
            None => {
                // None, where the directory was made anew.
                if let Ok(word) = &term {
                    void(&status.membership, word, before, || std::thread::sleep(BETWEEN_TRIES))?;
                }
            }
        }
        let lease = config.lease().map(|length| hosts::lease_of_primary(&status.membership, length));
        let server = config.primary_config(token, reserved.address());
        let kept = match (restored, &self.copies) {
            (None, Some(copies)) => {
                Some(keeping::begin(copies, (config, status), &server.all_namespaces()?)?)
            }
            (restored, _) => restored,
        };
        let prepared =
            primary::prepare(&server, status, (&chosen, lease), reserved.try_clone()?, (None, kept))?;
        status.note_promotion();
        prepared.serve().map(Some)
    }

    /// What there is on this node's disk: of the instance that was in sync, if there is such.
    fn survey(&self, view: &View) -> Result<OnDisk> {
        let found = self.copies.as_ref().map(|copies| copies.survey()).transpose()?.unwrap_or_default();
        Ok(match choose_copy(view, found, |of| of.boot) {
            Some(of) => OnDisk { offer: Offer { of: of.boot, records: of.records }, path: Some(of.path) },
            None => OnDisk { offer: Offer { of: 0, records: 0 }, path: None },
        })
    }

    /// Begins with that.
    fn restore(&self, config: &NodeConfig) -> Result<Option<Kept>> {
        let Some(path) = self.offered.as_ref().and_then(|offered| offered.path.as_ref()) else {
            return Ok(None);
        };
        let authority = Authority::prepare(RunDirectory(config.replica_run()), true)?;
        let names = config.server.all_namespaces()?.into_iter().map(|of| of.name).collect::<Vec<_>>();
        let restored = restore_one((&config.server, &names), &authority, &LogControl::new(), path)?;
        let (kept, _) = restored.ok_or_else(|| {
            let context = format!(
                "{} has other namespaces than this node is configured for, or nothing that can be begun with",
                path.display()
            );
            Error::new(ErrorKind::InvalidArgument, "join cluster", context)
        })?;
        Ok(Some(kept))
    }

    /// Says once what this node waits for.
    fn say(&mut self, config: &NodeConfig, view: &View, offer: &Offer) {
        if std::mem::replace(&mut self.said, true) {
            return;
        }
        let missing: Vec<&str> = view.missing().map(|member| &member.node[..]).collect();
        warn!(
            node = config.node,
            records = offer.records,
            waits_for = missing.join(","),
            "no primary answers: this node says what its disk has, and waits for those who were in sync; if they \
             are gone for good, `kelix cluster recover --accept-loss` has the best one go on"
        );
    }
}
