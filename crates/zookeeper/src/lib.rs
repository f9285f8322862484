//! ZooKeeper servers of one's own, alone or as an ensemble, whose files go with them: for tests and
//! benchmarks.
//!
//! ```no_run
//! use kelix_zookeeper::ZooKeeper;
//!
//! let mut zookeeper = ZooKeeper::start(1)?;
//! assert_eq!(zookeeper.mode(0).as_deref(), Some("standalone"));
//! assert_eq!(zookeeper.servers(), zookeeper.address(0));
//! zookeeper.kill(0);
//! assert_eq!(zookeeper.mode(0), None);
//! # Ok::<(), String>(())
//! ```
//!
//! Each server is a process, which can be stopped, continued, killed and begun again with what it has on its
//! disk. [`ZooKeeper::start`] has them on loopback, at ports that were free; [`ZooKeeper::start_at`] where
//! the caller says, which may be hosts of their own, in network namespaces.
//!
//! 1. The processes end with their [`ZooKeeper`], and also with the thread that started them: a test that
//!    fails, or is killed, leaves none behind. Each is ended by its own process id.
//! 2. What a server says of itself is asked at the server's own host: whoever calls needs no way there.

#![forbid(unsafe_code)]

mod place;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

pub use self::place::Place;

/// How long beginning may take. It takes a second or two, and on a machine that has other things to do more.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions whether a server serves.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a server may take to say what it is, in seconds. One that is stopped says nothing.
const ANSWER_SECONDS: &str = "2";
/// Asks the server at address `$0` and port `$1` what it is, and prints what it says.
const QUESTION: &str = "exec 3<>/dev/tcp/$0/$1 && printf srvr >&3 && cat <&3";
/// Where Debian has it. Its manifest names what else it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// ZooKeeper's unit of time in milliseconds. A session lasts two of them at least.
const TICK_MS: u32 = 500;
/// For how many of them a leader may say nothing to a follower, and the other way round.
const SILENCE_TICKS: u32 = 4;
/// For how many of them a server tries to follow a leader. It may try one that stands still, if an election
/// begins while another server still follows that one; so an election may take longer by as much.
const BEGINNING_TICKS: u32 = 6;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Makes sure that what servers need is installed.
///
/// # Errors
///
/// What is not installed, and how to install it.
pub fn check_installed() -> Result<(), String> {
    let advice = |what: &str, package: &str| {
        Err(format!("{what} is not installed: `make test-tools`, or on Debian `apt-get install {package}`"))
    };
    if !Path::new(JAR).is_file() {
        return advice(JAR, "zookeeper");
    }
    match Command::new("java").arg("-version").stdin(Stdio::null()).output() {
        Ok(ran) if ran.status.success() => Ok(()),
        _ => advice("java", "default-jre-headless"),
    }
}

/// One server, or several that are one ensemble. They end with this value.
pub struct ZooKeeper {
    directory: TempDir,
    places: Vec<Place>,
    /// The processes, in the order of the places. One that was killed stays until it is begun again.
    servers: Vec<Child>,
}

/// Writes what the servers need before they begin.
fn configure(directory: &Path, places: &[Place]) -> std::io::Result<()> {
    let mut peers = String::new();
    for (number, place) in places.iter().enumerate().filter(|_| places.len() > 1) {
        let [_, for_followers, for_elections] = place.ports;
        peers += &format!("server.{}={}:{for_followers}:{for_elections}\n", number + 1, place.address);
    }
    for (number, place) in places.iter().enumerate() {
        let data = directory.join(format!("data.{number}"));
        fs::create_dir(&data)?;
        fs::write(data.join("myid"), (number + 1).to_string())?;
        let (data, address, port) = (data.display(), place.address, place.ports[0]);
        let settings = format!(
            "tickTime={TICK_MS}\ninitLimit={BEGINNING_TICKS}\nsyncLimit={SILENCE_TICKS}\ndataDir={data}\n\
             preAllocSize=1024\nclientPort={port}\nclientPortAddress={address}\nmaxClientCnxns=0\n\
             admin.enableServer=false\n4lw.commands.whitelist=srvr\n{peers}"
        );
        fs::write(directory.join(format!("zoo.cfg.{number}")), settings)?;
    }
    Ok(())
}

fn start_process(directory: &Path, number: usize, place: &Place) -> Result<Child, String> {
    let log = File::options().create(true).append(true).open(directory.join(format!("log.{number}")));
    let log = log.map_err(text)?;
    place
        .command("java")
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-Djava.net.preferIPv4Stack=true", "-cp", JAR])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(directory.join(format!("zoo.cfg.{number}")))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(text)?)
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start ZooKeeper: {error}"))
}

impl ZooKeeper {
    /// Starts one server, or an ensemble of `count`, on loopback, and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// What is not installed, and how to install it; or why a server does not serve, with its log.
    pub fn start(count: usize) -> Result<ZooKeeper, String> {
        ZooKeeper::start_at(Place::on_loopback(count).map_err(text)?)
    }

