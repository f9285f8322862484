//! Sessions: one thread's way to the store at a time.

use std::ffi::c_int;
use std::time::Duration;

use kelix::{FabricChoice, Path, SessionOptions};

use crate::call::{Session, alone, in_session};
use crate::connect::kelix_client;
use crate::error::{Failure, KELIX_ABSENT, KELIX_OK, Result};
use crate::handle::{Opaque, free, make, share};
use crate::memory::{Place, kelix_bytes};
use crate::structs::{Passed, ResultPlace, passed};

/// A way to the store, for one thread at a time; it may go from thread to thread. A call that comes while
/// another thread's is inside returns KELIX_BUSY and does nothing. A session with a server of this host reads
/// the server's memory itself. One whose server has gone goes over to the server that is there by then.
pub struct kelix_session {
    _private: [u8; 0],
}

impl Opaque for kelix_session {
    type State = Session;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx sessn");
    const NAME: &'static str = "session";
}

/// Gets look for their item as is best. The default.
pub const KELIX_PATH_AUTO: c_int = 0;
/// Gets look for it by cached pointers first.
pub const KELIX_PATH_POINTER: c_int = 1;
/// Gets look for it in the index.
pub const KELIX_PATH_INDEX: c_int = 2;
/// Gets ask the server by a message.
pub const KELIX_PATH_MESSAGE: c_int = 3;

/// Whatever leads to the server, the faster first. The default.
pub const KELIX_FABRIC_ANY: c_int = 0;
/// Shared memory.
pub const KELIX_FABRIC_SHM: c_int = 1;
/// RDMA.
pub const KELIX_FABRIC_VERBS: c_int = 2;
/// TCP.
pub const KELIX_FABRIC_TCP: c_int = 3;

/// In kelix_session_options: no memory for copies of models.
pub const KELIX_NO_MODELS: u64 = u64::MAX;

/// How to open a session. What is zero has its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_session_options {
    /// sizeof(kelix_session_options).
    pub size: usize,
    /// How gets look for their item: KELIX_PATH_AUTO and so on.
    pub path: c_int,
    /// The fabric to insist on: KELIX_FABRIC_ANY and so on. Opening fails where it cannot be had.
    pub fabric: c_int,
    /// 1: cached pointers and copies of models are this session's own, and not shared with the user's other
    /// processes on this host.
    pub private_caches: c_int,
    /// 1: writes are on the server's disk before they return. The server has to write a log.
    pub durable: c_int,
    /// How long a request may take before it fails with an unknown effect, if nothing of it comes meanwhile.
    /// Default: 900 ms.
    pub timeout_ns: u64,
    /// For how much longer each operation tries to connect again where the connection is lost. Default: not
    /// at all, and at the primary of a cluster 10 s.
    pub retry_ns: u64,
    /// Most queue pairs that this process connects to the server, over verbs. Default: 4.
    pub queue_pairs: usize,
    /// The address of this host, as text, whose RDMA device is to be used. Default: any.
    pub rdma_address: kelix_bytes,
    /// Bytes that copies of the models of each ordered table may have, over TCP and verbs. Default: 64 MiB.
    /// KELIX_NO_MODELS: none.
    pub model_bytes: u64,
    /// On a mirror: how old what is read may be. A read that would show what is older fails with
    /// KELIX_UNAVAILABLE. Default: as old as the mirror lets it be.
    pub max_lag_ns: u64,
    /// On a mirror, 1: reads are of the mirror whatever it has. Default: what this session has written or
    /// seen at the primary is read there until the mirror has it.
    pub no_own_writes: c_int,
    /// On a mirror, 1: all reads go to the primary, too. At a cluster on several hosts: each is answered by
    /// the word of its register, and believes no clock.
    pub strict: c_int,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_session_options {}

/// A member that is 0 or 1.
pub fn flag(value: c_int, what: &str) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::argument(format!("{what} is 0 or 1, not {value}"))),
    }
}

