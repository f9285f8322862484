//! The product's agent, in a thread of its own that does what the product's does.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_fabric::Endpoint;
use kelix_fabric::shm::{MemfdSegments, WakerHandle};
use kelix_fabric::tcp::{Agent, AgentBell, AgentLimits, AgentShard, Greeting};
use kelix_image::{IndexReader, SharedWord, Span};
use kelix_wire::MAILBOX_BYTES;

use super::server::TERM;

/// As in the product's agent thread.
const YIELD: Duration = Duration::from_micros(50);
/// Nobody writes.
const WRITE_WORDS: usize = 64;
const LIMITS: AgentLimits = AgentLimits {
    connections: 8,
    greeting: Duration::from_secs(10),
    write_words: WRITE_WORDS,
    index: IndexReader::NONE,
};

/// The thread, which takes connections from a listener of its maker.
pub(super) struct AgentThread {
    listener: TcpListener,
    sockets: Sender<TcpStream>,
    stop: Arc<AtomicBool>,
    bell: Arc<AgentBell>,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Starts it for memory with this header page and this authority word.
    pub fn start(
        header: Span,
        segments: MemfdSegments,
        authority: SharedWord,
    ) -> Result<AgentThread, String> {
        let text = |error: kelix_types::Error| error.to_string();
        let (waker, _) = WakerHandle::pair().map_err(text)?;
        let shard = AgentShard { header, segments, waker: Arc::new(waker), step_in: None };
        let mut agent = Agent::new(vec![shard], authority, TERM, LIMITS).map_err(text)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let (sockets, taken) = channel::<TcpStream>();
        let (stop, bell) = (Arc::new(AtomicBool::new(false)), agent.bell());
        let stopped = stop.clone();
        let run = move || {
            let (mut events, mut idle_since) = (Vec::new(), None);
            // Ways back to clients, who are sent nothing but what they READ.
            let mut links = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                for socket in taken.try_iter() {
                    let connection = agent.add(socket).expect("few clients");
                    agent.establish(connection);
                    links.push(agent.open(connection, 0, Span::private(MAILBOX_BYTES), WRITE_WORDS));
                }
                if agent.turn(&mut events) {
                    events.clear();
                    idle_since = None;
                    agent.give_way(true);
                } else if idle_since.get_or_insert_with(Instant::now).elapsed() < YIELD {
                    std::thread::yield_now();
                } else {
                    agent.wait();
                }
            }
        };
        let thread = std::thread::Builder::new().name("baseline-agent".into()).spawn(run);
        let thread = Some(thread.map_err(|error| error.to_string())?);
        Ok(AgentThread { listener, sockets, stop, bell, thread })
    }

    /// An endpoint of a new client.
    pub fn connect(&self) -> Result<Endpoint, String> {
        let both = || -> std::io::Result<_> {
            let socket = TcpStream::connect(self.listener.local_addr()?)?;
            Ok((socket, self.listener.accept()?.0))
        };
        let (ours, theirs) = both().map_err(|error| error.to_string())?;
        self.sockets.send(theirs).map_err(|_| "the baseline's agent has ended")?;
        self.bell.wake();
        let greeting = Greeting::new(ours, None, WRITE_WORDS, Duration::ZERO);
        let greeting = greeting.map_err(|error| error.to_string())?;
        Ok(Endpoint::Tcp(greeting.endpoint(TERM, 1, MAILBOX_BYTES).map_err(|error| error.to_string())?))
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking(),
            "the baseline's agent panicked"
        );
    }
}
