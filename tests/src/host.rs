//! Hosts on one machine: network namespaces, whose clocks may be apart, too.
//!
//! 1. A namespace is held by a process that ends with its input, and so with the test, however that ends.
//!    Cables go with the namespaces, so nothing of them is left behind.
//! 2. A directory is reached from everywhere.
//! 3. What has to be done at a host is done by `nsenter`, so it takes root. [`Host::new`] fails without it.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::RunDir;
use crate::process::{Process, program};

/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:99";
/// The device of each host.
pub const DEVICE: &str = "eth";
/// The word in [`credentials`].
pub const WORD: &str = "0123456789abcdef0123456789abcdef";

/// How the clocks of a host differ from the machine's.
#[derive(Clone, Copy, Default)]
pub struct Clocks {
    /// Seconds by which the clock that never goes back is ahead.
    pub monotonic_s: u64,
    /// Seconds by which the time of day is ahead, where libfaketime is installed.
    pub wall_s: u64,
}

/// A host.
pub struct Host {
    address: String,
    holder: Process,
    wall_s: u64,
}

/// The way that programs at a host have to others.
pub struct Net(File);

/// Runs a command to its end, which has to be a good one; returns what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
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

impl Net {
    /// Has this thread, and those that it starts from now on, reach others as programs do that run there.
    /// Their clocks stay as they are.
    #[track_caller]
    pub fn enter(&self) {
        let entered = move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network));
        entered.expect("root may do that");
    }
}

impl Host {
    /// A host that is to have an address, once it has a cable ([`Host::cable`]).
    #[track_caller]
    pub fn new(address: &str, clocks: Clocks) -> Host {
        let mut hold = Command::new("unshare");
        hold.args(["--net", "--time", "--fork"]);
        hold.arg(format!("--monotonic={0}", clocks.monotonic_s))
            .arg(format!("--boottime={0}", clocks.monotonic_s));
        let mut holder = Process::run(hold.arg("cat"));
        // What it prints it has been told, so its namespaces are there.
        holder.say("there");
        holder.expect("there");
        let host = Host { address: address.into(), holder, wall_s: clocks.wall_s };
        host.ip(&["link", "set", "lo", "up"]);
        host
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Puts the other end of a cable in, whose first end is here: `ip link add` with what is said of that.
    #[track_caller]
    pub fn cable(&self, first: &[&str]) {
        let there = self.holder.pid().to_string();
        let mut cable = Command::new("ip");
        cable
            .args(["link", "add"])
            .args(first)
            .args(["type", "veth", "peer", "name", DEVICE, "netns", &there]);
        run(&mut cable);
    }

    /// Gives the end of its cable its address, and other ones.
    #[track_caller]
    pub fn configure(&self, others: &[&str]) {
        for address in [&[&self.address[..]], others].concat() {
            self.ip(&["address", "add", &format!("{address}/24"), "dev", DEVICE]);
        }
        self.ip(&["link", "set", DEVICE, "up"]);
    }

    /// The process that holds it: its namespaces are in `/proc`.
    pub fn pid(&self) -> u32 {
        self.holder.pid()
    }

    /// What stands before a program that is to run there.
    pub fn within(&self) -> Vec<String> {
        let of = |name: &str| format!("/proc/{}/ns/{name}", self.holder.pid());
        let (net, time) = (format!("--net={}", of("net")), format!("--time={}", of("time_for_children")));
        ["nsenter", "--no-fork", &net, &time, "--"].map(String::from).into()
    }

    /// The way that programs there have to others.
    #[track_caller]
    pub fn net(&self) -> Net {
        Net(File::open(format!("/proc/{}/ns/net", self.holder.pid())).expect("a host"))
    }

    /// A program that is to run there, and that ends when the thread ends that starts it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(self.within()).arg(program);
        command.env_remove("KELIX_DIR").env_remove("KELIX_SERVER").env("KELIX_CONFIG", "/dev/null");
        if let Some(library) = libfaketime().filter(|_| self.wall_s > 0) {
            command.env("LD_PRELOAD", library).env("FAKETIME", format!("+{}s", self.wall_s));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        command
    }

    /// Runs `ip` there.
    #[track_caller]
    pub fn ip(&self, arguments: &[&str]) {
        run(self.command("ip").args(arguments));
    }

    /// Pulls the cable out at this end, or plugs it in again. Both hosts see that it is not in.
    #[track_caller]
    pub fn plug(&self, is_in: bool) {
        self.ip(&["link", "set", DEVICE, if is_in { "up" } else { "down" }]);
    }

    /// Has all that this host sends to an address get lost, which no host is told of; or arrive again.
    #[track_caller]
    pub fn lose_what_is_sent(&self, other: &str, loses: bool) {
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

/// Certificates for servers at some addresses, and the word by which they know each other, or a primary its
/// mirrors.
pub fn credentials(addresses: &[&str]) -> RunDir {
    let into = RunDir::new();
    let write = |name: &str, text: &str| {
        std::fs::write(into.path().join(name), text).expect("a directory to write to");
    };
    let (authority_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    let params =
        CertificateParams::new(addresses.iter().map(|address| address.to_string()).collect::<Vec<_>>())
            .expect("an address");
    let certificate = params.signed_by(&key, &authority, &authority_key).expect("a certificate");
    write("ca.pem", &authority.pem());
    write("host.pem", &certificate.pem());
    write("host.key", &key.serialize_pem());
    write("word", &format!("mirrors {WORD}\n"));
    write("token", WORD);
    into
}
