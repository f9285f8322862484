//! Namespaces: each has images, memory and rights of its own. Who may not read one gets nothing of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kelix_fabric::shm::Memfd;
use kelix_image::ImageConfig;
use kelix_shard::ShardConfig;
use kelix_types::limits::{
    EPOCH_NS, NAMESPACE_BYTES_MAX, POINTER_TABLE_BYTES, SEGMENT_BYTES_FIRST, SHARD_BYTES_MIN, SHARDS_MAX,
    segment_bytes_max,
};
use kelix_types::{Error, ErrorKind, Incarnation, Result};
use kelix_wire::View;

use crate::mirror::Standing;
use crate::shard_thread::ShardHandle;

/// A namespace beside the one that every server has, which is called `default`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceConfig {
    /// Its name.
    pub name: String,
    /// Number of shards.
    pub shards: usize,
    /// Most memory of all its shards together, in bytes.
    pub memory_bytes: u64,
    /// Let items go when memory is used up, rather than refuse writes.
    pub cache: bool,
    /// Who may do what.
    pub rights: Rights,
}

/// Who may read a namespace, and who may also write. The user that the server runs as may always.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Who may read.
    pub readers: Vec<Who>,
    /// Who may read and write.
    pub writers: Vec<Who>,
}

impl Default for Rights {
    /// Everybody who is let in may read and write.
    fn default() -> Rights {
        Rights { readers: Vec::new(), writers: vec![Who::Anybody] }
    }
}

/// Somebody, or several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// Everybody who is let in.
    Anybody,
    /// A user of the host, by number, on the Unix socket.
    User(u32),
    /// Who knows the token of this name, over TCP.
    Token(String),
    /// Who has a certificate for this name, over TCP.
    Certificate(String),
}

/// What is known of who connects.
pub(crate) struct Visitor<'a> {
    /// On the Unix socket: the user.
    pub uid: Option<u32>,
    /// The name of the token that was said.
    pub token: Option<&'a str>,
    /// Whether there is a certificate for a name.
    pub certified: &'a dyn Fn(&str) -> bool,
}

impl Visitor<'_> {
    fn is(&self, who: &Who) -> bool {
        match who {
            Who::Anybody => true,
            Who::User(uid) => self.uid == Some(*uid),
            Who::Token(name) => self.token == Some(name),
            Who::Certificate(name) => (self.certified)(name),
        }
    }
}

