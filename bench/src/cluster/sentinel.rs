//! Redis beside: a primary with a replica, three Sentinels who watch them, and clients that write and read
//! wherever Sentinels say that the primary is.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kelix_report::daemon::is_installed;
use kelix_report::redis::{self, Connection};
use rustix::process::Signal;

use super::failover::{Group, Why};
use super::load::Store;
use super::nodes::PATIENCE;
use super::text;
use super::way::own_address;
use crate::served::{self, Home};
use crate::store::{key_of, number_of, numbered_value};

/// Nodes, and Sentinels, of whom a majority has to say that the primary is lost.
const NODES: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// What Sentinels are told, in milliseconds: how long a node may say nothing, and how long a failover may
/// take, behind which as long again none is begun. With less they have other nodes be primary while all live,
/// mostly behind a failover: with 300 and 3000 four times beside 18, with 500 and 1000 once, and with 100 it
/// comes to no end.
const DOWN_AFTER_MS: u64 = 500;
const FAILOVER_MS: u64 = 3000;
/// Settings of Sentinels, in words.
pub(super) const WORDS: &str = "down-after-milliseconds 500, failover-timeout 3000";
/// The name that Sentinels know the primary by.
const NAME: &str = "bench";
/// How long a client waits for an answer before it asks Sentinels, and how often it asks them meanwhile, as a
/// client hears of it that subscribes to what they say.
const ANSWER: Duration = Duration::from_millis(100);
const ASK: Duration = Duration::from_millis(10);
/// Between two questions, and for how long a primary that does not answer is not asked while Sentinels name
/// it.
const LOOKS: Duration = Duration::from_millis(2);
const AGAIN: Duration = Duration::from_secs(1);
/// How long a quiet time is between two failovers: Sentinels begin none for twice their time limit, and count
/// from up to a second after they began the last one.
const BETWEEN: Duration = Duration::from_millis(2 * FAILOVER_MS + 1000);

/// Whether there is Redis, whose program is also that of Sentinels; it is said if there is none.
pub(super) fn is_there() -> bool {
    let is_there = is_installed(redis::PROGRAM);
    if !is_there {
        eprintln!(
            "failovers of Sentinel are left out: {} is not installed; on Debian: apt-get install \
             redis-server",
            redis::PROGRAM
        );
    }
    is_there
}

fn connect(address: SocketAddr) -> Result<Connection, String> {
    let stream = TcpStream::connect(address).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(text)?;
    Ok(Connection::over(stream.into()))
}

/// Says something, and reads an array of strings.
fn strings(connection: &mut Connection, command: &[&str]) -> Result<Vec<String>, String> {
    connection.begin(command[0].as_bytes(), command.len());
    command[1..].iter().for_each(|part| connection.part(part.as_bytes()));
    connection.send()?;
    let count = connection.array()?;
    let string = |_| {
        let part = connection.bulk_string()?.unwrap_or_default();
        Ok(String::from_utf8_lossy(part).into_owned())
    };
    (0..count).map(string).collect()
}

/// Who is primary, as Sentinels say.
struct Sentinels {
    at: Vec<SocketAddr>,
    connections: Vec<Option<Connection>>,
}

impl Sentinels {
    fn at(addresses: &[SocketAddr]) -> Sentinels {
        let connections = addresses.iter().map(|_| None).collect();
        Sentinels { at: addresses.to_vec(), connections }
    }

    /// Asks one of them.
    fn ask(&mut self, sentinel: usize, command: &[&str]) -> Result<Vec<String>, String> {
        let connection = match self.connections[sentinel].take() {
            Some(connection) => connection,
            None => connect(self.at[sentinel])?,
        };
        let connection = self.connections[sentinel].insert(connection);
        let answer = strings(connection, command);
        if answer.is_err() {
            self.connections[sentinel] = None;
        }
        answer
    }

    /// The primary, by the word of the first that answers.
    fn primary(&mut self) -> Option<SocketAddr> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        (0..self.at.len()).find_map(|sentinel| match &self.ask(sentinel, &question).ok()?[..] {
            [host, port] => format!("{host}:{port}").parse().ok(),
            _ => None,
        })
    }

    /// Whether one of them knows all others and a replica, and finds nothing wrong.
    fn is_content(&mut self, sentinel: usize) -> bool {
        let Ok(told) = self.ask(sentinel, &["SENTINEL", "MASTER", NAME]) else { return false };
        let is = |name: &str, value: &str| told.chunks(2).any(|of| of[0] == name && of[1] == value);
        let others = (SENTINELS - 1).to_string();
        is("flags", "master") && is("num-other-sentinels", &others) && is("num-slaves", "1")
    }
}

