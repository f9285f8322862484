//! The process that holds a file's lock: which one it is, what it listens at, and how it is made to go.
//!
//! A server that takes over needs the lock, and perhaps the port, of a server that may be stopped. The kernel
//! tells both: a process has the lock if it has the lock's file open, and listens at a port if one of its
//! descriptors is a socket that does. So nothing is believed that a file merely says, and no signal reaches a
//! process that only has the number of one that is gone.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that has a file open which another one wants to lock.
pub(crate) struct Holder {
    pid: Pid,
    process: OwnedFd,
}

/// Whether two descriptions are of one file.
pub(crate) fn is_same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The process id that a lock's file begins with.
pub(crate) fn pid_in(lock: &File) -> Option<u32> {
    // The file may be as long as whoever may write to it likes.
    let mut bytes = [0; 32];
    let read = lock.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..read]).ok()?.split_whitespace().next()?.parse().ok()
}

/// Whether a process stands still.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 't']))
}

/// Who holds a lock, in words.
pub(crate) fn describe(lock: &File) -> String {
    match pid_in(lock) {
        Some(pid) if is_stopped(pid) => format!("process {pid}, which is stopped"),
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    }
}

/// Where the system shows what a process has open; nothing, where it does not let this one look.
fn descriptors(pid: Pid) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
    entries.into_iter().flatten().flatten().map(|entry| entry.path())
}

impl Holder {
    /// The process that a lock's file names, if it has just that file open. `None` also where this process
    /// may not look, or the other one is in a container of its own.
    pub fn of(lock: &File) -> Option<Holder> {
        let pid = Pid::from_raw(i32::try_from(pid_in(lock)?).ok()?)?;
        // First: from here on the process cannot be another one of the same number.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let wanted = lock.metadata().ok()?;
        let mut open = descriptors(pid).filter_map(|path| fs::metadata(path).ok());
        open.any(|open| is_same_file(&open, &wanted)).then_some(Holder { pid, process })
    }

    /// Whether it stands still.
    pub fn is_stopped(&self) -> bool {
        is_stopped(self.pid())
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it listens at the port of an address.
    pub fn listens_at(&self, address: SocketAddr) -> bool {
        let sockets = listening(address.port());
        let mut links = descriptors(self.pid).filter_map(|path| fs::read_link(path).ok());
        links.any(|link| {
            let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
            inode.is_some_and(|inode| sockets.iter().any(|socket| socket == inode))
        })
    }

    /// Has it go on if it stands still, for it to see that it is not wanted any more.
    pub fn wake(&self) {
        // One that has ended needs none.
        let _ = pidfd_send_signal(&self.process, Signal::CONT);
    }

    /// Ends it at once.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// The inodes of the sockets that listen at a port of this host.
fn listening(port: u16) -> Vec<String> {
    // The columns are: number, local address, remote address, state (0A: listening), ..., inode (the tenth).
    let suffix = format!(":{port:04X}");
    let of = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let text = of("/proc/self/net/tcp") + &of("/proc/self/net/tcp6");
    let sockets = text.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let listens = columns.get(3) == Some(&"0A") && columns[1].ends_with(&suffix);
        listens.then(|| columns.get(9).map(|inode| inode.to_string()))?
    });
    sockets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn a_process_holds_what_it_has_open_and_listens_where_it_does() {
        let mut path = std::env::temp_dir();
        path.push(format!("kelix-holder-{}", std::process::id()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        write!(file, "{} more words", std::process::id()).unwrap();
        let again = || File::open(&path).unwrap();
        let holder = Holder::of(&again()).expect("this process");
        assert_eq!((holder.pid(), pid_in(&again())), (std::process::id(), Some(std::process::id())));
        assert!(describe(&again()).contains(&holder.pid().to_string()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(holder.listens_at(address));
        drop(listener);
        assert!(!holder.listens_at(address));
        // The number of a process that has not got the file open names nobody.
        write!(File::create(&path).unwrap(), "1").unwrap();
        let lock = again();
        assert!(Holder::of(&lock).is_none() || std::process::id() == 1);
        for nobody in ["", "0", "-1", "99999999999", "word"] {
            write!(File::create(&path).unwrap(), "{nobody}").unwrap();
            assert!(Holder::of(&again()).is_none(), "{nobody}");
        }
        fs::remove_file(&path).unwrap();
    }
}
