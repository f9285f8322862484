//! The endpoints of production in model tests, and the model of their handshake.

use kelix_image::Span;

use super::{LocalEndpoint, Peer, SleepWord, Waker, WakerHandle, Way};
use crate::PeerId;

/// The client's sleep word in its mailbox, as in `kelix_wire::ring`.
const SLEEPS: usize = 8;

/// Adds a connection without an image to `endpoint`: over this side's end of a pair, with the mailboxes as
/// this side sees them and the word that says whether the peer sleeps.
fn connect(
    endpoint: &mut LocalEndpoint,
    handle: WakerHandle,
    (inbox, outbox): (&Span, &Span),
    sleeps: &SleepWord,
) -> PeerId {
    let wake_key = endpoint.waker().add(handle).expect("a bell");
    endpoint.add(Peer {
        memory: None,
        inbox: inbox.clone(),
        way: Way::Shared { outbox: outbox.clone(), sleeps: sleeps.clone(), wake_key },
    })
}

/// Makes a client of `server`, which announces its sleep in `server_sleeps`. Returns the server's number for
/// the client, and the client, whose number for the server is 0.
pub fn add_client(
    server: &mut LocalEndpoint,
    server_sleeps: &SleepWord,
    requests: &Span,
    replies: &Span,
) -> (PeerId, LocalEndpoint) {
    let client_sleeps = SleepWord { span: replies.clone(), word: SLEEPS };
    let (servers_end, clients_end) = WakerHandle::pair().expect("a pair");
    let peer = connect(server, servers_end, (requests, replies), &client_sleeps);
    let mut client = LocalEndpoint::new(Waker::create().expect("a bell"));
    connect(&mut client, clients_end, (replies, requests), server_sleeps);
    client.add_sleep_word(client_sleeps);
    (peer, client)
}

/// Each has its own word stored before it looks at the other's, so one of the two sees the other's store, and
/// no wake-up is lost. A lost one leaves a thread asleep for ever, which loom reports as a deadlock.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mailbox, Waiter, WorkQueue};
    use kelix_image::header_word;
    use kelix_image::model::{explore, share, spawn};

    const SERVER: PeerId = PeerId(0);
    /// Where messages land: a number that counts the rounds.
    const MESSAGE: usize = 64;
    const MAILBOX_BYTES: u64 = (MESSAGE as u64 + 1) * 8;

    fn has(endpoint: &LocalEndpoint, peer: PeerId, round: u64) -> bool {
        endpoint.inbox(peer).load_acquire(MESSAGE) == round
    }

    /// Waits like the shard thread and a session, but without looking first. Returns how often it slept.
    fn wait(endpoint: &mut LocalEndpoint, peers: &[PeerId], round: u64) -> u32 {
        let mut sleeps = 0;
        loop {
            endpoint.announce_sleep();
            let there = peers.iter().all(|peer| has(endpoint, *peer, round));
            endpoint.sleep(if there { Some(0) } else { None });
            if there {
                return sleeps;
            }
            sleeps += 1;
        }
    }

    fn send(endpoint: &mut LocalEndpoint, peer: PeerId, round: u64) {
        endpoint.post_write(peer, MESSAGE, &[round]).unwrap();
        endpoint.doorbell();
        endpoint.wake(peer);
    }

    /// Each client sends a word and sleeps until the answer is there; the server sleeps until all have sent,
    /// and answers. Returns how often the server slept, and how often each client.
    fn handshake(clients: usize, rounds: u64) -> (u32, Vec<u32>) {
        let server_sleeps = SleepWord { span: Span::private(4096), word: header_word::SLEEPING };
        share(server_sleeps.words());
        let mut server = LocalEndpoint::new(Waker::create().unwrap());
        server.add_sleep_word(server_sleeps.clone());
        let (mut peers, mut endpoints) = (Vec::new(), Vec::new());
        for _ in 0..clients {
            let [requests, replies] = [(), ()].map(|()| Span::private(MAILBOX_BYTES));
            share(requests.words().part(MESSAGE, 1));
            share(replies.words().part(MESSAGE, 1));
            share(replies.words().part(SLEEPS, 1));
            let (peer, client) = add_client(&mut server, &server_sleeps, &requests, &replies);
            peers.push(peer);
            endpoints.push(client);
        }
        let converse = move |mut client: LocalEndpoint| {
            let round = |round| {
                send(&mut client, SERVER, round);
                wait(&mut client, &[SERVER], round)
            };
            (1..=rounds).map(round).sum()
        };
        let clients: Vec<_> = endpoints.into_iter().map(|client| spawn(move || converse(client))).collect();
        let server = spawn(move || {
            let round = |round| {
                let slept = wait(&mut server, &peers, round);
                peers.iter().for_each(|peer| send(&mut server, *peer, round));
                slept
            };
            (1..=rounds).map(round).sum()
        });
        let slept = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (server.join().unwrap(), slept)
    }

    #[test]
    fn no_wake_up_is_lost_between_two() {
        let outcomes = explore("a server and a client", 4, || handshake(1, 2));
        for slept in [(0, vec![0]), (0, vec![2]), (2, vec![0]), (2, vec![2])] {
            assert!(
                outcomes.contains_key(&slept),
                "the server and the client slept {slept:?} times: not met"
            );
        }
    }

    #[test]
    fn no_wake_up_is_lost_among_three() {
        let outcomes = explore("a server and two clients", 3, || handshake(2, 1));
        assert!(outcomes.contains_key(&(2, vec![1, 1])), "all slept: not met");
    }
}
