//! A session on a mirror: the mirror's shards are read, and those of its primary do the rest.
//!
//! Each shard has two *stations* to which requests go: the mirror's, by the shard's number, and the
//! primary's, by that number and the number of shards. The primary tells with each answer the record that has
//! what the answer tells of. As long as the mirror has not applied that record the shard is *suspended*: its
//! memory is put out of reach, so that straight code that reads finds nothing there, and all reads of the
//! shard go to the primary's station. So a session finds its own writes, and nothing older than it has seen.

use std::cmp::Reverse;

use kelix_fabric::{Fabric, Mailbox, PeerId, RemoteMemory};
use kelix_image::{Committed, MemoryMap, header_word};
use kelix_types::{Incarnation, Place, mark};

use super::requests::PendingState;
use super::{Pointer, ServerIdentity, ShardState, Transport};
use crate::read::{Freshness, Watermark};
use crate::session::SessionOptions;

/// What a session on a mirror knows of it and of its primary.
pub(crate) struct Mirror {
    /// Where the primary is.
    address: String,
    /// All reads are the primary's: because the session wants that, or for a while.
    is_strict: bool,
    is_strict_now: bool,
    shards: Vec<Awaited>,
    /// The primary's, once there was a connection.
    stations: Vec<ShardState>,
    is_connected: bool,
    tells_records: bool,
    may_write: bool,
    is_leased: bool,
}

/// How far the mirror has to be in a shard for the session to read there.
#[derive(Clone, Copy)]
struct Awaited {
    record: u64,
    incarnation: u64,
    is_suspended: bool,
}

impl Mirror {
    /// Goes on with another connection to the mirror, which `other` is of.
    pub(super) fn go_on_as(&mut self, other: Mirror) {
        (self.address, self.shards) = (other.address, other.shards);
    }
}

/// A request that was lost with the connection to the primary, which may have done it if it has an effect.
pub(crate) struct Lost {
    pub has_effect: bool,
}

/// The state of a station.
#[inline(always)]
pub(super) fn state_of<'a>(
    shards: &'a mut [ShardState],
    mirror: &'a mut Option<Box<Mirror>>,
    station: usize,
) -> &'a mut ShardState {
    let count = shards.len();
    match shards.get_mut(station) {
        Some(state) => state,
        None => of_primary(mirror, station - count),
    }
}

#[cold]
#[inline(never)]
fn of_primary(mirror: &mut Option<Box<Mirror>>, shard: usize) -> &mut ShardState {
    &mut mirror.as_mut().expect("a session on a mirror").stations[shard]
}

