//! Connecting over verbs: a greeting over TCP, a queue pair that is shared or connected, mailboxes, segments.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use kelix_fabric::verbs::{self, Offer, Remote, ServerCard, ShardCard, VerbsEndpoint};
use kelix_fabric::{Endpoint, PeerId};
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::{Frame, Place};
use kelix_wire::{MAILBOX_BYTES, mailbox_word};

use super::tcp::{ask, greet};
use super::{ANSWER, Credentials, answer_within, protocol, understand};
use crate::pointers::PointerCache;
use crate::session::SessionOptions;
use crate::shelf::Shelf;
use crate::transport::Transport;

/// Between two questions for the segments of a shard that the server has not said have changed: those that
/// are not registered yet are asked for by every READ.
const ASK: Duration = Duration::from_millis(10);

/// When a session last asked for segments.
#[derive(Default)]
pub(crate) struct Asked {
    by_shard: Vec<(Option<Instant>, u64)>,
}

fn remote((address, rkey): Place) -> Remote {
    Remote { address, rkey }
}

/// What the server offers.
fn offer(address: &str, frame: Frame) -> Result<Offer> {
    let Frame::Offer { server, ticket, addresses } = frame else {
        return Err(protocol("the server did not say where queue pairs are connected"));
    };
    let mut came_to = address.to_socket_addrs().into_iter().flatten();
    let came_to = came_to.next().map(|address| address.ip());
    let offer = Offer::parse(server, ticket, &addresses, came_to);
    offer.ok_or_else(|| protocol("the server said an address that is none"))
}

pub(super) fn session(
    address: &str,
    credentials: &Credentials,
    greeting: &Frame,
    options: &SessionOptions,
) -> Result<(Asked, Transport<Endpoint>)> {
    let (mut server, of_server) = greet(address, credentials, greeting, answer_within(options))?;
    let count = of_server.view.shards();
    let offer = offer(address, ask(&mut server, &Frame::AskVerbs)?)?;
    let lanes = (options.queue_pairs, options.rdma_address);
    let joining = verbs::join(&offer, lanes, (count, MAILBOX_BYTES), ANSWER).map_err(|source| {
        let context = format!("no queue pair to {address}: {source}; see `kelix fabric` on both sides");
        Error::new(ErrorKind::Unavailable, "connect", context).with_source(source)
    })?;
    let mailboxes = joining.mailboxes().into_iter().map(|Remote { address, rkey }| (address, rkey));
    let join =
        Frame::JoinLane { ticket: joining.ticket(), seat: joining.number(), mailboxes: mailboxes.collect() };
    let Frame::Joined { authority, leased, epoch_ns, shards } = ask(&mut server, &join)? else {
        return Err(protocol("the server did not say where its mailboxes are"));
    };
    if shards.len() != count {
        return Err(protocol("the server has other shards than it said"));
    }
    let shards = shards.into_iter().map(|(mailbox, sleeps, wakes)| ShardCard {
        mailbox: remote(mailbox),
        sleeps: remote(sleeps),
        announce: mailbox_word::PEER_SLEEPS,
        wakes,
    });
    let (term, authority, shards) = (of_server.term, remote(authority), shards.collect());
    let card = ServerCard { term, authority, leased, epoch_ns, shards };
    let mut endpoint = server.verbs_endpoint(joining, card)?;
    let peers: Vec<PeerId> = (0..count as u32).map(PeerId).collect();
    let mut asked = Asked::default();
    // Until a segment is registered, what it holds has to be asked for: worth a moment, once.
    let began = Instant::now();
    for shard in 0..count {
        while !asked.refresh(shard, &mut endpoint, ANSWER)? && began.elapsed() < ANSWER {
            std::thread::sleep(ASK);
        }
    }
    let shelf = if options.private_caches { Shelf::Private } else { Shelf::of_user() };
    let pointers = PointerCache::of_life(of_server.life, &shelf)?;
    Ok((asked, Transport::new(Endpoint::Verbs(Box::new(endpoint)), of_server, &peers, pointers, shelf)))
}

impl Asked {
    /// Asks for the segments of a shard as they are now. Returns whether all can be READ, as far as is known.
    pub fn refresh(&mut self, shard: usize, endpoint: &mut VerbsEndpoint, within: Duration) -> Result<bool> {
        let changes = endpoint.changes();
        if self.by_shard.len() <= shard {
            self.by_shard.resize(shard + 1, (None, 0));
        }
        let (at, seen) = &mut self.by_shard[shard];
        if *seen == changes && at.is_some_and(|at| at.elapsed() < ASK) {
            return Ok(true);
        }
        (*at, *seen) = (Some(Instant::now()), changes);
        let (kind, bytes) = Frame::AskSegments { shard: shard as u16 }.encode();
        let (kind, bytes) = endpoint.ask(kind, &bytes, within)?;
        let Frame::Regions { shard: of, version, whole, list } = understand(kind, &bytes)? else {
            return Err(protocol("the server did not send segments"));
        };
        if usize::from(of) != shard {
            return Err(protocol("the server sent other segments than were asked for"));
        }
        let list: Vec<_> = list.into_iter().map(|(first, bytes, at)| (first, bytes, remote(at))).collect();
        endpoint.set_segments(PeerId(shard as u32), &list);
        let (kind, bytes) = Frame::LetGo { shard: of, version }.encode();
        endpoint.tell(kind, &bytes);
        Ok(whole)
    }
}
