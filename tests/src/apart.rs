//! Two hosts on one machine, which are apart: network namespaces with a cable between them, whose clocks may
//! be apart, too. Servers there are `kelix serve`, as people start them.
//!
//! ```text
//! [ lo, eth: 10.99.0.1  primary ] ---- cable ---- [ mirror  10.99.0.2 :eth, lo ]
//! ```
//!
//! 1. A namespace is held by a process that ends with its input, and so with the test, however that ends. The
//!    cable goes with the namespaces, so nothing of them is left behind.
//! 2. A test and its clients stay on the machine itself: a run directory is reached from everywhere.
//! 3. What has to be done at a host is done by `nsenter`, so it takes root. [`Hosts::new`] fails without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kelix::{Client, Session, SessionOptions, Statistics};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use crate::process::{Process, program};
use crate::{RunDir, until_within};

const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:99";
/// The device of each host.
const DEVICE: &str = "eth";
/// The port of a primary.
const PORT: u16 = 7117;
/// How long a server that is not kept from it may take to serve, to follow, or to let go.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How the clocks of a host differ from the machine's.
#[derive(Clone, Copy, Default)]
pub struct Clocks {
    /// Seconds by which the clock that never goes back is ahead.
    pub monotonic_s: u64,
    /// Seconds by which the time of day is ahead, where libfaketime is installed.
    pub wall_s: u64,
}

/// One of the two.
pub struct Host {
    number: usize,
    holder: Process,
    wall_s: u64,
}

/// The two.
pub struct Hosts {
    /// Where the primary is.
    pub primary: Host,
    /// Where its mirrors are.
    pub mirror: Host,
    credentials: RunDir,
}

/// Runs a command to its end, which has to be a good one; returns what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (printed, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {printed}{said}");
    printed.into_owned()
}

/// The library that changes the time of day of a process, where it is installed.
fn libfaketime() -> Option<PathBuf> {
    let of_processors = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let places = of_processors.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    places.into_iter().find(|path| path.exists())
}

impl Host {
    fn new(number: usize, clocks: Clocks) -> Host {
        let mut hold = Command::new("unshare");
        hold.args(["--net", "--time", "--fork"]);
        hold.arg(format!("--monotonic={0}", clocks.monotonic_s))
            .arg(format!("--boottime={0}", clocks.monotonic_s));
        let mut holder = Process::run(hold.arg("cat"));
        // What it prints it has been told, so its namespaces are there.
        holder.say("there");
        holder.expect("there");
        let host = Host { number, holder, wall_s: clocks.wall_s };
        host.ip(&["link", "set", "lo", "up"]);
        host
    }

    /// Its address.
    pub fn address(&self) -> &'static str {
        ADDRESSES[self.number]
    }

    /// A program that is to run there, and that ends when the thread ends that starts it.
    pub fn command(&self, program: &str) -> Command {
        let of = |name: &str| format!("/proc/{}/ns/{name}", self.holder.pid());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", "--no-fork"]);
        command.arg(format!("--net={}", of("net")));
        command.arg(format!("--time={}", of("time_for_children")));
        command.arg("--").arg(program);
        command.env_remove("KELIX_DIR").env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
        if let Some(library) = libfaketime().filter(|_| self.wall_s > 0) {
            command.env("LD_PRELOAD", library).env("FAKETIME", format!("+{}s", self.wall_s));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        command
    }

    #[track_caller]
    fn ip(&self, arguments: &[&str]) {
        run(self.command("ip").args(arguments));
    }

    /// Pulls the cable out at this end, or plugs it in again. Both hosts see that it is not in.
    #[track_caller]
    pub fn plug(&self, is_in: bool) {
        self.ip(&["link", "set", DEVICE, if is_in { "up" } else { "down" }]);
    }

    /// Has all that this host sends to the other one get lost, which no host is told of; or arrive again.
    #[track_caller]
    pub fn lose_what_is_sent(&self, loses: bool) {
        let other = ADDRESSES[1 - self.number];
        if loses {
            self.ip(&["neigh", "replace", other, "lladdr", NOBODY, "dev", DEVICE, "nud", "permanent"]);
        } else {
            self.ip(&["neigh", "del", other, "dev", DEVICE]);
        }
    }

    /// Lets it send so many bits a second; `None`: as many as it can.
    #[track_caller]
    pub fn limit(&self, rate: Option<&str>) {
        let mut tc = self.command("tc");
        match rate {
            Some(rate) => {
                let how = ["rate", rate, "burst", "32k", "latency", "400ms"];
                tc.args(["qdisc", "replace", "dev", DEVICE, "root", "tbf"]).args(how);
            }
            None => drop(tc.args(["qdisc", "del", "dev", DEVICE, "root"])),
        }
        run(&mut tc);
    }

    /// Runs `kelix` there for the server of a run directory. `Err`: what it says, if it fails.
    pub fn kelix(&self, run: &RunDir, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(&program());
        command.arg("--dir").arg(run.path()).args(arguments).stdin(Stdio::null());
        let done = command.output().expect("it was started before");
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }
}