impl<F: RemoteMemory + Mailbox> Transport<F> {
    /// Makes this the transport of a session on a mirror whose primary is at an address.
    pub fn begin_mirror(&mut self, address: String, options: &SessionOptions) {
        let none = Awaited { record: 0, incarnation: 0, is_suspended: false };
        self.mirror = Some(Box::new(Mirror {
            address,
            is_strict: options.strict,
            is_strict_now: false,
            shards: vec![none; self.shards.len()],
            stations: Vec::new(),
            is_connected: false,
            tells_records: false,
            may_write: false,
            is_leased: false,
        }));
        let max_lag_ns = options.max_lag.map(|lag| u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX));
        for shard in 0..self.shards.len() {
            if max_lag_ns.is_some() || self.page_word(shard, header_word::LEASE) != 0 {
                self.shards[shard].reader.watermark = Watermark::of_mirror(Freshness::new(max_lag_ns));
                self.renew_freshness(shard);
            }
        }
        if options.strict {
            self.suspend_all();
        }
    }

    /// After another connection to the server, which is a mirror now: who was asked as the primary is the
    /// next primary, to which there is no connection as yet.
    pub(super) fn begin_at_mirror(&mut self, mut mirror: Box<Mirror>, mut stations: Vec<ShardState>) {
        // What a session counts goes on where the count stood; the rest is made anew with the connection.
        for (shard, station) in self.shards.iter_mut().zip(&mut stations) {
            (station.sequence, station.unanswered) = (shard.sequence, std::mem::take(&mut shard.unanswered));
            shard.sequence = 0;
        }
        mirror.stations = stations;
        self.mirror = Some(mirror);
        let count = self.shards.len() as u16;
        self.requests.pending.iter_mut().for_each(|pending| pending.shard += count);
        self.requests.lose(usize::from(count), true);
    }

    /// After another connection to the server, which is the primary now.
    pub(super) fn end_at_mirror(&mut self) {
        let Some(mirror) = self.mirror.take() else { return };
        for (shard, station) in self.shards.iter_mut().zip(mirror.stations) {
            (shard.sequence, shard.unanswered) = (station.sequence, station.unanswered);
        }
        let count = self.shards.len() as u16;
        self.requests.pending.iter_mut().for_each(|pending| pending.shard %= count);
    }

    /// Whether the session is on a mirror.
    #[inline(always)]
    pub fn is_on_mirror(&self) -> bool {
        self.mirror.is_some()
    }

    /// Where the primary is, of a session on a mirror.
    pub fn primary_address(&self) -> Option<&str> {
        self.mirror.as_ref().map(|mirror| &mirror.address[..])
    }

    /// The primary's station of a shard.
    pub fn primary_of(&self, shard: usize) -> usize {
        self.shards.len() + shard
    }

    /// Whether a station is one of the primary's.
    pub fn is_of_primary(&self, station: usize) -> bool {
        station >= self.shards.len()
    }

    /// Whether the term of a station's server is in force by a lease.
    pub(super) fn is_leased(&self, station: usize) -> bool {
        match &self.mirror {
            Some(mirror) if self.is_of_primary(station) => mirror.is_leased,
            _ => self.server.is_leased,
        }
    }

    /// How many stations there are.
    pub(super) fn stations(&self) -> usize {
        let primary = self.mirror.as_ref().filter(|mirror| mirror.is_connected);
        self.shards.len() + primary.map_or(0, |mirror| mirror.stations.len())
    }

    /// Whether this client may write, as far as that is known.
    pub fn may_write(&self) -> bool {
        match &self.mirror {
            None => self.server.may_write,
            Some(mirror) => mirror.is_connected && mirror.may_write,
        }
    }

    /// A shard's memory, also while it is suspended.
    pub(super) fn map_at_hand(&self, shard: usize) -> Option<&MemoryMap> {
        if self.ways.is_direct { self.fabric.map(self.peer(shard)).map(|map| &**map) } else { None }
    }

    /// A word of a shard's header page.
    fn page_word(&self, shard: usize, word: usize) -> u64 {
        let words = self.map_at_hand(shard).and_then(|map| map.words(Place(word as u64 * 8), 1));
        words.map_or(0, |words| words.load_acquire(0))
    }

    /// As of when the mirror is known to have all that the primary has, by the host's clock; of all shards.
    /// `None`: it is no mirror, or has not said so yet.
    pub fn fresh_ns(&self) -> Option<u64> {
        self.mirror.as_ref()?;
        let fresh = (0..self.shards.len()).map(|shard| self.page_word(shard, header_word::FRESH)).min();
        fresh.filter(|fresh| *fresh != 0)
    }

    fn renew_freshness(&mut self, shard: usize) {
        let watermark = &self.shards[shard].reader.watermark;
        if let Some(freshness) = watermark.freshness() {
            freshness
                .renew(self.page_word(shard, header_word::LEASE), self.page_word(shard, header_word::FRESH));
        }
    }

    /// Whether what is read of a shard from now on may be too old to count.
    pub fn is_stale(&mut self, shard: usize) -> bool {
        self.renew_freshness(shard);
        !self.is_fresh(shard)
    }

    /// Whether what was read of a shard, or answered there, since that was last looked at is not too old.
    pub fn is_fresh(&self, shard: usize) -> bool {
        self.shards[shard].reader.watermark.freshness().is_none_or(Freshness::holds)
    }

    /// Whether a shard's memory is out of reach because the mirror is behind.
    #[inline]
    pub fn is_suspended(&self, shard: usize) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.shards[shard].is_suspended)
    }

    /// Whether any is.
    #[inline]
    pub fn has_suspended(&self) -> bool {
        let is_suspended = |awaited: &Awaited| awaited.is_suspended;
        self.mirror.as_ref().is_some_and(|mirror| mirror.shards.iter().any(is_suspended))
    }

    /// Whether reads of a shard go to the primary's station now. Puts the shard's memory within reach again
    /// once the mirror is far enough.
    #[inline]
    pub fn reads_at_primary(&mut self, shard: usize) -> bool {
        self.mirror.is_some() && self.look_whether_behind(shard)
    }

    #[cold]
    #[inline(never)]
    fn look_whether_behind(&mut self, shard: usize) -> bool {
        self.renew_freshness(shard);
        let Some(mirror) = &self.mirror else { return false };
        if !mirror.shards[shard].is_suspended {
            return false;
        }
        // What the catalogue says is ahead of a shard that has not what the catalogue tells of.
        let is_strict = mirror.is_strict || mirror.is_strict_now;
        if is_strict || !self.has_reached(0) || !self.has_reached(shard) {
            return true;
        }
        mark!("mirror has what its session has seen");
        let reader = &mut self.shards[shard].reader;
        reader.direct = self.fabric.direct(reader.peer);
        if let Some(mirror) = &mut self.mirror {
            mirror.shards[shard].is_suspended = false;
        }
        false
    }

    /// Whether the mirror has applied what is awaited in a shard.
    ///
    /// SYNC: the acquiring loads pair with the publishing stores of `Image::note_applied`, which stay behind
    /// those of the record.
    fn has_reached(&self, shard: usize) -> bool {
        let Some(Awaited { record, incarnation, .. }) = self.mirror.as_ref().map(|it| it.shards[shard])
        else {
            return true;
        };
        self.page_word(shard, header_word::COMMITTED_RECORD) >= record
            && self.page_word(shard, header_word::COMMITTED) >= incarnation
    }

    fn suspend(&mut self, shard: usize) {
        if let Some(mirror) = &mut self.mirror {
            mirror.shards[shard].is_suspended = true;
            self.shards[shard].reader.direct = None;
        }
    }

    /// After another connection to the mirror, whose memory is within reach.
    pub(super) fn suspend_again(&mut self) {
        if self.mirror.as_ref().is_some_and(|mirror| mirror.is_strict_now) {
            self.suspend_all();
        }
    }

    fn suspend_all(&mut self) {
        (0..self.shards.len()).for_each(|shard| self.suspend(shard));
    }

    /// Reads of a shard go to the primary until the mirror has this there. The catalogue, which says what
    /// stands in the other shards, is on the first.
    pub(super) fn await_mirror(&mut self, shard: usize, reached: Committed) {
        let Some(mirror) = &mut self.mirror else { return };
        let awaited = &mut mirror.shards[shard];
        awaited.record = awaited.record.max(reached.record);
        awaited.incarnation = awaited.incarnation.max(reached.incarnation);
        if self.has_reached(shard) {
            return;
        }
        mark!("mirror is behind what its session has seen");
        if shard == 0 { self.suspend_all() } else { self.suspend(shard) }
    }

    /// Has all reads go to the primary for a while, or no more.
    pub fn read_at_primary_only(&mut self, only: bool) {
        if let Some(mirror) = &mut self.mirror {
            mirror.is_strict_now = only;
            if only {
                self.suspend_all();
            }
        }
    }

    /// Whether a pointer may be followed at a station: on a mirror only if what it names is there as a whole,
    /// which is to be so before it is read (docs/read-rule.md, "Mirrors").
    #[inline]
    pub fn may_follow(&self, station: usize, pointer: Pointer) -> bool {
        self.mirror.is_none() || self.is_of_primary(station) || self.is_applied(station, pointer.incarnation)
    }

    #[cold]
    #[inline(never)]
    fn is_applied(&self, shard: usize, incarnation: Incarnation) -> bool {
        incarnation.0 <= self.page_word(shard, header_word::COMMITTED)
    }

    /// Takes over from the transport of a session on the same mirror, or on a later life of it, how far the
    /// mirror has to be. What it has shown counts too: its next image may begin with less.
    pub fn inherit(&mut self, old: &Transport<F>) {
        let (Some(_), Some(before)) = (&self.mirror, &old.mirror) else { return };
        if self.life() != old.life() || self.shards.len() != old.shards.len() {
            return;
        }
        for (shard, awaited) in before.shards.iter().enumerate() {
            let shown = old.page_word(shard, header_word::COMMITTED_RECORD);
            let shown = if shown == Committed::ALL.record { 0 } else { shown };
            let (record, incarnation) = (awaited.record.max(shown), awaited.incarnation);
            self.await_mirror(shard, Committed { record, incarnation });
        }
    }

    // ---- the connection to the primary ----

    /// Whether there is a connection to the primary, as far as is known.
    pub fn is_primary_connected(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.is_connected)
    }

    /// Whether there was one.
    pub fn had_primary(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| !mirror.stations.is_empty())
    }

    /// Whether the connection to the primary, of which something is known, is over, or that server is not in
    /// force any more.
    pub fn is_primary_gone(&mut self) -> bool {
        let station = self.primary_of(0);
        self.is_primary_connected() && {
            let peer = state_of(&mut self.shards, &mut self.mirror, station).reader.peer;
            self.fabric.is_broken(peer) || self.in_force(station) == Some(false)
        }
    }

    /// Whether the mirror's own shards owe an answer. Without a mirror who is waited for is no question.
    pub fn awaits_shards(&self) -> bool {
        self.mirror.is_none() || self.shards.iter().any(|shard| shard.outstanding > 0)
    }

    /// Whether the primary owes an answer over a connection that is lost.
    pub fn is_owed_by_primary(&self) -> bool {
        let Some(mirror) = &self.mirror else { return false };
        let is_owed = |station: u16, state: &PendingState| {
            self.is_of_primary(station.into()) && matches!(state, PendingState::Waiting { wanted: true, .. })
        };
        !mirror.is_connected && self.requests.any(is_owed)
    }

    /// Whether an answer of the primary has begun to arrive.
    #[inline]
    pub(super) fn has_news_of_primary(&self) -> bool {
        let Some(mirror) = self.mirror.as_ref().filter(|mirror| mirror.is_connected) else { return false };
        mirror
            .stations
            .iter()
            .any(|shard| shard.outstanding > 0 && shard.ring.has_news(&self.fabric, shard.reader.peer))
    }

    /// Whether the answers of a station tell the record that has what they tell of.
    pub(super) fn tells_records(&self, station: usize) -> bool {
        self.is_of_primary(station) && self.mirror.as_ref().is_some_and(|mirror| mirror.tells_records)
    }

    /// The connection to the primary is over. Its requests are lost, unless they are kept to be asked again.
    pub fn lose_primary(&mut self, keep: bool) {
        mark!("connection to the primary lost");
        if let Some(mirror) = &mut self.mirror {
            mirror.is_connected = false;
            mirror.stations.iter_mut().for_each(|station| station.outstanding = 0);
        }
        self.requests.lose(self.shards.len(), keep);
    }
}

