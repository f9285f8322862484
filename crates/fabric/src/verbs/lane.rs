//! Queue pairs that several users share, and how each of them learns what of its own is complete.
//!
//! A lane is one queue pair between a client process and a server process. Sessions and shards post to it
//! from threads of their own, which needs no lock but the library's. Each has a [`Seat`] there: a count of
//! its work requests that are complete. A queue pair completes requests in the order of their posting, so the
//! count says which they are.
//!
//! Of a chain, which is posted with one doorbell, only every few READs and the last request make a
//! completion; its number says how many requests of the seat it stands for. Whoever polls takes the
//! completions of all.

use std::any::Any;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};

use super::cm::Id;
use super::device::{Access, Domain, Region, Remote};
use super::ffi::constant::*;
use super::ffi::{SendWr, Sge, Wc};
use super::queue::{Channel, Completions, Pair, TAKEN};

/// READs of a chain for which there is one completion.
const READS_A_COMPLETION: usize = 4;
/// Requests that one completion stands for at most; the rest of the number is the seat.
const COUNT_BITS: u32 = 16;
/// Receives for wake-ups.
const RECEIVES: usize = 64;
/// What is sent inside a request, and need not be fetched by the device.
const INLINE_BYTES: usize = 220;

/// What names a lane to those who may use it.
pub type Ticket = [u8; 16];

/// One user of a lane.
pub(super) struct Seat {
    /// Its requests that are complete.
    done: AtomicU64,
    /// Which peers have woken it, a bit for each.
    woken: AtomicU64,
    /// It sleeps, or is about to.
    sleeps: AtomicBool,
    /// Readable when somebody else has taken what it sleeps for.
    bell: Option<OwnedFd>,
}

impl Seat {
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Takes which peers have woken it.
    pub fn take_woken(&self) -> u64 {
        if self.woken.load(Ordering::Relaxed) == 0 { 0 } else { self.woken.swap(0, Ordering::Acquire) }
    }