impl kelix_session_options {
    /// # Safety
    ///
    /// The promises of the crate.
    unsafe fn options(&self) -> Result<SessionOptions> {
        let mut options = SessionOptions::default()
            .path(match self.path {
                KELIX_PATH_AUTO => Path::Auto,
                KELIX_PATH_POINTER => Path::Pointer,
                KELIX_PATH_INDEX => Path::Index,
                KELIX_PATH_MESSAGE => Path::Message,
                path => return Err(Failure::argument(format!("no path has the number {path}"))),
            })
            .fabric(match self.fabric {
                KELIX_FABRIC_ANY => None,
                KELIX_FABRIC_SHM => Some(FabricChoice::Shm),
                KELIX_FABRIC_VERBS => Some(FabricChoice::Verbs),
                KELIX_FABRIC_TCP => Some(FabricChoice::Tcp),
                fabric => return Err(Failure::argument(format!("no fabric has the number {fabric}"))),
            })
            .private_caches(flag(self.private_caches, "private_caches")?)
            .durable(flag(self.durable, "durable")?)
            .own_writes(!flag(self.no_own_writes, "no_own_writes")?)
            .strict(flag(self.strict, "strict")?)
            .retry_for(Some(self.retry_ns).filter(|ns| *ns > 0).map(Duration::from_nanos));
        if self.timeout_ns != 0 {
            options = options.timeout(Duration::from_nanos(self.timeout_ns));
        }
        if self.queue_pairs != 0 {
            options = options.queue_pairs(self.queue_pairs);
        }
        if self.max_lag_ns != 0 {
            options = options.max_lag(Duration::from_nanos(self.max_lag_ns));
        }
        match self.model_bytes {
            0 => {}
            KELIX_NO_MODELS => options = options.model_bytes(0),
            bytes => options = options.model_bytes(bytes.try_into().unwrap_or(usize::MAX)),
        }
        // SAFETY: the promises.
        let address = unsafe { self.rdma_address.text("rdma_address") }?;
        if !address.is_empty() {
            let parsed = address.parse();
            let parsed =
                parsed.map_err(|_| Failure::argument(format!("{address} is no address of a host")))?;
            options = options.rdma_address(Some(parsed));
        }
        Ok(options)
    }
}

/// Opens a session. `options` may be NULL: all defaults. On error the session is NULL, and
/// kelix_last_error(NULL) tells why, with the kinds of kelix_connect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_open(
    client: *const kelix_client,
    options: *const kelix_session_options,
    session: *mut *mut kelix_session,
) -> c_int {
    alone("kelix_session_open", || {
        // SAFETY: the promises.
        unsafe {
            let mut place = Place::needed(session, "session")?;
            place.tell(std::ptr::null_mut());
            let client = share(client)?;
            let options = passed(options, "options")?.options()?;
            place.tell(make(Session::of(client.clone(), client.session_with(options)?)));
            Ok(KELIX_OK)
        }
    })
}

/// Closes and frees a session. NULL is nothing. One that is in use by another thread stays. Scans, walks,
/// builds and views of it are of no use any more, and are freed as any other; a build is given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_free(session: *mut kelix_session) {
    // SAFETY: the promises.
    unsafe { free(session) };
}

/// The name of the fabric in use: "shm", "verbs" or "tcp". It stays for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_fabric(session: *mut kelix_session, name: *mut kelix_bytes) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_fabric", session, |inside| {
            Place::needed(name, "name")?.tell(kelix_bytes::of(inside.session.fabric().as_bytes()));
            Ok(KELIX_OK)
        })
    }
}

/// The descriptor that becomes readable when answers to submitted operations have arrived. It is the
/// session's: wait for it, and do nothing else with it. A session that connects anew has another one.
/// kelix_poll() says when to wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_fd(session: *mut kelix_session, fd: *mut c_int) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_fd", session, |inside| {
            Place::needed(fd, "fd")?.tell(inside.session.fd());
            Ok(KELIX_OK)
        })
    }
}

/// How many connections a session has had before the one it has: when that has grown, the descriptor of
/// kelix_session_fd() is another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_past_connections(
    session: *mut kelix_session,
    count: *mut u32,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_past_connections", session, |inside| {
            Place::needed(count, "count")?.tell(inside.session.past_connections());
            Ok(KELIX_OK)
        })
    }
}

/// Whether writes are on the server's disk before they return, from now on: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_set_durable(session: *mut kelix_session, durable: c_int) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_set_durable", session, |inside| {
            inside.session.set_durable(flag(durable, "durable")?);
            Ok(KELIX_OK)
        })
    }
}