impl<F: Fabric> Transport<F> {
    /// Takes note of a new connection to the primary, where requests that were kept are to be asked again.
    pub fn connect_primary(&mut self, server: &ServerIdentity, peer: impl Fn(usize) -> PeerId) {
        let Some(mirror) = &mut self.mirror else { return };
        let count = self.shards.len();
        let before = std::mem::take(&mut mirror.stations);
        mirror.stations =
            (0..count).map(|shard| ShardState::new(&self.fabric, peer(shard), server)).collect();
        // What a session counts goes on where it stood.
        for (state, before) in mirror.stations.iter_mut().zip(before) {
            (state.sequence, state.unanswered) = (before.sequence, before.unanswered);
        }
        mirror.is_connected = true;
        (mirror.tells_records, mirror.may_write) = (server.tells_records, server.may_write);
        mirror.is_leased = server.is_leased;
        self.requests.again.clear();
        for (slot, pending) in self.requests.pending.iter_mut().enumerate() {
            let waits = matches!(pending.state, PendingState::Waiting { wanted: true, .. });
            if waits && usize::from(pending.shard) >= count {
                self.requests.again.push(slot as u16);
                pending.kept.ask_again();
            }
        }
        let super::Requests { again, pending, .. } = &mut self.requests;
        again.sort_by_key(|slot| Reverse(pending[usize::from(*slot)].order));
    }
}