    /// Says that it is about to sleep, or no longer.
    ///
    /// SYNC: whoever counts something first counts, then looks here; whoever sleeps first says so, then looks
    /// at the counts. All four are sequentially consistent, so one of the two sees the other.
    pub fn set_sleeps(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Takes back that it was rung for.
    pub fn hush(&self) {
        if let Some(bell) = &self.bell {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.as_ref().filter(|_| self.sleeps.load(Ordering::SeqCst)) {
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// What one work request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// READ into registered memory.
    Read,
    /// WRITE from registered memory.
    Write,
    /// Wakes whom this number means, by a message of one word; or, where that cannot stand in a request, by a
    /// WRITE of nothing with the number beside.
    Wake(u32),
}

/// Work requests that are to be posted.
#[derive(Default)]
pub(super) struct Chain {
    works: Vec<(Work, Sge, Remote)>,
    requests: Vec<SendWr>,
    /// The words of messages.
    words: Vec<u64>,
}

// SAFETY: pointers in the requests are set and used within one call.
unsafe impl Send for Chain {}

impl Chain {
    pub fn push(&mut self, work: Work, local: Sge, remote: Remote) {
        self.works.push((work, local, remote));
    }

    pub fn len(&self) -> usize {
        self.works.len()
    }

    pub fn clear(&mut self) {
        self.works.clear();
    }
}

/// What is kept until the device is done with it: a seat, how much of its is under way, and its memory.
struct Grave {
    seat: Arc<Seat>,
    posted: u64,
    _held: Box<dyn Any + Send + Sync>,
}

/// A queue pair and its users.
pub(super) struct Lane {
    // Dropped first, so that the device is done with all memory of users.
    pair: Pair,
    graves: Mutex<Vec<Grave>>,
    /// Where messages land, a word for each receive.
    inbox: Region,
    sends: Completions,
    receives: Completions,
    channel: Arc<Channel>,
    pub domain: Arc<Domain>,
    /// Held for as long as the connection is to be.
    id: Mutex<Option<Id>>,
    pub ticket: Ticket,
    /// Requests for which the queue has room.
    room: AtomicUsize,
    broken: AtomicBool,
    /// Those whom the other side can wake, by number.
    seats: Mutex<Vec<Option<Arc<Seat>>>>,
}

impl Lane {
    /// A queue pair that is not connected, for so many requests under way. Events of its completion queues
    /// have a name.
    pub fn new(
        domain: &Arc<Domain>,
        channel: &Arc<Channel>,
        ticket: Ticket,
        sends: usize,
        name: usize,
    ) -> Result<Lane> {
        let most = domain.device.limits.max_qp_wr.max(1) as usize;
        let (sends, receives) = (sends.min(most), RECEIVES.min(most));
        let send_queue = Completions::new(channel, sends, name)?;
        let receive_queue = Completions::new(channel, receives, name)?;
        let pair = Pair::new(domain, (&send_queue, &receive_queue), (sends, receives), INLINE_BYTES)?;
        Ok(Lane {
            pair,
            graves: Mutex::default(),
            inbox: Region::private(domain, receives, Access::Landing)?,
            sends: send_queue,
            receives: receive_queue,
            channel: channel.clone(),
            domain: domain.clone(),
            id: Mutex::new(None),
            ticket,
            room: AtomicUsize::new(sends),
            broken: AtomicBool::new(false),
            seats: Mutex::default(),
        })
    }

    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Holds the connection from now on, and takes wake-ups.
    pub fn connected(&self, id: Id) -> Result<()> {
        *self.id.lock().expect("no panic under this lock") = Some(id);
        (0..self.inbox.words().count()).try_for_each(|place| self.post_receive(place))
    }

    fn post_receive(&self, place: usize) -> Result<()> {
        // SAFETY: the pair is dropped before the memory.
        unsafe { self.pair.post_receive(place as u64, self.inbox.part(place, 1)) }
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Gives the connection up: what is under way ends, and whoever sleeps learns of it.
    pub fn fail(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.pair.fail();
        let seats = self.seats.lock().expect("no panic under this lock");
        seats.iter().flatten().for_each(|seat| seat.ring());
    }

    /// A place for a user whom the other side can wake by the number that this returns.
    pub fn sit(&self) -> Result<(usize, Arc<Seat>)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let seat = Arc::new(Seat {
            done: AtomicU64::new(0),
            woken: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            bell: Some(eventfd(0, flags)?),
        });
        let mut seats = self.seats.lock().expect("no panic under this lock");
        let number = seats.iter().position(Option::is_none).unwrap_or(seats.len());
        if number == seats.len() {
            seats.push(None);
        }
        seats[number] = Some(seat.clone());
        Ok((number, seat))
    }

    /// A place for a user who is not woken.
    pub fn stand(&self) -> Arc<Seat> {
        let (done, woken, sleeps) = Default::default();
        Arc::new(Seat { done, woken, sleeps, bell: None })
    }

    /// How many can be woken here.
    pub fn users(&self) -> usize {
        self.seats.lock().expect("no panic under this lock").iter().flatten().count()
    }

    /// A user goes, who has posted so much; its memory is held until the device is done with it.
    pub fn leave(
        &self,
        number: Option<usize>,
        seat: Arc<Seat>,
        posted: u64,
        held: Box<dyn Any + Send + Sync>,
    ) {
        if let Some(number) = number {
            self.seats.lock().expect("no panic under this lock")[number] = None;
        }
        self.poll();
        let mut graves = self.graves.lock().expect("no panic under this lock");
        graves.retain(|grave| grave.seat.done() < grave.posted);
        if seat.done() < posted {
            graves.push(Grave { seat, posted, _held: held });
        }
    }

    /// Posts of a chain what there is room for, from its beginning, with one doorbell. Returns how many
    /// requests.
    pub fn post(&self, seat: &Arc<Seat>, chain: &mut Chain) -> usize {
        let count = self.reserve(chain.len().min((1 << COUNT_BITS) - 1));
        if count == 0 {
            return 0;
        }
        let address = Arc::as_ptr(seat).expose_provenance() as u64;
        let name = address << COUNT_BITS;
        assert!(name >> COUNT_BITS == address, "an address of 48 bits");
        chain.requests.clear();
        chain.words.clear();
        chain.words.reserve(count);
        let mut covered = 0;
        for (index, (work, local, remote)) in chain.works[..count].iter_mut().enumerate() {
            covered += 1;
            let is_read = matches!(work, Work::Read);
            let tells = index + 1 == count || (is_read && covered >= READS_A_COMPLETION);
            let (opcode, imm_data) = match work {
                Work::Read => (WR_RDMA_READ, 0),
                Work::Write => (WR_RDMA_WRITE, 0),
                Work::Wake(number) if self.pair.inline_bytes >= 8 => {
                    chain.words.push(u64::from(*number));
                    let at = &chain.words[chain.words.len() - 1];
                    *local =
                        Sge { addr: std::ptr::from_ref(at).expose_provenance() as u64, length: 8, lkey: 0 };
                    (WR_SEND, 0)
                }
                Work::Wake(number) => (WR_RDMA_WRITE_WITH_IMM, number.to_be()),
            };
            let fits = !is_read && (1..=self.pair.inline_bytes).contains(&(local.length as usize));
            chain.requests.push(SendWr {
                wr_id: name | if tells { std::mem::take(&mut covered) as u64 } else { 0 },
                next: null_mut(),
                sg_list: local,
                num_sge: i32::from(local.length > 0),
                opcode,
                send_flags: if tells { SEND_SIGNALED } else { 0 } | if fits { SEND_INLINE } else { 0 },
                imm_data,
                remote_addr: remote.address,
                rkey: remote.rkey,
                unused: [0; 9],
            });
        }
        for index in 1..count {
            let next: *mut SendWr = &mut chain.requests[index];
            chain.requests[index - 1].next = next;
        }
        // SAFETY: a list whose entries, and what they point to, live until the call returns; memory of READs
        // and WRITEs is held until they are complete or the pair is gone (`leave`).
        if unsafe { self.pair.post(&mut chain.requests[0]) }.is_err() {
            self.fail();
        }
        chain.works.drain(..count);
        count
    }

    /// Takes room for up to so many requests.
    fn reserve(&self, wanted: usize) -> usize {
        if wanted == 0 || self.is_broken() {
            return 0;
        }
        let take = |room: usize| (room > 0).then(|| room - room.min(wanted));
        let taken = self.room.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        taken.map_or(0, |room| room.min(wanted))
    }

    /// Takes completions in, of all users.
    pub fn poll(&self) {
        let mut completions = [Wc::default(); TAKEN];
        loop {
            let taken = self.sends.poll(&mut completions);
            for completion in taken {
                if completion.status != 0 && !self.is_broken() {
                    self.fail();
                }
                let count = completion.wr_id & ((1 << COUNT_BITS) - 1);
                if count == 0 {
                    continue;
                }
                self.room.fetch_add(count as usize, Ordering::Release);
                let seat =
                    std::ptr::with_exposed_provenance::<Seat>((completion.wr_id >> COUNT_BITS) as usize);
                // SAFETY: whoever posts holds its seat, and leaves it in a grave, until all of its requests
                // are counted, and this one's were not before; and the pair, whose end lets graves go, is
                // there for as long as `self`. Counted as another holder, it is there for the bell too.
                let seat = unsafe {
                    Arc::increment_strong_count(seat);
                    Arc::from_raw(seat)
                };
                if completion.status == 0 {
                    seat.done.fetch_add(count, Ordering::SeqCst);
                }
                seat.ring();
            }
            if taken.len() < TAKEN {
                return;
            }
        }
    }

    /// Takes wake-ups in, and makes room for more. `of`: what the other side said.
    pub fn poll_wake_ups(&self, mut of: impl FnMut(u32)) {
        let mut completions = [Wc::default(); TAKEN];
        loop {
            let taken = self.receives.poll(&mut completions);
            for completion in taken {
                let place = completion.wr_id as usize;
                let number = match completion.wc_flags & WC_WITH_IMM != 0 {
                    true => u32::from_be(completion.imm_data),
                    false => self.inbox.words().load(place) as u32,
                };
                if completion.status != 0 || self.post_receive(place).is_err() {
                    if !self.is_broken() {
                        self.fail();
                    }
                    continue;
                }
                of(number);
            }
            if taken.len() < TAKEN {
                return;
            }
        }
    }

    /// Tells those whom the other side has woken. A number is a seat's, and below that the peer's.
    pub fn pass_wake_ups_on(&self) {
        self.poll_wake_ups(|number| {
            let seats = self.seats.lock().expect("no panic under this lock");
            let seat = seats.get((number >> 8) as usize).and_then(Option::as_ref);
            if let Some(seat) = seat {
                seat.woken.fetch_or(1 << (number & 63), Ordering::SeqCst);
                seat.ring();
            }
        });
    }

    /// Asks for events at the next completion, and the next wake-up.
    pub fn arm(&self, completions: bool) {
        if completions {
            self.sends.arm();
        }
        self.receives.arm();
    }

    pub fn channel(&self) -> &Channel {
        &self.channel
    }
}

/// The number that wakes a seat, and tells it who did.
pub(super) fn wake_number(seat: u32, peer: u32) -> u32 {
    seat << 8 | peer & 63
}