impl Hosts {
    /// Makes them, with a cable, and credentials for servers of both.
    #[track_caller]
    pub fn new(primary: Clocks, mirror: Clocks) -> Hosts {
        let [primary, mirror] = [Host::new(0, primary), Host::new(1, mirror)];
        let of = |host: &Host| host.holder.pid().to_string();
        let (at_primary, at_mirror) = (of(&primary), of(&mirror));
        let mut cable = Command::new("ip");
        cable.args(["link", "add", DEVICE, "netns", &at_primary, "type", "veth"]);
        run(cable.args(["peer", "name", DEVICE, "netns", &at_mirror]));
        for host in [&primary, &mirror] {
            host.ip(&["address", "add", &format!("{}/24", host.address()), "dev", DEVICE]);
            host.ip(&["link", "set", DEVICE, "up"]);
        }
        Hosts { primary, mirror, credentials: credentials() }
    }

    fn file(&self, name: &str) -> String {
        self.credentials.path().join(name).display().to_string()
    }

    /// A primary that is to be started.
    pub fn primary(&self, shards: usize, options: &[&str]) -> Served<'_> {
        let listen = format!("{}:{PORT}", self.primary.address());
        let (shards, cert, key) = (shards.to_string(), self.file("host.pem"), self.file("host.key"));
        let (tokens, own) = (self.file("word"), ["--shards", &shards, "--memory", "1G", "--listen", &listen]);
        let trust = ["--tls-cert", &cert, "--tls-key", &key, "--tokens", &tokens];
        Served::new(Some(&self.primary), &[&own[..], &trust, options].concat())
    }

    /// A mirror of it, which waits for it.
    pub fn mirror(&self, options: &[&str]) -> Served<'_> {
        self.impatient_mirror(&[&["--retry", "90s"], options].concat())
    }

    /// A mirror of it, which ends if it may not follow at once.
    pub fn impatient_mirror(&self, options: &[&str]) -> Served<'_> {
        let (of, ca, word) = (self.address(), self.file("ca.pem"), self.file("word"));
        let own = ["--mirror-of", &of, "--tls-ca", &ca, "--token-file", &word];
        Served::new(Some(&self.mirror), &[&own[..], options].concat())
    }

    /// Runs `kelix` at the mirror's host with what it takes to write to the primary. `Err`: what it says, if it
    /// fails.
    pub fn write_there(&self, mirror: &Served<'_>, arguments: &[&str]) -> Result<String, String> {
        let (ca, word) = (self.file("ca.pem"), self.file("word"));
        self.mirror.kelix(&mirror.run, &[&["--tls-ca", &ca, "--token-file", &word], arguments].concat())
    }

    /// Where the primary is reached.
    pub fn address(&self) -> String {
        format!("{}:{PORT}", self.primary.address())
    }
}