/// Somebody who puts and gets.
struct Caller {
    sentinels: Sentinels,
    primary: Option<(SocketAddr, Connection)>,
    /// When Sentinels were asked last whether it still is.
    asked: Instant,
    has_moved: bool,
}

impl Caller {
    /// Finds the primary, which is another one than the one that does not answer, for a while.
    fn find(&mut self, but: Option<SocketAddr>, began: Instant) -> Option<SocketAddr> {
        let found = self.sentinels.primary()?;
        (Some(found) != but || began.elapsed() > AGAIN).then_some(found)
    }

    /// Has something done by the primary, whichever it is.
    fn ask<T>(&mut self, what: impl Fn(&mut Connection) -> Result<T, String>) -> Result<T, String> {
        let (mut began, whole) = (Instant::now(), Instant::now());
        let mut silent = None;
        if self.primary.is_some() && self.asked.elapsed() > ASK {
            self.asked = Instant::now();
            let now = self.sentinels.primary();
            self.primary.take_if(|(at, _)| now.is_some_and(|now| now != *at));
        }
        loop {
            if let Some((at, connection)) = &mut self.primary {
                if let Ok(done) = what(connection) {
                    return Ok(done);
                }
                silent = Some(*at);
                began = Instant::now();
                self.primary = None;
            }
            if whole.elapsed() > PATIENCE {
                return Err("Redis does not answer any more".into());
            }
            if let Some(at) = self.find(silent, began) {
                match connect(at) {
                    Ok(connection) => {
                        self.primary = Some((at, connection));
                        self.has_moved = true;
                    }
                    Err(_) => (silent, began) = (Some(at), Instant::now()),
                }
            }
            if self.primary.is_none() {
                std::thread::sleep(LOOKS);
            }
        }
    }
}

impl Store for Caller {
    fn put(&mut self, record: u64, number: u64) -> Result<(), String> {
        self.ask(|connection| connection.done(&[b"SET", &key_of(record), &numbered_value(record, number)]))
    }

    fn get(&mut self, record: u64) -> Result<Option<u64>, String> {
        self.ask(|connection| {
            connection.begin(b"GET", 2);
            connection.part(&key_of(record));
            connection.send()?;
            Ok(connection.bulk_string()?.and_then(|value| number_of(value, record)))
        })
    }

    fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }
}

/// The nodes and the Sentinels.
pub(super) struct Sentinel {
    home: Home,
    nodes: Vec<(SocketAddr, Option<Child>)>,
    sentinels: Vec<(SocketAddr, Child)>,
    /// When the last failover was over, and how many there were.
    last: Option<Instant>,
    failovers: usize,
}

impl Sentinel {
    /// Starts all of them, and waits until they know each other.
    pub fn start() -> Result<Sentinel, String> {
        let home = Home::new("cluster-sentinel", 0)?;
        let address = |_| Ok((own_address()?, None));
        let nodes = (0..NODES).map(address).collect::<Result<_, String>>()?;
        let mut group = Sentinel { home, nodes, sentinels: Vec::new(), last: None, failovers: 0 };
        let primary = group.nodes[0].0;
        group.begin(0, None)?;
        group.begin(1, Some(primary))?;
        for number in 0..SENTINELS {
            let (address, file) = (own_address()?, group.home.path(&format!("sentinel-{number}")));
            let settings = format!(
                "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} {} {} {QUORUM}\n\
                 sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {NAME} {FAILOVER_MS}\n",
                address.port(),
                group.home.path("").display(),
                primary.ip(),
                primary.port()
            );
            // Sentinels write what they learn into this file.
            std::fs::write(&file, settings).map_err(text)?;
            let arguments = [file.display().to_string(), "--sentinel".into()];
            let child = group.run(&arguments, &format!("log-sentinel-{number}"))?;
            group.sentinels.push((address, child));
        }
        group.wait_until_whole()?;
        Ok(group)
    }

    fn run(&self, arguments: &[String], log: &str) -> Result<Child, String> {
        let log = File::create(self.home.path(log)).map_err(text)?;
        let mut command = Command::new(redis::PROGRAM);
        command.args(arguments).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
        command.spawn().map_err(|error| format!("cannot start {}: {error}", redis::PROGRAM))
    }

