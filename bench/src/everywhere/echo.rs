//! The bare echo that gets over TCP are compared with: a thread that answers each request of a fixed size
//! with as many bytes as the store would, and does nothing else. Both sides wait as the store does: looking
//! for a while, then sleeping.

use std::io::{Result, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use kelix_report::cores::pin;
use kelix_report::socket::receive;

/// A connection to an echo.
pub(super) struct Echo {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
    reply_bytes: usize,
    thread: Option<JoinHandle<()>>,
}

fn serve(mut stream: TcpStream, request_bytes: usize, reply_bytes: usize) -> Result<()> {
    let (mut buffer, mut held) = (vec![0; 64 << 10], 0);
    let reply = vec![7; buffer.len() / request_bytes * reply_bytes];
    loop {
        let received = receive(&stream, &mut buffer)?;
        if received == 0 {
            return Ok(());
        }
        held += received;
        let requests = held / request_bytes;
        held %= request_bytes;
        stream.write_all(&reply[..requests * reply_bytes])?;
    }
}

impl Echo {
    /// An echo whose thread stays on a core, if one is given.
    pub fn start(request_bytes: usize, reply_bytes: usize, core: Option<usize>) -> Result<Echo> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (peer, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        peer.set_nodelay(true)?;
        // Its end is that of the connection.
        let thread = std::thread::spawn(move || {
            core.into_iter().for_each(pin);
            drop(serve(peer, request_bytes, reply_bytes))
        });
        let request = vec![7; request_bytes];
        Ok(Echo { stream, request, reply: Vec::new(), reply_bytes, thread: Some(thread) })
    }

    /// Sends so many requests at once and receives all replies.
    pub fn exchange(&mut self, requests: usize) -> Result<()> {
        let (sent, wanted) = (self.request.len() * requests, self.reply_bytes * requests);
        let one = self.request.len();
        self.request.resize(sent, 7);
        self.reply.resize(wanted, 0);
        self.stream.write_all(&self.request)?;
        self.request.truncate(one);
        let mut received = 0;
        while received < wanted {
            received += receive(&self.stream, &mut self.reply[received..])?;
        }
        assert!(self.reply.iter().all(|byte| *byte == 7), "an echo of something else");
        Ok(())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.thread.take().map(JoinHandle::join);
    }
}