/// Certificates and the word for a primary and those who follow it.
fn credentials() -> RunDir {
    let into = RunDir::new();
    let write = |name: &str, text: &str| {
        std::fs::write(into.path().join(name), text).expect("a directory to write to");
    };
    let (authority_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    let params = CertificateParams::new(vec![ADDRESSES[0].to_string()]).expect("an address");
    let certificate = params.signed_by(&key, &authority, &authority_key).expect("a certificate");
    write("ca.pem", &authority.pem());
    write("host.pem", &certificate.pem());
    write("host.key", &key.serialize_pem());
    write("word", "mirrors 0123456789abcdef0123456789abcdef\n");
    into
}

/// A server that can be started, killed, and started again in the same run directory.
pub struct Served<'a> {
    host: Option<&'a Host>,
    arguments: Vec<String>,
    /// Its run directory.
    pub run: RunDir,
    /// It, while it runs.
    pub process: Option<Process>,
}

impl<'a> Served<'a> {
    /// One that is to be started with these options, at a host or on the machine itself.
    pub fn new(host: Option<&'a Host>, options: &[&str]) -> Served<'a> {
        let run = RunDir::new();
        let arguments = options.iter().map(|option| option.to_string()).collect();
        Served { host, arguments, run, process: None }
    }

    fn command(&self) -> Command {
        let mut command = match self.host {
            Some(host) => host.command(&program()),
            None => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL"]).arg(program());
                command
            }
        };
        command.arg("--dir").arg(self.run.path()).args(["serve", "--no-pin"]).args(&self.arguments);
        command
    }

    /// Starts it without waiting for it to serve.
    pub fn launch(&mut self) -> &mut Process {
        self.process = None;
        self.process.insert(Process::run(&mut self.command()))
    }

    /// Starts it and returns once it serves, with what it says then.
    #[track_caller]
    pub fn serve(&mut self) -> String {
        self.launch().expect("serving ")
    }

    /// Starts it, has it end by itself with an error, and returns what it says then.
    #[track_caller]
    pub fn refusal(&self) -> String {
        let said = self.run.path().join("said");
        let into = std::fs::File::create(&said).expect("a run directory");
        let mut process = Process::run(self.command().stderr(into));
        let line = process.line();
        let said = std::fs::read_to_string(said).expect("just made");
        assert!(line.is_none() && !process.end().success(), "it serves: {line:?} {said}");
        said
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// A client.
    pub fn client(&self) -> kelix::Result<Client> {
        Client::connect(self.run.path())
    }

    /// A session with caches of its own.
    pub fn session(&self, options: SessionOptions) -> kelix::Result<Session> {
        self.client()?.session_with(options.private_caches(true))
    }

    /// What it tells of itself, if it serves.
    pub fn statistics(&self) -> Option<Statistics> {
        self.client().ok()?.statistics().ok()
    }

    /// How far each of its mirrors is.
    pub fn mirrors(&self) -> Vec<String> {
        let mirrors = self.statistics().map(|told| told.mirrors).unwrap_or_default();
        mirrors.into_iter().map(|mirror| mirror.state).collect()
    }

    /// Whether it is a mirror that has not lost its primary.
    pub fn follows(&self) -> bool {
        let mirror = self.statistics().and_then(|told| told.server.mirror);
        mirror.is_some_and(|mirror| mirror.state == "following" && mirror.lag_ms.is_some())
    }

    /// Waits until it follows its primary.
    #[track_caller]
    pub fn until_it_follows(&self) {
        until_within(PATIENCE, "the mirror follows", || self.follows());
    }

    /// Waits until it has lost its primary.
    #[track_caller]
    pub fn until_it_has_lost(&self) {
        let is_lost = || {
            let mirror = self.statistics().and_then(|told| told.server.mirror);
            mirror.is_some_and(|mirror| mirror.state == "lost" && mirror.lost.is_some())
        };
        until_within(PATIENCE, "the mirror has lost its primary", is_lost);
    }
}

/// A directory with so much room, which ends with the mount namespace of this thread.
#[track_caller]
pub fn small_disk(at: &Path, bytes: u64) {
    crate::disk::keep_mounts_to_itself().expect("root may do that");
    std::fs::create_dir_all(at).expect("a directory");
    let size = std::ffi::CString::new(format!("size={bytes}")).expect("no zero in it");
    rustix::mount::mount("tmpfs", at, "tmpfs", rustix::mount::MountFlags::empty(), &*size).expect("a tmpfs");
}
