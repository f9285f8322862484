//! The thread that holds a session for a handle, and the way to it.
//!
//! ```text
//! connecting ── a session, the register prepared ──▶ connected ── idle ⇄ answers one request
//!      ▲                                                 │
//!      └────────── the next server of the list ──────────┘  lost, or a request not answered in time
//! ```
//!
//! 1. A request is answered by what was sent after the request was made: a request that its caller has given
//!    up is not sent any more ([`Job::take`]).
//! 2. A caller waits no longer than until its deadline, whatever the thread does ([`Link::ask`]).
//! 3. A connection ends with the runtime that it was made in, and all that the client library has begun ends
//!    with it: nothing reconnects, or is sent, behind the thread's back ([`serve`]).
//! 4. The thread ends when the handle is dropped, wherever it stands: it never waits without looking at the
//!    handle ([`Jobs::during`]), and it makes no call that blocks.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_types::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tracing::Dispatch;
use zookeeper_client::SessionState;

use super::connection::{Answer, Connection, Failure, Look, Put, Seen};
use super::options::ZooKeeperOptions;
use crate::OPERATION;

/// Between two servers that gave no session; longer the more did so, up to a limit.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES_MAX: u32 = 10;
/// How long a server may take to hear that a session is over. One that does not hear it finds out.
const FAREWELL: Duration = Duration::from_millis(50);

/// What the thread is asked to do.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Look(Option<i32>),
    Fetch,
    Put { version: Option<i32>, document: Arc<[u8]> },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Reply {
    Look(Look),
    Fetch(Option<(Seen, Vec<u8>)>),
    Put(Put),
}

/// How a request failed.
#[derive(Debug)]
pub(super) struct Missed {
    pub error: Error,
    /// Whether it may have been sent.
    pub is_sent: bool,
    /// Whether another connection may answer it, before the deadline.
    pub is_worth_asking_again: bool,
}

/// A request and who waits for it.
struct Job {
    request: Request,
    deadline: Instant,
    /// Whether the thread has begun, or the caller has given up: whoever is first.
    taken: Arc<AtomicBool>,
    reply: SyncSender<Answer<Reply>>,
}

impl Job {
    /// Whether the job is to be done.
    fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::SeqCst)
    }
}

/// What the thread tells of itself.
#[derive(Debug, Default)]
struct State {
    /// The server of the session, while there is one.
    server: Option<String>,
    /// Why there was none last time.
    trouble: String,
    #[cfg(test)]
    session: Option<zookeeper_client::SessionInfo>,
}

/// The way to the thread. The thread ends with it.
#[derive(Debug)]
pub(super) struct Link {
    jobs: Option<UnboundedSender<Job>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<State>>,
    options: ZooKeeperOptions,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Starts the thread, which begins to connect.
    pub fn start(options: &ZooKeeperOptions) -> Result<Link> {
        let (jobs, receiver) = unbounded_channel();
        let state = Arc::<Mutex<State>>::default();
        let jobs_of_thread = Jobs { receiver, waiting: None };
        let (options_of_thread, state_of_thread) = (options.clone(), Arc::clone(&state));
        // What the library logs are its own reconnects, and sessions with their secrets.
        let run = move || {
            tracing::dispatcher::with_default(&Dispatch::none(), || {
                serve(&options_of_thread, jobs_of_thread, &state_of_thread);
            });
        };
        let thread = std::thread::Builder::new()
            .name("kelix-zookeeper".into())
            .spawn(run)
            .map_err(|source| Error::system(OPERATION, "cannot start the thread for ZooKeeper", source))?;
        Ok(Link { jobs: Some(jobs), thread: Some(thread), state, options: options.clone() })
    }

    /// The server that the thread has a session with.
    pub fn server(&self) -> Option<String> {
        lock(&self.state).server.clone()
    }

    #[cfg(test)]
    pub fn session(&self) -> Option<zookeeper_client::SessionInfo> {
        lock(&self.state).session.clone()
    }

    /// Has the thread do something, and waits until the deadline at most.
    pub fn ask(&self, request: Request, deadline: Instant) -> std::result::Result<Reply, Missed> {
        let (reply, answers) = sync_channel(1);
        let taken = Arc::new(AtomicBool::new(false));
        let job = Job { request, deadline, taken: Arc::clone(&taken), reply };
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
        let mut answer = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let is_sent = taken.swap(true, Ordering::SeqCst);
        if is_sent && answer.is_err() {
            // It may have come in the moment between.
            answer = answers.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        match answer {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Failure::Refused(error))) => {
                Err(Missed { error, is_sent: false, is_worth_asking_again: false })
            }
            Ok(Err(Failure::Broken(_))) => {
                let is_worth_asking_again = Instant::now() < deadline;
                Err(Missed { error: self.unavailable(), is_sent, is_worth_asking_again })
            }
            Err(_) if is_sent => {
                Err(Missed { error: self.timed_out(), is_sent, is_worth_asking_again: false })
            }
            Err(_) => Err(Missed { error: self.unavailable(), is_sent, is_worth_asking_again: false }),
        }
    }

    fn timed_out(&self) -> Error {
        let (servers, limit) = (self.options.servers.join(", "), self.options.time_limit);
        let context = format!("ZooKeeper at {servers} did not answer within {limit:?}");
        Error::new(ErrorKind::TimedOut, OPERATION, context)
    }

    fn unavailable(&self) -> Error {
        let servers = self.options.servers.join(", ");
        let context = match lock(&self.state).trouble.as_str() {
            "" => format!("no session with ZooKeeper at {servers} yet"),
            trouble => format!("no session with ZooKeeper at {servers}; {trouble}"),
        };
        Error::new(ErrorKind::Unavailable, OPERATION, context)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The handle has been dropped.
struct Dropped;

/// What is to be done. There is one job at most that somebody waits for, since a handle is one thread's.
struct Jobs {
    receiver: UnboundedReceiver<Job>,
    waiting: Option<Job>,
}

impl Jobs {
    /// Does something, unless the handle is dropped meanwhile.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> std::result::Result<T, Dropped> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                job = self.receiver.recv() => self.waiting = Some(job.ok_or(Dropped)?),
            }
        }
    }

    async fn next(&mut self) -> std::result::Result<Job, Dropped> {
        match self.waiting.take() {
            Some(job) => Ok(job),
            None => self.receiver.recv().await.ok_or(Dropped),
        }
    }
}

