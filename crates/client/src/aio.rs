//! Sessions for programs with an asynchronous runtime, whichever that is: futures over [`Session::poll`] and
//! its descriptor. There is no runtime, thread or timer in here.
//!
//! [`AsyncSession`] is a handle that tasks share; [`Driver`] is the one task that waits for the session's
//! descriptor.
//!
//! ```text
//! task     get -> submit              poll: Session::poll -> answered? ready : keep the waker
//!                                                                  | wakes, if it is idle
//! driver   idle until something is under way -> descriptor or time -> Session::poll -> wakes the tasks
//! ```
//!
//! In shared memory nearly every get ends in the first poll of its future, and the driver does nothing for
//! it. A session is a connection, and its lock is held for microseconds at a time: a program opens a few
//! sessions at most, and not one a task.
//!
//! A future submits its operation when it is made, and begins with the next poll of any, so all that are made
//! together go together; a link that leads to memory within reach of loads is followed when the future is
//! made. A future that is dropped abandons its operation: nobody gets the answer, and a put may be done or
//! not.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kelix_fabric::Waiter;
use kelix_types::{Effect, Error, ErrorKind, Result, TableId, Version};

use crate::Table;
use crate::engine::BETWEEN_TRIES;
use crate::frontier::Frontier;
use crate::item::{Item, NewItem};
use crate::read::Cost;
use crate::scan::{PausedScan, Scan, ScanPage};
use crate::session::{CompareAndSet, Session};
use crate::submit::{Completion, Outcome, Ticket};

/// Between two polls of a session that waits for answers, at most, and at least: operations whose time is
/// over end in a poll.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(250);
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// A session that tasks share, whichever threads they run on. Cheap to clone.
///
/// ```no_run
/// # async fn readable(_: Option<std::sync::Arc<std::os::fd::OwnedFd>>, _: std::time::Duration) {}
/// # fn spawn(_: impl Future<Output = ()> + Send + 'static) {}
/// # async fn run(mut session: kelix::Session) -> kelix::Result<()> {
/// use kelix::aio::AsyncSession;
///
/// let table = session.create_table("greetings")?;
/// let (session, driver) = AsyncSession::new(session);
/// spawn(driver.run(readable));
/// session.put(table, b"hello", b"world").await?;
/// let (hello, other) = (session.get(table, b"hello"), session.get(table, b"other"));
/// assert_eq!(hello.await?.expect("just put").value(), b"world");
/// assert!(other.await?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct AsyncSession {
    shared: Arc<Shared>,
}

/// What lets the operations of an [`AsyncSession`] end that do not end at once. There is one a session. Once
/// it is dropped, operations that are not answered at once fail.
#[must_use = "operations end while the driver runs"]
pub struct Driver {
    shared: Arc<Shared>,
}

/// An operation of an [`AsyncSession`]: a future with its result.
#[must_use = "an operation that nobody awaits is abandoned"]
pub struct Operation<T> {
    shared: Arc<Shared>,
    progress: Progress,
    result: fn(Outcome) -> T,
}

/// The reads of targets of a frontier: a future with an entry for each, in their order; `None`: the target
/// does not exist (any more). If one of them fails, so does the future, once all have ended.
#[must_use = "operations that nobody awaits are abandoned"]
pub struct VisitBatch {
    shared: Arc<Shared>,
    progress: Vec<Progress>,
}

enum Progress {
    Submitted(Ticket),
    Answered(Result<Outcome>),
    /// Its answer was given to whoever asked.
    Ended,
}

struct Shared(Mutex<State>);

struct State {
    session: Session,
    /// Operations whose futures wait for them.
    awaited: HashMap<Ticket, Awaited>,
    /// What a poll brings, in memory that is used again.
    completions: Vec<Completion>,
    handles: usize,
    /// The driver's waker while the driver waits, whether for something to do or for the descriptor.
    driver: Option<Waker>,
    /// Whether the driver has found nothing under way.
    idle: bool,
    /// Whether there is a driver no more.
    abandoned: bool,
    /// A duplicate of the session's descriptor, which stays open while the driver waits for it, and of which
    /// connection of the session it is.
    descriptor: Option<(Arc<OwnedFd>, u32)>,
}

