//! Processor time of an operation: of the client, which is this process, and of the server, together.
//!
//! One client does one operation at a time. The kernel's work of carrying a packet over loopback is in the
//! sender's time. Client and server sleep when a block ends, so that the kernel has counted all of it. Beside
//! the times stand two things that decide them: how often the server slept for an operation, and whether the
//! server was on the client's core.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::Size;
use super::caller::Operation;
use super::systems::{BASELINES, OURS, Side, Systems};
use crate::store::Numbers;
use kelix_report::daemon::processor_time;
use kelix_report::interleave::{compared, median, take_blocks};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, figure};

/// The length of a block, and after how long without requests every server sleeps.
const BLOCK: Duration = Duration::from_millis(100);
const ASLEEP: Duration = Duration::from_millis(5);
/// Operations between two looks at the clock.
const OPERATIONS: u64 = 16;
/// Processor time of an operation over TCP, at most, as a multiple of memcached's.
const WANTED: f64 = 1.0;

/// Operations that are measured, with their names in rows.
const MEASURED: [(Operation, &str); 2] = [(Operation::Get, "get"), (Operation::Put, "put")];

/// Findings of the blocks of a side and an operation, beside the time of the whole host.
#[derive(Clone, Default)]
struct Seen {
    client_ns: Vec<f64>,
    sleeps: Vec<f64>,
    same_core: usize,
}

/// Processor time of this process.
pub(crate) fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Number of times that threads of a process went to sleep by themselves.
fn sleeps(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let count = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.filter_map(count).sum()
}

/// The core that a thread ran on last.
fn core(task: &std::path::Path) -> Option<u64> {
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    // Behind the name, which may have spaces, the core is the 37th word.
    stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// The core that the busiest thread of a process ran on last.
fn core_of_busiest(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().map(|task| task.path());
    let time = |task: &std::path::PathBuf| {
        let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    core(&tasks.max_by_key(time)?)
}

/// One block. Returns nanoseconds of the whole host for an operation.
fn block(
    side: &mut Side,
    operation: Operation,
    records: &mut impl Iterator<Item = u64>,
    seen: &mut Seen,
) -> Result<f64, String> {
    std::thread::sleep(ASLEEP);
    let before = (own_time(), processor_time(side.pid), sleeps(side.pid));
    let (began, mut done) = (Instant::now(), 0);
    while began.elapsed() < BLOCK {
        for record in records.take(OPERATIONS as usize) {
            side.caller.run(operation, record)?;
        }
        done += OPERATIONS;
    }
    let client = own_time() - before.0;
    seen.same_core += usize::from(core("/proc/thread-self".as_ref()) == core_of_busiest(side.pid));
    std::thread::sleep(ASLEEP);
    let server = processor_time(side.pid).saturating_sub(before.1);
    let each = |time: Duration| time.as_nanos() as f64 / done as f64;
    seen.client_ns.push(each(client));
    seen.sleeps.push((sleeps(side.pid) - before.2) as f64 / done as f64);
    Ok(each(client + server))
}

/// The rows.
pub(super) fn rows(systems: &Systems, size: Size) -> Result<Vec<Row>, String> {
    let mut sides = systems.sides()?;
    let count = systems.records.count;
    let mut numbers = Numbers(11);
    let mut records = std::iter::from_fn(|| Some(numbers.records(count, 1)[0]));
    let mut seen = vec![[Seen::default(), Seen::default()]; sides.len()];
    let mut blocks = 0;
    let times = take_blocks(size.blocks, 2 * sides.len(), |turn| {
        progress::show(&format!("processor time: block {blocks}"));
        blocks += 1;
        let (side, which) = (turn / 2, turn % 2);
        block(&mut sides[side], MEASURED[which].0, &mut records, &mut seen[side][which])
    })?;
    let told = |side: usize, which: usize| {
        let (all, Seen { client_ns, sleeps, same_core }) = (&times[2 * side + which], &seen[side][which]);
        format!(
            "{} {} us, of which the client {}; slept {} x an operation, on the client's core in \
             {same_core} of {} blocks",
            sides[side].name,
            figure(median(all) / 1e3),
            figure(median(client_ns) / 1e3),
            figure(median(sleeps)),
            client_ns.len()
        )
    };
    let mut rows = Vec::new();
    for (ours, fabric) in ["shm", "tcp"].into_iter().enumerate() {
        for (which, (_, operation)) in MEASURED.iter().enumerate() {
            let baseline = OURS.len() + ours;
            let comparison = compared(&times[2 * ours + which], &times[2 * baseline + which]);
            let others = [ours, baseline].into_iter().chain(OURS.len() + BASELINES.len()..sides.len());
            let told: Vec<String> = others.map(|side| told(side, which)).collect();
            rows.push(Row {
                id: format!("cpu_{fabric}_{operation}").into(),
                name: format!(
                    "processor time of a {operation}, client and server: {} / {}",
                    OURS[ours], BASELINES[ours]
                )
                .into(),
                ours: comparison.ours_ns / 1e3,
                other: Some(comparison.other_ns / 1e3),
                unit: "us",
                ratio: comparison.ratio,
                wanted: None,
                sense: Sense::AtMost,
                note: format!("{}; {}", told.join("; "), comparison.spread()),
            });
        }
    }
    let over_tcp = rows.iter().filter(|row| row.id.starts_with("cpu_tcp_"));
    let worse = over_tcp.max_by(|one, other| one.ratio.total_cmp(&other.ratio)).expect("two rows");
    rows.push(Row {
        id: "tcp_cpu".into(),
        name: "processor time of an operation over TCP / of memcached's".into(),
        wanted: Some(WANTED),
        note: format!("{}, the worse of get and put", worse.id),
        ..worse.clone()
    });
    Ok(rows)
}
