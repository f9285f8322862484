//! The directory of a cluster on one host, and who of it lives.
//!
//! ```text
//! DIRECTORY/register/    the views (kelix_register)
//! DIRECTORY/start        locked by whoever starts nodes, and looks first whether any runs
//! DIRECTORY/token        the word by which members know each other over TCP
//! DIRECTORY/run/         the run directory of whoever is primary: where clients connect
//! DIRECTORY/node-NAME/   lock: held for as long as the node's process lives, which the file names with its
//!                        boot number; run/: the run directory of the node while it is a replica; log
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kelix_register::{LocalRegister, Register, View};
use kelix_types::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};

use crate::authority::Lock;
use crate::holder::describe;

/// Longest name of a node.
const NODE_BYTES_MAX: usize = 32;
/// Characters of a token.
const TOKEN_CHARACTERS: usize = 32;

/// Bytes of a command line that are looked through for the name of a node.
const COMMAND_LINE_BYTES: usize = 64 << 10;

/// The directory of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterDirectory(pub PathBuf);

fn system(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::system("join cluster", format!("cannot {what} {}", path.display()), source)
}

impl ClusterDirectory {
    /// Where the cluster of a name on this host has its directory: `$XDG_STATE_HOME/kelix/NAME`, or
    /// `~/.local/state/kelix/NAME`. An error: the name cannot be one.
    pub fn of(name: &str) -> Result<ClusterDirectory> {
        check_name("cluster", name)?;
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = variable("XDG_STATE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".local/state")))
            .ok_or_else(|| {
                let context = "neither XDG_STATE_HOME nor HOME says where the cluster has its directory";
                Error::new(ErrorKind::InvalidArgument, "join cluster", context)
            })?;
        Ok(ClusterDirectory(state.join("kelix").join(name)))
    }

    /// The run directory of whoever is primary.
    pub fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// Where the views are.
    pub fn register_path(&self) -> PathBuf {
        self.0.join("register")
    }

    /// A handle to the register.
    pub fn register(&self) -> Result<Box<dyn Register>> {
        Ok(Box::new(LocalRegister::open(&self.register_path())?))
    }

    /// The newest view. `None`: there is no cluster.
    pub fn view(&self) -> Result<Option<View>> {
        if !self.register_path().exists() {
            return Ok(None);
        }
        self.register()?.read()
    }

    /// What a node has for itself.
    pub fn node(&self, name: &str) -> PathBuf {
        self.0.join(format!("node-{name}"))
    }

    /// The run directory of a node while it is a replica.
    pub fn node_run(&self, name: &str) -> PathBuf {
        self.node(name).join("run")
    }

    fn make(&self, path: &Path) -> Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| system("make", path, source))
    }

    /// Takes a node of the cluster into this process's possession, for as long as what is returned lives. An
    /// error: another process is that node.
    pub(crate) fn take_node(&self, name: &str, boot: u64) -> Result<File> {
        check_name("node", name)?;
        self.make(&self.node(name))?;
        let path = self.node(name).join("lock");
        match Lock::try_lock(&path).map_err(|source| system("lock", &path, source))? {
            Lock::Held(file) => {
                let text = format!("{} {boot:016x}\n", std::process::id());
                // The file names a process at every moment: readers take its first two words.
                file.write_all_at(text.as_bytes(), 0)
                    .and_then(|()| file.set_len(text.len() as u64))
                    .map_err(|source| system("write", &path, source))?;
                Ok(file)
            }
            Lock::Of(file) => {
                let context = format!("node {name} of {} is {}", self.0.display(), describe(&file));
                Err(Error::new(ErrorKind::InvalidArgument, "join cluster", context))
            }
        }
    }

    /// The process of a node and its boot number, if one lives.
    pub fn living(&self, name: &str) -> Option<(u32, u64)> {
        let file = File::open(self.node(name).join("lock")).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        last_holder(file)
    }

    /// Whether the process that was a node last is about to be it again: one that was deposed executes its program
    /// anew, and does not live for that moment.
    pub fn begins_anew(&self, name: &str) -> bool {
        let Some((pid, _)) = File::open(self.node(name).join("lock")).ok().and_then(last_holder) else {
            return false;
        };
        // In one piece: between two the process may execute another program.
        let mut line = vec![0; COMMAND_LINE_BYTES];
        let read = File::open(format!("/proc/{pid}/cmdline")).and_then(|mut file| file.read(&mut line));
        line.truncate(read.unwrap_or(0));
        if line.is_empty() {
            // A process has no command line while it executes a program, but has the program. One that has ended,
            // and was not waited for, has neither.
            return fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        }
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.windows(2).any(|pair| pair == [b"--node", name.as_bytes()])
    }

    /// Whether a node has a process, be it that this begins anew.
    pub fn runs(&self, name: &str) -> bool {
        self.living(name).is_some() || self.begins_anew(name)
    }

    /// Whether the process of a member has not ended.
    pub fn lives(&self, view: &View, boot: u64) -> bool {
        let node = view.member(boot).map(|member| &member.node);
        node.and_then(|node| self.living(node)).is_some_and(|(_, of)| of == boot)
    }

    /// The nodes that ever were.
    pub fn nodes(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("node-")?.to_string());
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        names
    }

    /// The word by which members know each other, which the first one makes up.
    pub(crate) fn token(&self) -> Result<String> {
        self.make(&self.0)?;
        let (path, mut next) = (self.0.join("token"), self.0.join("token."));
        next.as_mut_os_string().push(std::process::id().to_string());
        let found = |path: &Path| -> std::io::Result<String> {
            let mut text = String::new();
            File::open(path)?.take(2 * TOKEN_CHARACTERS as u64).read_to_string(&mut text)?;
            Ok(text.trim().to_string())
        };
        if !path.exists() {
            let word = format!("{:016x}{:016x}", crate::server::random_u64()?, crate::server::random_u64()?);
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&next);
            file.and_then(|mut file| file.write_all(word.as_bytes()))
                .map_err(|source| system("write", &next, source))?;
            // Whoever is first gives the word to all; it is there as a whole, or not.
            let linked = fs::hard_link(&next, &path);
            let _ = fs::remove_file(&next);
            match linked {
                Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(system("write", &path, source));
                }
                _ => {}
            }
        }
        let word = found(&path).map_err(|source| system("read", &path, source))?;
        if word.len() < TOKEN_CHARACTERS {
            let context = format!("{} has no token; stop the cluster and remove the file", path.display());
            return Err(Error::new(ErrorKind::Damaged, "join cluster", context));
        }
        Ok(word)
    }

    /// Waits until nobody else starts nodes of the cluster, and keeps others from it for as long as what is
    /// returned lives: two that found that no node runs would both forget the cluster, and one of them what
    /// the other has begun. `waits` is called before a wait.
    pub fn lock_start(&self, waits: impl FnOnce()) -> Result<File> {
        self.make(&self.0)?;
        let path = self.0.join("start");
        let cannot = |source| system("lock", &path, source);
        match Lock::try_lock(&path).map_err(cannot)? {
            Lock::Held(file) => Ok(file),
            Lock::Of(file) => {
                waits();
                flock(&file, FlockOperation::LockExclusive).map_err(|error| cannot(error.into()))?;
                Ok(file)
            }
        }
    }

    /// Forgets a cluster none of whose nodes runs, so that another one can begin. What it had in memory is
    /// gone with its nodes. `false`: a node runs.
    pub fn forget(&self) -> Result<bool> {
        if self.nodes().iter().any(|node| self.runs(node)) {
            return Ok(false);
        }
        let path = self.register_path();
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(system("remove", &path, source))
            }
            _ => Ok(true),
        }
    }
}