enum Awaited {
    /// By this task, once it has looked.
    By(Option<Waker>),
    Answered(Result<Outcome>),
}

/// What the driver is to wait for next.
struct Wait {
    /// `None` where there is no connection, and only time helps.
    descriptor: Option<Arc<OwnedFd>>,
    time: Duration,
    connection: u32,
}

impl AsyncSession {
    /// Shares a session. The driver has to be run, as a task of its own.
    pub fn new(session: Session) -> (AsyncSession, Driver) {
        let state = State {
            session,
            awaited: HashMap::new(),
            completions: Vec::new(),
            handles: 1,
            driver: None,
            idle: false,
            abandoned: false,
            descriptor: None,
        };
        let shared = Arc::new(Shared(Mutex::new(state)));
        (AsyncSession { shared: shared.clone() }, Driver { shared })
    }

    /// Gets an item. `None`: the key is absent.
    pub fn get(&self, table: Table, key: &[u8]) -> Operation<Option<Item>> {
        self.submit(|session| session.submit_get(table, key), item)
    }

    /// Follows the first link of an item under this name. `None`: its target does not exist (any more).
    pub fn follow(&self, item: &Item, name: &str) -> Operation<Option<Item>> {
        self.submit(|session| session.submit_follow(item, name), self::item)
    }

    /// Reads what all links and keys of a frontier lead to, their READs overlapping, and shows it in order.
    /// `None`: the target does not exist (any more). Ends early when told to break off.
    ///
    /// In shared memory it is mostly shown where it stands, without a copy for each, and while this session
    /// is held: so `each` must not use the session.
    pub async fn visit(
        &self,
        frontier: &Frontier,
        mut each: impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        let shown = self.shared.lock().session.visit_at_hand(frontier, &mut each)?;
        if shown == frontier.len() {
            return Ok(());
        }
        let rest = self.visit_batch(frontier, shown..frontier.len()).await?;
        let _ = rest.iter().zip(shown..).try_for_each(|(item, index)| each(index, item.as_ref()));
        Ok(())
    }

    /// Reads what some links and keys of a frontier lead to, their READs overlapping.
    pub fn visit_batch(&self, frontier: &Frontier, targets: Range<usize>) -> VisitBatch {
        let mut state = self.shared.lock();
        let mut progress = Vec::with_capacity(targets.len());
        let State { session, awaited, .. } = &mut *state;
        let submitted = session.submit_each(frontier, targets, |session, ticket| {
            progress.push(await_answer(session, awaited, ticket));
        });
        if let Err(error) = submitted {
            progress.push(Progress::Answered(Err(error)));
        }
        drop(state);
        VisitBatch { shared: self.shared.clone(), progress }
    }

    /// Scans a table: its first page, whose rest [`AsyncSession::page`] takes.
    pub fn scan(&self, table: Table, scan: &Scan) -> Operation<ScanPage> {
        self.submit(|session| session.submit_scan(table, scan), page)
    }

    /// The next page of a scan.
    pub fn page(&self, scan: PausedScan) -> Operation<ScanPage> {
        self.submit(|session| session.submit_page(scan), page)
    }

    /// Puts a plain item. Its result is the version.
    pub fn put(&self, table: Table, key: &[u8], value: &[u8]) -> Operation<Version> {
        self.submit(|session| session.submit_put(table, key, value), written)
    }

    /// Puts an item with attributes and links. Its result is the version.
    pub fn put_item(&self, table: Table, key: &[u8], item: &NewItem) -> Operation<Version> {
        self.submit(|session| session.submit_item(table, key, item), written)
    }

    /// Deletes a key. Its result is whether the key was there.
    pub fn delete(&self, table: Table, key: &[u8]) -> Operation<bool> {
        self.submit(
            |session| session.submit_delete(table, key),
            |outcome| match outcome {
                Outcome::Deleted(deleted) => deleted,
                other => unreachable!("a delete brought {other:?}"),
            },
        )
    }

