//! A way to a server on which a connection can be held up in either direction, and cut.
//!
//! What a client has said goes on later also when the client has gone: the server is not told of the client's
//! end, as on a network that delays.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct State {
    /// Nothing that clients say goes on.
    is_closed: bool,
    /// All that the server says is lost.
    is_muted: bool,
    /// Chunks that wait.
    waiting: usize,
    /// Bytes that the server has said.
    said: usize,
    /// Both ends of all connections that there were.
    ends: Vec<TcpStream>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

pub struct Valve {
    shared: Arc<Shared>,
    pub address: String,
}

/// Passes on what a client says, in order, as the valve allows.
fn pass_on(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        let mut state = shared.state.lock().unwrap();
        state.waiting += 1;
        let mut state = shared.changed.wait_while(state, |state| state.is_closed).unwrap();
        state.waiting -= 1;
        drop(state);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
}

/// Passes on what the server says, or drops it where nobody hears it.
fn pass_back(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        let mut state = shared.state.lock().unwrap();
        if !state.is_muted {
            let _ = to.write_all(&buffer[..bytes]);
        }
        state.said += bytes;
    }
    let _ = to.shutdown(Shutdown::Both);
}

impl Valve {
    pub fn before(server: String) -> Valve {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::<Shared>::default();
        let of_threads = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(&server) else { continue };
                let ends = [client.try_clone().unwrap(), to.try_clone().unwrap()];
                of_threads.state.lock().unwrap().ends.extend(ends);
                let (one, other) = (client.try_clone().unwrap(), to.try_clone().unwrap());
                let shared = Arc::clone(&of_threads);
                std::thread::spawn(move || pass_on(one, other, &shared));
                let shared = Arc::clone(&of_threads);
                std::thread::spawn(move || pass_back(to, client, &shared));
            }
        });
        Valve { shared, address }
    }

    /// Holds up what clients say.
    pub fn close(&self) {
        self.shared.state.lock().unwrap().is_closed = true;
    }

    /// Has all go through again, also what was held up.
    pub fn open(&self) {
        let mut state = self.shared.state.lock().unwrap();
        (state.is_closed, state.is_muted) = (false, false);
        self.shared.changed.notify_all();
    }

    /// Loses what the server says.
    pub fn mute(&self) {
        self.shared.state.lock().unwrap().is_muted = true;
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        for end in self.shared.state.lock().unwrap().ends.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Whether something is held up.
    pub fn is_waiting(&self) -> bool {
        self.shared.state.lock().unwrap().waiting > 0
    }

    /// How much the server has said.
    pub fn said(&self) -> usize {
        self.shared.state.lock().unwrap().said
    }
}
