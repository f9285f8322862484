//! A primary and its mirrors: servers as people run them, each a process with a directory of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use kelix::{Session, SessionOptions};
use kelix_report::daemon::{Address, Transport, processor_time};

use super::{PATIENCE, text};
use crate::served::{Home, Served};

/// For how long a mirror tries to attach.
const RETRY: &str = "60s";
/// Between two looks at something that is waited for.
const LOOKS: Duration = Duration::from_millis(1);

/// A server, and its folder, which goes after it.
pub(super) struct Host {
    server: Served,
    home: Home,
}

impl Host {
    fn start(name: &str, memory_bytes: u64, options: &[&str]) -> Result<Host, String> {
        let home = Home::new(&format!("mirrors-{name}"), memory_bytes)?;
        Ok(Host { server: home.serve(options)?, home })
    }

    /// A server with a log below the server's own folder, whose answers do not wait for the disk.
    fn start_logged(name: &str, memory_bytes: u64, options: &[&str]) -> Result<Host, String> {
        let home = Home::new(&format!("mirrors-{name}"), memory_bytes)?;
        Ok(Host { server: home.serve_with_log_and(&home.path("log"), options)?, home })
    }

    /// A session in shared memory, which goes over to what a mirror has copied anew.
    pub fn session(&self) -> Result<Session, String> {
        let options = SessionOptions::default().retry_for(PATIENCE);
        self.server.client()?.session_with(options).map_err(text)
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The server's term: a mirror that is copied anew has the next one.
    pub fn term(&self) -> Result<u64, String> {
        Ok(self.server.client()?.statistics().map_err(text)?.server.term)
    }

    /// Bytes that were copied to each mirror that follows.
    pub fn copied(&self) -> Result<Vec<u64>, String> {
        let told = self.server.client()?.statistics().map_err(text)?;
        Ok(told.mirrors.iter().map(|mirror| mirror.copied_bytes).collect())
    }
}

/// A primary and the mirrors that follow it.
pub(super) struct Hosts {
    name: String,
    memory_bytes: u64,
    address: String,
    // Mirrors end before their primary does, so that none looks for it.
    pub mirrors: Vec<Host>,
    pub primary: Host,
}

impl Hosts {
    /// A primary that nobody follows yet.
    pub fn start(name: &str, memory_bytes: u64) -> Result<Hosts, String> {
        Hosts::with(name, memory_bytes, Host::start)
    }

    /// A primary with a log that nobody follows yet.
    pub fn start_logged(name: &str, memory_bytes: u64) -> Result<Hosts, String> {
        Hosts::with(name, memory_bytes, Host::start_logged)
    }

    fn with(
        name: &str,
        memory_bytes: u64,
        start: impl Fn(&str, u64, &[&str]) -> Result<Host, String>,
    ) -> Result<Hosts, String> {
        let free = Address::free(Transport::Tcp, Path::new("")).map_err(text)?;
        let Address::Tcp(port) = free else { return Err("no port is free".into()) };
        let address = format!("127.0.0.1:{port}");
        let primary = start(name, memory_bytes, &["--listen", &address, "--no-pin"])?;
        Ok(Hosts { name: name.into(), memory_bytes, address, mirrors: Vec::new(), primary })
    }

    /// A mirror that has been copied, and can be connected to.
    pub fn mirror(&self) -> Result<Host, String> {
        let name = format!("{}-{}", self.name, self.mirrors.len() + 1);
        let options = ["--mirror-of", &self.address, "--retry", RETRY];
        Host::start(&name, self.memory_bytes, &options)
    }

    /// Has one more mirror follow.
    pub fn attach(&mut self) -> Result<(), String> {
        let mirror = self.mirror()?;
        self.mirrors.push(mirror);
        Ok(())
    }

    /// How often a mirror was let go so far, since it was too slow.
    pub fn let_go(&self) -> u64 {
        self.primary.home.errors().matches("a mirror is let go").count() as u64
    }

    /// Waits until nobody follows any more.
    pub fn wait_until_alone(&self) -> Result<(), String> {
        let began = Instant::now();
        while !self.primary.copied()?.is_empty() {
            if began.elapsed() > PATIENCE {
                return Err("a mirror that has ended is still fed".into());
            }
            std::thread::sleep(LOOKS);
        }
        Ok(())
    }

    /// Processor time of the primary and of this process, and of the mirrors.
    pub fn processor_times(&self) -> [Duration; 2] {
        let of_mirrors = self.mirrors.iter().map(|mirror| processor_time(mirror.pid())).sum();
        [[self.primary.pid(), std::process::id()].map(processor_time).into_iter().sum(), of_mirrors]
    }
}