    /// Puts a plain item if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set(
        &self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        value: &[u8],
    ) -> Operation<CompareAndSet> {
        self.submit(|session| session.submit_compare_and_set(table, key, expected, value), compared)
    }

    /// Puts an item if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set_item(
        &self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        item: &NewItem,
    ) -> Operation<CompareAndSet> {
        self.submit(|session| session.submit_compare_and_set_item(table, key, expected, item), compared)
    }

    /// Deletes a key if its version is still the expected one.
    pub fn compare_and_delete(
        &self,
        table: Table,
        key: &[u8],
        expected: Version,
    ) -> Operation<CompareAndSet> {
        self.submit(|session| session.submit_compare_and_delete(table, key, expected), compared)
    }

    /// The handle of a table, by the id that a link tells.
    pub fn table_by_id(&self, id: TableId) -> Table {
        self.shared.lock().session.table_by_id(id)
    }

    /// What all operations of all tasks with this session have cost so far.
    pub fn cost(&self) -> Cost {
        self.shared.lock().session.cost()
    }

    /// Does something with the session that is no future, such as opening a table or walking: tasks that use
    /// this session wait for so long. In shared memory reads take microseconds. What is submitted in here is
    /// answered to nobody.
    pub fn with<T>(&self, call: impl FnOnce(&mut Session) -> T) -> T {
        self.shared.locked(|state, woken| {
            let done = call(&mut state.session);
            // The call has taken back what the last poll announced.
            state.turn(woken);
            done
        })
    }

    fn submit<T>(
        &self,
        submit: impl FnOnce(&mut Session) -> Result<Ticket>,
        result: fn(Outcome) -> T,
    ) -> Operation<T> {
        let mut state = self.shared.lock();
        let State { session, awaited, .. } = &mut *state;
        let progress = match submit(session) {
            Ok(ticket) => await_answer(session, awaited, ticket),
            Err(error) => Progress::Answered(Err(error)),
        };
        drop(state);
        Operation { shared: self.shared.clone(), progress, result }
    }
}

fn item(outcome: Outcome) -> Option<Item> {
    match outcome {
        Outcome::Item(item) => item,
        other => unreachable!("a get brought {other:?}"),
    }
}

fn page(outcome: Outcome) -> ScanPage {
    match outcome {
        Outcome::Page(page) => page,
        other => unreachable!("a scan brought {other:?}"),
    }
}

fn written(outcome: Outcome) -> Version {
    match outcome {
        Outcome::Written(version) => version,
        other => unreachable!("a put brought {other:?}"),
    }
}

fn compared(outcome: Outcome) -> CompareAndSet {
    match outcome {
        Outcome::Compared(compared) => compared,
        other => unreachable!("a compare-and-set brought {other:?}"),
    }
}

impl Clone for AsyncSession {
    fn clone(&self) -> AsyncSession {
        self.shared.lock().handles += 1;
        AsyncSession { shared: self.shared.clone() }
    }
}

impl Drop for AsyncSession {
    fn drop(&mut self) {
        self.shared.locked(|state, woken| {
            state.handles -= 1;
            state.wake_driver_to_end(woken);
        });
    }
}

