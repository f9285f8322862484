//! Virtual time and the tasks that live in it.
//!
//! Every node of a run is a *task*: a coroutine that runs production code on a stack of its own. One thread
//! runs them all, one at a time. A task goes on until it sleeps, yields, or comes to a
//! [moment](kelix_image::words::moment), the access to a single word of shared memory, at which the scheduler
//! decides to let another one go on. Each moment takes a little time, and before each one whatever is due by
//! then happens: words of WRITEs land, words of READs are sampled, sleepers wake.
//!
//! 1. All chance comes from the run's seed, and the order of everything from time and chance: a seed gives
//!    one history.
//! 2. Only the running task and events touch shared memory, and an event is one word: so every interleaving
//!    that the scheduler makes is one of whole words.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kelix_image::words::moment::{self, Access};

use crate::random::Random;

/// Bytes of a task's stack.
const STACK_BYTES: usize = 1 << 20;

/// One task, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(usize);

/// Something that happens at its time, in one go; it says when it happens again.
type Event = Box<dyn FnMut() -> Option<u64>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    Sleeping { until_ns: u64 },
    Ended,
}

/// The clock of a host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostClock {
    /// What it said when the true one said nothing.
    pub began_ns: u64,
    /// How much faster it runs than the true one, in parts per million.
    pub drift_ppm: i64,
}

impl HostClock {
    /// What it says at a moment of the true time.
    pub fn at(self, now_ns: u64) -> u64 {
        let ahead_ns = now_ns as i128 * self.drift_ppm as i128 / 1_000_000;
        self.began_ns + now_ns.saturating_add_signed(ahead_ns as i64)
    }
}

struct Task {
    name: String,
    state: State,
    /// The clock of the host that it runs on.
    clock: HostClock,
    /// It does not run before this time, whatever happens: it was stopped.
    stopped_until_ns: u64,
    coroutine: Option<Coroutine<(), (), (), DefaultStack>>,
}

impl Task {
    /// From when on it may run.
    fn ready_ns(&self) -> u64 {
        match self.state {
            State::Ready => self.stopped_until_ns,
            State::Sleeping { until_ns } => until_ns.max(self.stopped_until_ns),
            State::Ended => u64::MAX,
        }
    }
}

struct Due {
    at_ns: u64,
    /// Tells events of one time apart, in the order of their making.
    number: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at_ns, self.number) == (other.at_ns, other.number)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// How the scheduler deals with moments.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    /// A task gives way at one in so many loads.
    pub loads_a_switch: u64,
    /// A task gives way at one in so many stores.
    pub stores_a_switch: u64,
    /// Longest time a moment takes.
    pub moment_ns_max: u64,
    /// Longest time until a task that gave way may go on, most of the time.
    pub pause_ns_max: u64,
    /// One in so many pauses is a long one,
    pub pauses_a_long_one: u64,
    /// of so much at most.
    pub long_pause_ns_max: u64,
}

struct World {
    now_ns: u64,
    random: Random,
    temper: Temper,
    tasks: Vec<Task>,
    /// Those that have not ended.
    alive: Vec<TaskId>,
    events: BinaryHeap<Reverse<Due>>,
    events_made: u64,
    running: Option<TaskId>,
    /// Number of moments so far, a measure of work.
    moments: u64,
}

impl World {
    fn end(&mut self, task: TaskId) {
        self.tasks[task.0].state = State::Ended;
        self.alive.retain(|alive| *alive != task);
    }

    /// Whether an event is due.
    fn is_due(&self) -> bool {
        self.events.peek().is_some_and(|Reverse(due)| due.at_ns <= self.now_ns)
    }

    fn expect(&mut self, at_ns: u64, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse(Due { at_ns, number: self.events_made, event }));
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    /// Set while words are moved that no reader can fall between.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// Set while an event happens or the scheduler itself is at work: moments pass unnoticed then.
    static AT_WORK: Cell<bool> = const { Cell::new(true) };
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
}

fn with<R>(act: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(|world| act(world.as_mut().expect("inside a run")))
}

/// Runs a closure without its accesses to shared memory being moments: for what the simulator itself looks
/// at.
pub fn unnoticed<R>(act: impl FnOnce() -> R) -> R {
    let before = AT_WORK.replace(true);
    let result = act();
    AT_WORK.set(before);
    result
}

/// Whether accesses to shared memory are moments now, and a task runs that can give way.
pub fn is_noticed() -> bool {
    !AT_WORK.get()
}

/// From now on, or from now on no more, accesses to shared memory are no moments: to set a run up quickly.
pub fn set_quiet(quiet: bool) {
    QUIET.set(quiet);
}

