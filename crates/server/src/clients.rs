//! Who is connected.

use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use kelix_fabric::tcp::ConnectionId;
use kelix_image::Span;
use kelix_wire::hot::{self, HotEntry};
use kelix_wire::mailbox_word;
use serde_json::{Value, json};
use tracing::debug;

use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::Command;

/// What the server knows of a client.
pub(crate) struct ClientRecord {
    pub connection: u64,
    pub namespace: Arc<Namespace>,
    /// For a session that is set up: the server's mailboxes, in which the client publishes its counters.
    pub mailboxes: Vec<Span>,
    pub way: ClientWay,
}

/// How a client is connected.
pub(crate) enum ClientWay {
    /// Over the Unix socket.
    Shm { pid: i32, uid: u32, stream: Arc<UnixStream> },
    /// Over TCP.
    Tcp { connection: ConnectionId, address: SocketAddr },
    /// Over verbs, with a TCP connection beside.
    Verbs { connection: ConnectionId, address: SocketAddr },
}

/// What clients tell of themselves: reads, bytes read, messages, retries, fallbacks.
pub(crate) type Counters = [u64; 5];

impl ClientRecord {
    /// The name of its fabric.
    pub fn fabric(&self) -> &'static str {
        match &self.way {
            ClientWay::Shm { .. } => "shm",
            ClientWay::Tcp { .. } => "tcp",
            ClientWay::Verbs { .. } => "verbs",
        }
    }

    /// One of the words that it publishes. They are the client's own: whatever they are, adding them up must
    /// not fail.
    pub fn counter(&self, word: usize) -> u64 {
        let at = mailbox_word::COUNTERS + word;
        self.mailboxes.iter().fold(0, |sum, mailbox| sum.wrapping_add(mailbox.words().load(at)))
    }

    /// What it asks for most: how many operations it has sampled, and what is known of keys among them.
    pub fn hot(&self) -> (u64, Value) {
        // All of it stands in the first mailbox.
        let Some(mailbox) = self.mailboxes.first() else { return (0, json!([])) };
        let words = std::array::from_fn(|index| mailbox.words().load(mailbox_word::HOT + index));
        let (samples, entries) = hot::unpack(&words);
        let told = |HotEntry { hash, samples, shard, location }| json!({"hash": hash, "samples": samples, "shard": shard, "location": location});
        (samples, entries.into_iter().map(told).collect())
    }

    /// Adds its counters to others.
    pub fn add_to(&self, sum: &mut Counters) {
        sum.iter_mut().enumerate().for_each(|(word, sum)| *sum = sum.wrapping_add(self.counter(word)));
    }

    /// Who it is, in words.
    pub fn who(&self) -> String {
        match &self.way {
            ClientWay::Shm { pid, .. } => format!("client process {pid}"),
            ClientWay::Tcp { address, .. } | ClientWay::Verbs { address, .. } => {
                format!("client at {address}")
            }
        }
    }
}

impl Shared {
    /// Takes note of a client.
    pub fn enter(&self, record: ClientRecord) {
        debug!(client = record.who(), fabric = record.fabric(), "client connected");
        self.clients.lock().expect("no panic under this lock").push(record);
    }

    /// A client has gone.
    pub fn leave(&self, connection: u64) {
        let mut clients = self.clients.lock().expect("no panic under this lock");
        let Some(index) = clients.iter().position(|client| client.connection == connection) else { return };
        let client = clients.swap_remove(index);
        for shard in &client.namespace.shards {
            shard.command(Command::Leave { connection });
        }
        debug!(
            client = client.who(),
            fabric = client.fabric(),
            reads = client.counter(0),
            messages = client.counter(2),
            "client left"
        );
        let mut gone = self.gone.lock().expect("no panic under this lock");
        client.add_to(gone.entry((client.namespace.name.clone(), client.fabric())).or_default());
    }

    /// Ends the connection of a client. Returns who it was, if it is still there.
    pub fn disconnect(&self, connection: u64, why: &'static str) -> Option<String> {
        let clients = self.clients.lock().expect("no panic under this lock");
        let client = clients.iter().find(|client| client.connection == connection)?;
        match &client.way {
            ClientWay::Shm { stream, .. } => drop(stream.shutdown(Shutdown::Both)),
            ClientWay::Tcp { connection, .. } | ClientWay::Verbs { connection, .. } => {
                self.agent.get().into_iter().for_each(|agent| agent.close(*connection, why));
            }
        }
        Some(client.who())
    }

    /// Has a client end its session, and begin another one with its next operation.
    pub fn renew(&self, connection: u64) {
        let clients = self.clients.lock().expect("no panic under this lock");
        let Some(client) = clients.iter().find(|client| client.connection == connection) else { return };
        debug!(client = client.who(), "client is to connect anew");
        match &client.way {
            // Its process hears that nothing more comes, reads the memory until then, and closes its end of
            // the socket.
            ClientWay::Shm { stream, .. } => {
                let shards = client.namespace.shards.iter();
                shards.for_each(|shard| shard.command(Command::Linger { connection }));
                let _ = stream.shutdown(Shutdown::Write);
            }
            ClientWay::Tcp { connection, .. } | ClientWay::Verbs { connection, .. } => {
                let why = "numbers of dropped tables are given again: connect anew";
                self.agent.get().into_iter().for_each(|agent| agent.close(*connection, why));
            }
        }
    }

    /// Ends the connections of all clients on the Unix socket; the agent ends the others.
    pub fn disconnect_all(&self) {
        for client in self.clients.lock().expect("no panic under this lock").iter() {
            if let ClientWay::Shm { stream, .. } = &client.way {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}