impl Driver {
    /// Runs until all handles and operations of the session are gone.
    ///
    /// `wait` is the runtime's part: a future that ends when the descriptor is readable, or after so much
    /// time, or earlier. Without a descriptor it ends after the time. The descriptor is a duplicate that
    /// stays open for as long as the future has it, whatever the session does meanwhile. With tokio:
    ///
    /// ```ignore
    /// async fn readable(descriptor: Option<Arc<OwnedFd>>, time: Duration) {
    ///     let Some(descriptor) = descriptor else { return tokio::time::sleep(time).await };
    ///     // SAFETY: an `Arc<OwnedFd>` is an open descriptor for as long as the registration has it.
    ///     let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    ///     let descriptor = descriptor.expect("there is room for one more");
    ///     let _ = tokio::time::timeout(time, descriptor.readable()).await;
    /// }
    /// ```
    pub async fn run<F: Future<Output = ()>>(
        self,
        mut wait: impl FnMut(Option<Arc<OwnedFd>>, Duration) -> F,
    ) {
        loop {
            let next = poll_fn(|context| self.shared.lock().next_wait(context)).await;
            let Some(Wait { descriptor, time, connection }) = next else { return };
            let mut waiting = pin!(wait(descriptor, time));
            poll_fn(|context| match self.shared.lock().interrupts(connection, context) {
                true => Poll::Ready(()),
                false => waiting.as_mut().poll(context),
            })
            .await;
            self.shared.locked(State::turn);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.locked(|state, woken| {
            state.abandoned = true;
            state.descriptor = None;
            let tasks = state.awaited.values_mut().filter_map(|awaited| match awaited {
                Awaited::By(task) => task.take(),
                Awaited::Answered(_) => None,
            });
            woken.extend(tasks);
        });
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Operation { shared, progress, result } = self.get_mut();
        match shared.has_answered(std::slice::from_mut(progress), context.waker()) {
            true => Poll::Ready(progress.take().map(*result)),
            false => Poll::Pending,
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        self.shared.abandon(std::slice::from_ref(&self.progress));
    }
}

impl Future for VisitBatch {
    type Output = Result<Vec<Option<Item>>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<Option<Item>>>> {
        let VisitBatch { shared, progress } = self.get_mut();
        match shared.has_answered(progress, context.waker()) {
            true => Poll::Ready(progress.iter_mut().map(|progress| progress.take().map(item)).collect()),
            false => Poll::Pending,
        }
    }
}

impl Drop for VisitBatch {
    fn drop(&mut self) {
        self.shared.abandon(&self.progress);
    }
}

impl Progress {
    fn is_answered(&self) -> bool {
        !matches!(self, Progress::Submitted(_))
    }

    fn take(&mut self) -> Result<Outcome> {
        match std::mem::replace(self, Progress::Ended) {
            Progress::Answered(outcome) => outcome,
            Progress::Submitted(_) | Progress::Ended => panic!("an operation was polled after its end"),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no call has panicked")
    }

    /// Does something with the state, and wakes tasks once the lock is free: they may run at once.
    fn locked<T>(&self, change: impl FnOnce(&mut State, &mut Vec<Waker>) -> T) -> T {
        let mut woken = Vec::new();
        let done = change(&mut self.lock(), &mut woken);
        woken.into_iter().for_each(Waker::wake);
        done
    }

    /// Whether all of some operations have ended. If not the task is woken when they have.
    fn has_answered(&self, operations: &mut [Progress], task: &Waker) -> bool {
        operations.iter().all(Progress::is_answered)
            || self.locked(|state, woken| state.has_answered(operations, task, woken))
    }

    /// Gives up those operations that have not ended.
    fn abandon(&self, operations: &[Progress]) {
        if operations.iter().all(Progress::is_answered) {
            return;
        }
        self.locked(|state, woken| {
            for operation in operations {
                if let Progress::Submitted(ticket) = operation {
                    state.awaited.remove(ticket);
                }
            }
            state.wake_driver_to_end(woken);
        });
    }
}

/// What an operation comes to that was just submitted.
fn await_answer(session: &mut Session, awaited: &mut HashMap<Ticket, Awaited>, ticket: Ticket) -> Progress {
    match session.take_last(ticket) {
        Some(outcome) => Progress::Answered(outcome),
        None => {
            awaited.insert(ticket, Awaited::By(None));
            Progress::Submitted(ticket)
        }
    }
}

impl State {
    fn has_answered(&mut self, operations: &mut [Progress], task: &Waker, woken: &mut Vec<Waker>) -> bool {
        if self.take_answers(operations) {
            return true;
        }
        // A poll that connects again waits before its next try; the driver does that in its own time.
        let connects = self.session.is_detached() && self.session.engine.connection.caller.is_some();
        if !connects || self.abandoned {
            self.turn(woken);
            if self.take_answers(operations) {
                return true;
            }
        }
        for operation in operations {
            let Progress::Submitted(ticket) = operation else { continue };
            if self.abandoned {
                self.awaited.remove(ticket);
                let error = Error::new(ErrorKind::Unavailable, "poll", "the session has no driver any more");
                *operation = Progress::Answered(Err(error.with_effect(Effect::Unknown)));
            } else if let Some(Awaited::By(by)) = self.awaited.get_mut(ticket) {
                match by {
                    Some(by) => by.clone_from(task),
                    None => *by = Some(task.clone()),
                }
            }
        }
        if std::mem::take(&mut self.idle) {
            woken.extend(self.driver.take());
        }
        self.abandoned
    }

    /// Takes the answers to operations that are there. Whether these are all.
    fn take_answers(&mut self, operations: &mut [Progress]) -> bool {
        let mut all = true;
        for operation in operations {
            let Progress::Submitted(ticket) = operation else { continue };
            match self.awaited.get(ticket) {
                Some(Awaited::Answered(_)) => {
                    if let Some(Awaited::Answered(outcome)) = self.awaited.remove(ticket) {
                        *operation = Progress::Answered(outcome);
                    }
                }
                _ => all = false,
            }
        }
        all
    }

    /// Polls the session until that has nothing more: only then the descriptor tells of what comes.
    fn turn(&mut self, woken: &mut Vec<Waker>) {
        let connection = self.session.engine.connection.connections;
        loop {
            match self.session.poll(&mut self.completions) {
                Ok(0) => break,
                Ok(_) => self.hand_out(woken),
                Err(error) => {
                    self.hand_out(woken);
                    self.fail(&error, woken);
                    break;
                }
            }
        }
        if self.session.engine.connection.connections != connection {
            woken.extend(self.driver.take());
        }
    }

    /// Gives each answer to the operation that waits for it.
    fn hand_out(&mut self, woken: &mut Vec<Waker>) {
        for Completion { ticket, outcome, .. } in self.completions.drain(..) {
            if let Some(awaited) = self.awaited.get_mut(&ticket) {
                if let Awaited::By(task) = std::mem::replace(awaited, Awaited::Answered(outcome)) {
                    woken.extend(task);
                }
            }
        }
    }

    /// Ends all operations by an error of the session.
    fn fail(&mut self, error: &Error, woken: &mut Vec<Waker>) {
        for awaited in self.awaited.values_mut() {
            if let Awaited::By(task) = awaited {
                woken.extend(task.take());
                let copy = Error::new(error.kind(), error.operation(), error.context());
                let copy = copy.with_retry(error.retry()).with_effect(Effect::Unknown);
                *awaited = Awaited::Answered(Err(copy));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.handles == 0 && self.awaited.is_empty()
    }

    fn wake_driver_to_end(&mut self, woken: &mut Vec<Waker>) {
        if self.is_done() {
            woken.extend(self.driver.take());
        }
    }

    /// What the driver waits for, once something is under way. `None`: nothing will be any more.
    fn next_wait(&mut self, context: &Context<'_>) -> Poll<Option<Wait>> {
        self.driver = Some(context.waker().clone());
        if self.is_done() {
            return Poll::Ready(None);
        }
        self.idle = self.session.outstanding() == 0;
        if self.idle {
            return Poll::Pending;
        }
        let connection = self.session.engine.connection.connections;
        if self.session.is_detached() {
            self.descriptor = None;
            return Poll::Ready(Some(Wait { descriptor: None, time: BETWEEN_TRIES, connection }));
        }
        let time = self.session.engine.connection.options.timeout / 4;
        let time = time.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX);
        if self.descriptor.as_ref().is_none_or(|(_, of)| *of != connection) {
            let descriptor =
                self.session.engine.transport.fabric.fd().and_then(|fd| fd.try_clone_to_owned().ok());
            self.descriptor = descriptor.map(|descriptor| (Arc::new(descriptor), connection));
        }
        // Where there is no descriptor left for a duplicate, short waits take its place.
        let descriptor = self.descriptor.as_ref().map(|(descriptor, _)| descriptor.clone());
        let time = if descriptor.is_some() { time } else { POLL_INTERVAL_MIN };
        Poll::Ready(Some(Wait { descriptor, time, connection }))
    }

    /// Whether the driver has to wait no longer for what it waits for.
    fn interrupts(&mut self, connection: u32, context: &Context<'_>) -> bool {
        self.driver = Some(context.waker().clone());
        self.session.engine.connection.connections != connection || self.is_done()
    }
}