/// The process that held a node's lock last, and its boot number.
fn last_holder(file: File) -> Option<(u32, u64)> {
    // The file may be as long as whoever may write to it likes.
    let mut text = String::new();
    file.take(64).read_to_string(&mut text).ok()?;
    let mut words = text.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    Some((pid, words.next().and_then(|boot| u64::from_str_radix(boot, 16).ok())?))
}

/// An error if a name cannot be one of a file.
fn check_name(what: &str, name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.len() <= NODE_BYTES_MAX && name.bytes().all(plain) {
        return Ok(());
    }
    let context = format!("{name:?} is no name of a {what}: 1 to {NODE_BYTES_MAX} letters, digits, - and _");
    Err(Error::new(ErrorKind::InvalidArgument, "join cluster", context))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Ended(Child, PathBuf);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = fs::remove_dir_all(&self.1);
        }
    }

    #[test]
    fn a_node_that_executes_its_program_anew_runs_all_the_time() {
        let cluster =
            ClusterDirectory(std::env::temp_dir().join(format!("kelix-anew-{}", std::process::id())));
        fs::create_dir_all(cluster.node("7")).unwrap();
        let script = cluster.0.join("anew");
        fs::write(&script, "exec /bin/sh \"$0\" \"$@\"").unwrap();
        let child = Command::new("/bin/sh").arg(&script).args(["--node", "7"]).spawn().unwrap();
        let mut child = Ended(child, cluster.0.clone());
        fs::write(cluster.node("7").join("lock"), format!("{} 1\n", child.0.id())).unwrap();
        let silent = (0..100_000).filter(|_| !cluster.runs("7")).count();
        assert_eq!(silent, 0, "looks that find no process");
        child.0.kill().unwrap();
        while fs::read_link(format!("/proc/{}/exe", child.0.id())).is_ok() {
            std::thread::yield_now();
        }
        assert!(!cluster.runs("7"), "a process that nobody has waited for runs no more");
    }
}