    /// Starts a server at each place, which are one ensemble, and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// Those of [`ZooKeeper::start`].
    pub fn start_at(places: Vec<Place>) -> Result<ZooKeeper, String> {
        check_installed()?;
        // Whoever ends before this is dropped knows which one to remove.
        let own = format!("-{}", std::process::id());
        let directory =
            tempfile::Builder::new().prefix("kelix-zookeeper-").suffix(&own).tempdir().map_err(text)?;
        configure(directory.path(), &places).map_err(text)?;
        let mut zookeeper = ZooKeeper { directory, places, servers: Vec::new() };
        for (number, place) in zookeeper.places.iter().enumerate() {
            zookeeper.servers.push(start_process(zookeeper.directory.path(), number, place)?);
        }
        zookeeper.wait_for_all()?;
        Ok(zookeeper)
    }

    /// How many servers there are, ended ones among them. Numbers count from 0.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// HOST:PORT of a server.
    pub fn address(&self, number: usize) -> String {
        self.places[number].client_address()
    }

    /// Those of all servers.
    pub fn addresses(&self) -> Vec<String> {
        self.places.iter().map(Place::client_address).collect()
    }

    /// Those of all servers as clients of ZooKeeper take them: with commas between them.
    pub fn servers(&self) -> String {
        self.addresses().join(",")
    }

    /// The process of a server.
    pub fn pid(&self, number: usize) -> u32 {
        self.servers[number].id()
    }

    fn signal(&self, number: usize, signal: Signal) -> Pid {
        let pid = i32::try_from(self.pid(number)).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("a server that was started and not waited for");
        pid
    }

    /// Stops a server where it is, and returns when all of its threads stand still. Its sockets stay, and the
    /// system goes on taking what is sent to them.
    pub fn stop(&self, number: usize) {
        let pid = self.signal(number, Signal::STOP);
        // Threads that are on other processors go on for a moment after the signal was sent.
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("a server that has not ended");
    }

    /// Has a stopped server go on.
    pub fn resume(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    /// Kills a server.
    pub fn kill(&mut self, number: usize) {
        let _ = self.servers[number].kill();
        let _ = self.servers[number].wait();
    }

    /// Begins a server again that was killed, with what it has on its disk. It serves once there is a
    /// majority.
    ///
    /// # Errors
    ///
    /// Why its process cannot be started.
    pub fn restart(&mut self, number: usize) -> Result<(), String> {
        self.servers[number] = start_process(self.directory.path(), number, &self.places[number])?;
        Ok(())
    }

    /// What a server says that it is: standalone, leader or follower. None: it does not serve.
    pub fn mode(&self, number: usize) -> Option<String> {
        let place = &self.places[number];
        let mut ask = place.command("timeout");
        ask.args(["-s", "KILL", ANSWER_SECONDS, "bash", "-c", QUESTION]);
        ask.arg(place.address.to_string()).arg(place.ports[0].to_string()).stdin(Stdio::null());
        let answer = String::from_utf8(ask.output().ok()?.stdout).ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_string)
    }

    /// The server that leads the others, if one does.
    pub fn leader(&self) -> Option<usize> {
        (0..self.count()).find(|number| self.mode(*number).as_deref() == Some("leader"))
    }

    /// Waits until a server serves.
    ///
    /// # Errors
    ///
    /// That its process has ended, or that it takes too long, with its log.
    pub fn wait(&mut self, number: usize) -> Result<(), String> {
        let began = Instant::now();
        while self.mode(number).is_none() {
            let ended = self.servers[number].try_wait().map_err(text)?;
            if ended.is_some() || began.elapsed() > PATIENCE {
                let log = self.directory.path().join(format!("log.{number}"));
                let log = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("ZooKeeper at {} does not serve: {log}", self.address(number)));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until all servers serve.
    ///
    /// # Errors
    ///
    /// Those of [`ZooKeeper::wait`].
    pub fn wait_for_all(&mut self) -> Result<(), String> {
        (0..self.count()).try_for_each(|number| self.wait(number))
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        // All of them first, so that none begins an election.
        for server in &mut self.servers {
            let _ = server.kill();
        }
        for server in &mut self.servers {
            let _ = server.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_begins_stops_goes_on_and_begins_again() {
        let mut zookeeper = ZooKeeper::start(1).expect("a server");
        assert_eq!(zookeeper.mode(0).as_deref(), Some("standalone"));
        assert_eq!(zookeeper.leader(), None);
        zookeeper.stop(0);
        assert_eq!(zookeeper.mode(0), None);
        zookeeper.resume(0);
        zookeeper.wait(0).unwrap();
        zookeeper.kill(0);
        assert_eq!(zookeeper.mode(0), None);
        zookeeper.restart(0).unwrap();
        zookeeper.wait(0).unwrap();
    }

    /// A program stands before each, as where network namespaces are entered.
    #[test]
    fn servers_are_where_they_are_told_to_be_and_leave_nothing_behind() {
        let mut places = Place::on_loopback(3).unwrap();
        for place in &mut places {
            place.within = vec!["env".into(), "--".into()];
        }
        let addresses: Vec<String> = places.iter().map(Place::client_address).collect();
        let mut zookeeper = ZooKeeper::start_at(places).expect("servers");
        assert_eq!((zookeeper.addresses(), zookeeper.servers()), (addresses.clone(), addresses.join(",")));
        let leader = zookeeper.leader().expect("a leader");
        zookeeper.kill(leader);
        let directory = zookeeper.directory.path().to_path_buf();
        let pids: Vec<u32> = (0..3).map(|number| zookeeper.pid(number)).collect();
        assert!(directory.exists());
        drop(zookeeper);
        assert!(!directory.exists());
        assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    }
}
