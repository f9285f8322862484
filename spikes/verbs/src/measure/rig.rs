//! Two ends of a connection in one process, and small helpers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_image::Span;
use kelix_verbs_spike::ffi::constant::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use kelix_verbs_spike::ffi::{Sge, Wc};
use kelix_verbs_spike::verbs::{Completions, Device, PATIENCE, Pair, Patience, Region, Remote, Work};

/// Everything that a region may allow.
pub const ALL: i32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;

/// One end.
pub struct End {
    pub pair: Pair,
    pub sends: Arc<Completions>,
    pub receives: Arc<Completions>,
    pub device: Arc<Device>,
}

impl End {
    pub fn new() -> End {
        let device = Device::open().expect("a verbs device");
        let sends = Completions::new(&device, 1024).expect("a completion queue");
        let receives = Completions::new(&device, 1024).expect("a completion queue");
        let pair = Pair::new(&sends, &receives, (256, 256), 256).expect("a queue pair");
        End { pair, sends, receives, device }
    }

    /// A pair of ends, connected.
    pub fn pair(patience: Patience) -> (End, End) {
        let (a, b) = (End::new(), End::new());
        a.pair.connect(b.pair.address(), patience).expect("a connection");
        b.pair.connect(a.pair.address(), patience).expect("a connection");
        (a, b)
    }

    pub fn connected() -> (End, End) {
        End::pair(PATIENCE)
    }

    /// Registered memory of so many words.
    pub fn region(&self, words: usize) -> Region {
        Region::register(&self.device, Span::private(words as u64 * 8), ALL).expect("memory to register")
    }

    /// Posts work with one doorbell; identifiers are the positions.
    pub fn post(&self, work: &[(Work, Sge, Remote)]) {
        let mut work: Vec<_> = work
            .iter()
            .enumerate()
            .map(|(id, &(work, local, remote))| (id as u64, work, local, remote))
            .collect();
        // SAFETY: the measurements keep their regions until all completions have come or the pair has gone.
        unsafe { self.pair.post(&mut work) }.expect("a queue with room");
    }

    /// Waits for completions: identifier and status, or nothing when time is over.
    pub fn completions(&self, count: usize, patience: Duration) -> Vec<(u64, i32)> {
        let (mut all, begin) = (Vec::new(), Instant::now());
        let mut some = [Wc::default(); 32];
        while all.len() < count && begin.elapsed() < patience {
            all.extend(self.sends.poll(&mut some).iter().map(|one| (one.wr_id, one.status)));
        }
        all
    }

    /// Posts work and waits until all of it is done without an error.
    pub fn done(&self, work: &[(Work, Sge, Remote)]) {
        self.post(work);
        let over = self.completions(work.len(), Duration::from_secs(20));
        assert!(over.len() == work.len() && over.iter().all(|(_, status)| *status == 0), "{over:?}");
    }

    /// The library's words for what has come.
    pub fn names(&self, completions: &[(u64, i32)]) -> Vec<String> {
        completions.iter().map(|(id, status)| format!("{id}: {}", self.device.status_name(*status))).collect()
    }
}

/// The middle one, in microseconds.
pub fn median_us(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / 1000.0
}

/// How long something takes, the middle one of so many.
pub fn timed(count: usize, mut what: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let begin = Instant::now();
            what();
            begin.elapsed()
        })
        .collect();
    median_us(&mut times)
}

/// A number that holds the count in both halves, so that no mixture of two of them looks like one.
pub fn doubled(count: u64) -> u64 {
    count << 32 | count
}

pub fn is_torn(word: u64) -> bool {
    word >> 32 != word & 0xffff_ffff
}