/// Whether the server is a mirror: 1 or 0. Then reads are of the mirror's memory, on this host, and writes go
/// to the primary over a connection that the first of them opens, with the client's own credentials.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_is_mirror(
    session: *mut kelix_session,
    is_mirror: *mut c_int,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_is_mirror", session, |inside| {
            Place::needed(is_mirror, "is_mirror")?.tell(c_int::from(inside.session.is_mirror()));
            Ok(KELIX_OK)
        })
    }
}

/// Where the server is that the mirror follows, as HOST:PORT. The text stays until the session's next call of
/// this function, kelix_statistics() or kelix_snapshot(), or its end. KELIX_ABSENT: the server is no mirror.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_primary(
    session: *mut kelix_session,
    address: *mut kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_primary", session, |inside| {
            let mut place = Place::needed(address, "address")?;
            let primary = inside.session.primary().map(str::to_owned);
            let code = if primary.is_some() { KELIX_OK } else { KELIX_ABSENT };
            inside.text = primary.unwrap_or_default();
            place.tell(kelix_bytes::of(inside.text.as_bytes()));
            Ok(code)
        })
    }
}

/// How long ago the mirror is known to have had all that its primary had, in nanoseconds. KELIX_ABSENT: the
/// server is no mirror, or has not heard from its primary yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_lag(session: *mut kelix_session, lag_ns: *mut u64) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_lag", session, |inside| {
            let mut place = Place::needed(lag_ns, "lag_ns")?;
            let lag = inside.session.lag();
            place.tell(lag.map_or(0, |lag| u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX)));
            Ok(if lag.is_some() { KELIX_OK } else { KELIX_ABSENT })
        })
    }
}

/// What the operations of a session have cost so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_cost {
    /// sizeof(kelix_cost), set by the caller.
    pub size: usize,
    /// One-sided reads.
    pub reads: u64,
    /// Bytes that these brought.
    pub read_bytes: u64,
    /// Messages to the server.
    pub messages: u64,
    /// Reads that were repeated because something was being written.
    pub retries: u64,
    /// Reads that became messages.
    pub fallbacks: u64,
}

// SAFETY: numbers, the size first.
unsafe impl Passed for kelix_cost {}

/// Tells what the operations of a session have cost so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_session_cost(session: *mut kelix_session, cost: *mut kelix_cost) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_session_cost", session, |inside| {
            let spent = inside.session.cost();
            ResultPlace::at(cost, "cost")?.tell(&kelix_cost {
                size: size_of::<kelix_cost>(),
                reads: spent.reads,
                read_bytes: spent.read_bytes,
                messages: spent.messages,
                retries: spent.retries,
                fallbacks: spent.fallbacks,
            });
            Ok(KELIX_OK)
        })
    }
}

/// What the server tells of itself, its shards and its clients, as JSON. The text stays until the session's
/// next call of this function, kelix_snapshot() or kelix_session_primary(), or its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_statistics(session: *mut kelix_session, json: *mut kelix_bytes) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_statistics", session, |inside| {
            let mut place = Place::needed(json, "json")?;
            inside.text = inside.client.statistics()?.json();
            place.tell(kelix_bytes::of(inside.text.as_bytes()));
            Ok(KELIX_OK)
        })
    }
}

/// A snapshot that was taken.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_snapshot_taken {
    /// sizeof(kelix_snapshot_taken), set by the caller.
    pub size: usize,
    /// Its file. The text stays until the session's next call of kelix_statistics(), kelix_snapshot() or
    /// kelix_session_primary(), or its end.
    pub path: kelix_bytes,
    /// How long the file is.
    pub bytes: u64,
    /// How long it took to write, in seconds.
    pub seconds: f64,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_snapshot_taken {}

/// Has the server take a snapshot, and waits for it. For the user whose the server is, on its host, by its
/// run directory; the server has to be told where snapshots go. `taken` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_snapshot(
    session: *mut kelix_session,
    taken: *mut kelix_snapshot_taken,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_snapshot", session, |inside| {
            let mut place = ResultPlace::at(taken, "taken")?;
            let snapshot = inside.client.snapshot()?;
            inside.text = snapshot.path.to_string_lossy().into_owned();
            place.tell(&kelix_snapshot_taken {
                size: size_of::<kelix_snapshot_taken>(),
                path: kelix_bytes::of(inside.text.as_bytes()),
                bytes: snapshot.bytes,
                seconds: snapshot.seconds,
            });
            Ok(KELIX_OK)
        })
    }
}