/// Waits until a task has ended.
pub fn join(task: TaskId) {
    while with(|world| world.tasks[task.0].state != State::Ended) {
        sleep(10_000);
    }
}

/// The name of a task.
pub fn name(task: TaskId) -> String {
    with(|world| world.tasks[task.0].name.clone())
}

/// The time.
pub fn now_ns() -> u64 {
    with(|world| world.now_ns)
}

/// The time by the clock of the host that the running task is on; by the true one, if none runs.
pub fn host_now_ns() -> u64 {
    clock().at(now_ns())
}

/// The clock of the host that the running task is on.
pub fn clock() -> HostClock {
    with(|world| world.running.map(|task| world.tasks[task.0].clock).unwrap_or_default())
}

/// Has a task be on a host with another clock.
pub fn set_clock(task: TaskId, clock: HostClock) {
    with(|world| world.tasks[task.0].clock = clock);
}

/// Does what another host does for the running task.
pub fn on_host<R>(clock: HostClock, act: impl FnOnce() -> R) -> R {
    let Some(task) = with(|world| world.running) else { return act() };
    let before = with(|world| std::mem::replace(&mut world.tasks[task.0].clock, clock));
    let result = act();
    set_clock(task, before);
    result
}

/// A random number below `end`.
pub fn random_below(end: u64) -> u64 {
    with(|world| world.random.below(end))
}

/// Lets something happen after so much time.
pub fn after(delay_ns: u64, event: impl FnOnce() + 'static) {
    let mut event = Some(event);
    let once = move || {
        event.take().expect("it happens once")();
        None
    };
    let at_ns = now_ns() + delay_ns;
    with(|world| world.expect(at_ns, Box::new(once)));
}

/// Lets something happen to each of many words, the one of index `i` at `times_ns[i]`; those of one time in
/// their order.
pub fn each_at(times_ns: &[u64], mut event: impl FnMut(usize) + 'static) {
    let Some(begin_ns) = times_ns.iter().copied().min() else { return };
    // Time and index in one word, since most of a run's words come past here.
    let word = |(at_ns, index): (&u64, u64)| {
        assert!(at_ns - begin_ns < 1 << 32 && index < 1 << 32);
        (at_ns - begin_ns) << 32 | index
    };
    let mut order: Vec<u64> = times_ns.iter().zip(0..).map(word).collect();
    order.sort_unstable();
    let mut order = order.into_iter().peekable();
    let series = move || {
        let index = order.next().expect("it happens once a word") as u32;
        event(index as usize);
        order.peek().map(|word| begin_ns + (word >> 32))
    };
    with(|world| world.expect(begin_ns, Box::new(series)));
}

/// The running task.
pub fn current() -> TaskId {
    with(|world| world.running.expect("a task is running"))
}

/// Wakes a task, if it sleeps.
pub fn wake(task: TaskId) {
    with(|world| {
        if let State::Sleeping { .. } = world.tasks[task.0].state {
            world.tasks[task.0].state = State::Ready;
        }
    });
}

/// Keeps a task from running for so much time.
pub fn stop(task: TaskId, for_ns: u64) {
    with(|world| world.tasks[task.0].stopped_until_ns = world.now_ns + for_ns);
}

/// Ends a task where it is, as SIGKILL does a process. Not for the running one.
pub fn kill(task: TaskId) {
    let coroutine = with(|world| {
        world.end(task);
        world.tasks[task.0].coroutine.take()
    });
    // What its stack owns is dropped. None of it touches what others can see.
    unnoticed(|| drop(coroutine));
}

/// Sleeps until somebody wakes the running task, or for so long at most.
pub fn sleep(for_ns: u64) {
    with(|world| {
        let task = world.running.expect("a task is running");
        world.tasks[task.0].state = State::Sleeping { until_ns: world.now_ns.saturating_add(for_ns) };
    });
    suspend();
}

/// Lets others go on for a while.
pub fn give_way() {
    let pause_ns = with(|world| {
        let long = world.random.once_in(world.temper.pauses_a_long_one);
        world.random.below(if long { world.temper.long_pause_ns_max } else { world.temper.pause_ns_max })
    });
    sleep(pause_ns);
}

fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a task can give way");
    // SAFETY: the pointer is that of the running task's own yielder, set when it was resumed or first ran,
    // and lives on the stack of that task, which is the one running now.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

/// What passes before each access to a word.
fn pass(access: Access) {
    if AT_WORK.get() {
        return;
    }
    if QUIET.get() {
        return with(|world| world.now_ns += 1);
    }
    let (due, switch) = with(|world| {
        world.moments += 1;
        world.now_ns += 1 + world.random.below(world.temper.moment_ns_max);
        let odds = match access {
            Access::Load => world.temper.loads_a_switch,
            Access::Store => world.temper.stores_a_switch,
        };
        (world.is_due(), world.random.once_in(odds))
    });
    if due {
        happen();
    }
    if switch {
        give_way();
    }
}