    /// Starts a node that does not run, as a replica of another one.
    fn begin(&mut self, node: usize, primary: Option<SocketAddr>) -> Result<(), String> {
        let folder: PathBuf = self.home.path(&format!("redis-{node}"));
        std::fs::create_dir_all(&folder).map_err(text)?;
        let port = self.nodes[node].0.port().to_string();
        let options =
            [("--port", &port[..]), ("--bind", "127.0.0.1"), ("--save", ""), ("--appendonly", "no")];
        let mut arguments: Vec<String> =
            options.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]).collect();
        arguments.extend(["--repl-diskless-sync-delay".into(), "0".into()]);
        arguments.extend(["--dir".into(), folder.display().to_string()]);
        if let Some(primary) = primary {
            arguments.extend(["--replicaof".into(), primary.ip().to_string(), primary.port().to_string()]);
        }
        let child = self.run(&arguments, &format!("log-redis-{node}"))?;
        self.nodes[node].1 = Some(child);
        Ok(())
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|(address, _)| *address).collect()
    }

    fn primary(&self) -> Result<SocketAddr, String> {
        Sentinels::at(&self.addresses()).primary().ok_or_else(|| "no Sentinel knows a primary".into())
    }

    /// Whether the primary has a replica that has all, and all Sentinels say so.
    fn is_whole(&self) -> Result<bool, String> {
        let told = connect(self.primary()?)?.info(b"replication")?;
        let mut sentinels = Sentinels::at(&self.addresses());
        let are_content = (0..SENTINELS).all(|sentinel| sentinels.is_content(sentinel));
        Ok(told.contains("role:master") && told.contains("state=online") && are_content)
    }

    fn process(&mut self, node: usize) -> Result<&mut Child, String> {
        self.nodes[node].1.as_mut().ok_or_else(|| "a node that does not run".into())
    }
}

impl Group for Sentinel {
    fn store(&self) -> Result<Box<dyn Store>, String> {
        let sentinels = Sentinels::at(&self.addresses());
        Ok(Box::new(Caller { sentinels, primary: None, asked: Instant::now(), has_moved: false }))
    }

    fn wait_until_whole(&mut self) -> Result<(), String> {
        let began = Instant::now();
        let rest = self.last.map_or(Duration::ZERO, |last| BETWEEN.saturating_sub(last.elapsed()));
        std::thread::sleep(rest);
        // Who is not asked yet, or does not run, says nothing.
        while !self.is_whole().unwrap_or(false) {
            if began.elapsed() > PATIENCE {
                return Err("Redis has no replica that Sentinels know".into());
            }
            std::thread::sleep(10 * LOOKS);
        }
        Ok(())
    }

    fn lose(&mut self, why: Why) -> Result<usize, String> {
        let at = self.primary()?;
        let primary = self.nodes.iter().position(|(address, _)| *address == at);
        let primary = primary.ok_or("Sentinels know a primary that nobody has started")?;
        self.failovers += 1;
        match why {
            Why::Killed => served::kill(self.process(primary)?)?,
            Why::Stopped => served::signal(self.process(primary)?, Signal::STOP)?,
            Why::HandedOver => {
                let mut sentinel = connect(self.sentinels[0].0)?;
                sentinel.done(&[b"SENTINEL", b"FAILOVER", NAME.as_bytes()])?;
                let began = Instant::now();
                while self.primary()? == at {
                    if began.elapsed() > PATIENCE {
                        return Err("Sentinels do not have another node be primary".into());
                    }
                    std::thread::sleep(LOOKS);
                }
                // Clients have heard of it, too.
                std::thread::sleep(2 * ASK);
            }
            Why::CutOff | Why::Left => return Err("Redis is not cut off, nor asked to leave".into()),
        }
        Ok(primary)
    }

    fn uncaused(&self) -> usize {
        let log = std::fs::read_to_string(self.home.path("log-sentinel-0")).unwrap_or_default();
        log.matches("+switch-master").count().saturating_sub(self.failovers)
    }

    /// An operator has it be a replica at once: Sentinels take ten seconds to think of that.
    fn mend(&mut self, node: usize, why: Why) -> Result<(), String> {
        self.last = Some(Instant::now());
        let (address, primary) = (self.nodes[node].0, self.primary()?);
        match why {
            Why::Killed => return self.begin(node, Some(primary)),
            Why::Stopped => served::signal(self.process(node)?, Signal::CONT)?,
            Why::HandedOver => {}
            Why::CutOff | Why::Left => return Ok(()),
        }
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        connect(address)?.done(&[b"REPLICAOF", host.as_bytes(), port.as_bytes()])
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let nodes = self.nodes.iter_mut().filter_map(|(_, child)| child.as_mut());
        for child in self.sentinels.iter_mut().map(|(_, child)| child).chain(nodes) {
            let _ = served::kill(child);
        }
    }
}
