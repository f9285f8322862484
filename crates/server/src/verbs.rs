//! Clients over verbs: what they are told over the TCP connection beside, and their links to the shards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_fabric::shm::AUTHORITY_BYTES;
use kelix_fabric::verbs::{Host, HostEvent, Remote};
use kelix_image::words::full_fence;
use kelix_image::{LeasedTerm, Span};
use kelix_types::{Error, Result};
use kelix_wire::control::{Frame, Place};
use kelix_wire::{MAILBOX_BYTES, mailbox_word};
use tracing::{info, warn};

use crate::agent::Greeted;
use crate::server::Shared;
use crate::shard_thread::{Command, Outbox};

/// Between two looks for segments that came or went.
const LOOK: Duration = Duration::from_millis(10);

/// What the agent's thread has to do with verbs.
pub(crate) struct VerbsThread {
    pub host: Host,
    /// Tells a namespace of this server from all others.
    server: u64,
    looked: Instant,
    news: Vec<HostEvent>,
}

fn place(remote: Remote) -> Place {
    (remote.address, remote.rkey)
}

fn remote((address, rkey): Place) -> Remote {
    Remote { address, rkey }
}

fn cannot_serve(source: std::io::Error) -> Error {
    Error::system("serve", "cannot serve over verbs; see what `kelix fabric` says", source)
}

impl VerbsThread {
    /// Looks whether clients can be taken at these addresses of RDMA devices, at ports that nobody has.
    pub fn try_addresses(addresses: &[SocketAddr]) -> Result<()> {
        let any: Vec<SocketAddr> = addresses.iter().map(|address| (address.ip(), 0).into()).collect();
        let page = Span::private(AUTHORITY_BYTES);
        Host::listen(&any, Vec::new(), page, LeasedTerm::NONE).map(drop).map_err(cannot_serve)
    }

    /// Takes clients at addresses of RDMA devices.
    pub fn listen(shared: &Arc<Shared>, addresses: &[SocketAddr], server: u64) -> Result<VerbsThread> {
        let namespaces = shared.namespaces.iter().enumerate();
        let shards =
            namespaces.flat_map(|(number, of)| of.shards.iter().map(move |shard| shard.for_host(number)));
        let authority = &shared.authority;
        let host = Host::listen(addresses, shards.collect(), authority.page.clone(), authority.term);
        let host = host.map_err(cannot_serve)?;
        info!(addresses = ?host.addresses(), "serving over verbs");
        Ok(VerbsThread { host, server, looked: Instant::now(), news: Vec::new() })
    }

    /// Does what there is to do: now, or if it was not looked for a while.
    pub fn turn(&mut self, now: bool) -> Vec<HostEvent> {
        if now || self.looked.elapsed() > LOOK {
            self.looked = Instant::now();
            self.host.turn(&mut self.news);
        }
        std::mem::take(&mut self.news)
    }

    /// The answer to a frame of a client. An error is why it cannot be served.
    pub fn on(
        &mut self,
        shared: &Shared,
        client: &Greeted,
        frame: Frame,
    ) -> std::result::Result<Option<Frame>, String> {
        let Greeted { number, namespace, .. } = client;
        match frame {
            Frame::AskVerbs if client.follows => {
                let ticket = self.host.stream_ticket(*number).map_err(|error| error.to_string())?;
                Ok(Some(Frame::Offer { server: self.server, ticket, addresses: self.addresses() }))
            }
            Frame::AskVerbs => {
                let index = shared.namespaces.iter().position(|of| Arc::ptr_eq(of, namespace));
                let index = index.expect("a namespace of this server");
                let ticket = self.host.ticket(index).map_err(|error| error.to_string())?;
                let server = self.server.wrapping_add(index as u64);
                Ok(Some(Frame::Offer { server, ticket, addresses: self.addresses() }))
            }
            Frame::JoinLane { ticket, seat, mailboxes } => {
                // Of a connection request that came a moment ago.
                self.host.turn(&mut self.news);
                self.join(shared, client, (&ticket, seat), mailboxes).map(Some).map_err(|error| {
                    warn!(client = number, %error, "a client cannot be served over verbs");
                    error.to_string()
                })
            }
            Frame::AskTerm => {
                let authority = &shared.authority;
                let left = authority.lease_left().unwrap_or_default();
                // SYNC: what is left was known before it is looked whether another term is in force.
                full_fence();
                let left_ns = if authority.counts() { left.as_nanos() as u64 } else { 0 };
                Ok(Some(Frame::Term { term: authority.page_term(), left_ns }))
            }
            Frame::AskSegments { shard } => {
                let segments = self.host.segments(*number, usize::from(shard));
                let (version, whole, list) = segments.ok_or("it asks for segments that it may not read")?;
                let list = list.into_iter().map(|(first, bytes, at)| (first, bytes, place(at))).collect();
                Ok(Some(Frame::Regions { shard, version, whole, list }))
            }
            Frame::LetGo { shard, version } => {
                self.host.let_go(*number, usize::from(shard), version);
                Ok(None)
            }
            _ => Err("a frame that makes no sense here".into()),
        }
    }

    /// Where clients connect queue pairs, as they are told.
    fn addresses(&self) -> String {
        let addresses: Vec<String> = self.host.addresses().iter().map(SocketAddr::to_string).collect();
        addresses.join(" ")
    }

    fn join(
        &mut self,
        shared: &Shared,
        client: &Greeted,
        (ticket, seat): (&[u8; 16], u32),
        mailboxes: Vec<Place>,
    ) -> std::io::Result<Frame> {
        let Greeted { number, namespace, caller, access, .. } = client;
        let shards = namespace.first_in_agent..namespace.first_in_agent + namespace.shards.len();
        let no_memory = || std::io::Error::other("it has no memory for another client now; try again");
        let inboxes = namespace.shards.iter().map(|_| Span::try_private(MAILBOX_BYTES).ok_or_else(no_memory));
        let inboxes = inboxes.collect::<std::io::Result<Vec<Span>>>()?;
        let mailboxes: Vec<Remote> = mailboxes.into_iter().map(remote).collect();
        let memory = (shards, &inboxes[..], mailbox_word::PEER_SLEEPS);
        let (links, card) = self.host.join(*number, (ticket, seat), &mailboxes, memory)?;
        for ((shard, inbox), link) in namespace.shards.iter().zip(&inboxes).zip(links) {
            shard.command(Command::Join {
                connection: *number,
                inbox: inbox.clone(),
                outbox: Outbox::Verbs(link),
                caller: *caller,
                access: *access,
            });
        }
        let mut clients = shared.clients.lock().expect("no panic under this lock");
        if let Some(record) = clients.iter_mut().find(|record| record.connection == *number) {
            record.mailboxes = inboxes;
        }
        let of_shard =
            |shard: &kelix_fabric::verbs::ShardCard| (place(shard.mailbox), place(shard.sleeps), shard.wakes);
        Ok(Frame::Joined {
            authority: place(card.authority),
            leased: card.leased,
            epoch_ns: card.epoch_ns,
            shards: card.shards.iter().map(of_shard).collect(),
        })
    }
}