/// Lets everything happen that is due.
fn happen() {
    let next = || with(|world| if world.is_due() { world.events.pop() } else { None });
    while let Some(Reverse(Due { mut event, .. })) = next() {
        if let Some(again_ns) = unnoticed(&mut event) {
            with(|world| world.expect(again_ns, event));
        }
    }
}

/// Adds a task, on the host of the one that runs.
pub fn spawn(name: &str, body: impl FnOnce() + 'static) -> TaskId {
    let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
    // What a coroutine begins with must be small.
    let body: Box<dyn FnOnce()> = Box::new(body);
    let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        YIELDER.set(yielder);
        body();
    });
    let clock = clock();
    with(|world| {
        world.tasks.push(Task {
            name: name.to_string(),
            state: State::Ready,
            clock,
            stopped_until_ns: 0,
            coroutine: Some(coroutine),
        });
        let task = TaskId(world.tasks.len() - 1);
        world.alive.push(task);
        task
    })
}

/// How a run of the scheduler ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Everything that `until` waited for is done.
    Done,
    /// Nothing will ever happen again, but `until` still waits: these tasks sleep without an end.
    Stuck(Vec<String>),
    /// It took more moments than allowed.
    TooLong,
}

/// Makes a world, calls `set_up` in it, and lets time pass until `until` says so.
pub fn run(
    seed: u64,
    temper: Temper,
    moments_max: u64,
    set_up: impl FnOnce(),
    until: impl Fn() -> bool,
) -> (End, u64) {
    let world = World {
        now_ns: 1_000_000_000,
        random: Random::new(seed),
        temper,
        tasks: Vec::new(),
        alive: Vec::new(),
        events: BinaryHeap::new(),
        events_made: 0,
        running: None,
        moments: 0,
    };
    WORLD.with_borrow_mut(|slot| *slot = Some(world));
    moment::set_hook(Some(pass));
    AT_WORK.set(true);
    QUIET.set(false);
    set_up();
    let end = loop {
        happen();
        if until() {
            break End::Done;
        }
        if with(|world| world.moments > moments_max) {
            break End::TooLong;
        }
        match choose() {
            Choice::Task(task) => resume(task),
            Choice::Later => {}
            Choice::Never(names) => break End::Stuck(names),
        }
    };
    let moments = with(|world| world.moments);
    give_up();
    (end, moments)
}

/// Ends a run where it is, also one that a panic has left: tasks that did not end are killed.
pub fn give_up() {
    moment::set_hook(None);
    AT_WORK.set(true);
    let count = WORLD.with_borrow(|world| world.as_ref().map_or(0, |world| world.tasks.len()));
    (0..count).map(TaskId).for_each(kill);
    WORLD.with_borrow_mut(|slot| *slot = None);
}

enum Choice {
    Task(TaskId),
    /// Time went on to the next thing that happens.
    Later,
    Never(Vec<String>),
}

fn choose() -> Choice {
    with(|world| {
        let now = world.now_ns;
        let times = || world.alive.iter().map(|task| (world.tasks[task.0].ready_ns(), *task));
        let ready = || times().filter(|(at_ns, _)| *at_ns <= now).map(|(_, task)| task);
        let count = ready().count();
        if count > 0 {
            let chosen = world.random.below(count as u64) as usize;
            return Choice::Task(ready().nth(chosen).expect("counted"));
        }
        let event = world.events.peek().map(|Reverse(due)| due.at_ns);
        match times().map(|(at_ns, _)| at_ns).chain(event).min().filter(|time| *time < u64::MAX) {
            Some(time) => {
                world.now_ns = world.now_ns.max(time);
                Choice::Later
            }
            None => Choice::Never(world.alive.iter().map(|task| world.tasks[task.0].name.clone()).collect()),
        }
    })
}

fn resume(task: TaskId) {
    let mut coroutine = with(|world| {
        world.running = Some(task);
        world.tasks[task.0].state = State::Ready;
        world.tasks[task.0].coroutine.take().expect("a task that has not ended")
    });
    AT_WORK.set(false);
    let result = coroutine.resume(());
    AT_WORK.set(true);
    with(|world| {
        world.running = None;
        match result {
            CoroutineResult::Yield(()) => world.tasks[task.0].coroutine = Some(coroutine),
            CoroutineResult::Return(()) => world.end(task),
        }
    });
}

/// A value that several tasks of a run share.
pub type Shared<T> = Rc<RefCell<T>>;