/// A runtime that runs what a connection needs, in this thread.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Holds sessions, one behind the other, until the handle is dropped.
fn serve(options: &ZooKeeperOptions, mut jobs: Jobs, state: &Mutex<State>) {
    let mut identity = None;
    let mut failures = 0;
    for server in options.servers.iter().cycle().skip(options.first_server()) {
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                lock(state).trouble = format!("no runtime for a connection: {error}");
                std::thread::sleep(PAUSE);
                if jobs.receiver.is_closed() {
                    return;
                }
                continue;
            }
        };
        let mut turn = Turn { options, server, jobs: &mut jobs, state };
        let ended = runtime.block_on(turn.run(&mut identity, &mut failures));
        // Not waiting for what the system is asked for a name.
        runtime.shutdown_background();
        lock(state).server = None;
        match ended {
            Err(Dropped) => return,
            Ok(why) => lock(state).trouble = format!("{server}: {why}"),
        }
    }
}

/// A server, for as long as it gives a session.
struct Turn<'a> {
    options: &'a ZooKeeperOptions,
    server: &'a str,
    jobs: &'a mut Jobs,
    state: &'a Mutex<State>,
}

impl Turn<'_> {
    /// Says why there is no session any more.
    async fn run(
        &mut self,
        identity: &mut Option<i64>,
        failures: &mut u32,
    ) -> std::result::Result<String, Dropped> {
        // The first one after a session at once: its caller waits.
        self.jobs.during(tokio::time::sleep(PAUSE * failures.saturating_sub(1).min(PAUSES_MAX))).await?;
        *failures += 1;
        let opened = self.jobs.during(Connection::open(self.options, self.server, identity)).await?;
        match opened {
            Ok(connection) => {
                *failures = 0;
                self.begin(&connection);
                self.answer(connection).await
            }
            Err(Failure::Broken(why)) => Ok(why),
            Err(Failure::Refused(error)) => {
                // For whoever asks next: what is wrong may have been mended until somebody asks again.
                let why = error.to_string();
                let job = self.jobs.next().await?;
                if job.take() {
                    let _ = job.reply.send(Err(Failure::Refused(error)));
                }
                Ok(why)
            }
        }
    }

    /// Tells that there is a session.
    fn begin(&self, #[cfg_attr(not(test), expect(unused_variables))] connection: &Connection) {
        let mut state = lock(self.state);
        state.server = Some(self.server.to_string());
        #[cfg(test)]
        {
            state.session = Some(connection.session());
        }
    }

    /// Answers requests for as long as the connection is good.
    async fn answer(&mut self, mut connection: Connection) -> std::result::Result<String, Dropped> {
        let mut watch = connection.watch();
        loop {
            let job = tokio::select! {
                biased;
                state = watch.changed() => match state {
                    SessionState::SyncConnected => continue,
                    state => return Ok(format!("the session ended: {state}")),
                },
                job = self.jobs.next() => match job {
                    Ok(job) => job,
                    Err(dropped) => {
                        drop(connection);
                        let _ = timeout(FAREWELL, watch.changed()).await;
                        return Err(dropped);
                    }
                },
            };
            if !job.take() {
                continue;
            }
            let left = job.deadline.saturating_duration_since(Instant::now());
            let patience = self.options.patience().min(left);
            let answered = self.jobs.during(timeout(patience, answer(&mut connection, &job.request))).await?;
            let late = format!("gave no answer within {patience:?}");
            let answer = answered.unwrap_or(Err(Failure::Broken(late.clone())));
            let why = match &answer {
                Err(Failure::Broken(why)) => Some(why.clone()),
                _ => None,
            };
            // A server that had less time than it may take is not to blame.
            let is_to_blame = why.as_ref() != Some(&late) || patience == self.options.patience();
            if let Some(why) = why.filter(|_| is_to_blame) {
                lock(self.state).trouble = format!("{}: {why}", self.server);
                let _ = job.reply.send(answer);
                return Ok(why);
            }
            let _ = job.reply.send(answer);
        }
    }
}

async fn answer(connection: &mut Connection, request: &Request) -> Answer<Reply> {
    Ok(match request {
        Request::Look(version) => Reply::Look(connection.look(*version).await?),
        Request::Fetch => Reply::Fetch(connection.fetch().await?),
        Request::Put { version, document } => Reply::Put(connection.put(*version, document).await?),
    })
}
