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

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kelix::{Client, Session, SessionOptions, Statistics};

pub use crate::host::{Clocks, Host};
use crate::host::{DEVICE, credentials};
use crate::process::{Process, patient, program};
use crate::{RunDir, until_within};

const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// The port of a primary.
const PORT: u16 = 7117;
/// How long a server that is not kept from it may take to serve, to follow, or to let go.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The two.
pub struct Hosts {
    /// Where the primary is.
    pub primary: Host,
    /// Where its mirrors are.
    pub mirror: Host,
    credentials: RunDir,
}

impl Hosts {
    /// Makes them, with a cable, and credentials for servers of both.
    #[track_caller]
    pub fn new(primary: Clocks, mirror: Clocks) -> Hosts {
        let [primary, mirror] = [Host::new(ADDRESSES[0], primary), Host::new(ADDRESSES[1], mirror)];
        mirror.cable(&[DEVICE, "netns", &primary.pid().to_string()]);
        [&primary, &mirror].into_iter().for_each(|host| host.configure(&[]));
        Hosts { primary, mirror, credentials: credentials(&ADDRESSES[..1]) }
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

/// A server that can be started, killed, and started again in the same run directory.
pub struct Served<'a> {
    /// The process, while it runs. First, so that it has ended when its directory is removed.
    pub process: Option<Process>,
    host: Option<&'a Host>,
    arguments: Vec<String>,
    /// Its run directory.
    pub run: RunDir,
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

    /// Waits until it shows the primary's present life: images of the life before are void from then on.
    #[track_caller]
    pub fn until_it_shows_the_life_of(&self, primary: &Served<'_>) {
        let life = |of: &Served<'_>| of.session(patient()).ok().map(|session| session.server().1);
        until_within(PATIENCE, "the mirror shows its primary's life", || {
            let there = life(primary);
            there.is_some() && life(self) == there
        });
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