impl NamespaceConfig {
    /// An error if no server could serve it.
    pub(crate) fn check(&self) -> Result<()> {
        let NamespaceConfig { name, shards, memory_bytes, .. } = self;
        let wrong = |what: String| {
            let whose = if name == DEFAULT { String::new() } else { format!("namespace \"{name}\": ") };
            Err(Error::new(ErrorKind::InvalidArgument, "serve", whose + &what))
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAMESPACE_BYTES_MAX || !name.bytes().all(plain) {
            return wrong(format!("a name is of 1 to {NAMESPACE_BYTES_MAX} letters, digits, - _ and ."));
        }
        if !(1..=SHARDS_MAX).contains(shards) {
            return wrong(format!("{shards} shards: choose 1 to {SHARDS_MAX}"));
        }
        if memory_bytes / (*shards as u64) < SHARD_BYTES_MIN {
            return wrong(format!(
                "{memory_bytes} bytes of memory for {shards} shards: a shard needs at least {SHARD_BYTES_MIN}"
            ));
        }
        Ok(())
    }
}

/// Where the incarnations of an image begin: somewhere in the first half of a term, so that two images that
/// got one term from clocks that agree do not give the same ones either.
pub(crate) fn first_incarnation(term: u64, random: u64) -> Incarnation {
    Incarnation(Incarnation::first_of_term(term).0 | random >> (65 - Incarnation::COUNTER_BITS))
}

/// The name of the life that follows one (splitmix64): as random as that was, and none that there was before.
fn life_after(life: u64) -> u64 {
    let mut name = life.wrapping_add(0x9e37_79b9_7f4a_7c15);
    name = (name ^ name >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    name = (name ^ name >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    // 0 is no life's.
    (name ^ name >> 31).max(1)
}

/// The name of the namespace that is meant where none is named.
pub(crate) const DEFAULT: &str = "default";

/// What a server gives a namespace.
pub(crate) struct Numbers {
    pub term: u64,
    /// Names this life of the namespace: no other life of this or any store has it.
    pub life: u64,
    pub hash_seed: u64,
    /// The term of the incarnations that its images give.
    pub incarnation_term: u64,
    pub first_in_agent: usize,
    pub view_lease_ns: u64,
    /// L of the read rule.
    pub epoch_ns: u64,
}

/// A namespace that is served.
pub(crate) struct Namespace {
    pub name: String,
    /// Its shards want to know what is read.
    pub is_cache: bool,
    /// Names this life of it: no other life of this or any store has it.
    life: AtomicU64,
    pub view: View,
    pub shards: Vec<ShardHandle>,
    /// Which of the agent's shards is its first.
    pub first_in_agent: usize,
    rights: Rights,
    own_uid: u32,
    /// The table of cached pointers that all processes of a user share, by user id.
    pointers: Mutex<HashMap<u32, Arc<Memfd>>>,
    /// Of a mirror's: whose memory it shows.
    pub mirrored: Option<Mirrored>,
}

/// Whose memory a namespace shows, and how the mirror is doing.
pub(crate) struct Mirrored {
    /// Where clients write. A replica follows one primary after another.
    pub primary: Mutex<String>,
    /// The lineage of the primary's records; 0: it has no log.
    pub lineage: AtomicU64,
    pub standing: Arc<Standing>,
}

impl Mirrored {
    pub fn writes_go_to(&self) -> String {
        self.primary.lock().expect("no panic under this lock").clone()
    }
}

impl Namespace {
    /// Begins to serve a namespace: makes its images, and starts a thread for each shard, as `start` does it.
    pub fn start(
        config: &NamespaceConfig,
        Numbers { term, life, hash_seed, incarnation_term, first_in_agent, view_lease_ns, epoch_ns }: Numbers,
        begins_empty: bool,
        image_id: impl Fn() -> Result<u64> + Sync,
        start: impl Fn(ShardConfig) -> Result<ShardHandle> + Sync,
    ) -> Result<Namespace> {
        let view = View::of_shards(1, hash_seed, config.shards);
        let shard_bytes = config.memory_bytes / config.shards as u64;
        let segment_bytes_max = segment_bytes_max(shard_bytes);
        let start = |number: usize| {
            let image = ImageConfig {
                image_id: image_id()?,
                hash_seed,
                term,
                incarnation: first_incarnation(incarnation_term, image_id()?),
                epoch_ns,
                epoch_ns_usual: EPOCH_NS,
                memory_bytes: shard_bytes,
                segment_bytes_first: SEGMENT_BYTES_FIRST.min(segment_bytes_max),
                segment_bytes_max,
                keeps_journal: false,
            };
            let is_cache = config.cache;
            let config = ShardConfig { number, view: view.clone(), image, view_lease_ns, is_cache };
            start(config)
        };
        let start = &start;
        // What they begin with takes its time, so each has a thread for that, as long as there are any.
        let shards: Result<Vec<ShardHandle>> = std::thread::scope(|scope| {
            let aside = |number| {
                let name = std::thread::Builder::new().name("kelix-restore".into());
                if begins_empty { None } else { name.spawn_scoped(scope, move || start(number)).ok() }
            };
            let starting: Vec<_> = (0..config.shards).map(|number| (number, aside(number))).collect();
            let started = starting.into_iter().map(|(number, thread)| match thread {
                Some(thread) => thread.join().expect("a shard begins or says why not"),
                None => start(number),
            });
            started.collect()
        });
        let shards = shards?;
        Ok(Namespace {
            name: config.name.clone(),
            is_cache: config.cache,
            life: AtomicU64::new(life),
            view,
            shards,
            first_in_agent,
            rights: config.rights.clone(),
            own_uid: rustix::process::geteuid().as_raw(),
            pointers: Mutex::default(),
            mirrored: None,
        })
    }

    /// One that shows the memory of another server's, in these shards.
    pub fn of_mirror(
        (name, rights): (String, Rights),
        (view, life): (View, u64),
        shards: Vec<ShardHandle>,
        first_in_agent: usize,
        mirrored: Mirrored,
    ) -> Namespace {
        Namespace {
            name,
            is_cache: false,
            life: AtomicU64::new(life),
            view,
            shards,
            first_in_agent,
            rights,
            own_uid: rustix::process::geteuid().as_raw(),
            pointers: Mutex::default(),
            mirrored: Some(mirrored),
        }
    }

    /// The name of its life for who connects now.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::SeqCst)
    }

    /// Begins another life, so that handles which were got before lead nowhere.
    pub fn begin_life(&self) {
        self.life.store(life_after(self.life()), Ordering::SeqCst);
    }

    /// Whether who connects may read, and if so whether they may write too.
    pub fn access(&self, visitor: &Visitor<'_>) -> Option<bool> {
        let among = |list: &[Who]| list.iter().any(|who| visitor.is(who));
        if self.mirrored.is_some() {
            // Writes are the primary's to allow.
            let reads = visitor.uid == Some(self.own_uid) || among(&self.rights.writers);
            return (reads || among(&self.rights.readers)).then_some(false);
        }
        if visitor.uid == Some(self.own_uid) || among(&self.rights.writers) {
            Some(true)
        } else {
            among(&self.rights.readers).then_some(false)
        }
    }

    /// The table of cached pointers of a user's processes.
    pub fn pointers(&self, uid: u32) -> Result<Arc<Memfd>> {
        let mut tables = self.pointers.lock().expect("no panic under this lock");
        if let Some(table) = tables.get(&uid) {
            return Ok(table.clone());
        }
        let (table, _) = Memfd::create("kelix-pointers", POINTER_TABLE_BYTES, false)?;
        Ok(tables.entry(uid).or_insert(Arc::new(table)).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, shards: usize, memory_bytes: u64) -> NamespaceConfig {
        NamespaceConfig { name: name.into(), shards, memory_bytes, cache: false, rights: Rights::default() }
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        assert!(config("people-2", 2, 1 << 30).check().is_ok());
        for wrong in [
            config("", 1, 1 << 30),
            config("a/b", 1, 1 << 30),
            config(&"n".repeat(65), 1, 1 << 30),
            config("people", 0, 1 << 30),
            config("people", 65, 1 << 40),
            config("people", 2, 1 << 20),
        ] {
            assert_eq!(wrong.check().unwrap_err().kind(), ErrorKind::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn rights_are_of_those_who_are_named() {
        let rights = Rights {
            readers: vec![Who::User(7), Who::Token("looker".into())],
            writers: vec![Who::Certificate("loader.example".into())],
        };
        let namespace = Namespace {
            name: "people".into(),
            is_cache: false,
            life: AtomicU64::new(1),
            view: View::of_shards(1, 1, 1),
            shards: Vec::new(),
            first_in_agent: 0,
            rights,
            own_uid: 1000,
            pointers: Mutex::default(),
            mirrored: None,
        };
        let nobody = |_: &str| false;
        let loader = |name: &str| name == "loader.example";
        let visitor = |uid, token| Visitor { uid, token, certified: &nobody };
        assert_eq!(namespace.access(&visitor(Some(7), None)), Some(false));
        assert_eq!(namespace.access(&visitor(Some(8), None)), None);
        assert_eq!(namespace.access(&visitor(Some(1000), None)), Some(true));
        assert_eq!(namespace.access(&visitor(None, Some("looker"))), Some(false));
        assert_eq!(namespace.access(&visitor(None, Some("loader.example"))), None);
        assert_eq!(namespace.access(&visitor(None, None)), None);
        assert_eq!(namespace.access(&Visitor { uid: None, token: None, certified: &loader }), Some(true));
    }
}
